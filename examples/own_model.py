"""Assess a model of your own: any module or callable that maps images in [0, 1] to logits."""

from __future__ import annotations

import torch
from torch import nn

import nppr


def main() -> None:
    """A linear model on digits, under noise, an attack and a budget in the Euclidean norm."""
    data = nppr.load_data("digits")
    images, labels = data.fit.batch(data.fit.indices.argsort())
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimiser.step()
    report = nppr.assess(model, data, budget=nppr.Budget.l2(0.5), sources="gaussian,uniform,pgd")
    print(report.table())


if __name__ == "__main__":
    main()
