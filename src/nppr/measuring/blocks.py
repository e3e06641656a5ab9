"""Finished blocks of a measurement, stored in a file so that no work is lost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from nppr.core.tally import ByteArray, FloatArray, IntArray
from nppr.errors import RecordError, RunFolderError
from nppr.system.records import read_record, read_undamaged, shorten_error, write_record

COUNT_ARRAYS = ("correct", "finished", "calls")
OPTIONAL_ARRAYS = {"sums": -np.inf, "outcomes": 0, "audit": 0}
"""Arrays that only some sources fill, with their values before the measurement."""


@dataclass(eq=False)
class Blocks:
    """Progress of a measurement: correct draws, finished draw blocks and calls of each input.

    `sums` `(N, M)` are logarithms of sums over the logits. `outcomes` `(N, draws / 8)` has one bit
    per draw, 1 if correct. Most sources have neither. `audit` `(N, 4)` counts the decisions that a
    coarse copy of the model took alone, those repeated, and those contradicted; its last column is
    1 once a contradiction requires exact counts.
    """

    correct: IntArray
    finished: IntArray
    calls: IntArray
    sums: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    outcomes: ByteArray = field(default_factory=lambda: np.empty((0, 0), np.uint8))
    audit: IntArray = field(default_factory=lambda: np.empty((0, 0), np.int64))

    @property
    def is_contradicted(self) -> bool:
        """Whether the model contradicted a decision that still counts."""
        return bool(self.audit.size and self.audit[:, 2].any())

    @property
    def must_be_exact(self) -> bool:
        """Whether earlier counts were discarded, so that the model decides every draw."""
        return bool(self.audit.size and self.audit[:, 3].any())

    @classmethod
    def discarded(cls, inputs: int) -> Blocks:
        """Return empty counts that must be filled exactly, without screening."""
        blocks = cls.none(inputs)
        blocks.audit = np.zeros((inputs, 4), np.int64)
        blocks.audit[:, 3] = 1
        return blocks

    @classmethod
    def none(cls, inputs: int) -> Blocks:
        correct, finished, calls = np.zeros((3, inputs), np.int64)
        return cls(correct, finished, calls)

    @classmethod
    def merged(cls, parts: Sequence[Blocks]) -> Blocks:
        """Keep the most advanced state of each input; counts depend only on progress."""
        furthest = np.stack([each.finished for each in parts]).argmax(0)
        inputs = np.arange(len(furthest))
        merged = cls(
            *(
                np.stack([getattr(each, name) for each in parts])[furthest, inputs]
                for name in COUNT_ARRAYS
            )
        )
        for name, nothing in OPTIONAL_ARRAYS.items():
            widest = max((getattr(each, name) for each in parts), key=lambda each: each.size)
            if widest.size:
                empty = np.full_like(widest, nothing)
                arrays = [getattr(each, name) for each in parts]
                full = np.stack([each if each.size else empty for each in arrays])
                setattr(merged, name, full[furthest, inputs])
        return merged

    def of(self, rows: IntArray) -> Blocks:
        found = Blocks(*(getattr(self, name)[rows] for name in COUNT_ARRAYS))
        for name in OPTIONAL_ARRAYS:
            if getattr(self, name).size:
                setattr(found, name, getattr(self, name)[rows])
        return found

    def among(self, rows: IntArray, inputs: int) -> Blocks:
        """Return these blocks at the places `rows` among all inputs."""
        found = Blocks.none(inputs)
        found.put(rows, self)
        return found

    def put(self, rows: IntArray, blocks: Blocks) -> None:
        for name in COUNT_ARRAYS:
            getattr(self, name)[rows] = getattr(blocks, name)
        for name, nothing in OPTIONAL_ARRAYS.items():
            given = getattr(blocks, name)
            if given.size:
                if not getattr(self, name).size:
                    shape = (len(self.correct), given.shape[1])
                    setattr(self, name, np.full(shape, nothing, given.dtype))
                getattr(self, name)[rows] = given


class Store(Protocol):
    """Storage for the finished blocks of a measurement."""

    def load(self, inputs: int) -> Blocks | None:
        """Return the blocks stored so far, or None."""

    def save(self, blocks: Blocks, *, now: bool) -> None:
        """Save the blocks: at once if `now`, otherwise only if the last save is old enough."""


@dataclass
class FileStore:
    """A safetensors file, replaced as a whole every few `seconds`; another `identity` is refused."""

    path: Path
    identity: str = ""
    seconds: float = 2.0
    _saved: float = field(default_factory=time.monotonic, repr=False)

    def load(self, inputs: int) -> Blocks | None:
        if not self.path.exists():
            return None
        content = read_undamaged(self.path, "its draws are measured again")
        if content is None:  # damaged
            return None
        tensors, record = content
        try:
            arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
            correct, finished, calls = (arrays[name] for name in COUNT_ARRAYS)
            found, identity = Blocks(correct, finished, calls), record["identity"]
        except (KeyError, TypeError) as error:
            raise RunFolderError(
                f"`resume` must find complete files, got {self.path}, which cannot be read:"
                f" {shorten_error(error)}. Delete it to measure that source again."
            ) from error
        sound = all(
            each.shape == (inputs,) and each.dtype == np.int64 and bool((each >= 0).all())
            for each in (correct, finished, calls)
        )
        for name in OPTIONAL_ARRAYS:
            if name in arrays:
                kept = arrays[name]
                sound &= kept.shape[:1] == (inputs,) and kept.ndim == 2
                sound &= kept.dtype == getattr(found, name).dtype
                sound &= not (np.isnan(kept) | np.isposinf(kept)).any()
                setattr(found, name, kept)
        if not sound or identity != self.identity:
            raise RunFolderError(
                f"`resume` must find blocks of this run, {self.path} is of another one."
                " Delete it to measure that source again."
            )
        return found

    def save(self, blocks: Blocks, *, now: bool) -> None:
        if not now and time.monotonic() - self._saved < self.seconds:
            return
        tensors = {name: torch.from_numpy(getattr(blocks, name)) for name in COUNT_ARRAYS}
        for name in OPTIONAL_ARRAYS:
            if getattr(blocks, name).size:
                tensors[name] = torch.from_numpy(getattr(blocks, name))
        write_record(self.path, tensors, {"identity": self.identity})
        self._saved = time.monotonic()

    def discard(self) -> None:
        """Remove the stored blocks of this measurement; leave a link or another measurement's file."""
        if self.path.is_symlink():
            return
        with contextlib.suppress(RecordError):
            if read_record(self.path)[1].get("identity") == self.identity:
                self.path.unlink()


@dataclass
class GrowingStore:
    """Blocks of some inputs, stored as blocks of all inputs; `rows` are their places among all.

    A measurement with more inputs or draws can thus continue a smaller one. The blocks are stored
    in `file`, or without a file in `held` while the process runs.
    """

    rows: IntArray
    inputs: int
    file: Store | None = None
    held: Blocks | None = field(default=None, repr=False)

    def load(self, inputs: int) -> Blocks | None:
        held = self.held = self.file.load(self.inputs) if self.file else self.held
        return held.of(self.rows) if held is not None else None

    def save(self, blocks: Blocks, *, now: bool) -> None:
        self.held = self.held or Blocks.none(self.inputs)
        self.held.put(self.rows, blocks)
        if self.file:
            self.file.save(self.held, now=now)
