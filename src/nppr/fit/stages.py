"""Finished stages of a search, kept in files so that a resume does not fit them again."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from nppr.distributed import first, world
from nppr.distributions import Distribution, Family, Rule
from nppr.errors import RunFolderError
from nppr.fit.loop import History
from nppr.fit.state import FitFile
from nppr.tensor_files import write_tensors

__all__ = ["Finished", "StageFiles"]

ROLES = ("fitted", "selected")


@dataclass(frozen=True, eq=False)
class Finished:
    """A stage that is done: the values on select and the name of what was selected.

    `fitted` is what was selected before it was sharpened: children start there. Where a parent was
    kept, both are the parent's.
    """

    stage: str
    name: str
    fitted: Distribution
    selected: Distribution
    history: History
    values: dict[str, float]
    references: dict[str, Any]
    fit_calls: int
    forward_calls: int
    value: float | None

    def record(self) -> dict[str, Any]:
        """The stage in the report."""
        return {
            "stage": self.stage,
            "selected": self.name,
            "dependency": self.fitted.family.dependency.value,
            "components": self.fitted.family.components,
            "floor": self.fitted.family.floor,
            "select_values": self.values,
            "fit_calls": self.fit_calls,
            "forward_calls": self.forward_calls,
            "loss": [round(value, 6) for value in self.history.loss],
            "running_pr": [round(value, 6) for value in self.history.pr],
        }


@dataclass(frozen=True)
class StageFiles:
    """The files of one stage in a run folder, or none without a folder."""

    folder: Path | None
    stage: str
    identity: str

    def state(self) -> FitFile | None:
        """Where a fit under way is kept."""
        path = self._path("state")
        return None if path is None else FitFile(path, f"{self.identity} {self.stage}")

    def save(self, finished: Finished) -> None:
        """Keep a finished stage; its state is not needed any more."""
        path = self._path("done")
        if path is None or not world().is_first:
            return
        stage = {
            "stage": finished.stage,
            "name": finished.name,
            "fitted": _packed(finished.fitted),
            "selected": _packed(finished.selected),
            "loss": finished.history.loss,
            "pr": finished.history.pr,
            "values": finished.values,
            "references": finished.references,
            "fit_calls": finished.fit_calls,
            "forward_calls": finished.forward_calls,
            "value": finished.value,
        }
        tensors = {
            f"{role}/{name}": value
            for role in ROLES
            for name, value in getattr(finished, role).state_dict().items()
        }
        identity = f"{self.identity} {self.stage}"
        metadata = {"identity": identity, "stage": json.dumps(stage, sort_keys=True)}
        write_tensors(path, tensors, metadata)
        state = self.state()
        if state is not None:
            state.remove()

    def load(self, device: torch.device) -> Finished | None:
        """The finished stage, if it is there; of several ranks the first reads it."""
        found = first(self._read)
        if found is None:
            return None
        tensors, stage = found
        try:
            return _finished(json.loads(stage), tensors, device)
        except (KeyError, ValueError, RuntimeError, TypeError) as error:
            raise self._unreadable(error) from error

    def _read(self) -> tuple[dict[str, Tensor], str] | None:
        path = self._path("done")
        if path is None or not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if metadata["identity"] != f"{self.identity} {self.stage}":
                raise ValueError("it is of another run")
            return tensors, metadata["stage"]
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> RunFolderError:
        return RunFolderError(
            f"`resume` must find whole files, got {self._path('done')} which cannot be read:"
            f" {' '.join(str(error).split())[:160]}. Delete it to fit that stage again."
        )

    def _path(self, kind: str) -> Path | None:
        if self.folder is None:
            return None
        slug = re.sub(r"[^a-z0-9.=-]+", "_", self.stage.lower())
        return self.folder / f"{slug}.{kind}.safetensors"


def _packed(distribution: Distribution) -> dict[str, Any]:
    return {
        "family": distribution.family.as_dict(),
        "rule": distribution.rule.value,
        "shape": list(distribution.shape),
        "classes": distribution.classes,
        "features": distribution.features,
    }


def _finished(stage: dict[str, Any], tensors: dict[str, Tensor], device: torch.device) -> Finished:
    roles: dict[str, Distribution] = {}
    for role in ROLES:
        packed = stage[role]
        with torch.random.fork_rng(devices=[]):
            made = Distribution(
                Family.from_dict(packed["family"]),
                tuple(packed["shape"]),
                packed["classes"],
                packed["features"],
            )
        own = {
            name.removeprefix(f"{role}/"): value
            for name, value in tensors.items()
            if name.startswith(f"{role}/")
        }
        made.load_state_dict(own)
        made.rule = Rule(packed["rule"])
        roles[role] = made.to(device).eval()
    return Finished(
        stage=stage["stage"],
        name=stage["name"],
        fitted=roles["fitted"],
        selected=roles["selected"],
        history=History(stage["loss"], stage["pr"]),
        values=stage["values"],
        references=stage["references"],
        fit_calls=stage["fit_calls"],
        forward_calls=stage["forward_calls"],
        value=stage["value"],
    )
