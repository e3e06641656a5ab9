"""One run: measure every source on the same inputs, read the tallies, gather the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from nppr.budget import Budget
from nppr.checks import check_model
from nppr.data import Data
from nppr.flags import FLAGS, NO_FEATURES, overlap_flags
from nppr.measure import measure
from nppr.report.per_input import per_input_of
from nppr.report.schema import Flag, Report, Result, result
from nppr.run.assemble import assemble
from nppr.run.closing import collected, described, reviewed, unfinished
from nppr.run.measured import Measured, learned
from nppr.run.radii import at_radii
from nppr.run.rare import look_for_rare_failures
from nppr.run.rounds import grow
from nppr.run.session import Session
from nppr.run.settings import Facts, Settings
from nppr.search.learned_noise import LearnedNoise
from nppr.search.search import Search
from nppr.sources import Clean
from nppr.sources.spec import NPPR
from nppr.statistics.estimates import accuracy
from nppr.types import PerturbationSource

__all__ = ["Run"]


@dataclass
class Run:
    """One assessment; `blind` is whether learned noise had to do without features."""

    facts: Facts
    session: Session
    blind: bool = False

    def complete(
        self,
        sources: Sequence[PerturbationSource],
        fitted: Sequence[LearnedNoise] = (),
        learner: Search | None = None,
    ) -> Report:
        """Measure all sources; one that fails gets a row that says why, and the others go on.

        Distributions that are fitted already, and those `learner` finds, come last.
        """
        # Before anything is measured: data that cannot be read must not cost a finished run.
        flags = self._examined()
        failed: list[Result] = []
        if self.settings.precision is not None:
            found, failed = self._learned(learner)
            fitted, learner = [*fitted, *found], None
            self._grow([*sources, *(each.source for each in fitted)], bool(failed))
        measured, seen = self._begun(self._looks(fitted, learner))
        ready = [self.session.ready(source) for source in self._in_order(sources)]
        for source in ready:
            measured.add(source)
        found, more = self._learned(learner)
        measured.results += [*failed, *more]
        for each in [*fitted, *found]:
            sighted = each if each.source.feature_model else each.with_known(seen)
            measured.add_fitted(sighted, self.facts.classifier["fingerprint"])
        return self._closed(measured, sources, ready, flags)

    @property
    def settings(self) -> Settings:
        """Those of the session."""
        return self.session.settings

    @property
    def data(self) -> Data:
        """What the session measures on."""
        return self.session.data

    def _examined(self) -> list[Flag]:
        """What is known of data and classifier before anything is measured."""
        reference, seed = self.session.classifier.reference, self.settings.seed
        flags = [*overlap_flags(self.data), *check_model(reference, self.data, seed=seed)]
        if self.blind:
            flags.append(Flag(id=NO_FEATURES, source=NPPR, message=FLAGS[NO_FEATURES]))
        return flags

    def _learned(self, learner: Search | None) -> tuple[list[LearnedNoise], list[Result]]:
        """What a search finds, or the row that says why it failed."""
        if learner is None:
            return [], []
        found = learned(self.session, learner)
        return ([], [found]) if isinstance(found, Result) else (found, [])

    def _grow(self, sources: Sequence[PerturbationSource], failed: bool) -> None:
        """Measure with as many inputs and draws as the precision takes."""
        grow(self.session, sources, failed)
        assert self.session.growth is not None
        self.facts = replace(self.facts, data=self.session.growth.restated(self.facts.data))

    def _begun(self, looks: bool) -> tuple[Measured, dict[int, Tensor] | None]:
        """The measurement without noise; the features it saw, where learned noise `looks` at them."""
        everything = np.ones(len(self.data.evaluate), bool)
        seen: dict[int, Tensor] | None = {} if looks else None
        clean = self.session.measure(Clean(), everything, keep=seen)
        if seen is not None and len(seen) < len(everything):  # it was measured in another process
            measure(Clean(), self.session.classifier, self.data.evaluate, clean_correct=everything,
                    quantise=self.settings.quantise, keep=seen)  # fmt: skip
        row = result("clean", accuracy(clean, self.settings.confidence))
        return Measured(self.session, clean, [row]), seen

    def _looks(self, fitted: Sequence[LearnedNoise], learner: Search | None) -> bool:
        """Whether learned noise will look at the features of this classifier, which has some."""
        looks = any(
            each.source.distribution.features and not each.source.feature_model for each in fitted
        )
        if learner is not None and learner.feature_model is None:
            looks = looks or learner.settings.family.dependency.sees_input
        return looks and self.facts.classifier["features"] is not None

    def _in_order(self, sources: Sequence[PerturbationSource]) -> list[PerturbationSource]:
        """As they were given, or the cheap ones first where only merged AR is wanted."""
        if not self.settings.only_merged:
            return list(sources)
        return sorted(sources, key=lambda source: source.cost)

    def _closed(
        self,
        measured: Measured,
        given: Sequence[PerturbationSource],
        ready: Sequence[PerturbationSource],
        flags: Sequence[Flag],
    ) -> Report:
        """What is read off all measurements together, and the report, kept in the run's folder."""
        noises = [each.source for each in measured.fitted]
        sources = [*ready, *noises]
        measured.merge(sources)
        rare, rows = look_for_rare_failures(self.session, sources, measured.tallies)
        measured.results += rows
        norm, growth = self.facts.budget["norm"], self.session.growth
        again = [*self._in_order(given), *noises]
        radii = at_radii(self.session, again, measured.clean, norm)
        report = assemble(
            self.facts,
            self.session.classifier,
            measured.results,
            [described(each, measured) for each in measured.fitted],
            [*flags, *reviewed(measured, sources), *unfinished(growth, rare)],
            self.session.seconds,
            rare=[found.described(measured.tallies[name]) for name, found in rare.items()],
            precision=growth.described() if growth else None,
            radii=radii,
        )
        per_input = per_input_of(measured.tallies, self.settings.confidence)
        budget = Budget.parse(norm, self.facts.budget["radius"])
        evidence = collected(measured, ready, budget)
        if self.session.folder:
            kept = {name: found.rare for name, found in rare.items()}
            self.session.folder.write(report, per_input, evidence, kept)
        return report.with_inputs(per_input, evidence)
