"""Failure probabilities of single inputs that plain draws would not meet.

Each input gets R independent runs of multilevel splitting. With fixed levels the estimate of a run is
unbiased for p, and with levels chosen on the way its bias is of order 1/N, while its logarithm lies
below log p by half its variance. So runs are combined by their arithmetic mean: with N = 100 and
p = 1e-6 (linear classifier) it is 3 % too high, the geometric mean 40 % too low.

The interval is `log p -+ t s / sqrt(R)` with the Student quantile t of R - 1 degrees of freedom and s
the spread of log p over the runs, or that of independent points where this is larger. It is
approximate: log p is nearly normal, and runs that all miss a small region of failures do not know it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import logsumexp
from scipy.stats import t as student
from torch import Tensor

from nppr.classifiers import FrozenClassifier, Prepared, frozen
from nppr.data import Part
from nppr.errors import SpecError
from nppr.measure import ProgressCallback
from nppr.rare.judge import Judge
from nppr.rare.latent import latent_of
from nppr.rare.levels import MOVES, Status
from nppr.rare.splitting import FLOOR, Outcome, Run, Scheme, split
from nppr.sources import Learned
from nppr.types import FloatArray, IntArray, PerturbationSource, Progress, Split

__all__ = ["FEWEST", "MOST", "REPLICATES", "Rare", "calls_for", "rare_failures"]

REPLICATES = 5
FEWEST = 100
MOST = 4000
"""Fewest and most particles of a run."""


@dataclass(frozen=True, eq=False)
class Rare:
    """Failure probabilities of some inputs of a part, one entry each.

    `log_p`, `log_low` and `log_high` are natural logarithms, `spread` the standard error of log p,
    `particles` the number in each of the `replicates` runs of an input. `status` is FOUND where all
    runs reached failures; elsewhere the probability is at most about p, see `Status`. `calls` are
    those of each input, features included.
    """

    source: str
    positions: IntArray
    indices: IntArray
    log_p: FloatArray
    log_low: FloatArray
    log_high: FloatArray
    spread: FloatArray
    calls: IntArray
    status: tuple[Status, ...]
    particles: int
    replicates: int
    confidence: float

    @property
    def p(self) -> FloatArray:
        """The failure probabilities."""
        p: FloatArray = np.exp(self.log_p)
        return p

    @property
    def low(self) -> FloatArray:
        """Lower ends of their approximate intervals."""
        low: FloatArray = np.exp(self.log_low)
        return low

    @property
    def high(self) -> FloatArray:
        """Upper ends of their approximate intervals."""
        high: FloatArray = np.exp(self.log_high)
        return high


def rare_failures(
    source: PerturbationSource,
    classifier: Prepared,
    part: Part[Split],
    positions: Sequence[int] | IntArray,
    *,
    calls: int,
    replicates: int = REPLICATES,
    seed: int = 0,
    confidence: float = 0.95,
    floor: float = math.exp(FLOOR),
    quantise: bool = False,
    progress: ProgressCallback | None = None,
) -> Rare:
    """The failure probabilities of the inputs at `positions` of a part, with at most `calls` calls.

    Each input has the same share of the calls, and its runs as many particles (FEWEST to MOST) as can
    reach `floor` with it: more frequent failures use fewer calls than their share. A failure is
    a margin `max_{j != y} h_j - h_y >= 0` of the fast form of the classifier.
    """
    places = np.asarray(positions, dtype=np.int64)
    _check(part, places, replicates, confidence, floor)
    with classifier.frozen(quantise=quantise) as models, torch.inference_mode():
        x, y = part.batch(places[:1])
        x, y = x.to(classifier.device), y.to(classifier.device)
        before = models.fast.calls
        latent = latent_of(source, models.fast, x, y)
        source, own = _with_features(source, classifier, models.fast, part, places)
        latent = replace(latent, source=source)
        spent = models.fast.calls - before
        own[0] += spent - own.sum()  # the look at the first input, where it takes features
        scheme = _scheme((calls - spent) // (len(places) * replicates), math.log(floor), calls)
        judge = Judge(models.fast, latent, classifier.micro_batch)
        runs = [Run(int(place), replicate) for place in places for replicate in range(replicates)]
        watch = _Watch(source.name, judge, progress, scheme, len(runs), spent)
        outcomes = split(judge, part, runs, scheme, seed=seed, device=classifier.device, tell=watch)
    rows = [outcomes[i : i + replicates] for i in range(0, len(outcomes), replicates)]
    return _summary(source.name, part, places, rows, scheme.particles, own, confidence)


def calls_for(particles: int, log_p: float) -> int:
    """Calls that a run of this many particles makes about, down to `log_p`.

    >>> calls_for(1000, math.log(1e-6))
    10000
    """
    return particles * (1 + math.ceil(-log_p / math.log(MOVES)))


def _scheme(share: int, floor: float, calls: int) -> Scheme:
    if share < FEWEST:
        raise SpecError(
            f"`calls` must give each run of an input at least {FEWEST}, got {calls} in all, which is"
            f" {max(share, 0)} a run. Allow more calls, or look at fewer inputs."
        )
    particles = min(MOST, max(FEWEST, share // calls_for(1, floor))) // MOVES * MOVES
    return Scheme(particles, share, floor)


def _check(
    part: Part[Split], places: IntArray, replicates: int, confidence: float, floor: float
) -> None:
    if places.ndim != 1 or not len(places) or len(np.unique(places)) < len(places):
        raise SpecError("`positions` must be different positions of the part, at least one.")
    if places.min() < 0 or places.max() >= len(part):
        raise SpecError(f"`positions` must lie in 0..{len(part) - 1}, got {places.tolist()}.")
    if type(replicates) is not int or replicates < 2:
        raise SpecError(f"`replicates` must be a whole number >= 2, got {replicates!r}.")
    if not 0 < confidence < 1:
        raise SpecError(f"`confidence` must lie in (0, 1), got {confidence}. Example: 0.95")
    if not 0 < floor < 1:
        raise SpecError(f"`rare-floor` must lie in (0, 1), got {floor}. Example: 1e-12")


def _with_features(
    source: PerturbationSource,
    classifier: Prepared,
    model: FrozenClassifier,
    part: Part[Split],
    places: IntArray,
) -> tuple[PerturbationSource, IntArray]:
    """The source with the features of all inputs, found once, and the calls of each for them."""
    calls = np.zeros(len(places), dtype=np.int64)
    if not isinstance(source, Learned) or not source.distribution.features:
        return source, calls
    known = dict(source.known or {})
    todo = [row for row, i in enumerate(part.indices[places].tolist()) if i not in known]
    for start in range(0, len(todo), classifier.micro_batch):
        rows = np.array(todo[start : start + classifier.micro_batch])
        x, _ = part.batch(places[rows])
        features = _features(source, model, x.to(classifier.device))
        known.update(zip(part.indices[places[rows]].tolist(), features.unbind(), strict=True))
        calls[rows] = 1
    return replace(source, known=known), calls


def _features(source: Learned, model: FrozenClassifier, x: Tensor) -> Tensor:
    if source.feature_model is None:
        return model.features(x)
    with frozen(source.feature_model) as other:
        return other.features(x)


class _Watch:
    """Tells how many images were judged of those that runs may still take."""

    def __init__(
        self,
        name: str,
        judge: Judge,
        progress: ProgressCallback | None,
        scheme: Scheme,
        runs: int,
        spent: int,
    ) -> None:
        self.name, self.judge, self.progress = name, judge, progress
        self.limit, self.left, self.spent, self.used = scheme.limit, runs, spent, 0

    def __call__(self, run: Run, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        self.left -= 1
        self.used += outcome.calls
        if self.progress is not None:
            done = self.judge.calls
            total = max(done, self.used + self.left * self.limit)
            self.progress(Progress(self.name, done, total, self.judge.right))


def _summary(
    name: str,
    part: Part[Split],
    places: IntArray,
    rows: Sequence[Sequence[Outcome]],
    particles: int,
    own: IntArray,
    confidence: float,
) -> Rare:
    replicates = len(rows[0])
    each = np.array([[outcome.log_p for outcome in row] for row in rows])
    ideal = np.array([[outcome.variance for outcome in row] for row in rows]).mean(1)
    log_p = logsumexp(each, axis=1) - math.log(replicates)
    spread = np.sqrt(np.maximum(each.var(1, ddof=1), ideal) / replicates)
    half = float(student.ppf((1 + confidence) / 2, replicates - 1)) * spread
    return Rare(
        source=name,
        positions=places,
        indices=part.indices[places],
        log_p=log_p,
        log_low=log_p - half,
        log_high=np.minimum(log_p + half, 0.0),
        spread=spread,
        calls=own + np.array([sum(outcome.calls for outcome in row) for row in rows]),
        status=tuple(_worst([outcome.status for outcome in row]) for row in rows),
        particles=particles,
        replicates=replicates,
        confidence=confidence,
    )


def _worst(statuses: Sequence[Status]) -> Status:
    """FOUND if all are, OUT_OF_CALLS if any is."""
    order = (Status.OUT_OF_CALLS, Status.BELOW, Status.FOUND)
    return min(statuses, key=order.index)
