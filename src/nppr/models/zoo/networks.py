"""The networks of the zoo.

`ResNet` and `VGG16` have the parameter names and shapes of torchvision, so its checkpoints load.

References: K. He et al., Deep Residual Learning for Image Recognition, CVPR 2016 (`ResNet`; section
4.2 for `CifarResNet`); S. Zagoruyko and N. Komodakis, Wide Residual Networks, BMVC 2016; K.
Simonyan and A. Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, ICLR
2015.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Shortcut = Callable[[int, int, int], nn.Module]
"""Map inputs, outputs and stride to a layer that gives the input the shape of a block's output."""

VGG_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class Stem(StrEnum):
    """`imagenet` shrinks the image fourfold before the first stage, `small` keeps its size.

    The paper uses the ImageNet stem on 32 and 64 pixel inputs too.
    """

    IMAGENET = "imagenet"
    SMALL = "small"


class DigitsCNN(nn.Module):
    """Three convolutions with batch normalisation, then one linear layer on a 2x2 map.

    33 thousand parameters, trained in seconds: `(B, channels, 8, 8) -> (B, classes)`.
    """

    def __init__(self, classes: int = 10, channels: int = 1) -> None:
        super().__init__()

        def block(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(_conv(inputs, outputs, 3, 1), nn.BatchNorm2d(outputs), nn.ReLU())

        self.body = nn.Sequential(
            block(channels, 32),
            block(32, 32),
            nn.MaxPool2d(2),
            block(32, 64),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Linear(64 * 4, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


class Basic(nn.Module):
    """Two 3x3 convolutions beside a shortcut: `(B, inputs, H, W) -> (B, width, H/s, W/s)`."""

    def __init__(self, inputs: int, width: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = _conv(width, width, 3, 1)
        self.bn2 = nn.BatchNorm2d(width)
        unchanged = stride == 1 and inputs == width
        self.downsample = None if unchanged else shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        out: Tensor = self.relu(y + (x if self.downsample is None else self.downsample(x)))
        return out


class ZeroPadded(nn.Module):
    """A shortcut without parameters: the input, subsampled and padded with zero channels."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.before = (outputs - inputs) // 2
        self.after = outputs - inputs - self.before

    def forward(self, x: Tensor) -> Tensor:
        sampled = x[:, :, :: self.stride, :: self.stride]
        return F.pad(sampled, (0, 0, 0, 0, self.before, self.after))


class CifarResNet(nn.Module):
    """16, 32 and 64 channels, n blocks per stage, `depth` = 6n + 2 layers.

    `(B, channels, H, W) -> (B, classes)`.
    """

    def __init__(self, depth: int, classes: int, channels: int) -> None:
        super().__init__()

        def stage(inputs: int, width: int, stride: int) -> nn.Sequential:
            first = Basic(inputs, width, stride, ZeroPadded)
            rest = (Basic(width, width, 1, ZeroPadded) for _ in range((depth - 2) // 6 - 1))
            return nn.Sequential(first, *rest)

        self.conv1 = _conv(channels, 16, 3, 1)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = stage(16, 16, 1)
        self.layer2 = stage(16, 32, 2)
        self.layer3 = stage(32, 64, 2)
        self.linear = nn.Linear(64, classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.layer3(self.layer2(self.layer1(y)))
        out: Tensor = self.linear(y.mean((2, 3)))
        return out


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride) and 1x1 convolutions beside a shortcut.

    `(B, inputs, H, W) -> (B, outputs, H/s, W/s)`; `inner` is the width of the 3x3 convolution.
    """

    def __init__(self, inputs: int, inner: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, inner, 1, 1)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = _conv(inner, inner, 3, stride)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = _conv(inner, outputs, 1, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        unchanged = stride == 1 and inputs == outputs
        self.downsample = None if unchanged else _projection(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        out: Tensor = self.relu(y + (x if self.downsample is None else self.downsample(x)))
        return out


class ResNet(nn.Module):
    """A stem, four stages of which the last three halve the image, and one linear layer.

    `blocks` are the numbers of blocks in each stage. Without `wide`, blocks are basic; otherwise
    they are bottlenecks with four times the outputs and an inner convolution `wide` times as wide
    as a basic block. `(B, channels, H, W) -> (B, classes)`.
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
        small = stem is Stem.SMALL
        self.conv1 = _conv(channels, 64, 3, 1) if small else _conv(channels, 64, 7, 2)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        inputs = 64
        for number, depth in enumerate(blocks):
            width = 64 << number
            outputs = width if wide is None else 4 * width
            stage: list[nn.Module] = []
            for stride in [1 if number == 0 else 2] + [1] * (depth - 1):
                if wide is None:
                    stage.append(Basic(inputs, width, stride, _projection))
                else:
                    stage.append(Bottleneck(inputs, width * wide, outputs, stride))
                inputs = outputs
            self.add_module(f"layer{number + 1}", nn.Sequential(*stage))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        y = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for number in range(1, 5):
            y = self.get_submodule(f"layer{number}")(y)
        out: Tensor = self.fc(torch.flatten(self.avgpool(y), 1))
        return out


class VGG16(nn.Module):
    """Five stages of 3x3 convolutions with max-pools, then three linear layers on a 7x7 map.

    It has no batch normalisation. With the small stem, the first max-pool is left out.
    `(B, channels, H, W) -> (B, classes)`.
    """

    def __init__(self, classes: int, channels: int, stem: Stem) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = channels
        for number, stage in enumerate(VGG_STAGES):
            for width in stage:
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = width
            keeps_size = number == 0 and stem is Stem.SMALL
            layers.append(nn.Identity() if keeps_size else nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, classes),
        )
        for layer in self.features:
            if isinstance(layer, nn.Conv2d) and layer.bias is not None:
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))
        return out


def _conv(inputs: int, outputs: int, size: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


def _projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Return a shortcut that changes the shape by a 1x1 convolution."""
    return nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
