"""The search for the worst distribution: walk the families, fit, sharpen, choose on `select`.

    fit part     what distributions are fitted on
    select part  what is chosen among checkpoints, sharpened variants and parents
    evaluate     untouched: what is chosen is measured there

A child that does not beat its parent on select beyond chance *is* its parent, with the same tally.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nppr.budget import Budget
from nppr.classifiers import Classifier, Prepared
from nppr.data import Data
from nppr.distributions import (
    Dependency,
    Distribution,
    Rule,
    grown,
    only_component,
    route_by_features,
    route_by_label,
)
from nppr.draws import key
from nppr.errors import NoFitDataError
from nppr.fit.diagnostics import noise_diagnostics, weight_diagnostics
from nppr.fit.inputs import Found, find
from nppr.fit.loop import FitProgress, Fitting, History, Step, fit, optimiser
from nppr.fit.select import Candidate, Judge, best, candidates
from nppr.fit.settings import FitSettings
from nppr.fit.stages import Finished, StageFiles
from nppr.fit.walk import Stage, walk
from nppr.sources import learned_name
from nppr.types import Fit, PerturbationSource, Select

__all__ = ["FORWARD_SHARE", "Outcome", "Search"]

FORWARD_SHARE = 0.2
"""Forward-only calls (clean predictions, features, selection) over the calls of the fit, at most."""

CLEAN_SHARE = 0.14
"""What of it clean predictions of fit inputs may take: more inputs than that are not used."""

FEWEST = 16
"""Inputs that are scored on select however small the budget is."""

MOST_DRAWS = 16


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a search found for one floor: the distribution chosen, and how it got there."""

    distribution: Distribution
    number: int
    fit: dict[str, Any]
    diagnostics: dict[str, Any]

    @property
    def floor(self) -> float:
        """Rho."""
        return self.distribution.family.floor

    @property
    def select_value(self) -> float | None:
        """Its share of right draws on select, by which it was chosen, if anything was."""
        value: float | None = self.fit["select_value"]
        return value


