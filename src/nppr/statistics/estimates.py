"""From tallies to estimates: every reading of a tally, with its interval.

Only a tally of the evaluate split can be read: the types say so, and so does a check at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from nppr.errors import SpecError, SplitError
from nppr.statistics.betting import betting
from nppr.statistics.binomial import error_of
from nppr.statistics.intervals import (
    Interval,
    bootstrap,
    clopper_pearson,
    empirical_bernstein,
    hoeffding,
    normal,
    ratio_bootstrap,
    resampled_means,
)
from nppr.types import (
    Claim,
    Direction,
    Estimate,
    Evaluate,
    FloatArray,
    Metric,
    Tally,
    require_evaluate,
)

__all__ = [
    "APPROXIMATE",
    "GAMMAS",
    "UNRESOLVED",
    "accuracy",
    "adversarial",
    "check_confidence",
    "corrupted",
    "merged",
    "normalised",
    "per_input",
    "probabilistic",
    "probably_accurate",
    "require_inputs",
    "stressed",
]

APPROXIMATE = "approximate-interval"
"""Flag: an approximate interval outside the regime in which it was tested."""

TINY = float(np.finfo(np.float64).tiny)
UNRESOLVED = "unresolved-gamma"
"""Flag: too few draws to tell an input's probability from 1 - gamma."""

GAMMAS = (0.2, 0.1, 0.05, 0.01)
"""Of Prob.Acc (Robey et al., 2022)."""

FEWEST_INPUTS = 400
MOST_CONFIDENT = 0.99


def check_confidence(confidence: float) -> None:
    """Raise `SpecError` unless the confidence lies strictly between 0 and 1."""
    error_of(confidence)


def accuracy(tally: Tally[Evaluate], confidence: float) -> Estimate:
    """Clean accuracy, read off the clean tally: exact binomial interval over inputs."""
    return _binomial(Metric.ACCURACY, Direction.ESTIMATE, tally, tally.right == 1, confidence)


def adversarial(tally: Tally[Evaluate], confidence: float) -> Estimate:
    """AR: share of clean-correct inputs that nothing broke, with an exact binomial interval.

    An upper bound: an attack that fails proves nothing.
    """
    unbroken = tally.unbroken[tally.clean_correct]
    return _binomial(Metric.AR, Direction.UPPER_BOUND, tally, unbroken, confidence)


def corrupted(tally: Tally[Evaluate], confidence: float) -> Estimate:
    """Share of clean-correct inputs that are right under a corruption too, exact interval."""
    right = tally.unbroken[tally.clean_correct]
    return _binomial(Metric.CORRUPTION, Direction.ESTIMATE, tally, right, confidence)


def stressed(
    tally: Tally[Evaluate],
    losses: FloatArray,
    standard: FloatArray,
    confidence: float,
    seed: int = 0,
) -> list[Estimate]:
    """Mean over all inputs of their stress `(N,)`, raw and divided by the mean standard loss.

    Both intervals are percentiles over resampled inputs: approximate. They speak about the stress that
    this many draws show, which for large q is below the truth.
    """
    require_evaluate(tally)
    check_confidence(confidence)
    means = resampled_means(np.stack([losses, standard]), seed)
    found = {
        Metric.STRESS: (float(losses.mean()), means[0], "bootstrap"),
        Metric.NORMALISED_STRESS: (
            float(losses.mean() / max(standard.mean(), TINY)),
            means[0] / np.maximum(means[1], TINY),
            "paired-bootstrap",
        ),
    }
    tail = (1 - confidence) / 2
    return [
        Estimate(
            metric=metric,
            value=value,
            low=float(np.quantile(spread, tail)),
            high=float(np.quantile(spread, 1 - tail)),
            confidence=confidence,
            method=method,
            claim=Claim.POPULATION,
            direction=Direction.ESTIMATE,
            inputs=len(losses),
            draws=tally.draws,
            calls=tally.calls,
        )
        for metric, (value, spread, method) in found.items()
    ]


