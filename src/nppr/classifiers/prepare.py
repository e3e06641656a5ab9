"""The fastest form of a classifier that gives the same answers, and its best micro-batch.

Two forms are tried on a copy: convolutions with their batch normalisation folded in, and the
`channels_last` memory order. Each is kept only where the model runs, agrees with the original and is
faster. Models that cannot be copied or traced run as they are, just without the gain.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nppr.classifiers.checking import check_classifier
from nppr.classifiers.wrap import Classifier, FrozenClassifier, frozen, is_out_of_memory
from nppr.errors import SpecError

__all__ = ["AGREEMENT", "FORMS", "FrozenForms", "Prepared", "prepare", "usable_device"]

logger = logging.getLogger(__name__)

AGREEMENT = 1e-4
"""Largest difference of logits, relative to the largest logit, at which two forms agree."""

GRADIENT_AGREEMENT = 0.05
"""Largest length of a difference of input gradients, relative to their length."""

GAIN = 1.03
"""A form must be this much faster to be kept: less is noise of the clock."""

FORMS = ("folded", "channels_last")
"""All forms: asked for by name, those that agree are taken without timing them."""

PROBE_SECONDS = 0.08
MICRO_BATCHES = (16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class FrozenForms:
    """The fast form, whose calls count, and the model as it was given."""

    fast: FrozenClassifier
    reference: FrozenClassifier


@dataclass(frozen=True)
class Prepared:
    """A classifier ready to measure with.

    `reference` is the model as it was given; `fast` agrees with it and is what the images go
    through. Decisions too close to call are settled by `reference` (see `measure`).
    """

    reference: Classifier
    fast: Classifier
    classes: int
    device: torch.device
    micro_batch: int
    form: tuple[str, ...]
    images_per_second: float

    @contextmanager
    def frozen(self, *, quantise: bool = False) -> Iterator[FrozenForms]:
        """Both forms in eval mode."""
        with (
            frozen(self.reference, quantise=quantise) as reference,
            frozen(self.fast, quantise=quantise) as fast,
        ):
            yield FrozenForms(fast, reference)


def prepare(
    classifier: Classifier,
    probe: Tensor,
    *,
    classes: int,
    device: str | torch.device | None = None,
    micro_batch: int | None = None,
    form: Sequence[str] | None = None,
) -> Prepared:
    """Check the classifier on `probe` inputs `(B, C, H, W)`, then find form and micro-batch.

    Either can be given, as a resumed run does, which repeats those it was begun with.
    """
    if micro_batch is not None and micro_batch < 1:
        raise SpecError(f"`batch-size` must be a whole number >= 1, got {micro_batch}.")
    place = _device(classifier, device)
    reference = _on(classifier, place)
    probe = probe.to(place)
    reference = reference.with_quirks(check_classifier(reference, probe[:2], classes))
    size, _ = _fitting(reference, probe, micro_batch or 64)
    fast, found = _fastest(reference, _repeat(probe, size), form)
    size, speed = _best_micro_batch(fast, probe, micro_batch)
    return Prepared(reference, fast, classes, place, size, found, speed)


def usable_device(device: str | torch.device | None) -> torch.device:
    """The device asked for, else the accelerator, else PyTorch's default."""
    if device is None:
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        return accelerator or torch.get_default_device()
    try:
        place = torch.device(device)
        float(torch.zeros(1, device=place))
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].split(". ")[0][:160]
        raise SpecError(
            f"`device` must be one that works here, got {str(device)!r}: {reason}"
        ) from error
    return place


def _device(classifier: Classifier, device: str | torch.device | None) -> torch.device:
    if device is not None:
        return usable_device(device)
    if classifier.module is None or classifier.device != torch.get_default_device():
        # A plain callable, or a model that the caller has put somewhere, stays where it is.
        return classifier.device or torch.get_default_device()
    return usable_device(None)


def _on(classifier: Classifier, device: torch.device) -> Classifier:
    """The classifier on a device: a copy if it has to move, for the caller's model stays put."""
    module = classifier.module
    if module is None or classifier.device in (None, device):
        return classifier
    return classifier.with_model(copy.deepcopy(module).to(device))


def _fastest(
    reference: Classifier, probe: Tensor, given: Sequence[str] | None
) -> tuple[Classifier, tuple[str, ...]]:
    """The fastest agreeing form, or the given one, with the names of the changes that made it."""
    best, form = reference, tuple[str, ...]()
    if reference.module is None:
        return best, form
    changes: dict[str, Callable[[Classifier], Classifier]] = {
        "folded": _folded,
        "channels_last": _channels_last,
    }
    for name, change in changes.items():
        try:
            # A traced model that fails prints a trace of its own.
            with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
                warnings.simplefilter("ignore")
                candidate = change(best)
                kept = _agree(candidate, reference, probe) and (
                    _faster(candidate, best, probe) if given is None else name in given
                )
        except Exception as error:  # a foreign model may fail in any way: it then runs as it is
            logger.debug("%s does not run %s: %s", reference.name, name, error)
            continue
        if kept:
            best, form = candidate, (*form, name)
    return best, form


