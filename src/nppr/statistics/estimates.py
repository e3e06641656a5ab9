"""From tallies to estimates: every reading of a tally, with its interval.

Only a tally of the evaluate split can be read: the types require it, and so does a check at run time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from nppr.errors import SpecError, SplitError
from nppr.statistics.betting import betting
from nppr.statistics.intervals import (
    Interval,
    bootstrap,
    check_confidence,
    clopper_pearson,
    empirical_bernstein,
    hoeffding,
    normal,
    percentiles,
    ratio_bootstrap,
    resampled_means,
)
from nppr.tally import (
    BoolArray,
    Claim,
    Direction,
    Estimate,
    Evaluate,
    FloatArray,
    Metric,
    Tally,
    require_evaluate,
)

APPROXIMATE = "approximate-interval"
"""Flag: an approximate interval outside the regime in which it was tested."""

UNRESOLVED = "unresolved-gamma"
"""Flag: too few draws to tell an input's probability from 1 - gamma."""

SEQUENCE = "betting-sequence"
"""Method of the interval that a run stopped by."""

GAMMAS = (0.2, 0.1, 0.05, 0.01)
"""Of Prob.Acc (Robey et al., 2022)."""

FEWEST_INPUTS = 400
MOST_CONFIDENT = 0.99
"""Approximate intervals were tested with at least so many inputs, up to this confidence."""

_TINY = float(np.finfo(np.float64).tiny)


def accuracy(tally: Tally[Evaluate], confidence: float) -> Estimate:
    """Clean accuracy, from the clean tally: exact binomial interval over inputs."""
    return _binomial(tally, Metric.ACCURACY, Direction.ESTIMATE, tally.correct == 1, confidence)


def adversarial(tally: Tally[Evaluate], confidence: float) -> Estimate:
    """AR: share of clean-correct inputs that nothing broke, with an exact binomial interval.

    An upper bound: an attack that fails proves nothing.
    """
    unbroken = tally.unbroken[tally.clean_correct]
    return _binomial(tally, Metric.AR, Direction.UPPER_BOUND, unbroken, confidence)


def corrupted(tally: Tally[Evaluate], confidence: float) -> Estimate:
    """Share of clean-correct inputs that stay correct under a corruption, exact interval."""
    unbroken = tally.unbroken[tally.clean_correct]
    return _binomial(tally, Metric.CORRUPTION, Direction.ESTIMATE, unbroken, confidence)


def probabilistic(
    tally: Tally[Evaluate], confidence: float, metric: Metric = Metric.PR, seed: int = 0
) -> list[Estimate]:
    """PR or NPPR: mean over clean-correct inputs, with four intervals over inputs, one over draws.

    The first is the one for a table; `betting` is guaranteed, `empirical-bernstein` guaranteed, wider
    and of closed form. `hoeffding` is guaranteed too, but applies to this test set: only the draws are
    random.
    """
    x = tally.headline_rates
    require_readable(tally, confidence, x)
    mean, (sure, wrong) = float(x.mean()), allow_for_audit(tally, confidence)
    intervals = {
        "normal": normal(x, sure),
        "bootstrap": bootstrap(x, sure, seed),
        "empirical-bernstein": empirical_bernstein(x, sure),
        "betting": betting(x, sure, seed),
        "hoeffding": hoeffding(mean, len(x) * tally.draws, sure),
    }
    margin = wrong / (len(x) * tally.draws)
    return [
        make_estimate(
            tally, metric, mean, interval.widened(margin), method, confidence, len(x),
            claim=Claim.TEST_SET if method == "hoeffding" else Claim.POPULATION,
            direction=_direction(metric),
            flags=_flags(x, confidence) if method in ("normal", "bootstrap") else (),
        )
        for method, interval in intervals.items()
    ]  # fmt: skip


def probably_accurate(
    tally: Tally[Evaluate], confidence: float, metric: Metric = Metric.PR
) -> list[Estimate]:
    """Prob.Acc(gamma): share of clean-correct inputs whose share of correct draws exceeds 1 - gamma.

    The exact interval is over inputs. Flagged where even an input without any failure among its draws
    does not show, at this confidence, that its own probability exceeds 1 - gamma. `metric` is the one
    that the source's tally is read as.
    """
    rows = []
    sure, wrong = allow_for_audit(tally, confidence)
    for gamma in GAMMAS:
        above = tally.headline_rates > 1 - gamma
        row = _binomial(tally, Metric.PROB_ACC, _direction(metric), above, sure)
        ends = Interval(row.low, row.high).widened(wrong / row.inputs)
        row = replace(row, low=ends.low, high=ends.high, confidence=confidence)
        unresolved = (1 - gamma) ** tally.draws > 1 - confidence
        rows.append(replace(row, gamma=gamma, flags=(UNRESOLVED,) if unresolved else ()))
    return rows


