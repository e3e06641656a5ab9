"""The residual networks of He et al. (CVPR 2016, section 4.2) for CIFAR-sized images.

16, 32 and 64 channels, n basic blocks a stage (depth 6n + 2), and shortcuts without parameters:
where the shape changes, the input is subsampled and padded with zero channels.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["CifarResNet"]


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut: `(B, inputs, H, W) -> (B, width, H/s, W/s)`."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.stride = stride
        self.grown = width - inputs

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self._shortcut(x))

    def _shortcut(self, x: Tensor) -> Tensor:
        if self.stride == 1 and not self.grown:
            return x
        before = self.grown // 2
        sampled = x[:, :, :: self.stride, :: self.stride]
        return F.pad(sampled, (0, 0, 0, 0, before, self.grown - before))


class CifarResNet(nn.Module):
    """`depth` = 6n + 2 layers: `(B, channels, H, W) -> (B, classes)`."""

    def __init__(self, depth: int, classes: int, channels: int) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(blocks, 16, 16, 1)
        self.layer2 = _stage(blocks, 16, 32, 2)
        self.layer3 = _stage(blocks, 32, 64, 2)
        self.linear = nn.Linear(64, classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.layer3(self.layer2(self.layer1(y)))
        out: Tensor = self.linear(y.mean((2, 3)))
        return out


def _stage(blocks: int, inputs: int, width: int, stride: int) -> nn.Sequential:
    first = Block(inputs, width, stride)
    return nn.Sequential(first, *(Block(width, width, 1) for _ in range(blocks - 1)))
