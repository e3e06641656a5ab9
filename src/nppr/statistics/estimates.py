"""Estimates from tallies: every quantity that a tally yields, with its interval.

Only a tally of the evaluate split is accepted; the types require it, and a check at run time too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from nppr.core.tally import (
    Audit,
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

APPROXIMATE = "approximate-interval"
"""Flag: an approximate interval outside the conditions in which it was tested."""

UNRESOLVED = "unresolved-gamma"
"""Flag: too few draws to distinguish an input's probability from 1 - gamma."""

SEQUENCE = "betting-sequence"
"""Method of the interval that decided when a run stopped."""

GAMMAS = (0.2, 0.1, 0.05, 0.01)
"""Values of gamma for Prob.Acc (Robey et al., 2022)."""

TESTED_INPUTS = 400
TESTED_CONFIDENCE = 0.99
"""Approximate intervals were tested with at least this many inputs, and up to this confidence."""

_TINY = float(np.finfo(np.float64).tiny)


def estimate_accuracy(tally: Tally[Evaluate], confidence: float) -> Estimate:
    """Return clean accuracy from the clean tally, with an exact binomial interval over inputs."""
    return _binomial(tally, Metric.ACCURACY, Direction.ESTIMATE, tally.correct == 1, confidence)


def estimate_adversarial(tally: Tally[Evaluate], confidence: float) -> Estimate:
    """Return AR: the share of clean-correct inputs that no attack broke, with an exact interval.

    It is an upper bound, because a failed attack proves nothing.
    """
    unbroken = tally.unbroken[tally.clean_correct]
    return _binomial(tally, Metric.AR, Direction.UPPER_BOUND, unbroken, confidence)


def estimate_corrupted(tally: Tally[Evaluate], confidence: float) -> Estimate:
    """Return the share of clean-correct inputs that stay correct under a corruption, exact interval."""
    unbroken = tally.unbroken[tally.clean_correct]
    return _binomial(tally, Metric.CORRUPTION, Direction.ESTIMATE, unbroken, confidence)


def estimate_probabilistic(
    tally: Tally[Evaluate], confidence: float, metric: Metric = Metric.PR, seed: int = 0
) -> list[Estimate]:
    """Return PR or NPPR, the mean over clean-correct inputs, with five intervals.

    The first is for tables. `betting` is guaranteed; `empirical-bernstein` is guaranteed, wider and
    in closed form. Four intervals are over inputs. `hoeffding` is guaranteed too, but applies to
    this test set: only the draws are random.
    """
    x = tally.headline_rates
    require_readable(tally, confidence, x)
    mean, allowed = float(x.mean()), allow_for_audit(tally, confidence)
    sure = allowed.confidence
    intervals = {
        "normal": normal(x, sure),
        "bootstrap": bootstrap(x, sure, seed),
        "empirical-bernstein": empirical_bernstein(x, sure),
        "betting": betting(x, sure, seed),
        "hoeffding": hoeffding(mean, len(x) * tally.draws, sure),
    }
    wider = allowed.of_mean(len(x))
    ends = {name: each.widened(wider) for name, each in intervals.items()}
    ends["hoeffding"] = intervals["hoeffding"].widened(allowed.of_draws(len(x)))
    return [
        make_estimate(
            tally, metric, mean, interval, method, confidence, len(x),
            claim=Claim.TEST_SET if method == "hoeffding" else Claim.POPULATION,
            direction=_direction(metric),
            flags=_flags(x, confidence) if method in ("normal", "bootstrap") else (),
        )
        for method, interval in ends.items()
    ]  # fmt: skip


def estimate_prob_acc(
    tally: Tally[Evaluate], confidence: float, metric: Metric = Metric.PR
) -> list[Estimate]:
    """Return Prob.Acc(gamma): the share of clean-correct inputs with over 1 - gamma correct draws.

    The exact interval is over inputs. A row is flagged if, at this confidence, even an input
    without failures among its draws does not show that its own probability exceeds 1 - gamma.
    `metric` is the metric of the source's tally.
    """
    rows = []
    allowed = allow_for_audit(tally, confidence)
    for gamma in GAMMAS:
        above = tally.headline_rates > 1 - gamma
        row = _binomial(tally, Metric.PROB_ACC, _direction(metric), above, allowed.confidence)
        ends = Interval(row.low, row.high).widened(allowed.of_inputs(row.inputs))
        row = replace(row, low=ends.low, high=ends.high, confidence=confidence)
        unresolved = (1 - gamma) ** tally.draws > 1 - confidence
        rows.append(replace(row, gamma=gamma, flags=(UNRESOLVED,) if unresolved else ()))
    return rows


