"""Checks of a classifier and its data before any source is measured: can robustness be measured?

Inputs: are the images in [0, 1], as bright as usual, and of all classes alike? State: does the
model keep its weights and its mode? Answers: are they logits, and a function of the image alone?
Gradients: do they give a useful direction? Normalisation: is another common one clearly better?
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import torch
from scipy.stats import binomtest
from torch import Tensor, nn

from nppr.core.budget import Budget, perturbed
from nppr.core.losses import margin
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import BoolArray, IntArray
from nppr.data import RANGE_TOLERANCE, Data, content_hash
from nppr.doctor.flags import (
    ATTACK_FAILS,
    BATCH_DEPENDENT,
    CLASS_IMBALANCE,
    EXPLODING_GRADIENTS,
    LOOK_SCALED,
    MODEL_CHANGED,
    NAN_GRADIENTS,
    NO_GRADIENTS,
    NORMALISATION,
    NOT_LOGITS,
    OUT_OF_RANGE,
    RANDOMISED,
    SEVERITY,
    TRAIN_MODE,
    ZERO_GRADIENTS,
    flag,
    overlap_flags,
)
from nppr.doctor.result_checks import check_results
from nppr.errors import ClassifierError, GradientError
from nppr.measuring.measurement import measure, probe
from nppr.models import (
    AGREEMENT,
    Classifier,
    FrozenClassifier,
    PreparedClassifier,
    check_classifier,
    frozen,
    is_out_of_memory,
    prepare,
)
from nppr.report.model import Flag
from nppr.sources import PGD, Clean

PROBES = 32  # most inputs that are examined
ALONE = 4  # images that are examined one by one
NOISE_IMAGES = 8
DARK = 0.02  # largest pixel of images that are too dark; images divided by 255 twice reach 1/255
IMBALANCE = 3.0  # size of the largest class over the mean of the others, above which it dominates
LARGE_CLASS = 30  # least inputs of a class that dominates; small differences may be chance
INPUTS_PER_CLASS = 10  # mean inputs per class, from which no class may be missing
SUM_TOLERANCE = 1e-3  # tolerated rounding error of the sum of softmax outputs
EXPLODING = 1e6  # Euclidean length of the gradient of the cross-entropy in an image in [0, 1]
ZERO_SHARE = 0.5  # share of inputs without any gradient, from which it is flagged
ATTACKED = 16  # most inputs that are attacked
STEPS = 20
CONFIDENCE = 0.95  # of the accuracy that is compared with chance
UNBROKEN_SHARE = 0.1  # share of attacked inputs that may survive an attack that can reach any image


def examine(
    classifier: Classifier,
    data: Data,
    *,
    device: str | torch.device | None = None,
    micro_batch: int | None = None,
    seed: int = 0,
) -> tuple[Flag, ...]:
    """Return all flags that need no source: flags of the splits, the model and its clean answers."""
    inputs = check_inputs(data)
    if any(each.id == OUT_OF_RANGE for each in inputs):  # no measurement would accept them
        return (*overlap_flags(data), *inputs)
    ready = prepare(
        classifier, probe(data.evaluate), classes=data.classes, device=device,
        micro_batch=micro_batch,
    )  # fmt: skip
    return examine_ready(ready, data, seed=seed)


def examine_ready(ready: PreparedClassifier, data: Data, *, seed: int = 0) -> tuple[Flag, ...]:
    """Return the same flags for a prepared classifier, on inputs in [0, 1]."""
    overlapping, found = overlap_flags(data), check_model(ready.original, data, seed=seed)
    everything = np.ones(len(data.evaluate), bool)
    clean = measure(Clean(), ready, data.evaluate, clean_correct=everything)
    measured = check_results((), {}, (), (), clean, data.classes, CONFIDENCE)
    return (*overlapping, *found, *measured)


def check_model(classifier: Classifier, data: Data, *, seed: int = 0) -> tuple[Flag, ...]:
    """Return the flags of a classifier on at most 32 inputs spread over the evaluate split.

    `seed` determines the images of noise among them. A model that does not classify these data
    raises `ClassifierError`. Pixels outside [0, 1], which no measurement accepts, end the check.
    """
    flags = check_inputs(data)
    if any(found.id == OUT_OF_RANGE for found in flags):
        return flags
    place = classifier.device or torch.get_default_device()
    x, y = (each.to(place) for each in data.evaluate.batch(_probe_positions(data)))
    module, generator = classifier.module, torch.Generator().manual_seed(seed)
    flags += (*_check_mode(module),)
    before = _hashes(module)
    # Random numbers that the model draws here must not change later measurements.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if classifier.quirks is None:
            classifier = classifier.with_quirks(check_classifier(classifier, x[:2], data.classes))
        with frozen(classifier) as model:
            answers = (*_check_answers(model, x, generator), *_check_gradients(model, x, y, seed))
            kept = tuple(_check_kept(module, before))
        normalised = tuple(check_normalisation(classifier, data))
    return (*flags, *kept, *answers, *normalised)


def check_inputs(data: Data) -> tuple[Flag, ...]:
    """Return the flags of the evaluate split: some of its images, and all its labels."""
    split = data.evaluate
    loaded = split.images.load(split.indices[_probe_positions(data)]).float()
    return (*_check_pixels(loaded, data.layout is None), *_check_balance(data))


def _probe_positions(data: Data) -> IntArray:
    """Return at most 32 positions, spread over the evaluate split to include many classes."""
    return np.unique(np.linspace(0, len(data.evaluate) - 1, PROBES).astype(np.int64))


def _check_pixels(x: Tensor, images: bool = True) -> Iterator[Flag]:
    """Yield flags of inputs `(B, C, H, W)` as loaded; only images can be too dark."""
    low, high = (float(bound) for bound in torch.aminmax(x))  # NaN anywhere makes both NaN
    if not (low >= -RANGE_TOLERANCE and high <= 1 + RANGE_TOLERANCE):
        mean, std = float(x.mean()), float(x.std())
        standardised = math.isfinite(mean) and low < 0 and abs(mean) < 1 and 0.5 < std < 2
        hint = ", apparently normalised already" if standardised else ""
        yield flag(OUT_OF_RANGE, f"pixels from {low:.3g} to {high:.3g}{hint}")
    elif images and high < DARK:
        yield flag(LOOK_SCALED, f"the largest pixel is {high:.2g}")


def _check_balance(data: Data) -> Iterator[Flag]:
    """Yield a flag if a class dominates the evaluate split or is missing there."""
    if data.classes == 1:
        return
    counts: IntArray = np.bincount(data.evaluate.labels, minlength=data.classes)
    largest = int(counts.argmax())
    most = int(counts[largest])
    others = (int(counts.sum()) - most) / (data.classes - 1)
    missing = int((counts == 0).sum())
    if most >= LARGE_CLASS and most > IMBALANCE * others:
        name = data.class_names[largest]
        found = f"{most:,} inputs of class {name!r}, {others:.1f} per other class on average"
        yield flag(CLASS_IMBALANCE, found)
    elif missing and counts.mean() >= INPUTS_PER_CLASS:
        yield flag(CLASS_IMBALANCE, f"{missing:,} of {data.classes:,} classes have no input")


def _hashes(module: nn.Module | None) -> dict[str, bytes]:
    """Return a hash of every parameter and buffer by name, also of those outside the state dict."""
    if module is None:
        return {}
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {
        name: content_hash(
            tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        )
        for name, tensor in tensors.items()
    }


def _check_mode(module: nn.Module | None) -> Iterator[Flag]:
    layers = [] if module is None else list(module.modules())
    training = sum(layer.training for layer in layers)
    if training:
        yield flag(TRAIN_MODE, f"{training:,} of {len(layers):,} layers are in training mode")


def _check_kept(module: nn.Module | None, before: dict[str, bytes]) -> Iterator[Flag]:
    """Yield a flag if calls in eval mode changed tensors or the mode."""
    after = _hashes(module)
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    switched = [] if module is None else [layer for layer in module.modules() if layer.training]
    found = []
    if changed:
        found.append(f"{', '.join(changed[:3])}{' and others' * (len(changed) > 3)} changed")
    if switched:
        found.append(f"{len(switched):,} layers went into training mode")
    if found:
        yield flag(MODEL_CHANGED, ", ".join(found))


@torch.no_grad()
def _check_answers(
    model: FrozenClassifier, x: Tensor, generator: torch.Generator
) -> Iterator[Flag]:
    """Yield flags of the outputs for images `(B, C, H, W)`; `generator` draws images of noise.

    An image must have the same logits alone as in a batch, or twice for a model that needs two.
    """
    logits = model.logits(x)
    again = model.logits(x)
    if not _agree(logits, again):
        yield flag(RANDOMISED, _difference(logits, again))
    else:
        alone = torch.cat([model.logits(image) for image in x[:ALONE].split(1)])
        if not _agree(logits[:ALONE], alone):
            yield flag(BATCH_DEPENDENT, _difference(logits[:ALONE], alone))
    if model.classifier.task is None:
        yield from _check_logits(torch.cat([logits, model.logits(_strange(x, generator))]))


def _check_logits(outputs: Tensor) -> Iterator[Flag]:
    """Yield a flag if outputs `(N, classes)` for many kinds of image are probabilities."""
    inside = bool(((outputs >= 0) & (outputs <= 1 + SUM_TOLERANCE)).all())
    if not inside or bool((outputs == outputs[0]).all()):
        return
    if bool(((outputs.sum(1) - 1).abs() <= SUM_TOLERANCE).all()):
        yield flag(NOT_LOGITS, "the outputs lie in [0, 1] and add up to 1, like a softmax")
    else:
        yield flag(NOT_LOGITS, "the outputs lie in [0, 1], like a sigmoid")


def _strange(x: Tensor, generator: torch.Generator) -> Tensor:
    """Return black, white, grey, inverted and noise images: logits leave [0, 1] on some of them."""
    plain = [torch.full_like(x[:1], value) for value in (0.0, 1.0, 0.5)]
    noise = torch.rand((NOISE_IMAGES, *x.shape[1:]), generator=generator)
    hard = (noise > 0.5).to(noise.dtype)
    return torch.cat([*plain, 1 - x[:NOISE_IMAGES], noise.to(x), hard.to(x)])


def _agree(first: Tensor, second: Tensor) -> bool:
    """Whether both are equal up to rounding, relative to the largest; False for NaN."""
    first, second = first.float(), second.float()  # a task may return masks
    return bool((first - second).abs().max() <= AGREEMENT * first.abs().max())


def _difference(first: Tensor, second: Tensor) -> str:
    first, second = first.float(), second.float()
    largest, difference = float(first.abs().max()), float((first - second).abs().max())
    return f"logits of at most {largest:.3g} differ by {difference:.3g}"


def _check_gradients(model: FrozenClassifier, x: Tensor, y: Tensor, seed: int) -> tuple[Flag, ...]:
    """Return flags of the gradients at images `(B, C, H, W)` with labels `(B,)`."""
    try:
        steepness, _ = model.gradient(lambda logits: model.attacked_loss(logits, y), x)
        slope, logits = model.gradient(lambda logits: margin(*model.to_classes(logits, y)), x)
        answers, labels = model.to_classes(logits, y)
        return (
            *_check_sizes(steepness.flatten(1), slope.flatten(1)),
            *_check_attack(model, x, y, answers.argmax(1) == labels, seed),
        )
    except (GradientError, ClassifierError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        reason = "the model gives no gradients"
        if not isinstance(error, GradientError):  # the user's model failed
            reason += f" ({' '.join(str(error).split())[:120]})"
        message = f"{reason}: attacks by gradients cannot be measured"
        severity = SEVERITY[NO_GRADIENTS]
        return (Flag(id=NO_GRADIENTS, source=None, message=message, severity=severity),)


def _check_sizes(steepness: Tensor, slope: Tensor) -> Iterator[Flag]:
    """Yield flags of the gradients of the cross-entropy and of the margin, both `(B, D)`.

    The cross-entropy of an input that is classified with certainty has a true gradient of 0, but
    the gradient of the margin `h_y - max_(j != y) h_j` does not vanish there. A gradient thus
    counts as missing only if both are 0.
    """
    broken = ~(torch.isfinite(steepness) & torch.isfinite(slope)).all(1)
    if bool(broken.any()):
        yield flag(NAN_GRADIENTS, f"{_share(broken)} have gradients that are NaN or infinite")
        return
    nothing = (steepness == 0).all(1) & (slope == 0).all(1)
    if float(nothing.float().mean()) >= ZERO_SHARE:
        yield flag(ZERO_GRADIENTS, f"{_share(nothing)} have a gradient of exactly 0")
    longest = float(steepness.double().norm(dim=1).max())
    if longest > EXPLODING:
        yield flag(EXPLODING_GRADIENTS, f"a gradient has length {longest:.2g}")


def _check_attack(
    model: FrozenClassifier, x: Tensor, y: Tensor, correct: Tensor, seed: int
) -> Iterator[Flag]:
    """Yield a flag if PGD from the image itself fails with a radius that reaches any image."""
    rows = correct.nonzero().flatten()[:ATTACKED]
    if not len(rows):
        return
    x, y = x[rows], y[rows]
    draws = DrawBlock(seed, "check", tuple(range(len(x))), 0, 1, x.device, 1)
    attack = PGD(Budget.linf(1.0), steps=STEPS, random_start=False)
    found = perturbed(x, attack.perturb(model, x, y, draws)[:, 0])
    with torch.no_grad():
        logits, labels = model.to_classes(model.logits(found), y)
        survived = logits.argmax(1) == labels
    if float(survived.float().mean()) > UNBROKEN_SHARE:
        yield flag(
            ATTACK_FAILS, f"{_share(survived)} withstand {STEPS} steps of PGD with linf radius 1"
        )


def _share(chosen: Tensor) -> str:
    return f"{int(chosen.sum())} of {len(chosen)} inputs"


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
    own = _correct(classifier, data, positions[:FIRST], stated)
    tried = {}
    for name, numbers in others.items():
        with suppress(ClassifierError):  # a user's model may refuse other numbers
            tried[name] = _correct(classifier, data, positions[:FIRST], numbers)
    best = max(tried, key=lambda name: float(tried[name].mean()), default=None)
    if best is None or float(tried[best].mean()) <= float(own.mean()):
        return
    try:
        better = _correct(classifier, data, positions, others[best])
    except ClassifierError:
        return
    own = _correct(classifier, data, positions, stated)
    gained, lost = int((better & ~own).sum()), int((own & ~better).sum())
    significant = gained > lost and binomtest(lost, gained + lost).pvalue < ERROR
    if significant and float(better.mean() - own.mean()) > GAIN:
        yield flag(
            NORMALISATION,
            f"{100 * float(own.mean()):.1f} % of {len(own)} inputs are correct with the stated"
            f" normalisation ({_stated(stated)}) and {100 * float(better.mean()):.1f} % with"
            f" {_advice(best, others[best])}",
        )


def _correct(
    classifier: Classifier, data: Data, positions: IntArray, numbers: Numbers
) -> BoolArray:
    """Return whether each input is classified correctly with a normalisation, `(N,)`."""
    place = classifier.device or torch.get_default_device()
    found = []
    classifier = copy.copy(classifier)
    classifier.mean, classifier.std = numbers
    with frozen(classifier) as model, torch.no_grad():
        for some in np.split(positions, range(BATCH, len(positions), BATCH)):
            x, y = data.evaluate.batch(some)
            answers: Tensor = model.logits(x.to(place)).argmax(1)
            found.append((answers.cpu() == y).numpy())
    return np.concatenate(found)


def _stated(numbers: Numbers) -> str:
    mean, std = map(_listed, numbers)
    return "none" if numbers == (None, None) else f"mean {mean}, std {std}"


def _advice(name: str, numbers: Numbers) -> str:
    mean, std = map(_listed, numbers)
    if numbers == (None, None):
        return "none (leave out --mean and --std)"
    return f"one like that of {name} (--mean {mean} --std {std})"


def _listed(numbers: Sequence[float] | None) -> str:
    return "none" if numbers is None else ",".join(f"{each:.4g}" for each in numbers)
