"""One run: measure every source on the same inputs, read the tallies, gather the report."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from nppr.budget import Budget
from nppr.checks import check_model, check_results
from nppr.collect import collect
from nppr.data import Data
from nppr.distributed import first
from nppr.errors import NpprError
from nppr.flags import (
    FLAGS,
    NO_FEATURES,
    PRECISION,
    RARE_PARTLY,
    flag,
    overlap_flags,
    result_flags,
)
from nppr.learned import Fitted, Learner, references, save_fitted
from nppr.measure import measure
from nppr.report.evidence import Evidence
from nppr.report.per_input import per_input_of
from nppr.report.rows import rows_of
from nppr.report.schema import WITH_REFERENCES, AtRadius, Flag, Report, Result, result
from nppr.run.assemble import assemble
from nppr.run.radii import at_radii
from nppr.run.rare import Found, look_for_rare_failures
from nppr.run.rounds import grow
from nppr.run.session import Session
from nppr.run.settings import Facts, Settings
from nppr.run_folder import RunFolder
from nppr.sources import Clean
from nppr.sources.spec import NPPR
from nppr.statistics.estimates import accuracy, adversarial, merged, probabilistic
from nppr.types import BoolArray, Evaluate, Metric, PerturbationSource, Tally

__all__ = ["Run"]

logger = logging.getLogger(__name__)

MERGED = "merged"


@dataclass
class Run:
    """The measurements of one assessment as they come in.

    `blind` is whether learned noise had to do without features; `inside` are the sources measured so
    far that stay in the budget.
    """

    facts: Facts
    session: Session
    blind: bool = False
    results: list[Result] = field(default_factory=list)
    tallies: dict[str, Tally[Evaluate]] = field(default_factory=dict)
    inside: list[str] = field(default_factory=list)
    fitted: list[Fitted] = field(default_factory=list)
    rare: dict[str, Found] = field(default_factory=dict)
    _clean: Tally[Evaluate] | None = None

    def complete(
        self,
        sources: Sequence[PerturbationSource],
        fitted: Sequence[Fitted] = (),
        learner: Learner | None = None,
    ) -> Report:
        """Measure all sources; one that fails gets a row that says why, and the others go on.

        Distributions that are fitted already, and those `learner` finds, come last.
        """
        # Before anything is measured: data that cannot be read must not cost a finished run.
        found = [*overlap_flags(self.data), *self._examined()]
        failed: list[Result] = []
        if self.settings.precision is not None:
            fitted, learner = [*fitted, *self._learn(learner)], None
            failed, self.results = self.results, []
            grow(self.session, [*sources, *(each.source for each in fitted)], bool(failed))
            assert self.session.growth is not None
            self.facts = replace(self.facts, data=self.session.growth.restated(self.facts.data))
        everything = np.ones(len(self.data.evaluate), bool)
        seen: dict[int, Tensor] | None = {} if self._looks(fitted, learner) else None
        clean = self._clean = self.session.measure(Clean(), everything, keep=seen)
        if seen is not None and len(seen) < len(everything):  # it was measured in another process
            measure(Clean(), self.session.classifier, self.data.evaluate, clean_correct=everything,
                    quantise=self.settings.quantise, keep=seen)  # fmt: skip
        self.results.append(result("clean", accuracy(clean, self.settings.confidence)))
        given = self._in_order(sources)
        sources = [self.session.ready(source) for source in given]
        for source in sources:
            self._add(source, clean.right == 1)
        self.results += failed
        for each in [*fitted, *self._learn(learner)]:
            if each.source.feature_model is None:
                each = each.with_known(seen)
            self.fitted.append(each)
            self._add(each.source, clean.right == 1)
            self._add_union(each, clean.right == 1)
        measured = [*sources, *(each.source for each in self.fitted)]
        self._merge(measured)
        self.rare, rows = look_for_rare_failures(self.session, measured, self.tallies)
        self.results += rows
        again = [*given, *(each.source for each in self.fitted)]
        radii = at_radii(self.session, again, clean, self.facts.budget["norm"])
        flags = [*found, *self._blind(), *self._reviewed(measured), *self._unfinished()]
        report = self._report(flags, radii)
        per_input = per_input_of(self.tallies, self.settings.confidence)
        evidence = self._collected(sources)
        if self.folder:
            rare = {name: found.rare for name, found in self.rare.items()}
            self.folder.write(report, per_input, evidence, rare)
        return report.with_inputs(per_input, evidence)

    @property
    def settings(self) -> Settings:
        """Those of the session."""
        return self.session.settings

    @property
    def data(self) -> Data:
        """What the session measures on."""
        return self.session.data

    @property
    def folder(self) -> RunFolder | None:
        """Where the run is kept, if it is."""
        return self.session.folder

    @property
    def clean(self) -> Tally[Evaluate]:
        """The measurement without noise, which comes first."""
        assert self._clean is not None
        return self._clean

    def _in_order(self, sources: Sequence[PerturbationSource]) -> list[PerturbationSource]:
        """As they were given, or the cheap ones first where only merged AR is wanted."""
        if not self.settings.only_merged:
            return list(sources)
        return sorted(sources, key=lambda source: source.cost)

    def _broken(self, source: PerturbationSource) -> BoolArray | None:
        """Inputs that need not be attacked, where only merged AR is wanted."""
        if not self.settings.only_merged or source.metric is not Metric.AR:
            return None
        broken: BoolArray = self.clean.right == 0
        for name in self.inside:
            broken = broken | ~self.tallies[name].unbroken
        return broken

    def _looks(self, fitted: Sequence[Fitted], learner: Learner | None) -> bool:
        """Whether learned noise will look at the features of this classifier, which has some."""
        looks = any(
            each.source.distribution.features and not each.source.feature_model for each in fitted
        )
        if learner is not None and learner.feature_model is None:
            looks = looks or learner.settings.family.dependency.sees_input
        return looks and self.facts.classifier["features"] is not None

    def _add(self, source: PerturbationSource, clean_correct: BoolArray) -> None:
        """The rows of one source."""
        try:
            tally = self.session.measure(source, clean_correct, skip=self._broken(source))
            if not (self.settings.only_merged and source.metric is Metric.AR):
                self.results += rows_of(
                    source,
                    tally,
                    self.clean,
                    self.settings.confidence,
                    self.settings.seed,
                )
            self.tallies[source.name] = tally
            if source.budget is not None:
                self.inside.append(source.name)
        except Exception as error:  # whatever a source does, the others' results are kept
            logger.debug("source %s failed", source.name, exc_info=True)
            self.results.append(self.session.failed(source.name, source.metric, error))

    def _learn(self, learner: Learner | None) -> list[Fitted]:
        """What the search finds; where it fails, one row says why."""
        if learner is None:
            return []
        try:
            with self.session.timed("fit"):
                found = learner.run()
        except Exception as error:
            logger.debug("the fit failed", exc_info=True)
            self.results.append(self.session.failed(NPPR, Metric.NPPR, error))
            return []
        if self.folder:
            save_fitted(self.folder.path / "distributions", found)
        return found

    def _add_union(self, fitted: Fitted, clean_correct: BoolArray) -> None:
        """NPPR of the family and the reference noises together: that of the lowest on select.

        On another classifier or at another radius nothing was compared on select.
        """
        fingerprint = self.facts.classifier["fingerprint"]
        if not fitted.compared(fingerprint) or fitted.source.name not in self.tallies:
            return
        tally = self.tallies[fitted.source.name]
        if fitted.winner:
            budget = fitted.source.budget
            noise = next(each for each in references(budget) if each.name == fitted.winner)
            tally = self.tallies.get(noise.name) or self.session.measure(noise, clean_correct)
        rows = probabilistic(tally, self.settings.confidence, Metric.NPPR, self.settings.seed)
        name = fitted.source.name + WITH_REFERENCES
        self.results += [result(name, row) for row in rows]

    def _merge(self, sources: Sequence[PerturbationSource]) -> None:
        """AR over all sources of the budget, where there is an attack and something to merge."""
        attacked = any(
            source.metric is Metric.AR for source in sources if source.name in self.inside
        )
        if attacked and (len(self.inside) > 1 or self.settings.only_merged):
            tally = merged([self.tallies[name] for name in self.inside])
            try:
                row = result(MERGED, adversarial(tally, self.settings.confidence))
            except NpprError as error:  # no input is right without noise
                row = self.session.failed(MERGED, Metric.AR, error)
            self.results.append(row)

    def _described(self, fitted: Fitted) -> dict[str, Any]:
        """The entry of a learned source, with the values of all fits of its floor if there are more."""
        floor = fitted.source.distribution.family.floor
        values = {
            each.source.name: float(self.tallies[each.source.name].headline_rates.mean())
            for each in self.fitted
            if each.source.distribution.family.floor == floor and each.source.name in self.tallies
        }
        seeds = None
        if len(values) > 1:
            lowest, highest = min(values.values()), max(values.values())
            seeds = {"values": values, "minimum": lowest, "spread": highest - lowest}
        return {**fitted.described(), "fit_seeds": seeds}

    def _examined(self) -> tuple[Flag, ...]:
        """What the doctor says about the classifier."""
        return check_model(self.session.classifier.reference, self.data, seed=self.settings.seed)

    def _reviewed(self, sources: Sequence[PerturbationSource]) -> tuple[Flag, ...]:
        """What the results say about themselves."""
        described = [each.described() for each in self.fitted]
        return (
            *result_flags(self.results),
            *check_results(
                self.results,
                self.tallies,
                [source for source in sources if source.name in self.tallies],
                described,
                self.clean,
                self.data.classes,
                self.settings.confidence,
            ),
        )

    def _blind(self) -> tuple[Flag, ...]:
        if not self.blind:
            return ()
        return (Flag(id=NO_FEATURES, source=NPPR, message=FLAGS[NO_FEATURES]),)

    def _report(self, flags: Sequence[Flag], radii: Sequence[AtRadius]) -> Report:
        return assemble(
            self.facts,
            self.session.classifier,
            self.results,
            [self._described(each) for each in self.fitted],
            flags,
            self.session.seconds,
            rare=[found.described(self.tallies[name]) for name, found in self.rare.items()],
            precision=self.session.growth.described() if self.session.growth else None,
            radii=radii,
        )

    def _collected(self, sources: Sequence[PerturbationSource]) -> Evidence | None:
        """What a page shows; failing at it never costs the run."""
        budget = Budget.parse(self.facts.budget["norm"], self.facts.budget["radius"])
        try:
            return first(
                lambda: collect(
                    self.session.classifier,
                    self.data,
                    self.tallies,
                    self.clean,
                    sources,
                    self.fitted,
                    budget=budget,
                    seed=self.settings.seed,
                    quantise=self.settings.quantise,
                )
            )
        except Exception:
            logger.warning("nothing is collected to be shown", exc_info=True)
            return None

    def _unfinished(self) -> tuple[Flag, ...]:
        """What was asked for and could not be had: a precision, a look at all inputs."""
        found = []
        if self.session.growth is not None and not self.session.growth.reached:
            found.append(flag(PRECISION, self.session.growth.words()))
        for name, each in self.rare.items():
            looked = len(each.rare.positions)
            if looked < each.unbroken:
                words = f"{looked:,} of {each.unbroken:,} inputs without a failure were looked at"
                found.append(flag(RARE_PARTLY, words, name))
        return tuple(found)
