"""Failure probabilities of single inputs that plain draws would not show.

Each input gets R independent runs of multilevel splitting. With fixed levels, the estimate of a run
is unbiased for p; with levels chosen during the run, its bias is of order 1/N. Its logarithm lies
below log p by half its variance, so runs are combined by their arithmetic mean: with N = 100 and p
= 1e-6 (linear classifier) it is 3 % too high, the geometric mean 40 % too low.

The interval is `log p -+ t s / sqrt(R)` with the Student quantile t of R - 1 degrees of freedom. s
is the spread of log p over the runs, or the spread of independent points if that is larger. The
interval is approximate: log p is nearly normal, and runs that all miss a region of failures do not
show it. An estimate is thus an indication: it counts the failures to which the margin leads.

The accompanying `limit` is guaranteed. The first populations of the R runs are R N independent
draws from the law of the noise, for any margin; their failures give a Clopper-Pearson upper limit.
The plain draws do not count, because inputs are followed only if these showed no failure.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import torch

from nppr.core.tally import BoolArray, FloatArray, IntArray, Progress, SplitKind, Tally
from nppr.data import Split
from nppr.errors import RunFolderError, SpecError
from nppr.measuring.measurement import ProgressCallback
from nppr.models import PreparedClassifier
from nppr.rare.latent_noise import make_latent
from nppr.rare.splitting import (
    LOG_FLOOR,
    MOVES,
    Levels,
    MarginJudge,
    SplittingRun,
    Status,
    run_splitting,
)
from nppr.sources import Source
from nppr.statistics.intervals import (
    check_confidence,
    clopper_pearson_upper,
    student_quantile,
)
from nppr.system.records import read_undamaged, shorten_error, write_record

REPLICATES = 5
FEWEST_PARTICLES = 100
MOST_PARTICLES = 4000
"""Smallest and largest number of particles in a run."""

RARE_ARRAYS = ("positions", "indices", "log_p", "log_low", "log_high", "limit", "spread", "calls")
"""Fields of `Rare` with one number per input."""


@dataclass(frozen=True, eq=False)
class Rare:
    """Failure probabilities of some inputs of a split, one entry each.

    Estimates and intervals (natural logarithms) are an indication; see `Status`. `spread` is the
    standard error of log p, and `particles` is the number in each of the `replicates` runs of an input.
    `status` is FOUND if all runs reached failures. With probability at least `confidence`, the failure
    probability of an input is at most its `limit`, which uses independent draws alone. `calls` includes
    those for features.
    """

    source: str
    positions: IntArray
    indices: IntArray
    log_p: FloatArray
    log_low: FloatArray
    log_high: FloatArray
    limit: FloatArray
    spread: FloatArray
    calls: IntArray
    status: tuple[Status, ...]
    particles: int
    replicates: int
    confidence: float

    @property
    def p(self) -> FloatArray:
        """The failure probabilities."""
        return np.asarray(np.exp(self.log_p))

    @property
    def low(self) -> FloatArray:
        """Lower ends of their approximate intervals."""
        return np.asarray(np.exp(self.log_low))

    @property
    def high(self) -> FloatArray:
        """Upper ends of their approximate intervals."""
        return np.asarray(np.exp(self.log_high))


def estimate_rare_failures(
    source: Source,
    classifier: PreparedClassifier,
    split: Split[SplitKind],
    positions: Sequence[int] | IntArray,
    *,
    calls: int,
    replicates: int = REPLICATES,
    seed: int = 0,
    confidence: float = 0.95,
    floor: float = math.exp(LOG_FLOOR),
    progress: ProgressCallback | None = None,
) -> Rare:
    """Estimate the failure probabilities of the inputs at `positions` of a split.

    All inputs together use at most `calls` calls, each an equal share. Runs use as many particles
    (FEWEST to MOST) as can reach `floor` with that share; more frequent failures use fewer calls. A
    failure is a margin `max_{j != y} h_j - h_y >= 0` of the fast variant of the classifier.
    """
    places = np.asarray(positions, dtype=np.int64)
    _check(split, places, replicates, confidence, floor)
    with classifier.frozen() as models, torch.inference_mode():
        x, y = (each.to(classifier.device) for each in split.batch(places[:1]))
        before = models.fast.calls
        latent = make_latent(source, models.fast, x, y)
        source, own = source.with_features(models.fast, split, places, classifier.micro_batch)
        spent = models.fast.calls - before
        own[0] += spent - own.sum()  # the perturbation of the first input, if it uses features
        limit = (calls - spent) // (len(places) * replicates)
        particles = _particles(limit, math.log(floor), calls)
        judge = MarginJudge(models.fast, replace(latent, source=source), classifier.micro_batch)
        runs = [SplittingRun(int(place), each) for place in places for each in range(replicates)]
        found = run_splitting(
            judge, split, runs, particles=particles, limit=limit, floor=math.log(floor), seed=seed,
            device=classifier.device, on_end=_reporter(progress, source.name, judge, len(runs)),
        )  # fmt: skip
    rows = [found[i : i + replicates] for i in range(0, len(found), replicates)]
    log_p, spread = _combine_runs(rows)
    half = student_quantile(confidence, replicates - 1) * spread
    failures = np.array([sum(run.failures for run in row) for row in rows])
    return Rare(
        source=source.name,
        positions=places,
        indices=split.indices[places],
        log_p=log_p,
        log_low=log_p - half,
        log_high=np.minimum(log_p + half, 0.0),
        limit=clopper_pearson_upper(failures, particles * replicates, confidence),
        spread=spread,
        calls=own + np.array([sum(run.calls for run in row) for row in rows]),
        status=tuple(
            max((run.status for run in row if run.status), key=list(Status).index) for row in rows
        ),
        particles=particles,
        replicates=replicates,
        confidence=confidence,
    )


def count_calls(particles: int, log_p: float) -> int:
    """Estimate the number of calls of a run with this many particles, down to `log_p`.

    >>> count_calls(1000, math.log(1e-6))
    10000
    """
    return particles * (1 + math.ceil(-log_p / math.log(MOVES)))


def _particles(limit: int, floor: float, calls: int) -> int:
    """Return the number of particles that reach the log p `floor` with `limit` calls."""
    if limit < FEWEST_PARTICLES:
        raise SpecError(
            f"`calls` must give each run of an input at least {FEWEST_PARTICLES}, got {calls} in total,"
            f" which is {max(limit, 0)} per run. Allow more calls, or follow fewer inputs."
        )
    possible = max(FEWEST_PARTICLES, limit // count_calls(1, floor))
    return min(MOST_PARTICLES, possible) // MOVES * MOVES


def _check(
    split: Split[SplitKind], places: IntArray, replicates: int, confidence: float, floor: float
) -> None:
    if places.ndim != 1 or not len(places) or len(np.unique(places)) < len(places):
        raise SpecError("`positions` must be different positions of the split, at least one.")
    if places.min() < 0 or places.max() >= len(split):
        raise SpecError(f"`positions` must lie in 0..{len(split) - 1}, got {places.tolist()}.")
    if type(replicates) is not int or replicates < 2:
        raise SpecError(f"`replicates` must be a whole number >= 2, got {replicates!r}.")
    check_confidence(confidence)
    if not 0 < floor < 1:
        raise SpecError(f"`rare-floor` must lie in (0, 1), got {floor}. Example: 1e-12")


def _reporter(
    progress: ProgressCallback | None, name: str, judge: MarginJudge, runs: int
) -> Callable[[Levels], None]:
    """Return a callback for the end of a run that reports images judged and the possible total."""
    ended: list[int] = []

    def report(run: Levels) -> None:
        ended.append(run.calls)
        total = max(judge.calls, sum(ended) + (runs - len(ended)) * run.limit)
        if progress:
            progress(Progress(name, judge.calls, total, judge.correct))

    return report


def _combine_runs(rows: Sequence[Sequence[Levels]]) -> tuple[FloatArray, FloatArray]:
    """Return the log p of each input, combined from its runs, and its standard error."""
    each = np.array([[run.log_p for run in row] for row in rows])
    ideal = np.array([[run.variance for run in row] for row in rows]).mean(1)
    replicates = each.shape[1]
    log_p = scipy.special.logsumexp(each, axis=1) - math.log(replicates)
    return log_p, np.sqrt(np.maximum(each.var(1, ddof=1), ideal) / replicates)


@dataclass(frozen=True, eq=False)
class CombinedFailures:
    """Failure probabilities of all inputs of a tally `(N,)`, their standard errors, and their origin.

    An input that never failed, and on which splitting was not run, counts as 0 without an error.
    """

    failures: FloatArray
    errors: FloatArray
    by_splitting: BoolArray

    def added(self, among: BoolArray) -> float:
        """Return the contribution of splitting to the mean over inputs; its expectation is the bias."""
        return float(np.where(self.by_splitting, self.failures, 0.0)[among].mean())


def add_rare_failures(tally: Tally[SplitKind], rare: Rare) -> CombinedFailures:
    """Combine plain draws and splitting into a failure probability for every input of a tally.

    Inputs that failed in some of their S draws keep the share of failures, with its binomial error.
    Inputs that never failed have the estimate by splitting, with the error `p sqrt(exp(s^2) - 1)`
    for a standard error s of log p. Errors of different inputs are independent, so the error of the
    mean over n inputs is `sqrt(sum error^2) / n`; it holds for this test set.

    The mean of a tally is already unbiased: its zeros compensate for the failures it shows by luck.
    Replacing the zeros by q_i therefore raises the expected mean by `mean_i q_i (1 - q_i)^S`, which
    is also the expected contribution of splitting (`added`). The single probabilities improve,
    above all those below 1/S; the combined mean overestimates failures, by at most the amount
    added.
    """
    within = rare.positions.max() < len(tally.indices)
    if not within or not np.array_equal(tally.indices[rare.positions], rare.indices):
        raise SpecError("`rare` must hold inputs of the tally, got those of another split.")
    failures: FloatArray = 1.0 - tally.rates
    errors: FloatArray = np.sqrt(failures * (1 - failures) / max(tally.draws - 1, 1))
    by_splitting = np.zeros(len(failures), bool)
    never = tally.unbroken[rare.positions]
    rows = rare.positions[never]
    failures[rows] = rare.p[never]
    errors[rows] = rare.p[never] * np.sqrt(np.expm1(np.square(rare.spread[never])))
    by_splitting[rows] = True
    return CombinedFailures(failures, errors, by_splitting)


def join_rare(parts: Sequence[Rare]) -> Rare:
    """Join the results of several groups of inputs of one source."""
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in RARE_ARRAYS
    }
    status = tuple(status for part in parts for status in part.status)
    particles = min(part.particles for part in parts)
    return replace(parts[0], **joined, status=status, particles=particles)


def format_rare_csv(found: Mapping[str, Rare]) -> str:
    """Return a CSV with one line per input that splitting was run on: estimate and guaranteed limit."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["index", "source", "p", "low", "high", "limit", "status", "calls"])
    for source, rare in found.items():
        shares = zip(rare.p, rare.low, rare.high, rare.limit, strict=True)
        rows = zip(rare.indices, shares, rare.status, rare.calls, strict=True)
        for index, numbers, status, calls in rows:
            texts = (f"{number:.6g}" for number in numbers)
            writer.writerow([index, source, *texts, status.value, calls])
    return text.getvalue()


def write_rare(path: Path, rare: Rare, identity: str) -> None:
    """Write the file completely or not at all; `identity` identifies the run."""
    tensors = {name: torch.from_numpy(np.array(getattr(rare, name))) for name in RARE_ARRAYS}
    others = [field.name for field in fields(rare) if field.name not in RARE_ARRAYS]
    record = {name: getattr(rare, name) for name in others}
    write_record(path, tensors, record | {"identity": identity})


def read_rare(path: Path, identity: str) -> Rare | None:
    """Return the content of a file, or None if it is missing or damaged."""
    kept = read_undamaged(path, "its inputs are followed again") if path.exists() else None
    if kept is None:
        return None
    tensors, record = kept
    try:
        if record.pop("identity") != identity:
            raise ValueError("it belongs to another run")
        status = tuple(Status(each) for each in record.pop("status"))
        arrays: dict[str, Any] = {name: tensors[name].numpy() for name in RARE_ARRAYS}
        return Rare(**arrays, status=status, **record)
    except (KeyError, ValueError, TypeError) as error:
        raise RunFolderError(
            f"`resume` must find complete files of this run, got {path}: {shorten_error(error)}."
            " Delete it to look for rare failures again."
        ) from error
