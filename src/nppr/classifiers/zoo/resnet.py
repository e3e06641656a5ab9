"""Residual networks with the parameter names and shapes of torchvision, whose checkpoints load.

Reference: He et al., Deep Residual Learning for Image Recognition, CVPR 2016; wide variant:
Zagoruyko and Komodakis, Wide Residual Networks, BMVC 2016.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nppr.classifiers.zoo.stem import Stem

__all__ = ["ResNet", "resnet18", "resnet50", "wide_resnet50_2"]


class Basic(nn.Module):
    """Two 3x3 convolutions beside a shortcut: `(B, inputs, H, W) -> (B, width, H/s, W/s)`."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = _conv(width, width, 3, 1)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        out: Tensor = self.relu(y + (x if self.downsample is None else self.downsample(x)))
        return out


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride) and 1x1 convolutions beside a shortcut; four times as wide out.

    `inner` is the width of the 3x3 convolution: `width` in a ResNet, twice that in a wide one.
    """

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, inner: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = _conv(inputs, inner, 1, 1)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = _conv(inner, inner, 3, stride)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = _conv(inner, outputs, 1, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        out: Tensor = self.relu(y + (x if self.downsample is None else self.downsample(x)))
        return out


class ResNet(nn.Module):
    """A stem, four stages that halve the image (but for the first), and one linear layer.

    `blocks` are the blocks of each stage; `wide` is None for basic blocks, else the factor of the
    bottlenecks' inner width. `(B, channels, H, W) -> (B, classes)`.
    """

    def __init__(
        self,
        blocks: tuple[int, int, int, int],
        classes: int,
        channels: int,
        stem: Stem,
        wide: int | None = None,
    ) -> None:
        super().__init__()
        if stem is Stem.IMAGENET:
            self.conv1 = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
            self.maxpool: nn.Module = nn.MaxPool2d(3, 2, 1)
        else:
            self.conv1 = _conv(channels, 64, 3, 1)
            self.maxpool = nn.Identity()
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        inputs = 64
        for number, depth in enumerate(blocks):
            width, stride = 64 << number, 1 if number == 0 else 2
            stage = _stage(depth, inputs, width, stride, wide)
            self.add_module(f"layer{number + 1}", stage)
            inputs = width * (Basic.expansion if wide is None else Bottleneck.expansion)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        y = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for number in range(1, 5):
            y = self.get_submodule(f"layer{number}")(y)
        out: Tensor = self.fc(torch.flatten(self.avgpool(y), 1))
        return out


def resnet18(classes: int, channels: int, stem: Stem) -> nn.Module:
    """ResNet-18."""
    return ResNet((2, 2, 2, 2), classes, channels, stem)


def resnet50(classes: int, channels: int, stem: Stem) -> nn.Module:
    """ResNet-50."""
    return ResNet((3, 4, 6, 3), classes, channels, stem, wide=1)


def wide_resnet50_2(classes: int, channels: int, stem: Stem) -> nn.Module:
    """Wide ResNet-50-2."""
    return ResNet((3, 4, 6, 3), classes, channels, stem, wide=2)


def _stage(depth: int, inputs: int, width: int, stride: int, wide: int | None) -> nn.Sequential:
    blocks: list[nn.Module] = []
    for number in range(depth):
        pace = stride if number == 0 else 1
        if wide is None:
            blocks.append(Basic(inputs, width, pace))
            inputs = width
        else:
            blocks.append(Bottleneck(inputs, width, pace, width * wide))
            inputs = width * Bottleneck.expansion
    return nn.Sequential(*blocks)


def _conv(inputs: int, outputs: int, size: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """A 1x1 convolution where the shape changes, nothing where it does not."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


def _initialise(network: nn.Module) -> None:
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
