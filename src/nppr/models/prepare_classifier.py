"""Prepare a classifier: the fastest variant with the same answers, and its best micro-batch.

Two variants are tried on a copy: convolutions with their batch normalisation folded in, and the
`channels_last` memory order. Each is kept only if the model runs, agrees with the original and is
faster. Models that cannot be copied or traced run as they are. With the engine `bfloat16`, a copy
in 16-bit floats does the screening (`nppr.models.screening`), and fits of noise follow its gradients.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from nppr.errors import ClassifierError, SpecError, reason_of, require_at_most, unknown
from nppr.models.bfloat16_copy import Bfloat16Model, computes_in_bfloat16, trace_in_bfloat16
from nppr.models.classifier import (
    Classifier,
    FrozenClassifier,
    check_classifier,
    frozen,
    is_out_of_memory,
)
from nppr.models.screening import Screen, ScreeningCopy, calibrate
from nppr.system.specs import BFLOAT16, EAGER, ENGINES

logger = logging.getLogger(__name__)

AGREEMENT = 1e-4
"""Largest difference of logits at which two variants agree, relative to the largest logit."""

GRADIENT_AGREEMENT = 0.05
"""Largest length of a difference of input gradients, relative to the gradient's length."""

GAIN = 1.03
"""Minimum gain to keep a speed-up; smaller gains are timing noise."""

SPEEDUPS = ("folded", "channels_last")
"""All speed-ups. Those requested by name are kept without timing if the answers agree."""

MOST_MICRO_BATCH, NUMBERS = 2**14, 2**28
"""Upper limits of a micro-batch: images, and numbers in them."""

FIT_MICRO_BATCH = 64
FIT_NUMBERS = 2**22
"""Upper limit of the numbers in a micro-batch of a search."""

LEAST_OPERATIONS = 2e7
"""Minimum operations of a forward pass of one image; a smaller network gains nothing."""

LEAST_COSINE = 0.9
"""Minimum mean cosine between rough and exact gradients of an image."""

