"""VGG-16 with the parameter names and shapes of torchvision, whose checkpoints load.

Reference: Simonyan and Zisserman, Very Deep Convolutional Networks for Large-Scale Image
Recognition, ICLR 2015.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nppr.classifiers.zoo.stem import Stem

__all__ = ["VGG16", "vgg16"]

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(nn.Module):
    """Five stages of 3x3 convolutions with max-pools, then three linear layers on a 7x7 map.

    With the small stem the first max-pool does nothing. `(B, channels, H, W) -> (B, classes)`.
    """

    def __init__(self, classes: int, channels: int, stem: Stem) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = channels
        for number, stage in enumerate(STAGES):
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


def vgg16(classes: int, channels: int, stem: Stem) -> nn.Module:
    """VGG-16 without batch normalisation."""
    return VGG16(classes, channels, stem)
