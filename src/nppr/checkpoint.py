"""Finished blocks of a measurement, kept in a file so that nothing computed is lost."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from nppr.errors import RunFolderError
from nppr.tensor_files import write_tensors
from nppr.types import FloatArray, IntArray

__all__ = ["Blocks", "FileStore", "Store"]


@dataclass(eq=False)
class Blocks:
    """How far a measurement is: per input the right draws and the finished draw blocks.

    `sums` `(N, M)` are logarithms of what was added up from the logits, M = 0 unless a source looks.
    """

    right: IntArray
    finished: IntArray
    calls: int = 0
    sums: FloatArray = field(default_factory=lambda: np.empty((0, 0)))

    @classmethod
    def none(cls, inputs: int) -> Blocks:
        """Nothing measured yet."""
        return cls(np.zeros(inputs, np.int64), np.zeros(inputs, np.int64))


class Store(Protocol):
    """Where a measurement keeps its finished blocks."""

    def load(self, inputs: int) -> Blocks | None:
        """The blocks kept so far, or None."""

    def save(self, blocks: Blocks, *, now: bool) -> None:
        """Keep the blocks: at once, or when the last time is long enough ago."""


@dataclass
class FileStore:
    """A safetensors file that is replaced whole, at most every `seconds`.

    `identity` says what was measured; blocks of anything else are refused.
    """

    path: Path
    identity: str = ""
    seconds: float = 2.0
    _saved: float = field(default_factory=time.monotonic, repr=False)

    def load(self, inputs: int) -> Blocks | None:
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="np") as file:
                right, finished = file.get_tensor("right"), file.get_tensor("finished")
                sums = file.get_tensor("sums") if "sums" in file.keys() else np.empty((0, 0))  # noqa: SIM118
                metadata = file.metadata()
                calls, identity = int(metadata["calls"]), metadata["identity"]
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise RunFolderError(
                f"`resume` must find whole files, got {self.path} which cannot be read: {error}."
                " Delete it to measure that source again."
            ) from error
        if right.shape != (inputs,) or finished.shape != (inputs,) or identity != self.identity:
            raise RunFolderError(
                f"`resume` must find blocks of this run, {self.path} is of another one."
                " Delete it to measure that source again."
            )
        return Blocks(right, finished, calls, sums)

    def save(self, blocks: Blocks, *, now: bool) -> None:
        if not now and time.monotonic() - self._saved < self.seconds:
            return
        arrays = {"right": blocks.right, "finished": blocks.finished}
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if blocks.sums.size:
            tensors["sums"] = torch.from_numpy(blocks.sums)
        metadata = {"calls": str(blocks.calls), "identity": self.identity}
        write_tensors(self.path, tensors, metadata)
        self._saved = time.monotonic()
