"""The networks the benchmarks run on: the shipped digits classifier and 32x32 residual networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nppr.data import Data, from_arrays, load_data
from nppr.models import Classifier, load_classifier

__all__ = ["CASES", "case", "untrained"]


class ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, inputs, H, W) -> (B, outputs, H / stride, W / stride)`."""
        y = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(y)) + self.shortcut(x))


def small_resnet() -> nn.Module:
    """A residual network for 3x32x32 images with random weights."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *(ResidualBlock(16, 16, 1) for _ in range(2)),
        ResidualBlock(16, 32, 2),
        ResidualBlock(32, 32, 1),
        ResidualBlock(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    ).eval()


def case(name: str, *, fit: bool = False) -> tuple[Classifier, Data]:
    """A classifier and data for it, four fifths of them to fit on where that is wanted."""
    if name == "digits":
        return load_classifier("digits-cnn"), load_data("digits")
    number = 640 if fit else 128
    images = torch.rand(number, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    data = from_arrays(images, torch.arange(number) % 10, shares=(0.8 if fit else 0.0, 0.0))
    if name == "small-resnet":
        return Classifier(small_resnet(), name=name), data
    return load_classifier(name, weights="random", data=data), data


def untrained(name: str, number: int, side: int = 32, classes: int = 10) -> tuple[Classifier, Data]:
    """A random network and random images, labelled by the network: it is always correct."""
    images = torch.rand(number, 3, side, side, generator=torch.Generator().manual_seed(0))
    blank = from_arrays(images, torch.arange(number) % classes, classes=classes, shares=(0.4, 0.3))
    torch.manual_seed(0)
    classifier = load_classifier(name, weights="random", data=blank)
    with torch.no_grad():
        assert classifier.module is not None
        classifier.module.eval()
        labels = [classifier.forward(some).argmax(1) for some in images.split(32)]
    return classifier, from_arrays(
        images, torch.cat(labels), classes=classes, shares=(0.4, 0.3), name=f"{side} x {side}"
    )


CASES = ("digits", "small-resnet")
