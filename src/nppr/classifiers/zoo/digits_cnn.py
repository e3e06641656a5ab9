"""A small convolutional network for 8x8 digits: 33 thousand parameters, trained in seconds."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["DigitsCNN"]


class DigitsCNN(nn.Module):
    """Three convolutions with batch normalisation, then one linear layer on a 2x2 map.

    `(B, channels, 8, 8) -> (B, classes)`.
    """

    def __init__(self, classes: int = 10, channels: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _block(channels, 32),
            _block(32, 32),
            nn.MaxPool2d(2),
            _block(32, 64),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Linear(64 * 4, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


def _block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )
