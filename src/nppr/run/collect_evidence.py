"""Draw again, at the end of a run, what its page shows beside numbers: worst inputs, learned noise.

The draws are the ones that were measured, because they are keyed by seed, dataset index and block.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nppr.core.budget import perturbed
from nppr.core.losses import margin
from nppr.core.random_draws import DRAWS_PER_BLOCK, DrawBlock
from nppr.core.tally import Evaluate, IntArray, Metric, Tally
from nppr.core.transformations import spread_points
from nppr.data import stratified_order
from nppr.models import FrozenPair, frozen
from nppr.noise.family import FLOOR_NOISE
from nppr.noise.mixture import Given
from nppr.noise.structures import has_positions
from nppr.report.evidence import LEVELS, Evidence, NoiseDraws, NoiseLook, Profile, Strip, Worst
from nppr.run.assessment_run import AssessmentRun
from nppr.search.learned_noise import LearnedNoise
from nppr.sources import Source
from nppr.sources.learned import Learned

logger = logging.getLogger(__name__)

T = TypeVar("T")


def collect_evidence(
    run: AssessmentRun, sources: Sequence[Source], learned: Sequence[LearnedNoise]
) -> Evidence:
    """Draw again what a page shows, without repeated searches and sources that fail."""
    correct = np.flatnonzero(run.clean.correct == 1)
    if not len(correct):
        return Evidence()
    quoted = [each for each in learned if each.source.fit_seed is None]
    noises = [each.source for each in quoted]
    plain = sorted(quoted, key=lambda each: each.width)
    chosen = _chosen([*sources, *noises], run.tallies, plain[0].winner if plain else None)
    worst = tuple(
        found
        for source in chosen
        for found in _unless_it_fails(
            f"the worst inputs under {source.name}", partial(_worst, run, source, correct)
        )
    )
    if run.budget.transform is None:
        return Evidence(worst, looks=_collect_looks(run, [*sources, *noises, *run.own], correct))
    drawn = collect_draws(run, [each for each in noises if each.name in run.tallies], correct)
    labels, indices = run.clean.labels[correct], run.clean.indices[correct]
    some = correct[_spread(labels, indices, run.settings.seed, PROFILED)]
    parameters = len(run.budget.transform.box)
    profile, strip = _profile(run, parameters, some), _strip(run, parameters, some[:FEW_INPUTS])
    return Evidence(worst, drawn, (profile,), (strip,))


def collect_draws(
    run: AssessmentRun, noises: Sequence[Learned], correct: IntArray
) -> tuple[NoiseDraws, ...]:
    """Draw learned noise for the inputs at these positions; noise that fails is left out."""
    return tuple(
        found
        for noise in noises
        for found in _unless_it_fails(
            f"the draws of {noise.name}", partial(_draws, run, noise, correct)
        )
    )


def _unless_it_fails(what: str, draw: Callable[[], T]) -> list[T]:
    """Return what is drawn; whatever a source does, the run's numbers are kept."""
    try:
        return [draw()]
    except Exception:
        logger.warning("%s cannot be shown", what)
        logger.debug("%s", what, exc_info=True)
        return []


WORST_INPUTS = 12
WORST_SIDE = 96
SIGNAL_SIDE = 512
"""Pixels per side of an image, and points of a signal, that are kept at most."""

MOST_COST = 200.0
"""Forward passes a draw of a source may take to be drawn from again."""

DIRECTIONS = 16
MOST_SHARE = 6e4
"""Radii that a pixel of a corruption may move: more do not fit into 16 bits."""


def _chosen(
    sources: Sequence[Source], tallies: Mapping[str, Tally[Evaluate]], winner: str | None
) -> list[Source]:
    """The plain learned noise, the strongest attack, the worst noise (or `winner`); else the others."""
    free = [
        each
        for each in sources
        if each.name in tallies and each.can_be_redrawn and each.cost <= MOST_COST
    ]

    def lowest(metric: Metric) -> list[Source]:
        found = [each for each in free if each.metric is metric]
        plain = [each for each in found if each.name == winner]
        rates = {each.name: float(tallies[each.name].headline_rates.mean()) for each in found}
        return (plain or sorted(found, key=lambda each: rates[each.name]))[:1]

    found = [*lowest(Metric.NPPR), *lowest(Metric.AR), *lowest(Metric.PR)]
    return found or lowest(Metric.CORRUPTION)


def _worst(run: AssessmentRun, source: Source, correct: IntArray) -> Worst:
    """The inputs with the fewest correct draws, each with a draw that fails if one is found."""
    tally, radius = run.tallies[source.name], (source.budget or run.budget).radius
    chosen = correct[np.argsort(tally.rates[correct], kind="stable")[:WORST_INPUTS]]
    capacity = min(DRAWS_PER_BLOCK, source.fixed_draws or DRAWS_PER_BLOCK)
    size = min(capacity, tally.draws)
    parts: list[tuple[Tensor, ...]] = []
    with run.classifier.frozen() as models:
        for some in [chosen] if source.inputs_at_once else _chunks(run, chosen, size):
            x, y = _inputs(run, some)
            delta = source.perturb(models.fast, x, y, _block(run, some, 0, size, capacity)).detach()
            if source.budget is not None:
                source.budget.require(delta, source.name)
            moved = perturbed(
                x.unsqueeze(1), delta, source.budget, quantise=run.classifier.quantise
            )
            with torch.inference_mode():
                batches = moved.flatten(0, 1).split(run.classifier.micro_batch)
                logits = torch.cat([models.fast.logits(batch) for batch in batches])
            labels = torch.from_numpy(run.data.evaluate.labels[some]).to(x.device)
            answers = _answers(run, models, logits, y, labels)
            rows = torch.arange(len(x), device=x.device)
            first = (answers != labels[:, None]).int().argmax(1)  # 0 where no draw fails
            delta, shown = delta[rows, first], moved[rows, first]
            share, theta = (delta / radius).clamp(-MOST_SHARE, MOST_SHARE), x.new_zeros(len(x), 0)
            if source.budget is not None and source.budget.transform is not None:
                share, theta = shown - x, source.budget.parameters(delta)
            side = WORST_SIDE if run.data.is_image else SIGNAL_SIDE
            images = (_small(image, side) for image in (x, share, shown))
            parts.append((answers[rows, first], theta, *images))
    taken_for, theta, clean, share, shown = (
        torch.cat(found).cpu() for found in zip(*parts, strict=True)
    )
    return Worst(
        source=source.name,
        indices=torch.from_numpy(run.data.evaluate.indices[chosen]),
        labels=torch.from_numpy(run.data.evaluate.labels[chosen]),
        taken_for=taken_for,
        rates=torch.from_numpy(tally.rates[chosen]).float(),
        clean=_levels(run, clean),
        delta=share.half(),
        perturbed=_levels(run, shown),
        parameters=theta.float(),
    )


LOOK_DRAWS = 64
LOOK_SIDE = 64
"""Draws behind a spectrum, and pixels per side of a sample or a spectrum, at most."""
LOOK_BINS = 33
MOST_LOOKS = 16


def _collect_looks(
    run: AssessmentRun, sources: Sequence[Source], correct: IntArray
) -> tuple[NoiseLook, ...]:
    """Show the lowest fixed noise, and learned noise of every set, on the same input."""
    if not has_positions(run.data.shape):
        return ()
    measured = [each for each in sources if each.name in run.tallies and each.can_be_redrawn]
    fixed = [each for each in measured if each.is_fixed_noise and each.budget is not None]
    fixed.sort(key=lambda each: float(run.tallies[each.name].headline_rates.mean()))
    sets = {each.admissible.place: each for each in measured if each.admissible}
    split = run.data.evaluate
    [place] = _spread(split.labels[correct], split.indices[correct], run.settings.seed, 1)
    return tuple(
        found
        for source in [*fixed[:1], *(sets[each] for each in sorted(sets))][:MOST_LOOKS]
        for found in _unless_it_fails(
            f"the look of {source.name}", partial(_look, run, source, correct[[place]])
        )
    )


