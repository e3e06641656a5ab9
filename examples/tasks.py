"""Answers that are not the largest logit: top-k, regression, segmentation, an object that is found.

Run one with `python examples/tasks.py top-2`, or `regression`, `segmentation`, `detection`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from sklearn.datasets import load_diabetes
from torch import Tensor, nn

import nppr

Example = tuple[nn.Module | str, tuple[Tensor, Tensor], dict[str, Any]]
"""A model, inputs with their targets, and what else `nppr.assess` is told."""


def top_2() -> Example:
    """The label is among the two largest logits; the score is its lead over the third."""

    def score(logits: Tensor, labels: Tensor) -> Tensor:
        own = logits.gather(1, labels[:, None]).squeeze(1)
        others = logits.scatter(1, labels[:, None], -torch.inf)
        return own - others.topk(2).values[:, 1]

    meaning = "the label is one of the two best answers"
    task = nppr.Task(score=score, meaning=meaning, classes=True)
    return "digits-cnn", digits(), {"task": task, "budget": nppr.Budget.linf(0.1)}


def regression() -> Example:
    """The progression of a disease from a table of ten numbers, within 100 of 25 to 346."""
    inputs, targets = load_diabetes(return_X_y=True, scaled=False)
    low, high = inputs.min(0), inputs.max(0)
    x, y = torch.tensor(inputs).float(), torch.tensor(targets).float()
    scaled = Scaled(torch.tensor(low).float(), torch.tensor(high).float())
    model = trained(
        nn.Sequential(scaled, nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)),
        x,
        lambda outputs: (outputs[:, 0] - y).square().mean(),
        steps=3000,
    )
    task = nppr.Task(
        score=lambda outputs, targets: 100 - (outputs[:, 0] - targets).abs(),
        meaning="the prediction is within 100 of the truth",
        kind="regression",
    )
    # Every feature has a range of its own; the radius is a share of it.
    settings = {"task": task, "budget": nppr.Budget.linf(0.1), "input_range": (low, high)}
    return model, (x, y), settings


def segmentation() -> Example:
    """The ink of a digit that is seen through blur; no gradient leads to an IoU of 0.5."""
    images, _ = digits()
    masks = images[:, 0] > 0.5
    blurred = nn.functional.avg_pool2d(images, 3, 1, 1)
    model = trained(
        nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1), nn.Flatten(2)
        ),
        blurred,
        lambda outputs: nn.functional.binary_cross_entropy_with_logits(
            outputs.flatten(1), masks.flatten(1).float()
        ),
        steps=300,
    )

    def overlap(outputs: Tensor, masks: Tensor) -> Tensor:
        found, true = outputs.flatten(1) > 0, masks.flatten(1)
        return (found & true).sum(1) / (found | true).sum(1).clamp_min(1)

    task = nppr.Task(
        correct=lambda outputs, masks: overlap(outputs, masks) >= 0.5,
        score=lambda outputs, masks: overlap(outputs, masks) - 0.5,
        meaning="the IoU of the mask is at least 0.5",
        kind="segmentation",
    )
    return model, (blurred, masks), {"task": task, "budget": nppr.Budget.linf(0.1)}


def detection() -> Example:
    """A digit somewhere on a canvas is found if its box has an IoU of at least 0.5 with the truth."""
    images, _ = digits()
    places = torch.randint(0, 9, (len(images), 2), generator=torch.Generator().manual_seed(0))
    canvas = torch.zeros(len(images), 1, 16, 16)
    for image, (top, left), drawn in zip(images, places.tolist(), canvas, strict=True):
        drawn[:, top : top + 8, left : left + 8] = image
    boxes = torch.cat([places, places + 8], 1).float() / 16  # top, left, bottom, right
    model = trained(
        nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(),
            nn.Linear(64, 4),
        ),
        canvas,
        lambda outputs: (outputs - boxes).abs().mean(),
        steps=300,
    )  # fmt: skip

    def overlap(found: Tensor, true: Tensor) -> Tensor:
        inner = torch.minimum(found[:, 2:], true[:, 2:]) - torch.maximum(found[:, :2], true[:, :2])
        shared = inner.clamp_min(0).prod(1)
        areas = [(box[:, 2:] - box[:, :2]).clamp_min(0).prod(1) for box in (found, true)]
        return shared / (areas[0] + areas[1] - shared).clamp_min(1e-9)

    task = nppr.Task(
        score=lambda outputs, boxes: overlap(outputs, boxes) - 0.5,
        meaning="the object is found with an IoU above 0.5",
        kind="detection",
    )
    return model, (canvas, boxes), {"task": task, "budget": nppr.Budget.linf(0.03)}


class Scaled(nn.Module):
    """From a range to [-1, 1]."""

    def __init__(self, low: Tensor, high: Tensor) -> None:
        super().__init__()
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    def forward(self, x: Tensor) -> Tensor:
        low, high = self.get_buffer("low"), self.get_buffer("high")
        return 2 * (x - low) / (high - low) - 1


def digits() -> tuple[Tensor, Tensor]:
    """All images and labels of the digits."""
    parts = [split.batch(split.indices.argsort()) for split in nppr.load_data("digits").splits]
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def trained(model: nn.Module, x: Tensor, loss: Callable[[Tensor], Tensor], steps: int) -> nn.Module:
    """The model after some steps of Adam on all inputs."""
    torch.manual_seed(0)
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            layer.reset_parameters()
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        loss(model(x)).backward()
        optimiser.step()
    return model.eval()


EXAMPLES: dict[str, Callable[[], Example]] = {
    "top-2": top_2,
    "regression": regression,
    "segmentation": segmentation,
    "detection": detection,
}


def main() -> None:
    """Assess the model of one example, or of all."""
    for name in sys.argv[1:] or EXAMPLES:
        model, data, settings = EXAMPLES[name]()
        report = nppr.assess(
            model,
            data,
            search=nppr.Search(calls=20_000),
            measure=nppr.Measure(draws=16),
            **settings,
        )
        print(report.table())


if __name__ == "__main__":
    main()