def probabilistic(
    tally: Tally[Evaluate], confidence: float, metric: Metric = Metric.PR, seed: int = 0
) -> list[Estimate]:
    """PR or NPPR: mean over clean-correct inputs, with four intervals over inputs, one over draws.

    The first is the one to quote in a table; `betting` is the guaranteed one, `empirical-bernstein` a
    wider one of a closed form. `hoeffding` is guaranteed too, but speaks about this test set: only the
    draws are random.
    """
    require_evaluate(tally)
    check_confidence(confidence)
    x = tally.headline_rates
    require_inputs(x)
    intervals = {
        "normal": normal(x, confidence),
        "bootstrap": bootstrap(x, confidence, seed),
        "empirical-bernstein": empirical_bernstein(x, confidence),
        "betting": betting(x, confidence, seed),
        "hoeffding": hoeffding(float(x.mean()), len(x) * tally.draws, confidence),
    }
    return [
        Estimate(
            metric=metric,
            value=float(x.mean()),
            low=interval.low,
            high=interval.high,
            confidence=confidence,
            method=method,
            claim=Claim.TEST_SET if method == "hoeffding" else Claim.POPULATION,
            direction=_direction(metric),
            inputs=len(x),
            draws=tally.draws,
            calls=tally.calls,
            flags=_flags(x, confidence) if method in ("normal", "bootstrap") else (),
        )
        for method, interval in intervals.items()
    ]


def probably_accurate(
    tally: Tally[Evaluate], confidence: float, metric: Metric = Metric.PR
) -> list[Estimate]:
    """Prob.Acc(gamma): share of clean-correct inputs whose share of right draws exceeds 1 - gamma.

    The exact interval is over inputs. Flagged where even an input without any failure among its draws
    does not show, at this confidence, that its own probability exceeds 1 - gamma. `metric` is what
    the source's tally is read as.
    """
    rows = []
    for gamma in GAMMAS:
        above = tally.headline_rates > 1 - gamma
        row = _binomial(Metric.PROB_ACC, _direction(metric), tally, above, confidence)
        unresolved = (1 - gamma) ** tally.draws > 1 - confidence
        rows.append(replace(row, gamma=gamma, flags=(UNRESOLVED,) if unresolved else ()))
    return rows


def normalised(
    tally: Tally[Evaluate], confidence: float, metric: Metric = Metric.PR, seed: int = 0
) -> Estimate:
    """Accuracy under the source over all inputs / clean accuracy; can exceed 1.

    `metric` is what the source's tally is read as: under a search for bad noise it is a bound.
    """
    require_evaluate(tally)
    check_confidence(confidence)
    require_inputs(tally.headline_rates)
    x = tally.rates
    interval: Interval = ratio_bootstrap(x, tally.clean_correct, confidence, seed)
    return Estimate(
        metric=Metric.NORMALISED_ACCURACY,
        value=float(x.mean() / tally.clean_correct.mean()),
        low=interval.low,
        high=interval.high,
        confidence=confidence,
        method="paired-bootstrap",
        claim=Claim.POPULATION,
        direction=_direction(metric),
        inputs=len(x),
        draws=tally.draws,
        calls=tally.calls,
        flags=_flags(x, confidence),
    )


def per_input(tally: Tally[Evaluate], confidence: float) -> FloatArray:
    """Exact binomial interval of every input's own probability, `(2, N)`."""
    require_evaluate(tally)
    check_confidence(confidence)
    return clopper_pearson(tally.right, tally.draws, confidence)


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
    return replace(first, right=unbroken.astype(np.int64), draws=1, calls=calls)


def _binomial(
    metric: Metric,
    direction: Direction,
    tally: Tally[Evaluate],
    successes: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    confidence: float,
) -> Estimate:
    require_evaluate(tally)
    check_confidence(confidence)
    require_inputs(successes)
    low, high = clopper_pearson(np.array(successes.sum()), len(successes), confidence)
    return Estimate(
        metric=metric,
        value=float(successes.mean()),
        low=float(low),
        high=float(high),
        confidence=confidence,
        method="clopper-pearson",
        claim=Claim.POPULATION,
        direction=direction,
        inputs=len(successes),
        draws=tally.draws,
        calls=tally.calls,
    )


def require_inputs(x: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
    """Raise `SpecError` unless some input is right without noise."""
    if not len(x):
        raise SpecError(
            "`inputs` must hold at least one input that is right without noise, got none."
            " Check the classifier, its normalisation and the labels."
        )


def _direction(metric: Metric) -> Direction:
    searched = metric in (Metric.AR, Metric.NPPR)
    return Direction.UPPER_BOUND if searched else Direction.ESTIMATE


def _flags(x: FloatArray, confidence: float) -> tuple[str, ...]:
    inside = len(x) >= FEWEST_INPUTS and 0.1 <= x.mean() <= 0.9 and confidence <= MOST_CONFIDENT
    return () if inside else (APPROXIMATE,)