MICRO_BATCHES = (16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class FrozenPair:
    """The fast variant, whose calls count, and the original model, both in eval mode."""

    fast: FrozenClassifier
    original: FrozenClassifier
    screen: Screen | None = None
    """Takes clear decisions instead of `fast`, if the measurement is audited."""


@dataclass(frozen=True)
class PreparedClassifier:
    """A classifier that is ready to measure.

    `fast` classifies; `original`, the model as given, settles decisions too close to call.
    """

    original: Classifier
    fast: Classifier
    device: torch.device
    micro_batch: int
    speedups: tuple[str, ...]
    """The changes that made `fast`, from `SPEEDUPS`."""
    eager_images_per_second: float
    """Speed without screening."""
    screening: ScreeningCopy | None = None
    """A copy in 16-bit floats that takes clear decisions instead of `fast`."""
    quantise: bool = False
    """Whether perturbed inputs are rounded to 8 bits before the model sees them."""

    @property
    def images_per_second(self) -> float:
        """Speed with screening, if there is any."""
        share = 1.0 if self.screening is None else self.screening.share_of_time
        return self.eager_images_per_second / share

    @property
    def engine(self) -> str:
        """The name of the engine that computes forward passes without gradients."""
        return EAGER if self.screening is None else BFLOAT16

    @contextlib.contextmanager
    def frozen(self, *, audit: float = 0.0) -> Iterator[FrozenPair]:
        """Yield both variants in eval mode, with screening if a share of its decisions is audited."""
        with (
            frozen(self.original, quantise=self.quantise) as original,
            frozen(self.fast, quantise=self.quantise) as fast,
        ):
            screen = Screen(self.screening, fast, audit) if self.screening and audit else None
            yield FrozenPair(fast, original, screen)


def prepare(
    classifier: Classifier,
    probe: Tensor,
    *,
    classes: int,
    device: str | torch.device | None = None,
    micro_batch: int | None = None,
    speedups: Sequence[str] | None = None,
    engine: str = EAGER,
) -> PreparedClassifier:
    """Check the classifier on `probe` inputs `(B, C, H, W)`, then find speed-ups and micro-batch.

    Both can be given. The engine `bfloat16` adds a copy for screening, or raises `ClassifierError`.
    """
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if micro_batch is not None and micro_batch < 1:
        raise SpecError(f"`batch-size` must be a whole number >= 1, got {micro_batch}.")
    most = max(1, min(MOST_MICRO_BATCH, NUMBERS // max(1, probe[0].numel())))
    require_at_most("batch-size", micro_batch, most)
    place = _device(classifier, device)
    original = classifier
    if classifier.module is not None and classifier.device not in (None, place):
        # A copy, because the caller's model stays where it is.
        original = classifier.with_model(copy.deepcopy(classifier.module).to(place))
    probe = probe.to(place)
    with within_memory(classifier.name):
        if original.quirks is None:
            original = original.with_quirks(check_classifier(original, probe[:2], classes))
        size, _ = _fitting(original, probe, micro_batch or 64)
        fast, found = _fastest(original, _repeat(probe, size), speedups)
        size, eager = _best_micro_batch(fast, probe, micro_batch)
        prepared = PreparedClassifier(original, fast, place, size, found, eager)
        return prepared if engine == EAGER else _with_screening(prepared, probe)


def prepare_for_search(
    prepared: PreparedClassifier, probe: Tensor, *, exact: bool = False
) -> PreparedClassifier:
    """Return the variant for searches, without screening if `exact`.

    Its speed-ups and micro-batch do not depend on timing, so a fit rounds the same in every run.
    """
    original, probe = prepared.original, probe.to(prepared.device)
    wanted = fit_micro_batch(probe)
    with within_memory(original.name):
        size, _ = _fitting(original, probe, wanted)
        fast, speedups = _fastest(original, _repeat(probe, size), SPEEDUPS)
        size, speed = _fitting(fast, probe, wanted)
        fixed = replace(
            prepared, fast=fast, speedups=speedups, micro_batch=size, screening=None,
            eager_images_per_second=speed,
        )  # fmt: skip
        if prepared.screening is not None and not exact:
            with contextlib.suppress(ClassifierError):
                return _with_screening(fixed, probe)
        return fixed


def fit_micro_batch(probe: Tensor) -> int:
    """Return the micro-batch with which searches classify inputs of this shape, `(B, C, H, W)`."""
    return max(1, min(FIT_MICRO_BATCH, FIT_NUMBERS // max(1, probe[0].numel())))


def with_rough_gradients(
    prepared: PreparedClassifier, probe: Tensor, wanted: bool | None = None
) -> PreparedClassifier:
    """Add a copy in 16-bit floats whose gradients fits of noise follow, if it is `wanted`.

    A fit averages gradients over many inputs and needs only their direction; the noise it finds is
    selected and measured with the model. None adds the copy if it is faster (a pass takes two thirds
    of the time) and its gradients agree (on resnet20 their cosine is 0.98); accelerators are left
    unchanged. Timing decides nothing, so the same seed gives the same noise. Attacks and the rung
    `per-input` follow the gradient of a single input, which is exact.
    """
    model = prepared.fast
    if model.module is None or wanted is False:
        return prepared
    try:
        if wanted or _suits(prepared, probe.to(prepared.device)):
            return replace(prepared, fast=model.with_bfloat16_copy(Bfloat16Model(model)))
    except Exception as error:  # a user's model may fail in any way
        logger.debug("%s has no rough gradients: %s", model.name, error)
    return prepared


@contextlib.contextmanager
def within_memory(name: str) -> Iterator[None]:
    """Raise `ClassifierError` if memory runs out and nothing smaller can be tried."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise ClassifierError(
            f"`model` must fit into memory, {name!r} ran out of it."
            " Give smaller images (--resize), or another --device."
        ) from error


def usable_device(device: str | torch.device | None) -> torch.device:
    """Return the requested device, or else the accelerator, or else PyTorch's default."""
    if device is None:
        accelerator = None
        if torch.accelerator.is_available():  # first, as PyTorch 2.6 raises below without one
            accelerator = torch.accelerator.current_accelerator()
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
    default = torch.get_default_device()
    if device is None and (classifier.module is None or classifier.device != default):
        # A plain callable, or a model that the caller placed on a device, stays there.
        return classifier.device or default
    return usable_device(device)


def _fastest(
    original: Classifier, probe: Tensor, given: Sequence[str] | None
) -> tuple[Classifier, tuple[str, ...]]:
    """Return the fastest variant that agrees, or the one with the given speed-ups; and their names."""
    best, speedups = original, tuple[str, ...]()
    if original.module is None:
        return best, speedups
    true: tuple[list[Tensor], list[Tensor]] | None = None
    for name, change in zip(SPEEDUPS, (_folded, _channels_last), strict=True):
        try:
            # A traced model that fails prints a trace.
            with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
                warnings.simplefilter("ignore")
                candidate = change(best)
                true = true or _answers(original, probe)
                kept = _agree(_answers(candidate, probe), true)
                if given is not None:
                    kept = kept and name in given
                elif kept:
                    ours, theirs = _seconds([candidate, best], probe)
                    kept = ours * GAIN < theirs
        except Exception as error:  # a user's model may fail in any way: it then runs as it is
            logger.debug("%s does not run %s: %s", original.name, name, error)
            continue
        if kept:
            best, speedups = candidate, (*speedups, name)
    return best, speedups


def _with_screening(prepared: PreparedClassifier, probe: Tensor) -> PreparedClassifier:
    """Add a copy in 16-bit floats that takes clear decisions, and measure its cost."""
    if prepared.original.task is not None:
        raise ClassifierError(
            f"`engine` {BFLOAT16} is for classifiers without a task. Leave out --engine."
        )
    some = _repeat(probe, prepared.micro_batch)
    try:
        # In 16-bit floats, a folded model has half the error.
        run = trace_in_bfloat16(_fastest(prepared.original, some, SPEEDUPS)[0], some)
        screening = calibrate(run, prepared.fast, probe)
    except ClassifierError:
        raise
    except Exception as error:  # tracing a user's model may fail in any way
        cause: BaseException = error
        while cause.__cause__ is not None:  # the outermost error may be about PyTorch's internals
            cause = cause.__cause__
        raise ClassifierError(
            f"`engine` {BFLOAT16} must be able to trace this model, but failed:"
            f" {reason_of(cause).rstrip('.!')}. Leave out --engine."
        ) from error
    with frozen(prepared.fast) as model:
        both = [partial(screening.logits, model, some, len(some)), partial(model.logits, some)]
        ours, theirs = _best_times(both)
    return replace(prepared, screening=replace(screening, cost=ours / theirs))


def _folded(classifier: Classifier) -> Classifier:
    assert classifier.module is not None
    layers = list(classifier.module.modules())
    if not all(
        any(isinstance(each, kind) for each in layers) for kind in (nn.Conv2d, nn.BatchNorm2d)
    ):
        raise ValueError("no convolution with batch normalisation to fold")
    # Imported here, where warnings are off: it warns on import.
    from torch.fx.experimental.optimization import fuse

    folded: nn.Module = fuse(copy.deepcopy(classifier.module).eval(), inplace=True)
    return classifier.with_model(folded.eval().requires_grad_(False))


def _channels_last(classifier: Classifier) -> Classifier:
    module = copy.deepcopy(classifier.module)
    assert module is not None
    changed = module.eval().requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return classifier.with_model(changed, channels_last=True)


def _answers(classifier: Classifier, probe: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Return logits of batches of two sizes, features if a layer is named, and input gradients."""
    with frozen(classifier) as model:
        found = [
            model.gradient(lambda logits: logits.reshape(len(logits), -1).logsumexp(1), x)
            for x in (probe, probe[: max(1, len(probe) // 3)])
        ]
        values = [logits for _, logits in found]
        if classifier.features is not None:
            # Folding rebuilds the model from its innermost layers, so this layer may no longer run.
            values.append(model.features(probe).detach())
    return values, [gradient for gradient, _ in found]


def _agree(
    ours: tuple[list[Tensor], list[Tensor]], true: tuple[list[Tensor], list[Tensor]]
) -> bool:
    """Whether the answers of a variant agree with the `true` ones of the original model."""
    # Rounding can break a tie of a max-pool differently, which moves a gradient to another pixel.
    return all(
        value.shape == other.shape
        and bool((value - other).abs().max() <= AGREEMENT * other.abs().max())
        for value, other in zip(ours[0], true[0], strict=True)
    ) and all(
        bool((gradient - other).norm() <= GRADIENT_AGREEMENT * other.norm())
        for gradient, other in zip(ours[1], true[1], strict=True)
    )


def _seconds(
    classifiers: Sequence[Classifier],
    x: Tensor,
    *,
    least: int = 3,
    most: int = 20,
    enough: float = 0.24,
) -> list[float]:
    """Return the best time of a forward pass of each classifier; see `_best_times`."""
    with contextlib.ExitStack() as stack:
        models = [stack.enter_context(frozen(each)) for each in classifiers]
        passes = [partial(model.logits, x) for model in models]
        return _best_times(passes, least, most, enough)


@torch.inference_mode()
def _best_times(
    passes: Sequence[Callable[[], Tensor]], least: int = 3, most: int = 20, enough: float = 0.24
) -> list[float]:
    """Return the best time of each pass; they take turns, so that all run under the same load.

    From `least` to `most` turns, until the first pass has run for `enough` seconds.
    """
    times: list[list[float]] = [[] for _ in passes]
    for once in passes:
        once()
    for turn in range(most):
        if turn >= least and sum(times[0]) > enough:
            break
        for once, own in zip(passes, times, strict=True):
            start = time.perf_counter()
            # Reading a number back waits for asynchronous devices.
            float(once().sum())
            own.append(time.perf_counter() - start)
    return [min(own) for own in times]


def _best_micro_batch(
    classifier: Classifier, probe: Tensor, given: int | None
) -> tuple[int, float]:
    """Return the smallest micro-batch within 3 % of the best speed, and images per second there.

    The search ends at a slow size, or if two in a row gain nothing. A given size is only fitted.
    """
    if given is not None:
        return _fitting(classifier, probe, given)
    speeds = dict([_fitting(classifier, probe, MICRO_BATCHES[0])])
    idle = 0
    for size in MICRO_BATCHES[1:]:
        best = max(speeds.values())
        try:
            speeds[size] = _speed(classifier, probe, size)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            break
        idle = 0 if speeds[size] > GAIN * best else idle + 1
        if idle == 2 or speeds[size] < 0.8 * best or size / speeds[size] > 4.0:
            break
    best = max(speeds.values())
    size = min(size for size, speed in speeds.items() if speed >= best / GAIN)
    return size, speeds[size]


def _fitting(classifier: Classifier, probe: Tensor, size: int) -> tuple[int, float]:
    """Return the size, halved until it fits into memory, and images per second."""
    try:
        return size, _speed(classifier, probe, size)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error) or size == 1:
            raise
    return _fitting(classifier, probe, size // 2)


def _speed(classifier: Classifier, probe: Tensor, size: int) -> float:
    """Measure images per second in batches of this size."""
    return size / _seconds([classifier], _repeat(probe, size), least=1, most=8, enough=0.02)[0]


def _repeat(probe: Tensor, size: int) -> Tensor:
    copies = -(-size // len(probe))
    return probe.repeat(copies, 1, 1, 1)[:size]


def _suits(prepared: PreparedClassifier, probe: Tensor) -> bool:
    """Whether rough gradients are faster and point in the same direction."""
    model = prepared.fast
    if prepared.device.type != "cpu" or not computes_in_bfloat16(prepared.device):
        return False
    if _operations(model, probe[:1]) < LEAST_OPERATIONS:
        return False
    guided = model.with_bfloat16_copy(Bfloat16Model(model))
    return _cosine(guided, probe.split(prepared.micro_batch)) >= LEAST_COSINE


def _operations(classifier: Classifier, x: Tensor) -> float:
    """Count the floating-point operations of a forward pass of one image."""
    from torch.utils.flop_counter import FlopCounterMode  # slow to import, and rarely needed

    with frozen(classifier) as model, torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.logits(x)
    return float(counter.get_total_flops()) / len(x)


def _cosine(classifier: Classifier, batches: Sequence[Tensor]) -> float:
    """Return the mean cosine between rough and exact gradients of log-sum-exp."""
    found = []
    with frozen(classifier) as model:
        for x in batches:
            exact, rough = (
                model.gradient(lambda logits: logits.logsumexp(1), x, rough=each)[0].flatten(1)
                for each in (False, True)
            )
            found.append(nn.functional.cosine_similarity(exact, rough))
    return float(torch.cat(found).mean())
