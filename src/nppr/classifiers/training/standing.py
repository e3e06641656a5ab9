"""How far a training is, and what it tells whoever watches."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["EpochResult", "Standing", "TrainProgress"]


@dataclass(frozen=True)
class EpochResult:
    """A finished epoch: mean loss and share of right answers over its batches as trained on."""

    epoch: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class TrainProgress:
    """After a step: where the training is, and the loss and accuracy of the epoch so far."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    accuracy: float


@dataclass(eq=False)
class Standing:
    """The epoch under way (from 1), its finished steps and their sums, and the epochs before it."""

    epoch: int = 1
    step: int = 0
    seen: int = 0
    right: int = 0
    loss: float = 0.0
    finished: list[EpochResult] = field(default_factory=list)

    def add_step(self, loss: float, right: int, images: int) -> None:
        """Count a step with this mean loss."""
        self.step += 1
        self.seen += images
        self.right += right
        self.loss += loss * images

    def end_epoch(self) -> None:
        """Turn to the next epoch."""
        self.finished.append(self.result)
        self.epoch += 1
        self.step = self.seen = self.right = 0
        self.loss = 0.0

    @property
    def result(self) -> EpochResult:
        """The epoch under way as it looks now."""
        return EpochResult(self.epoch, self.loss / self.seen, self.right / self.seen)

    def to_json(self) -> dict[str, Any]:
        """For a checkpoint; numbers come back exactly."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Standing:
        """Back from `to_json`; raises `KeyError`, `TypeError` or `ValueError` on anything else."""
        finished = [
            EpochResult(int(entry["epoch"]), float(entry["loss"]), float(entry["accuracy"]))
            for entry in content["finished"]
        ]
        return cls(
            epoch=int(content["epoch"]),
            step=int(content["step"]),
            seen=int(content["seen"]),
            right=int(content["right"]),
            loss=float(content["loss"]),
            finished=finished,
        )