def _folded(classifier: Classifier) -> Classifier:
    assert classifier.module is not None
    module = copy.deepcopy(classifier.module).eval()
    convolutions = sum(isinstance(layer, nn.Conv2d) for layer in module.modules())
    norms = sum(isinstance(layer, nn.BatchNorm2d) for layer in module.modules())
    if not (convolutions and norms):
        raise ValueError("no convolution with batch normalisation to fold")
    # Imported here, where warnings are off: it drags in parts of PyTorch that warn on import.
    from torch.fx.experimental.optimization import fuse

    folded: nn.Module = fuse(module)
    return classifier.with_model(folded.eval().requires_grad_(False))


def _channels_last(classifier: Classifier) -> Classifier:
    assert classifier.module is not None
    module = copy.deepcopy(classifier.module).eval().requires_grad_(False)
    changed = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return classifier.with_model(changed, channels_last=True)


def _agree(candidate: Classifier, reference: Classifier, probe: Tensor) -> bool:
    """Whether two forms agree on batches of two sizes and in their input gradients."""
    for x in (probe, probe[: max(1, len(probe) // 3)]):
        with frozen(candidate) as ours, frozen(reference) as theirs:
            gradient, logits = ours.gradient(_sharpness, x)
            true_gradient, true_logits = theirs.gradient(_sharpness, x)
        if logits.shape != true_logits.shape:
            return False
        largest = true_logits.abs().max()
        # Rounding can turn a tie of a max-pool, which moves a gradient from one pixel to another.
        length = GRADIENT_AGREEMENT * true_gradient.norm()
        agreed = (logits - true_logits).abs().max() <= AGREEMENT * largest
        if not bool(agreed and (gradient - true_gradient).norm() <= length):
            return False
    # Folding rebuilds the model from its innermost layers: a named layer may not run any more.
    return reference.features is None or _same_features(candidate, reference, probe)


def _same_features(candidate: Classifier, reference: Classifier, probe: Tensor) -> bool:
    with frozen(candidate) as ours, frozen(reference) as theirs, torch.inference_mode():
        found, true = ours.features(probe), theirs.features(probe)
    close = (found - true).abs().max() <= AGREEMENT * true.abs().max()
    return found.shape == true.shape and bool(close)


def _sharpness(logits: Tensor) -> Tensor:
    return logits.logsumexp(1)


def _faster(candidate: Classifier, best: Classifier, x: Tensor) -> bool:
    """Whether a form is faster, timed turn by turn so that both meet the same machine."""
    turns = [(_seconds(candidate, x), _seconds(best, x)) for _ in range(3)]
    return min(ours for ours, _ in turns) * GAIN < min(theirs for _, theirs in turns)


def _seconds(classifier: Classifier, x: Tensor) -> float:
    """Best time of one forward pass, over a short while."""
    times: list[float] = []
    with frozen(classifier) as model, torch.inference_mode():
        model.logits(x)
        while len(times) < 20 and sum(times) < PROBE_SECONDS:
            start = time.perf_counter()
            # Reading a number back waits for asynchronous devices.
            float(model.logits(x).sum())
            times.append(time.perf_counter() - start)
    return min(times)


def _best_micro_batch(
    classifier: Classifier, probe: Tensor, given: int | None
) -> tuple[int, float]:
    """The smallest micro-batch within 3 % of the best speed, and images per second there.

    A size that is given, or the smallest one tried, is halved until it fits into memory.
    """
    if given is not None:
        return _fitting(classifier, probe, given)
    speeds = dict([_fitting(classifier, probe, MICRO_BATCHES[0])])
    for size in MICRO_BATCHES[1:]:
        try:
            speeds[size] = size / _seconds(classifier, _repeat(probe, size))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            break
        if speeds[size] < 0.8 * max(speeds.values()) or size / speeds[size] > 4.0:
            break
    best = max(speeds.values())
    size = min(size for size, speed in speeds.items() if speed >= best / GAIN)
    return size, speeds[size]


def _fitting(classifier: Classifier, probe: Tensor, size: int) -> tuple[int, float]:
    """The size, or the first of its halves that fits into memory, and images per second there."""
    try:
        return size, size / _seconds(classifier, _repeat(probe, size))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error) or size == 1:
            raise
    return _fitting(classifier, probe, size // 2)


def _repeat(probe: Tensor, size: int) -> Tensor:
    copies = -(-size // len(probe))
    return probe.repeat(copies, 1, 1, 1)[:size]
