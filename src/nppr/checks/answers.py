"""Are the answers logits, and a function of the image alone?"""

from __future__ import annotations

import torch
from torch import Tensor

from nppr.classifiers import AGREEMENT, FrozenClassifier
from nppr.flags import BATCH_DEPENDENT, NOT_LOGITS, RANDOMISED, flag
from nppr.report.schema import Flag

__all__ = ["check_answers"]

ALONE = 4
"""Images that are looked at alone."""

NOISE_IMAGES = 8

SUM_TOLERANCE = 1e-3
"""How far the outputs of an image may be from adding up to 1, as rounding of a softmax."""


def check_answers(
    model: FrozenClassifier, x: Tensor, generator: torch.Generator
) -> tuple[Flag, ...]:
    """Flags of the outputs for images `(B, C, H, W)`; `generator` draws images of noise."""
    with torch.no_grad():
        logits = model.logits(x)
        again = model.logits(x)
        if not _agree(logits, again):
            unstable: tuple[Flag, ...] = (flag(RANDOMISED, _difference(logits, again)),)
        else:
            unstable = _check_batch(model, x, logits)
        strange = model.logits(_strange(x, generator))
    return (*unstable, *_check_logits(torch.cat([logits, strange])))


def _check_batch(model: FrozenClassifier, x: Tensor, logits: Tensor) -> tuple[Flag, ...]:
    """Whether an image alone (or twice, for a model that needs two) has other logits."""
    some = x[:ALONE]
    alone = torch.cat([model.logits(image) for image in some.split(1)])
    if _agree(logits[: len(some)], alone):
        return ()
    return (flag(BATCH_DEPENDENT, _difference(logits[: len(some)], alone)),)


def _check_logits(outputs: Tensor) -> tuple[Flag, ...]:
    """Whether outputs `(N, classes)` for many kinds of image are probabilities."""
    inside = bool(((outputs >= 0) & (outputs <= 1 + SUM_TOLERANCE)).all())
    if not inside or bool((outputs == outputs[0]).all()):
        return ()
    if bool(((outputs.sum(1) - 1).abs() <= SUM_TOLERANCE).all()):
        found = "the outputs lie in [0, 1] and add up to 1, as those of a softmax"
    else:
        found = "the outputs lie in [0, 1], as those of a sigmoid"
    return (flag(NOT_LOGITS, found),)


def _strange(x: Tensor, generator: torch.Generator) -> Tensor:
    """Black, white, gray, inverted and noise images: logits leave [0, 1] on some of them."""
    plain = [torch.full_like(x[:1], value) for value in (0.0, 1.0, 0.5)]
    noise = torch.rand((NOISE_IMAGES, *x.shape[1:]), generator=generator)
    hard = (noise > 0.5).to(noise.dtype)
    return torch.cat([*plain, 1 - x[:NOISE_IMAGES], noise.to(x), hard.to(x)])


def _agree(first: Tensor, second: Tensor) -> bool:
    """Equal up to rounding, relative to the largest; NaN agrees with nothing."""
    return bool((first - second).abs().max() <= AGREEMENT * first.abs().max())


def _difference(first: Tensor, second: Tensor) -> str:
    largest, difference = float(first.abs().max()), float((first - second).abs().max())
    return f"logits of at most {largest:.3g} differ by {difference:.3g}"
