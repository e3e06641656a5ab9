"""Check whether another common normalisation is better; if so, the stated one is wrong."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import torch
from scipy.stats import binomtest
from torch import Tensor

from nppr.data import Data
from nppr.doctor.flags import NORMALISATION, flag
from nppr.errors import ClassifierError
from nppr.models import Classifier, frozen
from nppr.report.model import Flag

FIRST, MOST = 32, 256
"""Inputs for trying every normalisation, and most inputs for confirming a better one."""

GAIN = 0.05
"""Least gain of accuracy to flag a normalisation; smaller gains may be chance."""

ERROR = 1e-3
"""Largest p-value of the exact sign test between two normalisations."""

BATCH = 32

Numbers = tuple[tuple[float, ...] | None, tuple[float, ...] | None]
COMMON: dict[str, Numbers] = {
    "none": (None, None),
    "pixels from -1 to 1": ((0.5,), (0.5,)),
    "pixels from 0 to 255": ((0.0,), (1 / 255,)),
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-10": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
    "CIFAR-100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "MNIST": ((0.1307,), (0.3081,)),
}
"""Mean and standard deviation per channel, by name."""


def check_normalisation(classifier: Classifier, data: Data) -> Iterator[Flag]:
    """Yield a flag if a common normalisation is clearly more accurate than the stated one."""
    if not data.is_image or data.layout is not None or data.task is not None:
        return
    channels = data.shape[0]
    stated = (classifier.mean, classifier.std)
    others = {
        name: numbers
        for name, numbers in COMMON.items()
        if numbers != stated and (numbers[0] is None or len(numbers[0]) in (1, channels))
    }
    positions = np.random.default_rng(0).permutation(len(data.evaluate))[:MOST]
    own = _correct(classifier, data, positions[:FIRST])
    tried = {}
    for name, numbers in others.items():
        with suppress(ClassifierError):  # a user's model may refuse other numbers
            tried[name] = _correct(_with(classifier, numbers), data, positions[:FIRST])
    best = max(tried, key=lambda name: float(tried[name].mean()), default=None)
    if best is None or float(tried[best].mean()) <= float(own.mean()):
        return
    try:
        better = _correct(_with(classifier, others[best]), data, positions)
    except ClassifierError:
        return
    own = _correct(classifier, data, positions)
    gained, lost = int((better & ~own).sum()), int((own & ~better).sum())
    significant = gained > lost and binomtest(lost, gained + lost).pvalue < ERROR
    if significant and float(better.mean() - own.mean()) > GAIN:
        yield flag(
            NORMALISATION,
            f"{100 * float(own.mean()):.1f} % of {len(own)} inputs are correct with the stated"
            f" normalisation ({_words(stated)}) and {100 * float(better.mean()):.1f} % with"
            f" {_advice(best, others[best])}",
        )


def _with(classifier: Classifier, numbers: Numbers) -> Classifier:
    other = copy.copy(classifier)
    other.mean, other.std = numbers
    return other


def _correct(
    classifier: Classifier, data: Data, positions: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return whether each input is classified correctly, `(N,)`."""
    place = classifier.device or torch.get_default_device()
    found = []
    with frozen(classifier) as model, torch.no_grad():
        for some in np.split(positions, range(BATCH, len(positions), BATCH)):
            x, y = data.evaluate.batch(some)
            answers: Tensor = model.logits(x.to(place)).argmax(1)
            found.append((answers.cpu() == y).numpy())
    return np.concatenate(found)


def _words(numbers: Numbers) -> str:
    return (
        "none"
        if numbers == (None, None)
        else f"mean {_listed(numbers[0])}, std {_listed(numbers[1])}"
    )


def _advice(name: str, numbers: Numbers) -> str:
    if numbers == (None, None):
        return "none (leave out --mean and --std)"
    return f"one like that of {name} (--mean {_listed(numbers[0])} --std {_listed(numbers[1])})"


def _listed(numbers: Sequence[float] | None) -> str:
    return "none" if numbers is None else ",".join(f"{each:.4g}" for each in numbers)