def _look(run: AssessmentRun, source: Source, chosen: IntArray) -> NoiseLook:
    """Draw noise for one input, and describe its frequencies and values."""
    assert source.budget is not None
    blocks = []
    x, y = _inputs(run, chosen)
    with run.classifier.frozen() as models:
        for number in range(-(-LOOK_DRAWS // DRAWS_PER_BLOCK)):
            block = _block(run, chosen, number, DRAWS_PER_BLOCK, DRAWS_PER_BLOCK)
            blocks.append(source.perturb(models.fast, x, y, block).detach()[0])
        delta = torch.cat(blocks)
        moved = perturbed(x, delta[:1], source.budget, quantise=run.classifier.quantise)
        labels = torch.from_numpy(run.data.evaluate.labels[chosen]).to(x.device)
        with torch.inference_mode():
            answers = _answers(run, models, models.fast.logits(moved), y, labels)
    share = (delta / source.budget.radius).float()
    power = torch.fft.fft2(share).abs().square().mean((0, 1))
    power = _small(torch.fft.fftshift(power)[None, None], LOOK_SIDE)[0, 0]
    span = 1.0 if source.budget.norm.name == "linf" else max(float(share.abs().max()), 1e-12)
    counts = share.clamp(-span, span).cpu().histc(LOOK_BINS, -span, span)
    side = WORST_SIDE if run.data.is_image else SIGNAL_SIDE
    clean, shown = (_levels(run, _small(image, side))[0].cpu() for image in (x, moved))
    length = LOOK_SIDE if run.data.is_image else SIGNAL_SIDE
    return NoiseLook(
        source=source.name,
        index=torch.tensor(int(run.data.evaluate.indices[chosen[0]])),
        label=labels[0].cpu(),
        taken_for=answers[0, 0].cpu(),
        clean=clean,
        perturbed=shown,
        sample=share[0, :, :length, :length].half().cpu(),
        spectrum=(power / power.mean().clamp_min(1e-30)).clamp_min(1e-6).log10().cpu(),
        histogram=counts / counts.sum(),
        span=torch.tensor(span),
    )


PROFILED = 200
BINS = 16
STRIP_POINTS = 65
"""Inputs and bins of a profile, and parameters from which a strip is chosen."""

SCANNED = "parameters all over the box"


def _profile(run: AssessmentRun, parameters: int, chosen: IntArray) -> Profile:
    """How many of these inputs are correct in each bin of each parameter, the others uniform."""
    budget = run.budget
    correct = torch.zeros(parameters, BINS, dtype=torch.int64)
    with run.classifier.frozen() as models:
        for some in _chunks(run, chosen, 1):
            x, y = _inputs(run, some)
            for which in range(parameters):
                block = replace(_block(run, some, which, BINS, BINS), split="profile")
                u = budget.uniform(block, "profile", (parameters, 1, 1)) / budget.radius
                inside = (u[:, :, which] + 1) / 2  # of a bin
                bins = torch.arange(BINS, device=u.device).view(1, -1, 1, 1)
                u[:, :, which] = 2 * (bins + inside) / BINS - 1
                for place in range(BINS):
                    moved = perturbed(x, budget.radius * u[:, place], budget,
                                      quantise=run.classifier.quantise)  # fmt: skip
                    with torch.inference_mode():
                        logits, labels = models.fast.to_classes(models.fast.logits(moved), y)
                    correct[which, place] += int((logits.argmax(1) == labels).sum())
    return Profile(FLOOR_NOISE, correct, torch.full_like(correct, len(chosen)))


def _strip(run: AssessmentRun, parameters: int, chosen: IntArray) -> Strip:
    """These inputs at the parameters of the largest, the median and the smallest margin."""
    budget, (x, y) = run.budget, _inputs(run, chosen)
    points = budget.radius * spread_points(STRIP_POINTS, parameters).to(x)
    with run.classifier.frozen() as models:
        moved = [
            perturbed(x, point.view(1, -1, 1, 1), budget, quantise=run.classifier.quantise)
            for point in points
        ]
        with torch.inference_mode():
            logits = torch.stack([models.fast.logits(images) for images in moved], 1)
        repeated = y.repeat_interleave(len(points))
        margins = margin(*models.fast.to_classes(logits.flatten(0, 1), repeated)).view(len(x), -1)
        labels = torch.from_numpy(run.data.evaluate.labels[chosen]).to(x.device)
        answers = _answers(run, models, logits.flatten(0, 1), y, labels)
    order = margins.argsort(dim=1, descending=True, stable=True)
    kept = order[:, [0, len(points) // 2, len(points) - 1]]
    rows = torch.arange(len(x), device=x.device)[:, None]
    images = torch.stack(moved, 1)[rows, kept]
    return Strip(
        SCANNED,
        torch.from_numpy(run.data.evaluate.indices[chosen]),
        labels.cpu(),
        answers[rows, kept].cpu(),
        _bytes(_small(images.flatten(0, 1), WORST_SIDE)).unflatten(0, kept.shape).cpu(),
        budget.parameters(points[kept].unsqueeze(-1).unsqueeze(-1)).float().cpu(),
    )


def _answers(
    run: AssessmentRun, models: FrozenPair, logits: Tensor, y: Tensor, labels: Tensor
) -> Tensor:
    """The classes that the images of each input were taken for, `(B, S)`, from logits of B S images.

    In a task that is not a classification it is the input's own class where the answer is correct, and
    one more than there are where it is wrong.
    """
    each = len(logits) // len(y)
    if models.fast.classifier.task is None:
        return logits.argmax(1).view(len(y), each)
    judged, right = models.fast.to_classes(logits, y.repeat_interleave(each))
    correct = (judged.argmax(1) == right).view(len(y), each)
    return torch.where(correct, labels[:, None], run.data.classes)


def _levels(run: AssessmentRun, inputs: Tensor) -> Tensor:
    """Inputs in [0, 1] as whole numbers: 8-bit for images, finer for what is drawn or read."""
    if run.data.is_image:
        return _bytes(inputs)
    return inputs.mul(LEVELS).round().to(torch.int32)


def _bytes(images: Tensor) -> Tensor:
    return images.mul(255).round().to(torch.uint8)


MANY_INPUTS = 128
MANY_DRAWS = 8
FEW_INPUTS = 4
FEW_DRAWS = 128
SIDE = 32
MOST_NUMBERS = 2_750_000
"""Numbers in the draws kept of one source, 5.5 MB: larger images are kept of fewer inputs."""


def _draws(run: AssessmentRun, source: Learned, correct: IntArray) -> NoiseDraws:
    """Draws of one learned source for some inputs, and the mixture it has for them."""
    split = run.data.evaluate
    pixels = math.prod(source.distribution.shape)
    if source.budget.transform is None:
        pixels = _small(_inputs(run, correct[:1])[0], SIDE).numel()
    room = max(1, MOST_NUMBERS // pixels - FEW_INPUTS * FEW_DRAWS) // MANY_DRAWS
    labels, indices = split.labels[correct], split.indices[correct]
    chosen = correct[_spread(labels, indices, run.settings.seed, min(MANY_INPUTS, room))]
    _, first = np.unique(split.labels[chosen[:FEW_INPUTS]], return_index=True)
    with run.classifier.frozen() as models, torch.inference_mode():
        many = _drawn(run, source, models, chosen, MANY_DRAWS)
        few = _drawn(run, source, models, chosen[: len(first)], FEW_DRAWS)
        weights = torch.cat(
            [_given(run, source, models, some)[0] for some in _chunks(run, chosen, 1)]
        )
        mixture = _describe_components(*_given(run, source, models, chosen[:1]))
    return NoiseDraws(
        source=source.name,
        indices=torch.from_numpy(split.indices[chosen]),
        labels=torch.from_numpy(split.labels[chosen]),
        many=many,
        few=few,
        weights=weights.cpu(),
        **{name: value.float().cpu() for name, value in mixture.items()},
    )


def _spread(labels: IntArray, indices: IntArray, seed: int, most: int) -> IntArray:
    """Positions of at most `most` inputs, stratified by class, those of different classes first."""
    order = stratified_order(labels, indices, seed)
    _, first = np.unique(labels[order], return_index=True)
    ahead = np.sort(first)[: min(FEW_INPUTS, most)]
    rest = np.setdiff1d(np.arange(len(order)), ahead)
    found: IntArray = order[np.concatenate([ahead, rest])[: max(1, most)]]
    return found


def _drawn(
    run: AssessmentRun, source: Learned, models: FrozenPair, positions: IntArray, draws: int
) -> Tensor:
    """Perturbations as shares of the radius, small, `(n, draws, C, h, w)` float16."""
    rows = []
    for some in _chunks(run, positions, min(draws, DRAWS_PER_BLOCK)):
        x, y = _inputs(run, some)
        blocks = []
        for start in range(0, draws, DRAWS_PER_BLOCK):
            size = min(DRAWS_PER_BLOCK, draws - start)
            block = _block(run, some, start // DRAWS_PER_BLOCK, size, DRAWS_PER_BLOCK)
            delta = source.perturb(models.fast, x, y, block) / source.budget.radius
            blocks.append(_small(delta.flatten(0, 1), SIDE).unflatten(0, delta.shape[:2]).half())
        rows.append(torch.cat(blocks, 1).cpu())
    return torch.cat(rows)


def _given(
    run: AssessmentRun, source: Learned, models: FrozenPair, positions: IntArray
) -> tuple[Tensor, Given]:
    """The weights `(n, K)` before sharpening, and the mixture for these inputs."""
    x, y = _inputs(run, positions)
    features = None
    if source.distribution.features and source.feature_model is not None:
        with frozen(source.feature_model) as other:
            features = other.features(x)
    elif source.distribution.features:
        features = models.fast.features(x)
    given = source.distribution.to(x.device).mixture(source.distribution.sees(y, features))
    return given.log_weights.exp().expand(len(x), -1).float(), given


def _inputs(run: AssessmentRun, positions: IntArray) -> tuple[Tensor, Tensor]:
    """Images `(B, C, H, W)` and labels `(B,)` on the device."""
    x, y = run.data.evaluate.batch(positions)
    return x.to(run.classifier.device), y.to(run.classifier.device)


def _block(
    run: AssessmentRun, positions: IntArray, number: int, size: int, capacity: int
) -> DrawBlock:
    """A block of the draws of these inputs, as they were measured."""
    split, place = run.data.evaluate, run.classifier.device
    indices = tuple(split.indices[positions].tolist())
    return DrawBlock(run.settings.seed, split.kind.name, indices, number, size, place, capacity)


def _chunks(run: AssessmentRun, positions: IntArray, draws: int) -> Iterator[IntArray]:
    """The positions in portions whose draws make a micro-batch."""
    size = max(1, run.classifier.micro_batch // draws)
    for start in range(0, len(positions), size):
        yield positions[start : start + size]


def _small(images: Tensor, side: int) -> Tensor:
    """Images `(B, C, H, W)` averaged down to at most `side` pixels per side."""
    longest = max(images.shape[-2:])
    if longest <= side:
        return images
    height, width = (max(1, round(length * side / longest)) for length in images.shape[-2:])
    return F.adaptive_avg_pool2d(images, (height, width))


def _describe_components(weights: Tensor, given: Given) -> dict[str, Tensor]:
    """Means, deviations and covariances of the components of one input with weights `(1, K)`.

    Directions: those in which the means differ, then those in which the components vary most.
    """
    component = given.covariance.component(given.means, given.raw, given.growth)
    means, stds = component.mean[0], component.variance[0].sqrt()
    centred = means - means.mean(0)
    raw, growth = given.raw[0], given.growth[0]
    varying = given.covariance.principal(weights[0], raw, growth, DIRECTIONS)
    directions = _orthonormal(centred, varying)
    return {
        "means": means,
        "stds": stds,
        "covariances": given.covariance.along(directions, raw, growth),
        "projected": centred @ directions.T,
    }


def _orthonormal(centred: Tensor, varying: Tensor) -> Tensor:
    """Orthonormal rows `(d, D)`, largest entry positive: of centred means `(K, D)`, then `varying`."""
    wanted = min(DIRECTIONS, centred.shape[1])
    _, sizes, rows = torch.linalg.svd(centred, full_matrices=False)
    kept = rows[sizes > 1e-5 * sizes.max().clamp_min(1e-6)]
    found: Tensor = torch.linalg.qr(torch.cat([kept, varying]).T).Q.T[:wanted]
    largest = found.gather(1, found.abs().argmax(1, keepdim=True))
    return found * torch.where(largest < 0, -1.0, 1.0)
