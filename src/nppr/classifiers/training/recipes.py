"""The default settings of every network, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from nppr.classifiers.training.settings import Optimiser, TrainSettings
from nppr.classifiers.zoo import ZOO
from nppr.errors import unknown

__all__ = ["default_settings", "require_known"]

COLOUR_CHANNELS = 3
CROP_SHARE = 8
"""Images are shifted by up to an eighth of their side: 1 pixel of 8, 4 of 32, 8 of 64."""


@dataclass(frozen=True)
class _Recipe:
    """What suits an architecture; the learning rate and the weight decay go by the optimiser."""

    epochs: int
    batch_size: int
    optimiser: Optimiser
    label_smoothing: float
    rates: dict[Optimiser, tuple[float, float]]
    threads: int | None = None


_USUAL = _Recipe(
    epochs=30,
    batch_size=128,
    optimiser=Optimiser.SGD,
    label_smoothing=0.0,
    rates={Optimiser.SGD: (0.1, 5e-4), Optimiser.ADAM: (1e-3, 1e-2)},
)

_OWN = {
    "digits-cnn": _Recipe(
        epochs=40,
        batch_size=64,
        optimiser=Optimiser.ADAM,
        label_smoothing=0.05,
        rates={Optimiser.SGD: (0.1, 5e-4), Optimiser.ADAM: (3e-3, 1e-2)},
        # So small that threads would only wait for each other; and with one, every machine adds in
        # the same order.
        threads=1,
    ),
    # Without batch normalisation the usual rates diverge.
    "vgg16": _Recipe(
        epochs=30,
        batch_size=128,
        optimiser=Optimiser.SGD,
        label_smoothing=0.0,
        rates={Optimiser.SGD: (0.01, 5e-4), Optimiser.ADAM: (1e-4, 1e-2)},
    ),
}


def default_settings(
    architecture: str, shape: tuple[int, ...], optimiser: Optimiser | None = None
) -> TrainSettings:
    """The settings for a network and images of `shape` (C, H, W); flips are for colour only.

    >>> default_settings("digits-cnn", (1, 8, 8)).crop
    1
    """
    require_known(architecture)
    recipe = _OWN.get(architecture, _USUAL)
    chosen = optimiser or recipe.optimiser
    learning_rate, weight_decay = recipe.rates[chosen]
    return TrainSettings(
        epochs=recipe.epochs,
        batch_size=recipe.batch_size,
        optimiser=chosen,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        label_smoothing=recipe.label_smoothing,
        crop=min(shape[-2:]) // CROP_SHARE,
        flip=shape[0] == COLOUR_CHANNELS,
        threads=recipe.threads,
    )


def require_known(architecture: str) -> None:
    """Raise `SpecError` unless the zoo has this network."""
    if architecture not in ZOO:
        raise unknown("model", architecture, ZOO)
