"""safetensors files that are written whole or not at all, and the same bytes for the same content."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor
from torch.optim import Optimizer

__all__ = ["load_optimiser", "optimiser_tensors", "read_tensors", "write_tensors"]


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and text by name; an interrupted write leaves the file that was there."""
    # Clones, because safetensors refuses tensors that share storage.
    content = save({name: tensor.detach().clone() for name, tensor in tensors.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(_with_metadata(content, metadata))
    os.replace(partial, path)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and text by name."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, dict(file.metadata() or {})


def _with_metadata(content: bytes, metadata: Mapping[str, str]) -> bytes:
    """Put the metadata into the header, sorted: the library would write it in a random order.

    The format is the header's length in 8 bytes, the header as JSON padded with spaces to a multiple
    of 8, and the tensors' bytes.
    """
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = dict(sorted(metadata.items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def optimiser_tensors(optimiser: Optimizer) -> dict[str, Tensor]:
    """What an optimiser remembers, as `optimiser/NUMBER/NAME` by parameter number and name."""
    return {
        f"optimiser/{number}/{name}": tensor
        for number, memory in optimiser.state_dict()["state"].items()
        for name, tensor in memory.items()
        if isinstance(tensor, Tensor)
    }


def load_optimiser(optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimiser of the same parameters the memory among `tensors`; others are left out."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition("/")
        if kind == "optimiser":
            number, _, own = rest.partition("/")
            state.setdefault(int(number), {})[own] = tensor
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})
