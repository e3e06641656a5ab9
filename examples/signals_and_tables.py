"""Inputs that are no images: a table of measurements and signals, each with a stated range.

The same from the command line, for x and y in a .npz: `nppr assess --data waves.npz --range -1,1`.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn

import nppr


def table() -> tuple[nn.Module, Tensor, Tensor, tuple[Tensor, Tensor]]:
    """A classifier of tumours by 30 numbers, `(N, 30)`, each with a range of its own."""
    found = load_breast_cancer()
    x, y = torch.tensor(found.data).float(), torch.tensor(found.target)
    low, high = x.amin(0), x.amax(0)
    first = nn.Linear(30, 2)
    with torch.no_grad():  # starts with features in [-1, 1]
        first.weight.copy_(0.1 * torch.ones(2, 30) / (high - low))
    model = fitted(nn.Sequential(nn.BatchNorm1d(30), first), x, y)
    return model, x, y, (low, high)


def waves() -> tuple[nn.Module, Tensor, Tensor, tuple[float, float]]:
    """A classifier of sine waves, square waves and saw teeth in two channels, `(N, 2, 128)`."""
    generator = torch.Generator().manual_seed(0)
    count = 900
    labels = torch.arange(count) % 3
    time = torch.linspace(0, 1, 128)
    turns = 3 + 3 * torch.rand(count, 2, 1, generator=generator)
    phase = time * turns + torch.rand(count, 2, 1, generator=generator)
    shapes = torch.stack(
        [(2 * math.pi * phase).sin(), (2 * math.pi * phase).sin().sign(), 2 * (phase % 1) - 1]
    )
    signals = 0.8 * shapes[labels, torch.arange(count)]
    model = nn.Sequential(
        nn.Conv1d(2, 16, 9, 2), nn.ReLU(), nn.Conv1d(16, 32, 9, 2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 3),
    )  # fmt: skip
    return fitted(model, signals, labels), signals, labels, (-1.0, 1.0)


def fitted(model: nn.Module, x: Tensor, y: Tensor) -> nn.Module:
    """The model after 200 steps of Adam on the first half of the inputs."""
    torch.manual_seed(0)
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    half = len(x) // 2
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[:half]), y[:half]).backward()
        optimiser.step()
    return model.eval()


def main() -> None:
    """The worst noise of up to 5 % of each range of the table, and 15 % of that of the signals."""
    for name, example, radius in (("table", table, 0.05), ("waves", waves, 0.15)):
        model, x, y, input_range = example()
        budget = nppr.Budget.linf(radius)
        report = nppr.assess(
            model,
            (x, y),
            input_range=input_range,
            budget=budget,
            measure=nppr.Measure(draws=16),
            run=nppr.Run(out=Path("runs") / name, overwrite=True),
        )
        print(report.table())


if __name__ == "__main__":
    main()
