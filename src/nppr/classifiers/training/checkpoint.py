"""A training that can be continued: network, optimiser and standing in one file.

The file is safetensors: `model/NAME` for the network's tensors, `optimiser/NUMBER/NAME` for what the
optimiser remembers of each parameter. The header holds JSON: the settings it belongs to, the
normalisation, the standing, and a checksum of the tensors.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from nppr.classifiers.training.examples import Normalisation
from nppr.classifiers.training.standing import Standing
from nppr.errors import RunFolderError
from nppr.tensor_files import write_tensors

__all__ = ["Checkpoint", "load_checkpoint", "optimiser_tensors", "save_checkpoint"]

FORMAT = 1


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a checkpoint file holds; `settings` are those of the training it belongs to.

    `threads` is the number it runs with: another number adds in another order and rounds otherwise.
    """

    settings: Mapping[str, Any]
    threads: int
    normalisation: Normalisation
    standing: Standing
    tensors: Mapping[str, Tensor]

    @classmethod
    def of(
        cls,
        settings: Mapping[str, Any],
        normalisation: Normalisation,
        standing: Standing,
        module: nn.Module,
        optimiser: torch.optim.Optimizer,
    ) -> Checkpoint:
        """The state that a training is in, run by as many threads as now."""
        threads = torch.get_num_threads()
        tensors = {f"model/{name}": tensor for name, tensor in module.state_dict().items()}
        tensors.update(optimiser_tensors(optimiser))
        return cls(settings, threads, normalisation, standing, tensors)

    def restore(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        """Bring a network and an optimiser of the same settings into this state."""
        state: dict[int, dict[str, Tensor]] = {}
        weights: dict[str, Tensor] = {}
        for name, tensor in self.tensors.items():
            kind, _, rest = name.partition("/")
            if kind == "model":
                weights[rest] = tensor
            else:
                number, _, own = rest.partition("/")
                state.setdefault(int(number), {})[own] = tensor
        module.load_state_dict(weights)
        groups = optimiser.state_dict()["param_groups"]
        optimiser.load_state_dict({"state": state, "param_groups": groups})


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What an optimiser remembers, by parameter number and name."""
    return {
        f"optimiser/{number}/{name}": tensor
        for number, memory in optimiser.state_dict()["state"].items()
        for name, tensor in memory.items()
        if isinstance(tensor, Tensor)
    }


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint file, whole or not at all."""
    content = {
        "format": FORMAT,
        "settings": dict(checkpoint.settings),
        "threads": checkpoint.threads,
        "mean": checkpoint.normalisation.mean,
        "std": checkpoint.normalisation.std,
        "standing": checkpoint.standing.to_json(),
        "checksum": _checksum(checkpoint.tensors),
    }
    write_tensors(path, checkpoint.tensors, {"training": json.dumps(content, sort_keys=True)})


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint file, or say why it cannot be continued from."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            content = json.loads((file.metadata() or {})["training"])
        if content["format"] != FORMAT:
            raise ValueError(f"it is of format {content['format']}, not {FORMAT}")
        if content["checksum"] != _checksum(tensors):
            raise ValueError("its checksum is wrong")
        normalisation = Normalisation(tuple(content["mean"]), tuple(content["std"]))
        standing = Standing.from_json(content["standing"])
        settings, threads = dict(content["settings"]), int(content["threads"])
        return Checkpoint(settings, threads, normalisation, standing, tensors)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"`resume` must find a whole checkpoint, got {str(path)!r} which cannot be read:"
            f" {error}. Add --overwrite instead of --resume to start again."
        ) from error


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    """CRC-32 of names and bytes: it finds damage, which is all it is for."""
    value = 0
    for name, tensor in sorted(tensors.items()):
        raw = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        value = zlib.crc32(raw.numpy().data, zlib.crc32(name.encode(), value))
    return value