def estimate_normalised(
    tally: Tally[Evaluate], confidence: float, metric: Metric = Metric.PR, seed: int = 0
) -> Estimate:
    """Return accuracy under the source over all inputs / clean accuracy; it can exceed 1.

    `metric` is the metric of the source's tally; after a search for bad noise, the result is a
    bound.
    """
    require_readable(tally, confidence, tally.headline_rates)
    x = tally.rates
    value = float(x.mean() / tally.clean_correct.mean())
    allowed = allow_for_audit(tally, confidence)
    margin = allowed.of_mean(len(x)) / float(tally.clean_correct.mean())
    interval = ratio_bootstrap(x, tally.clean_correct, allowed.confidence, seed)
    interval = interval.widened(margin, math.inf)
    return make_estimate(
        tally, Metric.NORMALISED_ACCURACY, value, interval, "paired-bootstrap", confidence, len(x),
        direction=_direction(metric), flags=_flags(x, confidence),
    )  # fmt: skip


def estimate_stress(
    tally: Tally[Evaluate],
    losses: FloatArray,
    standard: FloatArray,
    confidence: float,
    seed: int = 0,
) -> list[Estimate]:
    """Return the mean stress of all inputs `(N,)`, raw and divided by the mean standard loss.

    Both intervals are approximate: percentiles over resampled inputs. They hold for the stress that
    this many draws show, which for large q is below the true stress.
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


def estimate_per_input(tally: Tally[Evaluate], confidence: float) -> FloatArray:
    """Return the exact binomial interval of every input's own probability, `(2, N)`."""
    require_evaluate(tally)
    allowed = allow_for_audit(tally, confidence)
    low, high = clopper_pearson(tally.correct, tally.draws, allowed.confidence)
    margin = allowed.of_draws(1)
    return np.stack([np.maximum(low - margin, 0), np.minimum(high + margin, 1)])


@dataclass(frozen=True)
class Allowance:
    """The margin that makes intervals of screened counts hold for the model.

    The coarse copy and the model together form another classifier; intervals for it are made at
    `confidence`. It differs from the model by the wrong decisions. Each decision is repeated with
    probability q, independently of the image, and no repeated one was wrong. With probability
    `1 - exp(-unseen)` this shows, for n inputs with S draws each:

    - the rate of wrong decisions in the population is at most `unseen / (n (1 - (1 - q)^S))`: the
      chance to notice none is largest if the draws of an input are all wrong or all right;
    - over the draws for these inputs, it is at most `unseen / (q n S)`;
    - the share of inputs with a wrong decision is at most `unseen / (q n)`.
    """

    confidence: float
    unseen: float = 0.0
    share: float = 1.0
    draws: int = 1

    @classmethod
    def of(cls, audit: Audit | None, confidence: float, draws: int) -> Allowance:
        """Return the allowance for an audit; it is zero if the model decided everything from the start.

        A tenth of the error is for the audit. The rest is divided between the intervals of screened
        counts and of those that replace them after a contradiction, because the data decide which
        are used.
        """
        error = check_confidence(confidence)
        if audit is None:
            return cls(confidence)
        sure = 1 - 0.45 * error
        return (
            cls(sure) if audit.discarded else cls(sure, -math.log(0.1 * error), audit.share, draws)
        )

    def of_mean(self, inputs: int) -> float:
        """Return the margin of a mean in the population."""
        return self.unseen / (inputs * (1 - (1 - self.share) ** self.draws))

    def of_draws(self, inputs: int) -> float:
        """Return the margin of a mean over the draws for these inputs."""
        return self.unseen / (self.share * inputs * self.draws)

    def of_inputs(self, inputs: int) -> float:
        """Return the margin of a share of inputs."""
        return self.unseen / (self.share * inputs)


def allow_for_audit(tally: Tally[Evaluate], confidence: float) -> Allowance:
    """Return the allowance that the intervals of a tally need."""
    return Allowance.of(tally.audit, confidence, tally.draws)


def merge_attacks(tallies: Sequence[Tally[Evaluate]]) -> Tally[Evaluate]:
    """Combine several sources of one budget into one attack: an input survives if all its draws did.

    A failing draw of any source is an adversarial example, so the merged AR is at most every PR.
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
    """Return an estimate made from a tally over `inputs` inputs, with its interval."""
    return Estimate(
        metric, value, interval.low, interval.high, confidence, method, claim, direction,
        inputs, tally.draws, tally.calls, flags=flags,
    )  # fmt: skip


def require_readable(
    tally: Tally[Evaluate],
    confidence: float,
    counted: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
) -> None:
    """Raise unless the tally is of the evaluate split, inputs count and the confidence is valid."""
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
    searched = metric.is_searched
    return Direction.UPPER_BOUND if searched else Direction.ESTIMATE


def _flags(x: FloatArray, confidence: float) -> tuple[str, ...]:
    inside = len(x) >= TESTED_INPUTS and 0.1 <= x.mean() <= 0.9 and confidence <= TESTED_CONFIDENCE
    return () if inside else (APPROXIMATE,)