@dataclass(eq=False)
class Search:
    """One search on one classifier and its data; inputs are found once and shared by all seeds."""

    settings: FitSettings
    classifier: Prepared
    data: Data
    budget: Budget
    seed: int = 0
    feature_model: Classifier | None = None
    quantise: bool = False
    folder: Path | None = None
    identity: str = ""
    progress: Callable[[FitProgress], None] | None = None
    references: Sequence[PerturbationSource] = ()
    forward_calls: int = 0
    fit_calls: int = 0

    def run(self) -> list[Outcome]:
        """All floors of all seeds, floors inside seeds."""
        self._require_parts()
        sees = self.settings.family.dependency.sees_input
        kept = max(1, int(CLEAN_SHARE * self.settings.calls))
        part = self.data.fit.limit(min(len(self.data.fit), kept), self.seed, "fit-inputs")
        look = partial(
            find,
            self.classifier,
            features=sees,
            feature_model=self.feature_model,
            quantise=self.quantise,
        )
        fitted = look(part=part, keep_images=True)
        chosen = look(part=self.data.select)
        self.forward_calls = fitted.calls + chosen.calls
        found: list[Outcome] = []
        for number in range(self.settings.seeds):
            found += self._one_seed(number, fitted, chosen)
        return found

    def _require_parts(self) -> None:
        for part in (self.data.fit, self.data.select):
            if not len(part):
                raise NoFitDataError(
                    f"`data` must have a {part.kind.name} part to fit NPPR on, got none."
                    " Leave nppr out of --sources, or give data with such a part."
                )

    def _one_seed(self, number: int, fitted: Found[Fit], chosen: Found[Select]) -> list[Outcome]:
        seed = self.seed if number == 0 else key(self.seed, "fit/seed", number, 0) & 0x7FFFFFFF
        stages = walk(self.settings)
        finished: list[Finished] = []
        for stage in stages:
            parents = [finished[parent] for parent in stage.parents]
            finished.append(self._stage(stage, parents, number, seed, fitted, chosen))
        outcomes = [self._outcome(finished, number, chosen)]
        for floor in self.settings.floors[1:]:
            parent = finished[-1]
            family = stages[-1].family.with_(floor=floor)
            stage = replace(
                stages[-1],
                name=f"{stages[-1].name}, floor {floor:g}",
                family=family,
                parents=(len(finished) - 1,),
                recipe=replace(self.settings.recipe, rate=self.settings.child_rate),
                steps=stages[-1].steps if floor < 1 else 0,  # rho = 1 is Uniform noise
            )
            finished.append(self._stage(stage, [parent], number, seed, fitted, chosen))
            outcomes.append(self._outcome(finished, number, chosen))
        return outcomes

    def _stage(
        self,
        stage: Stage,
        parents: list[Finished],
        number: int,
        seed: int,
        fitted: Found[Fit],
        chosen: Found[Select],
    ) -> Finished:
        """Fit one family, then choose among what it found and its parents."""
        files = StageFiles(self.folder, f"{number}-{stage.name}", f"{self.identity} {seed}")
        done = files.load(self.classifier.device)
        if done is None:
            start = self._start(stage, parents, seed, fitted)
            state = Step(start, optimiser(start, stage.recipe), History([], []))
            state_file = files.state()
            if state_file:
                state_file.restore(state)
            fitting = Fitting(
                stage=stage.name,
                classifier=self.classifier,
                inputs=fitted,
                budget=self.budget,
                recipe=stage.recipe,
                steps=stage.steps,
                seed=seed,
                quantise=self.quantise,
            )
            save = state_file.save if state_file else None
            fit(fitting, state, progress=self.progress, save=save)
            done = self._choose(stage, state, parents, seed, chosen)
            files.save(done)
        self.fit_calls += done.fit_calls
        self.forward_calls += done.forward_calls
        return done

    def _start(
        self, stage: Stage, parents: list[Finished], seed: int, fitted: Found[Fit]
    ) -> Distribution:
        """A fresh distribution, or one with the law of the best parent."""
        classes, features = self.data.classes, fitted.features.shape[1]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key(seed, f"fit/start/{stage.name}", 0, 0))
            if parents:
                parent = min(parents, key=lambda each: each.value or 0.0)
                basis = parent.fitted
                if basis.family.dependency is Dependency.INDEPENDENT:
                    single = only_component(parent.selected)
                    basis = parent.selected if single is not None else basis.sharpened(Rule.LARGEST)
                alone = only_component(basis) is not None
                start = grown(basis, stage.family, classes, features)
            else:
                channels, height, width = self.data.shape
                start = Distribution(stage.family, (channels, height, width), classes, features)
        if start.features and not any(parent.fitted.features for parent in parents):
            start.mixture.standardise(fitted.features)
        if parents and alone:
            if stage.family.dependency.sees_label:
                route_by_label(start)
            elif start.features:
                route_by_features(start, fitted.features, torch.from_numpy(fitted.part.labels))
        return start

    def _choose(
        self,
        stage: Stage,
        state: Step,
        parents: list[Finished],
        seed: int,
        chosen: Found[Select],
    ) -> Finished:
        fit_calls = stage.steps * stage.recipe.inputs * stage.recipe.draws
        if not self.settings.walks:
            return Finished(
                name=stage.name,
                fitted=state.distribution,
                selected=state.distribution,
                history=state.history,
                values={},
                references={},
                fit_calls=fit_calls,
                forward_calls=0,
                value=None,
            )
        judge = self._judge(stage, parents, fit_calls, seed, chosen)
        own = candidates(stage.name, state.distribution, judge)
        before = [_kept(parent, stage, judge) for parent in parents]
        winner = best(own, before)
        noises = {
            source.name: float(judge.rates(source).mean()) for source in self._references(stage)
        }
        kept = [
            parent.fitted
            for parent, candidate in zip(parents, before, strict=True)
            if candidate is winner
        ]
        return Finished(
            name=winner.name,
            fitted=_raised(kept[0], stage) if kept else state.distribution,
            selected=winner.distribution,
            history=state.history,
            values={each.name: each.value for each in (*before, *own)},
            references=_with_references(noises, winner.value, stage),
            fit_calls=fit_calls,
            forward_calls=judge.calls,
            value=winner.value,
        )

    def _references(self, stage: Stage) -> Sequence[PerturbationSource]:
        return self.references if stage.last else ()

    def _judge(
        self,
        stage: Stage,
        parents: list[Finished],
        fit_calls: int,
        seed: int,
        chosen: Found[Select],
    ) -> Judge:
        """As many select inputs and draws as the budget of forward-only calls allows."""
        columns = stage.family.components + len(parents) + len(self._references(stage))
        allowed = FORWARD_SHARE * (self.fit_calls + fit_calls) - self.forward_calls
        inputs = int(min(len(chosen), max(FEWEST, allowed // columns)))
        draws = int(min(MOST_DRAWS, max(1, allowed // (columns * inputs))))
        return Judge(
            self.classifier,
            chosen.limited(inputs, self.seed),
            self.budget,
            draws,
            self.seed,
            quantise=self.quantise,
        )

    def _outcome(self, finished: list[Finished], number: int, chosen: Found[Select]) -> Outcome:
        last = finished[-1]
        judge = Judge(self.classifier, chosen, self.budget, 1, self.seed)
        noise = noise_diagnostics(last.selected, self.budget, self.classifier, chosen, self.seed)
        weights = weight_diagnostics(judge.weights(last.fitted))
        return Outcome(
            distribution=last.selected,
            number=number,
            fit={
                "selected": last.name,
                "select_value": last.value,
                "with_references": last.references,
                "stages": [each.record() for each in finished],
                "fit_calls": sum(each.fit_calls for each in finished),
                "forward_calls": self.forward_calls,
            },
            diagnostics={**weights, **noise},
        )


def _with_references(noises: dict[str, float], own: float, stage: Stage) -> dict[str, Any]:
    """Which of the family and the reference noises is lowest on select, and their values."""
    if not noises:
        return {}
    name = learned_name(stage.family.floor)
    values = {name: own, **noises}
    return {"winner": min(values, key=lambda each: values[each]), "select_values": values}


def _kept(parent: Finished, stage: Stage, judge: Judge) -> Candidate:
    """What a parent selected, as a candidate of its child."""
    distribution = _raised(parent.selected, stage)
    return Candidate(parent.name, distribution, judge.of(distribution))


def _raised(parent: Distribution, stage: Stage) -> Distribution:
    """A parent as a member of the stage's family: only its floor can differ."""
    if parent.family.floor == stage.family.floor:
        return parent
    return parent.with_floor(stage.family.floor)
