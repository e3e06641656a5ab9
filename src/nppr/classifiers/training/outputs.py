"""The files of a training: weights, log and, until it is finished, the checkpoint."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nppr.classifiers.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from nppr.classifiers.weights import Weights, write_weights
from nppr.errors import RunFolderError

__all__ = ["Outputs"]

SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Outputs:
    """The weights file, and two files beside it that carry its name.

    >>> outputs = Outputs(Path("mine.safetensors"))
    >>> outputs.log.name, outputs.checkpoint.name
    ('mine.json', 'mine.checkpoint.safetensors')
    """

    weights: Path

    @property
    def log(self) -> Path:
        """Settings, epochs and the accuracy at the end."""
        return self.weights.with_name(self._stem + ".json")

    @property
    def checkpoint(self) -> Path:
        """The state of an unfinished training."""
        return self.weights.with_name(self._stem + ".checkpoint" + SUFFIX)

    @property
    def _stem(self) -> str:
        return self.weights.name.removesuffix(SUFFIX)

    def begin(
        self, settings: Mapping[str, Any], *, resume: bool, overwrite: bool
    ) -> Checkpoint | None:
        """The checkpoint to go on from, None to start, or why neither can be done."""
        self._require_writable()
        if overwrite and not resume:
            return None
        if not self.checkpoint.exists():
            self._require_free()
            return None
        if not resume:
            raise RunFolderError(
                f"`out` has an unfinished training beside it, {str(self.checkpoint)!r}."
                " Add --resume to continue it, or --overwrite to start again."
            )
        checkpoint = load_checkpoint(self.checkpoint)
        before, now = checkpoint.settings, json.loads(json.dumps(settings))
        names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        if names:
            raise RunFolderError(
                f"`resume` must have the settings of {str(self.checkpoint)!r}, got"
                f" {'; '.join(_difference(name, before, now) for name in names)}."
                " Give the same settings, or --overwrite instead of --resume to start again."
            )
        return checkpoint

    def _require_free(self) -> None:
        for path in (self.weights, self.log):
            if path.exists():
                raise RunFolderError(
                    f"`out` must be free, {str(path)!r} exists. Choose another file, or add"
                    " --overwrite to replace it."
                )

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint."""
        with self._writing():
            save_checkpoint(self.checkpoint, checkpoint)

    def finish(self, weights: Weights, log: Mapping[str, Any]) -> None:
        """Write log and weights; only then is the checkpoint of no more use."""
        with self._writing():
            partial = self.log.with_name(self.log.name + ".partial")
            partial.write_text(json.dumps(log, indent=2) + "\n", encoding="utf-8")
            os.replace(partial, self.log)
            write_weights(self.weights, weights)
            self.checkpoint.unlink(missing_ok=True)

    def _require_writable(self) -> None:
        """Find out now, not after hours of training."""
        if self.weights.is_dir():
            raise RunFolderError(
                f"`out` must be a file, got {str(self.weights)!r}, which is a folder."
                f" Example: --out {self.weights / 'mine'}{SUFFIX}"
            )
        with self._writing():
            self.weights.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.weights.parent):
                pass

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise RunFolderError(
                f"`out` must be a file that can be written, got {str(self.weights)!r}: {reason}."
            ) from error


def _difference(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    return f"another {name} ({now.get(name)!r} instead of {before.get(name)!r})"
