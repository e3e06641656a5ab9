"""One run: measure every source on the same inputs, read the tallies, gather the report."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nppr.checks import check_model, check_results, grade
from nppr.classifiers import Prepared
from nppr.data import Data
from nppr.errors import GradientError, NoFitDataError, SpecError
from nppr.flags import FLAGS, NO_FEATURES, NO_FIT_DATA, NO_GRADIENTS, overlap_flags, result_flags
from nppr.learned import Fitted, Learner, references, save_fitted
from nppr.measure import ProgressCallback, measure
from nppr.report.rows import rows_of
from nppr.report.schema import SCHEMA_VERSION, WITH_REFERENCES, Flag, Report, Result, failed, result
from nppr.run_folder import RunFolder
from nppr.sources import Clean, Universal
from nppr.sources.spec import NPPR
from nppr.statistics.estimates import (
    accuracy,
    adversarial,
    check_confidence,
    merged,
    probabilistic,
)
from nppr.types import BoolArray, Evaluate, Metric, PerturbationSource, Tally

__all__ = ["Facts", "Run", "Settings"]

logger = logging.getLogger(__name__)

MERGED = "merged"


@dataclass(frozen=True)
class Settings:
    """What determines the numbers of a run, beside classifier, data and sources."""

    draws: int = 100
    inputs: int | None = None
    fit_inputs: int | None = None
    select_inputs: int | None = None
    confidence: float = 0.95
    seed: int = 0
    quantise: bool = False
    only_merged: bool = False

    def __post_init__(self) -> None:
        check_confidence(self.confidence)
        least = {"draws": 1, "inputs": 1, "fit_inputs": 1, "select_inputs": 1, "seed": 0}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= smallest):
                argument = name.replace("_", "-")
                raise SpecError(
                    f"`{argument}` must be a whole number >= {smallest}, got {value!r}."
                )

    def as_dict(self) -> dict[str, Any]:
        """All but the seed, which stands by itself in a report."""
        return {name: value for name, value in vars(self).items() if name != "seed"}


@dataclass(frozen=True)
class Facts:
    """The parts of a report that are known before anything is measured."""

    classifier: dict[str, Any]
    data: dict[str, Any]
    budget: dict[str, Any]
    settings: dict[str, Any]
    seed: int

    def identity(self) -> dict[str, Any]:
        """What two runs must share to be the same run."""
        return {**vars(self), "nppr_version": version("nppr")}


@dataclass
class Run:
    """The measurements of one assessment as they come in.

    `blind` is whether learned noise had to do without features; `inside` are the sources measured so
    far that stay in the budget.
    """

    facts: Facts
    settings: Settings
    data: Data
    classifier: Prepared
    folder: RunFolder | None
    progress: ProgressCallback | None
    blind: bool = False
    results: list[Result] = field(default_factory=list)
    tallies: dict[str, Tally[Evaluate]] = field(default_factory=dict)
    inside: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    fitted: list[Fitted] = field(default_factory=list)
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
        everything = np.ones(len(self.data.evaluate), bool)
        seen: dict[int, Tensor] | None = {} if self._looks(fitted, learner) else None
        clean = self._clean = self._measure(Clean(), everything, seen)
        if seen is not None and len(seen) < len(everything):  # it was measured in another process
            measure(Clean(), self.classifier, self.data.evaluate, clean_correct=everything,
                    quantise=self.settings.quantise, keep=seen)  # fmt: skip
        self.results.append(result("clean", accuracy(clean, self.settings.confidence)))
        sources = [self._ready(source) for source in self._in_order(sources)]
        for source in sources:
            self._add(source, clean.right == 1)
        for each in [*fitted, *self._learn(learner)]:
            if each.source.feature_model is None:
                each = each.with_known(seen)
            self.fitted.append(each)
            self._add(each.source, clean.right == 1)
            self._add_union(each, clean.right == 1)
        self._merge([*sources, *(each.source for each in self.fitted)])
        measured = [*sources, *(each.source for each in self.fitted)]
        report = self._report([*found, *self._blind(), *self._reviewed(measured)])
        if self.folder:
            self.folder.write(report, self.tallies)
        return report

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

    def _ready(self, source: PerturbationSource) -> PerturbationSource:
        """The source with the data it must be fitted on, if it must."""
        if not isinstance(source, Universal) or not len(self.data.fit):
            return source
        return source.on(
            self.classifier.reference,
            self.data.fit,
            seed=self.settings.seed,
            device=self.classifier.device,
            progress=self.progress,
        )

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
            tally = self._measure(source, clean_correct)
            if not (self.settings.only_merged and source.metric is Metric.AR):
                self.results += rows_of(
                    source, tally, self.clean, self.settings.confidence, self.settings.seed
                )
            self.tallies[source.name] = tally
            if source.budget is not None:
                self.inside.append(source.name)
        except Exception as error:  # whatever a source does, the others' results are kept
            logger.debug("source %s failed", source.name, exc_info=True)
            self.results.append(self._failed(source.name, source.metric, error))

    def _learn(self, learner: Learner | None) -> list[Fitted]:
        """What the search finds; where it fails, one row says why."""
        if learner is None:
            return []
        start = time.perf_counter()
        try:
            found = learner.run()
        except Exception as error:
            logger.debug("the fit failed", exc_info=True)
            self.results.append(self._failed(NPPR, Metric.NPPR, error))
            return []
        self.seconds["fit"] = round(time.perf_counter() - start, 3)
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
            tally = self.tallies.get(noise.name) or self._measure(noise, clean_correct)
        rows = probabilistic(tally, self.settings.confidence, Metric.NPPR, self.settings.seed)
        name = fitted.source.name + WITH_REFERENCES
        self.results += [result(name, row) for row in rows]

    def _measure(
        self,
        source: PerturbationSource,
        clean_correct: BoolArray,
        keep: dict[int, Tensor] | None = None,
    ) -> Tally[Evaluate]:
        start = time.perf_counter()
        tally = measure(
            source,
            self.classifier,
            self.data.evaluate,
            draws=self.settings.draws,
            seed=self.settings.seed,
            clean_correct=clean_correct,
            quantise=self.settings.quantise,
            progress=self.progress,
            store=self.folder.store(source.name) if self.folder else None,
            keep=keep,
            skip=self._broken(source) if self._clean is not None else None,
        )
        self.seconds[source.name] = round(time.perf_counter() - start, 3)
        # Where memory ran out the next source begins with what was left.
        self.classifier = replace(self.classifier, micro_batch=tally.micro_batch)
        return tally

    def _failed(self, name: str, metric: Metric, error: Exception) -> Result:
        why = " ".join(str(error).split()) or type(error).__name__
        reasons = {GradientError: NO_GRADIENTS, NoFitDataError: NO_FIT_DATA}
        flags = tuple(flag for kind, flag in reasons.items() if isinstance(error, kind))
        return failed(name, metric, self.settings.confidence, why, flags)

    def _merge(self, sources: Sequence[PerturbationSource]) -> None:
        """AR over all sources of the budget, where there is an attack and something to merge."""
        attacked = any(
            source.metric is Metric.AR for source in sources if source.name in self.inside
        )
        if attacked and (len(self.inside) > 1 or self.settings.only_merged):
            tally = merged([self.tallies[name] for name in self.inside])
            self.results.append(result(MERGED, adversarial(tally, self.settings.confidence)))

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
        return check_model(self.classifier.reference, self.data, seed=self.settings.seed)

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

    def _report(self, flags: Sequence[Flag]) -> Report:
        return Report(
            schema_version=SCHEMA_VERSION,
            nppr_version=version("nppr"),
            classifier=self.facts.classifier,
            data=self.facts.data,
            budget=self.facts.budget,
            seed=self.facts.seed,
            settings=self.facts.settings,
            results=tuple(self.results),
            distributions=tuple(self._described(each) for each in self.fitted),
            flags=tuple(flags),
            grade=asdict(grade(flags)),
            timing={
                "seconds": self.seconds,
                "total_seconds": round(sum(self.seconds.values()), 3),
                "images_per_second": round(self.classifier.images_per_second, 1),
            },
            environment={
                "python": platform.python_version(),
                "torch": torch.__version__,
                "numpy": np.__version__,
                "platform": platform.platform(),
                "device": str(self.classifier.device),
                "threads": torch.get_num_threads(),
                "micro_batch": self.classifier.micro_batch,
                "form": list(self.classifier.form),
            },
        )
