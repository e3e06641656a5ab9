"""Measure until all intervals are narrow enough: decide how many inputs and draws that takes.

**When to stop.** A run stops by its intervals, so these must hold at any time it might stop. While
inputs are added, with the same draws each, `betting_sequence` holds at all rounds together. More draws
change the rates of inputs that were seen before, so each doubling of the draws is a new stage with one
interval over all inputs. Stage k has the error `(1 - confidence) / (k (k + 1))`, the inputs' stage the
first: together at most `1 - confidence` (Bonferroni), whatever was measured on the way.

**What to measure next.** The mean over n inputs of m draws each has the variance `v / n` with
`v = b + w / m`, b the variance of the inputs' own probabilities and w the mean variance of a draw. Both
are estimated from what was measured; one correct and one wrong input are added, so that a mean of 0 or
1 does not look exact. An interval within d takes about `2 v log(2 / error) / d^2` inputs. At the same
number of calls n m more inputs are better than more draws, whatever b and w are, so inputs come first:
at most twice as many in each round, since more rounds cost no confidence and show b and w better.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from nppr.core.random_draws import DRAWS_PER_BLOCK
from nppr.core.tally import Evaluate, IntArray, Metric, Tally
from nppr.errors import RunStopped
from nppr.measuring.blocks import GrowingStore, Store
from nppr.report.model import DataRecord, PrecisionRecord, Width
from nppr.run.assessment_run import AssessmentRun
from nppr.run.shards import share_out
from nppr.sources import Source
from nppr.statistics.betting import CAP, betting_sequence
from nppr.statistics.intervals import Interval

logger = logging.getLogger(__name__)

DRAWN = (Metric.PR, Metric.NPPR, Metric.BOUND)
"""Metrics of sources that draw, for which more draws are more precise."""

FIRST_INPUTS = 256
MOST_DRAWS = 10_000
MARGIN = 1.1
"""A round is planned for a variance this much larger than the estimate."""

ROUNDS = "rounds"


class Round(NamedTuple):
    """Inputs and draws of each; draws are whole blocks, which more draws extend."""

    inputs: int
    draws: int


@dataclass(frozen=True)
class Need:
    """Result of a round: widths, inputs needed with the same draws, and the next round or None."""

    widths: dict[str, Width]
    inputs: int
    following: Round | None = None
    reached: bool = False


def fill_blocks(draws: int) -> int:
    """As many draws, rounded up to whole blocks.

    >>> fill_blocks(20)
    32
    """
    return -(-draws // DRAWS_PER_BLOCK) * DRAWS_PER_BLOCK


@dataclass(frozen=True, eq=False)
class RoundReview:
    """A look at all tallies after the last of the `rounds`; `came_in` `(N,)` is each input's round."""

    rounds: Sequence[Round]
    came_in: IntArray
    precision: float
    confidence: float
    seed: int = 0

    @property
    def stage(self) -> int:
        """1 while inputs are added, and one more for every doubling of the draws."""
        return 1 + round(math.log2(self.rounds[-1].draws / self.rounds[0].draws))

    def interval(self, tally: Tally[Evaluate], candidates: int = 1) -> Interval:
        """Return the interval of PR over clean-correct inputs that holds whenever the run stops.

        If there are several `candidates`, each has an equal part of the error.
        """
        x, came_in = tally.headline_rates, self.came_in[tally.clean_correct]
        growing = self.stage == 1
        parts = [x[came_in == k] for k in range(len(self.rounds))] if growing else [x]
        confidence = 1 - self._error(self.stage) / candidates
        return betting_sequence(parts, confidence, self.precision, self.seed)

    def judge(self, tallies: Mapping[str, Tally[Evaluate]], limit: int) -> Need:
        """Return the widths after this round, and what to measure next of `limit` inputs."""
        at = self.rounds[-1]
        widths = {name: self._width(tally) for name, tally in tallies.items()}
        shares = {name: tally.clean_correct.mean() for name, tally in tallies.items()}
        needed = max(
            math.ceil(self._inputs(width.between + width.within / at.draws) / shares[name])
            for name, width in widths.items()
        )
        if all(width.half_width <= self.precision for width in widths.values()):
            return Need(widths, needed, reached=True)
        if at.inputs < limit:
            wanted = min(2 * at.inputs, math.ceil(MARGIN * max(needed, at.inputs)))
            return Need(widths, needed, Round(min(limit, wanted), at.draws))
        counts = [(width, limit * shares[name]) for name, width in widths.items()]
        draws, stage = 2 * at.draws, self.stage + 1
        while draws <= MOST_DRAWS:
            variances = [(width.between + width.within / draws, n) for width, n in counts]
            if all(self._inputs(MARGIN * v, stage) <= n for v, n in variances):
                return Need(widths, needed, Round(limit, draws))
            draws, stage = 2 * draws, stage + 1
        return Need(widths, needed)

    def _error(self, stage: int) -> float:
        return (1 - self.confidence) / (stage * (stage + 1))

    def _inputs(self, variance: float, stage: int = 1) -> float:
        """Return about how many numbers of this variance the wanted half-width takes.

        With the bet b of `betting_sequence`, the log of the capital against a mean that is too low by d
        grows by about `b d - b^2 (1 + b) v / 2` per number: to third order, for rare failures.
        """
        bet = min(self.precision / (variance + self.precision), CAP)
        growth = bet * self.precision - bet**2 * (1 + bet) * variance / 2
        return math.log(2 / self._error(stage)) / growth

    def _width(self, tally: Tally[Evaluate]) -> Width:
        x, m, interval = tally.headline_rates, tally.draws, self.interval(tally)
        total = float(np.var(np.append(x, [0.0, 1.0]), ddof=1))
        within = float((x * (1 - x)).mean()) * m / (m - 1)
        farthest = max(interval.high - x.mean(), x.mean() - interval.low)
        between = max(0.0, total - within / m)
        return Width(half_width=float(farthest), between=between, within=within)


