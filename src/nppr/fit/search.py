"""The search for the worst distribution: walk the families, fit, sharpen, choose on `select`.

    fit part     what distributions are fitted on
    select part  what is chosen among checkpoints, sharpened variants and parents
    evaluate     untouched: what is chosen is measured there

A child that does not beat its parent on select beyond chance *is* its parent, with the same tally.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from nppr.budget import Budget
from nppr.classifiers import Classifier, Prepared
from nppr.data import Data
from nppr.distributed import together
from nppr.distributions import Distribution, Rule
from nppr.draws import key
from nppr.errors import NoFitDataError
from nppr.fit.diagnostics import noise_diagnostics, weight_diagnostics
from nppr.fit.inputs import Found, find
from nppr.fit.loop import FitProgress, Fitting, History, Step, fit, optimiser
from nppr.fit.select import Candidate, Judge, best, candidates
from nppr.fit.settings import FitSettings
from nppr.fit.stages import Finished, StageFiles
from nppr.fit.start import start
from nppr.fit.walk import Stage, walk
from nppr.types import Fit, PerturbationSource, Select

__all__ = ["FAMILY", "FORWARD_SHARE", "Outcome", "Search"]

FORWARD_SHARE = 0.2
"""Forward-only calls (clean predictions, features, selection) over the calls of the fit, at most."""

CLEAN_SHARE = 0.14
"""What of it clean predictions of fit inputs may take: more inputs than that are not used."""

FEWEST = 16
"""Inputs that are scored on select however small the budget is."""

MOST_DRAWS = 16

FAMILY = "family"
"""The learned noise among the winners; all others are names of reference noises."""


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
    clean_calls: int = 0
    forward_calls: int = 0
    fit_calls: int = 0
    _fit_inputs: Found[Fit] = field(init=False)
    _select_inputs: Found[Select] = field(init=False)

    def run(self) -> list[Outcome]:
        """All floors of all seeds, floors inside seeds."""
        found: list[Outcome] = []
        with together():
            self.find_inputs()
            for number in range(self.settings.seeds):
                found += self._one_seed(number)
        return found

    def find_inputs(self) -> None:
        """Find the inputs that are right without noise, and their features, once for all stages."""
        self._require_parts()
        kept = max(1, int(CLEAN_SHARE * self.settings.calls))
        part = self.data.fit.limit(min(len(self.data.fit), kept), self.seed, "fit-inputs")
        look = partial(
            find,
            self.classifier,
            features=self.settings.family.dependency.sees_input,
            feature_model=self.feature_model,
            quantise=self.quantise,
        )
        self._fit_inputs = look(part=part, keep_images=True)
        self._select_inputs = look(part=self.data.select)
        self.clean_calls = self._fit_inputs.calls + self._select_inputs.calls

    def _require_parts(self) -> None:
        for part in (self.data.fit, self.data.select):
            if not len(part):
                raise NoFitDataError(
                    f"`data` must have a {part.kind.name} part to fit NPPR on, got none."
                    " Leave nppr out of --sources, or give data with such a part."
                )

    def _one_seed(self, number: int) -> list[Outcome]:
        stages = walk(self.settings)
        finished: list[Finished] = []
        for stage in stages:
            finished.append(self.complete(stage, [finished[i] for i in stage.parents], number))
        outcomes = [self._outcome(finished, number)]
        for floor in self.settings.floors[1:]:
            stage = replace(
                stages[-1],
                name=f"{stages[-1].name}, floor {floor:g}",
                family=stages[-1].family.with_(floor=floor),
                steps=stages[-1].steps if floor < 1 else 0,  # rho = 1 is Uniform noise
            )
            parents = []
            if self.settings.walks:
                stage = replace(stage, recipe=replace(stage.recipe, rate=self.settings.child_rate))
                parents = [finished[-1]]
            finished.append(self.complete(stage, parents, number))
            outcomes.append(self._outcome(finished, number))
        return outcomes

    def complete(self, stage: Stage, parents: Sequence[Finished], number: int = 0) -> Finished:
        """Fit one family, then choose among what it found and its parents."""
        seed = self.seed if number == 0 else key(self.seed, "fit/seed", number, 0) & 0x7FFFFFFF
        files = StageFiles(self.folder, f"{number}-{stage.name}", self.identity)
        done = files.load(self.classifier.device)
        if done is None:
            state = self._fitted(stage, parents, seed, files)
            done = self._choose(stage, state, parents)
            files.save(done)
        self.fit_calls += done.fit_calls
        self.forward_calls += done.forward_calls
        return done

    def _fitted(
        self, stage: Stage, parents: Sequence[Finished], seed: int, files: StageFiles
    ) -> Step:
        inputs = self._fit_inputs
        made = start(stage, parents, inputs, self.data.shape, self.data.classes, seed)
        made.to(self.classifier.device)
        state = Step(made, optimiser(made, stage.recipe), History([], []))
        file = files.state()
        if file:
            file.restore(state)
        fitting = Fitting(
            stage=stage.name,
            classifier=self.classifier,
            inputs=inputs,
            budget=self.budget,
            recipe=stage.recipe,
            steps=stage.steps,
            seed=seed,
            quantise=self.quantise,
        )
        return fit(fitting, state, progress=self.progress, save=file.save if file else None)

    def _choose(self, stage: Stage, state: Step, parents: Sequence[Finished]) -> Finished:
        fit_calls = stage.steps * stage.recipe.inputs * stage.recipe.draws
        if not self.settings.walks:
            return Finished(
                stage=stage.name,
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
        judge = self._judge(stage, len(parents), fit_calls)
        own = candidates(stage.name, state.distribution, judge)
        if state.snapshot is not None:
            sharp = state.snapshot.sharpened(Rule.LARGEST)
            own.append(Candidate(f"{stage.name}, checkpoint", sharp, judge.of(sharp)))
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
            stage=stage.name,
            name=winner.name,
            fitted=_raised(kept[0], stage) if kept else state.distribution,
            selected=winner.distribution,
            history=state.history,
            values={each.name: each.value for each in (*before, *own)},
            references=_with_references(noises, winner.value),
            fit_calls=fit_calls,
            forward_calls=judge.calls,
            value=winner.value,
        )

    def _references(self, stage: Stage) -> Sequence[PerturbationSource]:
        return self.references if stage.last else ()

    def _judge(self, stage: Stage, parents: int, fit_calls: int) -> Judge:
        """As many select inputs and draws as the budget of forward-only calls allows."""
        chosen = self._select_inputs
        columns = stage.family.components + 1 + parents + len(self._references(stage))
        spent = self.clean_calls + self.forward_calls
        allowed = FORWARD_SHARE * (self.fit_calls + fit_calls) - spent
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

    def _outcome(self, finished: Sequence[Finished], number: int) -> Outcome:
        last, chosen = finished[-1], self._select_inputs
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
                "forward_calls": self.clean_calls + sum(each.forward_calls for each in finished),
            },
            diagnostics={**weights, **noise},
        )


def _with_references(noises: dict[str, float], own: float) -> dict[str, Any]:
    """Which of the family and the reference noises is lowest on select, and their values."""
    if not noises:
        return {}
    values = {FAMILY: own, **noises}
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
