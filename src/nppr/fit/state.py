"""A fit that can be continued: the distribution, its optimiser and its history in one file.

The file is replaced whole, on a timer and when the fit is interrupted. It holds no clock times, and a
continued fit takes the same steps, so that it ends in the same bytes. Of several ranks the first
writes and reads it, for all are in the same state.
"""

from __future__ import annotations

import copy
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from nppr.distributed import first, world
from nppr.errors import RunFolderError
from nppr.fit.loop import History, Step
from nppr.tensor_files import optimiser_tensors, write_tensors

__all__ = ["FitFile"]


@dataclass
class FitFile:
    """Where the state of one stage is kept; `identity` says of which."""

    path: Path
    identity: str
    seconds: float = 10.0
    _saved: float = field(default_factory=time.monotonic, repr=False)

    def save(self, state: Step, now: bool) -> None:
        """Keep the state: at once, or when the last time is long enough ago."""
        if not world().is_first or (not now and time.monotonic() - self._saved < self.seconds):
            return
        tensors = {
            f"distribution/{name}": value for name, value in state.distribution.state_dict().items()
        }
        if state.snapshot is not None:
            kept = state.snapshot.state_dict()
            tensors.update({f"snapshot/{name}": value for name, value in kept.items()})
        tensors.update(optimiser_tensors(state.optimiser))
        history = {"loss": state.history.loss, "pr": state.history.pr}
        metadata = {"identity": self.identity, "history": json.dumps(history)}
        write_tensors(self.path, tensors, metadata)
        self._saved = time.monotonic()

    def restore(self, state: Step) -> None:
        """Bring a fresh state to where the file is, if there is one of this stage."""
        found = first(self._read)
        if found is None:
            return
        tensors, history = found
        try:
            _restore(state, tensors, json.loads(history))
        except (KeyError, ValueError, RuntimeError) as error:
            raise self._unreadable(error) from error

    def remove(self) -> None:
        """The stage is done."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> tuple[dict[str, Tensor], str] | None:
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("identity") != self.identity:
                    return None
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, metadata["history"]
        except (SafetensorError, KeyError, OSError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> RunFolderError:
        return RunFolderError(
            f"`resume` must find whole files, got {self.path} which cannot be read:"
            f" {' '.join(str(error).split())[:160]}. Delete it to fit that stage again."
        )


def _restore(state: Step, tensors: dict[str, Tensor], history: dict[str, list[float]]) -> None:
    memory: dict[int, dict[str, Tensor]] = {}
    weights: dict[str, dict[str, Tensor]] = {"distribution": {}, "snapshot": {}}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition("/")
        if kind in weights:
            weights[kind][rest] = tensor
        else:
            number, _, own = rest.partition("/")
            memory.setdefault(int(number), {})[own] = tensor
    state.distribution.load_state_dict(weights["distribution"])
    if weights["snapshot"]:
        state.snapshot = copy.deepcopy(state.distribution).eval()
        state.snapshot.load_state_dict(weights["snapshot"])
    groups = state.optimiser.state_dict()["param_groups"]
    state.optimiser.load_state_dict({"state": memory, "param_groups": groups})
    state.history = History(history["loss"], history["pr"])
