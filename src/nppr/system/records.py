"""Files of tensors with a record: written completely or not at all, and byte-identical if equal.

A file is safetensors. Its header holds the record as JSON and a checksum of record and tensors,
which is verified on reading. Reading a file never executes or unpickles anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel
from safetensors import SafetensorError, safe_open

from nppr.errors import RecordError, RunFolderError, VanishedError, WriteError
from nppr.system.bounded import require_regular

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)

UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, MemoryError,
    RuntimeError, SafetensorError,
)  # fmt: skip
"""Exceptions that reading a crafted or damaged file can raise."""

_PARTIAL = re.compile(r"\.[0-9a-f]{8}\.partial\Z")
"""Suffix of a file until it is complete."""


def write_record(
    path: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any] | BaseModel
) -> None:
    """Write tensors by name and their record; an interrupted write leaves the earlier file intact."""
    text = _json(record)
    write_tensors(path, tensors, {"record": text, "checksum": compute_checksum(tensors, text)})


def read_record(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors by name and their record, or raise `RecordError` with a one-line reason."""
    try:
        tensors, metadata = read_tensors(path)
        if metadata["checksum"] != compute_checksum(tensors, metadata["record"]):
            raise ValueError("its checksum does not match")
        return tensors, dict(json.loads(metadata["record"]))
    except UNREADABLE as error:
        raise RecordError(shorten_error(error)) from error


def read_undamaged(path: Path, remedy: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Read a file that a run keeps for `resume`; return None if it is damaged.

    A damaged file produces a warning that ends with the `remedy`, and the run repeats that work. A
    file that this process may not read, or lacks memory for, is an error.
    """
    try:
        return read_record(path)
    except RecordError as error:
        if isinstance(error.__cause__, (OSError, MemoryError)):
            raise RunFolderError(
                f"`resume` must find files that can be read, got {path}: {error}."
            ) from error
        logger.warning("%s is damaged (%s): %s", path, error, remedy)
        return None


def compute_checksum(
    tensors: Mapping[str, Tensor], record: Mapping[str, Any] | BaseModel | str
) -> str:
    """Return the SHA-256 that `write_record` stores for these tensors and this record, or its text."""
    digest = hashlib.sha256((record if isinstance(record, str) else _json(record)).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        if tensor.numel():  # an empty tensor has no bytes to view
            flat = tensor.detach().cpu().contiguous().flatten()
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def shorten_error(error: BaseException) -> str:
    """Return the text of an error in one line, short enough for a message."""
    text = f"no entry {error}" if isinstance(error, KeyError) else str(error)
    return " ".join(text.split())[:200] or type(error).__name__


def add_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with a prefix before each name."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def take_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with a prefix, and remove the prefix."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def pack_optimiser(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state tensors of an optimiser by NUMBER/NAME, the parameter and its state."""
    return {
        f"{number}/{name}": tensor
        for number, memory in optimiser.state_dict()["state"].items()
        for name, tensor in memory.items()
        if isinstance(tensor, torch.Tensor)
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state that `pack_optimiser` returned, for the same parameters."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition("/")
        state.setdefault(int(number), {})[name] = tensor
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and text by name of any safetensors file."""
    require_regular(path)
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, dict(file.metadata() or {})


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and text by name without a record or checksum, completely or not at all."""
    from safetensors.torch import save  # this loads PyTorch

    # Clones, because safetensors refuses tensors that share storage.
    content = save({name: tensor.detach().clone() for name, tensor in tensors.items()})
    _write(path, _with_metadata(content, metadata), folders="innermost")


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a result file completely or not at all; raise `WriteError` if that fails."""
    _write(Path(path), content.encode() if isinstance(content, str) else content, folders="all")


def write_in_folder(path: Path, content: str) -> None:
    """Write a text file into an existing folder; a folder that was removed is not recreated."""
    _write(path, content.encode(), folders="none")


def find_partial_files(paths: Iterable[Path]) -> list[Path]:
    """Return the partial files left by interrupted writes of these files."""
    wanted = set(paths)
    found: list[Path] = []
    for folder in {path.parent for path in wanted}:
        if folder.is_dir():
            beside = [(each, _PARTIAL.sub("", each.name)) for each in folder.iterdir()]
            found += [e for e, name in beside if name != e.name and folder / name in wanted]
    return found


def _write(path: Path, content: bytes, *, folders: str) -> None:
    """Write a file so that an interruption leaves the earlier file intact.

    A link is replaced, not followed. The content reaches the disk before the file gets its name,
    and the name before this returns, so after a loss of power the file has either the old or the
    new content. A partial file has a random name, so that two processes never write to the same
    file. `folders` states which missing folders are made: all, the innermost, or none.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    try:
        if folders != "none":
            path.parent.mkdir(parents=folders == "all", exist_ok=True)
        try:
            with partial.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            _sync_folder(path.parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    except OSError as error:
        kind = VanishedError if isinstance(error, FileNotFoundError) else WriteError
        raise kind(
            f"`out` must be a place that can be written, got {str(path)!r}:"
            f" {error.strerror or error}."
        ) from error


def _sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, on systems that can sync a folder."""
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _json(record: Mapping[str, Any] | BaseModel) -> str:
    plain = record.model_dump(mode="json") if isinstance(record, BaseModel) else record
    return json.dumps(plain, sort_keys=True)


def _with_metadata(content: bytes, metadata: Mapping[str, str]) -> bytes:
    """Put the metadata into the header, sorted; the library would write it in a random order.

    The format is the length of the header in 8 bytes, the header as JSON padded with spaces to a
    multiple of 8, and the bytes of the tensors.
    """
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = dict(sorted(metadata.items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]
