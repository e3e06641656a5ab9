"""Training of the zoo's networks, reproducible by seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nppr.classifiers.weights import Weights, write_weights
from nppr.classifiers.wrap import Classifier, frozen
from nppr.classifiers.zoo import ZOO
from nppr.data import Data
from nppr.errors import SpecError, unknown

__all__ = ["Epoch", "TrainSettings", "train"]


@dataclass(frozen=True)
class TrainSettings:
    """How a network is trained: AdamW, one-cycle cosine with warm-up, shifts by a pixel."""

    epochs: int = 40
    batch: int = 64
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    warm_up: float = 0.1
    label_smoothing: float = 0.05
    shift: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch"):
            if getattr(self, name) < 1:
                raise SpecError(f"`{name}` must be a whole number >= 1, got {getattr(self, name)}.")
        if not 0 < self.learning_rate < math.inf:
            raise SpecError(f"`learning-rate` must be a number > 0, got {self.learning_rate}.")


@dataclass(frozen=True)
class Epoch:
    """One epoch's loss and, after the last one, the accuracy on the evaluate split."""

    number: int
    of: int
    loss: float


def train(
    architecture: str,
    data: Data,
    out: str | Path,
    settings: TrainSettings | None = None,
    progress: Callable[[Epoch], None] | None = None,
) -> float:
    """Train on the fit and select parts, write the weights, return the accuracy on evaluate."""
    if architecture not in ZOO:
        raise unknown("model", architecture, ZOO)
    settings = settings or TrainSettings()
    x, y = _training_set(data)
    mean, std = float(x.mean()), float(x.std())
    generator = torch.Generator().manual_seed(settings.seed)
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        module = ZOO[architecture].build(data.classes, x.shape[1])
    _optimise(module, (x - mean) / std, y, settings, generator, progress)
    metadata = {
        "architecture": architecture,
        "classes": str(data.classes),
        "mean": repr(mean),
        "std": repr(std),
    }
    write_weights(out, Weights(module.state_dict(), metadata))
    return accuracy(Classifier(module, mean=[mean], std=[std]), data)


def accuracy(classifier: Classifier, data: Data) -> float:
    """Share of the evaluate inputs that are classified right."""
    x, y = data.evaluate.batch(np.arange(len(data.evaluate)))
    with frozen(classifier) as model, torch.inference_mode():
        return float((model.logits(x).argmax(1) == y).double().mean())


def _training_set(data: Data) -> tuple[Tensor, Tensor]:
    parts = [part.batch(np.arange(len(part))) for part in (data.fit, data.select) if len(part)]
    if not parts:
        raise SpecError(
            f"`data` must have a fit or select part to train on, {data.name!r} has none."
        )
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def _optimise(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    settings: TrainSettings,
    generator: torch.Generator,
    progress: Callable[[Epoch], None] | None,
) -> None:
    steps = settings.epochs * math.ceil(len(x) / settings.batch)
    optimiser = torch.optim.AdamW(
        module.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: _rate(step / steps, settings.warm_up)
    )
    module.train()
    for number in range(1, settings.epochs + 1):
        total = 0.0
        for rows in torch.randperm(len(x), generator=generator).split(settings.batch):
            inputs = _shifted(x[rows], settings.shift, generator)
            loss = F.cross_entropy(
                module(inputs), y[rows], label_smoothing=settings.label_smoothing
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += float(loss.detach()) * len(rows)
        if progress is not None:
            progress(Epoch(number, settings.epochs, total / len(x)))
    module.eval()


def _rate(done: float, warm_up: float) -> float:
    """Linear from 0 to 1 over the warm-up, then a cosine down to 0."""
    if done < warm_up:
        return done / warm_up
    return 0.5 * (1 + math.cos(math.pi * (done - warm_up) / (1 - warm_up)))


def _shifted(x: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Each image moved by up to `most` pixels; the border is repeated."""
    height, width = x.shape[-2:]
    padded = F.pad(x, (most, most, most, most), mode="replicate")
    offsets = torch.randint(0, 2 * most + 1, (2, len(x), 1, 1), generator=generator)
    rows = torch.arange(height).view(1, -1, 1) + offsets[0]
    columns = torch.arange(width).view(1, 1, -1) + offsets[1]
    inputs = torch.arange(len(x)).view(-1, 1, 1)
    return padded[inputs, :, rows, columns].permute(0, 3, 1, 2)
