"""The measurements of one run as they come in, each with its rows of the report."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from nppr.errors import NpprError
from nppr.report.rows import rows_of
from nppr.report.schema import WITH_REFERENCES, Result, result
from nppr.run.session import Session
from nppr.search.learned_noise import LearnedNoise, reference_noises, save_learned
from nppr.search.search import Search
from nppr.sources.spec import NPPR
from nppr.statistics.estimates import adversarial, merged, probabilistic
from nppr.types import BoolArray, Evaluate, Metric, PerturbationSource, Tally

__all__ = ["Measured", "learned"]

logger = logging.getLogger(__name__)

MERGED = "merged"


@dataclass
class Measured:
    """All tallies and rows so far; a source that fails gets a row that says why.

    `clean` is the measurement without noise, which comes first; `inside` are the sources measured so
    far that stay in the budget.
    """

    session: Session
    clean: Tally[Evaluate]
    results: list[Result] = field(default_factory=list)
    tallies: dict[str, Tally[Evaluate]] = field(default_factory=dict)
    inside: list[str] = field(default_factory=list)
    fitted: list[LearnedNoise] = field(default_factory=list)

    @property
    def clean_correct(self) -> BoolArray:
        """Which inputs are right without noise."""
        correct: BoolArray = self.clean.right == 1
        return correct

    def add(self, source: PerturbationSource) -> None:
        """Measure a source."""
        settings = self.session.settings
        try:
            tally = self.session.measure(source, self.clean_correct, skip=self._broken(source))
            if not (settings.only_merged and source.metric is Metric.AR):
                self.results += rows_of(
                    source, tally, self.clean, settings.confidence, settings.seed
                )
            self.tallies[source.name] = tally
            if source.budget is not None:
                self.inside.append(source.name)
        except Exception as error:  # whatever a source does, the others' results are kept
            logger.debug("source %s failed", source.name, exc_info=True)
            self.results.append(self.session.failed(source.name, source.metric, error))

    def add_fitted(self, fitted: LearnedNoise, fingerprint: str) -> None:
        """Measure learned noise on the classifier of this fingerprint."""
        self.fitted.append(fitted)
        self.add(fitted.source)
        # On another classifier or at another radius nothing was compared on select.
        if fitted.compared(fingerprint) and fitted.source.name in self.tallies:
            self._add_union(fitted)

    def merge(self, sources: Sequence[PerturbationSource]) -> None:
        """AR over all sources of the budget, where there is an attack and something to merge."""
        settings = self.session.settings
        attacked = any(
            source.metric is Metric.AR for source in sources if source.name in self.inside
        )
        if attacked and (len(self.inside) > 1 or settings.only_merged):
            tally = merged([self.tallies[name] for name in self.inside])
            try:
                row = result(MERGED, adversarial(tally, settings.confidence))
            except NpprError as error:  # no input is right without noise
                row = self.session.failed(MERGED, Metric.AR, error)
            self.results.append(row)

    def _broken(self, source: PerturbationSource) -> BoolArray | None:
        """Inputs that need not be attacked, where only merged AR is wanted."""
        if not self.session.settings.only_merged or source.metric is not Metric.AR:
            return None
        broken = ~self.clean_correct
        for name in self.inside:
            broken = broken | ~self.tallies[name].unbroken
        return broken

    def _add_union(self, fitted: LearnedNoise) -> None:
        """NPPR of the family and the reference noises together: that of the lowest on select."""
        settings = self.session.settings
        tally = self.tallies[fitted.source.name]
        if fitted.winner:
            noises = reference_noises(fitted.source.budget)
            noise = next(each for each in noises if each.name == fitted.winner)
            tally = self.tallies.get(noise.name) or self.session.measure(noise, self.clean_correct)
        rows = probabilistic(tally, settings.confidence, Metric.NPPR, settings.seed)
        name = fitted.source.name + WITH_REFERENCES
        self.results += [result(name, row) for row in rows]


def learned(session: Session, learner: Search) -> list[LearnedNoise] | Result:
    """What the search finds, kept in the run's folder; where it fails, a row that says why."""
    try:
        with session.timed("fit"):
            found = learner.run()
    except Exception as error:
        logger.debug("the fit failed", exc_info=True)
        return session.failed(NPPR, Metric.NPPR, error)
    if session.folder:
        save_learned(session.folder.path / "distributions", found)
    return found