class Growth:
    """The rounds of a run; each continues the blocks of the one before.

    With a folder, rounds are noted there before they are measured, so that a resumed run takes the same
    rounds.
    """

    def __init__(self, run: AssessmentRun) -> None:
        self.run, self.whole = run, run.data.evaluate
        assert run.settings.precision is not None
        self.precision = run.settings.precision
        self.need: Need | None = None
        self._stores: dict[str, GrowingStore] = {}
        folder = run.folder
        noted = folder.noted(ROUNDS) if folder else None
        self._starts_anew = noted is None  # blocks of rounds that nobody knows are of no use
        draws = fill_blocks(run.settings.draws or 1)
        first = Round(min(len(self.whole), FIRST_INPUTS), draws)
        self.rounds = [Round(*each) for each in noted] if noted else [first]
        run.store = self.store
        self._begin_round()

    def _begin_round(self) -> None:
        """Note the round, and give the run its inputs and draws."""
        run, at = self.run, self.rounds[-1]
        if run.folder:
            run.folder.note(ROUNDS, [list(each) for each in self.rounds])
        seed = run.settings.seed
        subsets = [self.whole.limit(each.inputs, seed, "inputs") for each in self.rounds]
        split = subsets[-1]
        came_in = np.sum([~np.isin(split.indices, each.indices) for each in subsets], axis=0)
        confidence = run.settings.confidence
        self.look = RoundReview(tuple(self.rounds), came_in, self.precision, confidence, seed)
        run.stopped = self.look.interval
        run.data = replace(run.data, evaluate=split)
        run.settings = run.settings.with_(draws=at.draws)

    def store(self, name: str) -> Store:
        """Return the store of a source: its blocks are kept among the blocks of all inputs."""
        folder, chosen = self.run.folder, self.run.data.evaluate.indices
        order = np.argsort(self.whole.indices)
        rows = order[np.searchsorted(self.whole.indices, chosen, sorter=order)]
        store = self._stores.get(name)
        if store is None:
            kept = folder.store(name) if folder else None
            if kept and self._starts_anew:
                kept.discard()
            store = self._stores[name] = GrowingStore(rows, len(self.whole), kept)
        store.rows = rows
        return store

    def continues(self, tallies: Mapping[str, Tally[Evaluate]]) -> bool:
        """Judge the tallies of this round, and return whether there is another one."""
        if not tallies or not all(len(tally.headline_rates) for tally in tallies.values()):
            return False
        self.need = self.look.judge(tallies, len(self.whole))
        if self.need.following is None:
            return False
        self.rounds.append(self.need.following)
        self._begin_round()
        return True

    def describe(self, data: DataRecord) -> DataRecord:
        """Return the data of the report, with the inputs that were measured."""
        split = self.run.data.evaluate
        sizes = data.inputs.model_copy(update={"evaluate": len(split)})
        return data.model_copy(update={"inputs": sizes, "fingerprint": split.fingerprint()})

    def record(self) -> PrecisionRecord:
        need = self.need
        return PrecisionRecord(
            asked=self.precision,
            reached=need is not None and need.reached,
            rounds=tuple(self.rounds),
            available_inputs=len(self.whole),
            needed_inputs=need.inputs if need else None,
            widths=need.widths if need else {},
        )

    def shortfall(self) -> str | None:
        """Return why the precision was not reached and what it would cost; None if it was reached."""
        if self.need is None:
            return "no source could be measured on clean-correct inputs"
        if self.need.reached:
            return None
        name, widest = max(self.need.widths.items(), key=lambda item: item[1].half_width)
        inputs, draws = self.rounds[-1]
        return (
            f"the interval of {name} reaches {100 * widest.half_width:.2f} percentage points from its"
            f" value after {inputs:,} inputs with {draws} draws each, and no more inputs are"
            f" available; ±{100 * self.precision:g} would take about {self.need.inputs:,} inputs,"
            f" {self.need.inputs * (draws + 1):,} calls per source"
        )

    def grow(self, sources: Sequence[Source]) -> None:
        """Leave the run with as many inputs and draws as its precision takes."""
        drawn = [each for each in sources if each.metric in DRAWN and each.fixed_draws is None]
        continues = True
        while continues:
            self.run.measure_clean(keep=False)
            share_out(self.run, [self.run.plan(source) for source in drawn])
            tallies = {}
            for source in drawn:
                try:
                    tallies[source.name] = self.run.tally(self.run.plan(source))
                except RunStopped:
                    raise
                except Exception:  # its row states why when all are measured
                    logger.debug("source %s failed", source.name, exc_info=True)
            continues = self.continues(tallies)