def normalised(
    tally: Tally[Evaluate], confidence: float, metric: Metric = Metric.PR, seed: int = 0
) -> Estimate:
    """Accuracy under the source over all inputs / clean accuracy; can exceed 1.

    `metric` is the one that the source's tally is read as: under a search for bad noise it is a bound.
    """
    require_readable(tally, confidence, tally.headline_rates)
    x = tally.rates
    value = float(x.mean() / tally.clean_correct.mean())
    sure, wrong = allow_for_audit(tally, confidence)
    margin = wrong / (int(tally.clean_correct.sum()) * tally.draws)
    interval = ratio_bootstrap(x, tally.clean_correct, sure, seed).widened(margin, math.inf)
    return make_estimate(
        tally, Metric.NORMALISED_ACCURACY, value, interval, "paired-bootstrap", confidence, len(x),
        direction=_direction(metric), flags=_flags(x, confidence),
    )  # fmt: skip


def stressed(
    tally: Tally[Evaluate],
    losses: FloatArray,
    standard: FloatArray,
    confidence: float,
    seed: int = 0,
) -> list[Estimate]:
    """Mean over all inputs of their stress `(N,)`, raw and divided by the mean standard loss.

    Both intervals are percentiles over resampled inputs: approximate. They hold for the stress that
    this many draws show, which for large q is below the true one.
    """
    require_evaluate(tally)
    check_confidence(confidence)
    means = resampled_means(np.stack([losses, standard]), seed)
    ratio = float(losses.mean() / max(standard.mean(), _TINY))
    ratios = means[0] / np.maximum(means[1], _TINY)
    rows = (
        (Metric.STRESS, float(losses.mean()), means[0], "bootstrap"),
        (Metric.NORMALISED_STRESS, ratio, ratios, "paired-bootstrap"),
    )
    return [
        make_estimate(
            tally, metric, value, percentiles(spread, confidence, math.inf), method, confidence,
            len(losses),
        )
        for metric, value, spread, method in rows
    ]  # fmt: skip


def per_input(tally: Tally[Evaluate], confidence: float) -> FloatArray:
    """Exact binomial interval of every input's own probability, `(2, N)`."""
    require_evaluate(tally)
    sure, wrong = allow_for_audit(tally, confidence)
    fewer = np.maximum(tally.correct - math.ceil(wrong), 0)
    more = np.minimum(tally.correct + math.ceil(wrong), tally.draws)
    low, high = (clopper_pearson(each, tally.draws, sure) for each in (fewer, more))
    return np.stack([low[0], high[1]])


def allow_for_audit(tally: Tally[Evaluate], confidence: float) -> tuple[float, float]:
    """The confidence left for the draws, and how many decisions may be wrong beside that.

    A tenth of the error is for the audit of a tally that a coarse copy of the model helped to count;
    none of it is needed for exact counts.
    """
    error = check_confidence(confidence)
    if tally.audit is None or tally.is_exact:
        return confidence, 0.0
    return 1 - 0.9 * error, tally.audit.most_wrong(0.1 * error)


def merged(tallies: Sequence[Tally[Evaluate]]) -> Tally[Evaluate]:
    """One attack out of several sources of the same budget: an input survives if all its draws did.

    A failing draw of any of them is an adversarial example, so merged AR is at most every PR.
    """
    first = tallies[0]
    for tally in tallies:
        require_evaluate(tally)
        if not np.array_equal(tally.indices, first.indices):
            raise SplitError("merged tallies must be of the same inputs, got different ones.")
    unbroken = reduce(np.logical_and, (tally.unbroken for tally in tallies))
    calls = sum(tally.calls for tally in tallies)
    return replace(first, correct=unbroken.astype(np.int64), draws=1, calls=calls)


def make_estimate(
    tally: Tally[Evaluate],
    metric: Metric,
    value: float,
    interval: Interval,
    method: str,
    confidence: float,
    inputs: int,
    *,
    claim: Claim = Claim.POPULATION,
    direction: Direction = Direction.ESTIMATE,
    flags: tuple[str, ...] = (),
) -> Estimate:
    """A value read from a tally over so many `inputs`, with its interval."""
    return Estimate(
        metric, value, interval.low, interval.high, confidence, method, claim, direction,
        inputs, tally.draws, tally.calls, flags=flags,
    )  # fmt: skip


def require_readable(
    tally: Tally[Evaluate],
    confidence: float,
    counted: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
) -> None:
    """Raise unless the tally is of the evaluate split and some input counts; check the confidence."""
    require_evaluate(tally)
    check_confidence(confidence)
    if not len(counted):
        raise SpecError(
            "`inputs` must hold at least one clean-correct input, got none. Check the classifier, its"
            " normalisation and the labels."
        )


def _binomial(
    tally: Tally[Evaluate],
    metric: Metric,
    direction: Direction,
    successes: BoolArray,
    confidence: float,
) -> Estimate:
    require_readable(tally, confidence, successes)
    n, value = len(successes), float(successes.mean())
    low, high = clopper_pearson(np.array(successes.sum()), n, confidence)
    exact = Interval(float(low), float(high))
    return make_estimate(
        tally, metric, value, exact, "clopper-pearson", confidence, n, direction=direction
    )


def _direction(metric: Metric) -> Direction:
    searched = metric in (Metric.AR, Metric.NPPR)
    return Direction.UPPER_BOUND if searched else Direction.ESTIMATE


def _flags(x: FloatArray, confidence: float) -> tuple[str, ...]:
    inside = len(x) >= FEWEST_INPUTS and 0.1 <= x.mean() <= 0.9 and confidence <= MOST_CONFIDENT
    return () if inside else (APPROXIMATE,)
