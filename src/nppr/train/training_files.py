"""The files of a training: weights, log and, until it has ended, a checkpoint.

The checkpoint is a safetensors file. Its header holds everything except the tensors as JSON, with a
checksum of the tensors.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from filelock import FileLock, Timeout
from pydantic import BaseModel, Field
from torch import Tensor, nn

from nppr.errors import RecordError, RunFolderError
from nppr.system.records import (
    UNREADABLE,
    find_partial_files,
    read_record,
    restore_optimiser,
    shorten_error,
    take_prefix,
    write_record,
    write_tensors,
    write_whole,
)
from nppr.train.training_settings import Value

SUFFIX = ".safetensors"


@dataclass(frozen=True)
class EpochResult:
    """A finished epoch: mean loss and accuracy over its batches, perturbed as for training."""

    epoch: int
    loss: float
    accuracy: float


class TrainingStanding(BaseModel, defer_build=True):
    """The current epoch (from 1), its finished steps and their sums, and the finished epochs."""

    epoch: int = 1
    step: int = 0
    seen: int = 0
    correct: int = 0
    loss: float = 0.0
    finished: list[EpochResult] = []

    def add_step(self, loss: float, correct: int, images: int) -> None:
        """Add a step with this mean loss over its images."""
        self.step += 1
        self.seen += images
        self.correct += correct
        self.loss += loss * images

    @property
    def result(self) -> EpochResult:
        """The current epoch so far."""
        return EpochResult(self.epoch, self.loss / self.seen, self.correct / self.seen)

    def next_epoch(self) -> TrainingStanding:
        """Return the start of the next epoch."""
        return TrainingStanding(epoch=self.epoch + 1, finished=[*self.finished, self.result])


class Checkpoint(BaseModel, arbitrary_types_allowed=True, defer_build=True):
    """The state of a training with these `settings`; a resume has its `threads`, for equal rounding.

    `tensors` belong to the network (`model/NAME`) and the optimiser (`optimiser/NUMBER/NAME`).
    """

    format: Literal[1] = 1
    settings: dict[str, Value]
    threads: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    standing: TrainingStanding
    tensors: dict[str, Tensor] = Field(exclude=True)

    def restore(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        """Load the state into a network and an optimiser of the same settings."""
        module.load_state_dict(take_prefix("model/", self.tensors))
        restore_optimiser(optimiser, take_prefix("optimiser/", self.tensors))

    def save(self, path: Path) -> None:
        """Replace the checkpoint file, completely or not at all."""
        write_record(path, self.tensors, self)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read a checkpoint file; raise `RunFolderError` if it is damaged."""
        try:
            tensors, content = read_record(path)
            return cls(**content, tensors=tensors)
        except (RecordError, ValueError, TypeError) as error:
            raise RunFolderError(
                f"`resume` must find a complete checkpoint, got {str(path)!r} which cannot be read:"
                f" {shorten_error(error)}. Add --overwrite instead of --resume to start again."
            ) from error


@dataclass(frozen=True)
class Outputs:
    """The weights file, and the log and checkpoint beside it.

    >>> outputs = Outputs(Path("mine.safetensors"))
    >>> outputs.log.name, outputs.checkpoint.name
    ('mine.json', 'mine.checkpoint.safetensors')
    """

    weights: Path

    @property
    def log(self) -> Path:
        """File with the settings, the epochs and the final accuracy."""
        return self.weights.with_name(self.weights.name.removesuffix(SUFFIX) + ".json")

    @property
    def checkpoint(self) -> Path:
        """File with the state of an unfinished training."""
        return self.log.with_suffix(".checkpoint" + SUFFIX)

    def begin(
        self, settings: Mapping[str, Value], *, resume: bool, overwrite: bool
    ) -> Checkpoint | None:
        """Return the checkpoint to continue from, or None to start.

        Raise `RunFolderError` if the files belong to another training.
        """
        if overwrite and not resume:
            return None
        if not self.checkpoint.exists():
            for path in (self.weights, self.log):
                if path.exists():
                    raise RunFolderError(
                        f"`out` must be free, {str(path)!r} exists. Choose another file, or add"
                        " --overwrite to replace it."
                    )
            return None
        if not resume:
            raise RunFolderError(
                f"`out` has an unfinished training beside it, {str(self.checkpoint)!r}."
                " Add --resume to continue it, or --overwrite to start again."
            )
        checkpoint = Checkpoint.load(self.checkpoint)
        before = checkpoint.settings
        differences = [
            f"{name} {settings.get(name)!r} instead of {before.get(name)!r}"
            for name in sorted({*before, *settings})
            if before.get(name) != settings.get(name)
        ]
        if differences:
            raise RunFolderError(
                f"`resume` must have the settings of {str(self.checkpoint)!r}, got"
                f" {'; '.join(differences)}."
                " Give the same settings, or --overwrite instead of --resume to start again."
            )
        return checkpoint

    def read_finished(
        self, settings: Mapping[str, Value]
    ) -> tuple[tuple[EpochResult, ...], float] | None:
        """Return epochs and accuracy if a training with these settings has ended."""
        if self.checkpoint.exists() or not self.weights.exists():
            return None
        try:
            log = json.loads(self.log.read_text(encoding="utf-8"))
            if log["settings"] != settings:
                return None
            epochs = tuple(EpochResult(**each) for each in log["train"]["epochs"])
            return epochs, float(log["evaluate"]["accuracy"])
        except UNREADABLE:
            return None

    def finish(
        self, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], log: Mapping[str, Any]
    ) -> None:
        """Write log and weights, then remove the checkpoint."""
        write_whole(self.log, json.dumps(log, indent=2) + "\n")
        write_tensors(self.weights, tensors, metadata)
        self.checkpoint.unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training to the same file; remove leftovers of a killed process.

        Raise `RunFolderError` before hours of training if files cannot be written.
        """
        if self.weights.is_dir():
            raise RunFolderError(
                f"`out` must be a file, got {str(self.weights)!r}, which is a folder."
                f" Example: --out {self.weights / 'mine'}{SUFFIX}"
            )
        lock = FileLock(self.log.with_suffix(".lock"))
        try:
            self.weights.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.weights.parent):
                lock.acquire(blocking=False)
        except Timeout as error:
            raise RunFolderError(
                f"`out` must be a file that no other process trains to, {str(self.weights)!r} is"
                " in use. Wait until that training has ended, or choose another file."
            ) from error
        except OSError as error:
            raise RunFolderError(
                f"`out` must be a file that can be written, got {str(self.weights)!r}:"
                f" {error.strerror or error}."
            ) from error
        try:
            for path in find_partial_files([self.weights, self.log, self.checkpoint]):
                path.unlink(missing_ok=True)
            yield
        finally:
            with suppress(OSError):  # Windows keeps an open file, and filelock removes it then
                os.unlink(lock.lock_file)
            lock.release()
