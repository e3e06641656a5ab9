"""The search for the worst distribution: walk the families, fit, sharpen, choose on `select`.

    fit split       distributions are fitted on it
    select split    one of checkpoints, sharpened variants and parents is selected on it
    evaluate split  is not used here: what is selected is measured on it

A child that does not beat its parent on select beyond chance *is* its parent, with the same tally.
Finished stages are kept in files, so that a resumed search does not fit them again.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from nppr.core.budget import Budget
from nppr.core.random_draws import derive_seed
from nppr.core.tally import Fit, IntArray, Select
from nppr.data import Data, short_digests
from nppr.errors import NoFitDataError, NpprError
from nppr.models import Classifier, PreparedClassifier
from nppr.noise.distribution import Distribution
from nppr.noise.family import Family, Rule
from nppr.noise.structures import ANY, STATIONARY
from nppr.noise.warm_start import grow, only_component, route_by_features, route_by_label
from nppr.search.fitting import (
    FitProgress,
    FitState,
    Fitting,
    StateFile,
    fit,
    read_stage,
    unreadable_stage,
)
from nppr.search.learned_noise import LearnedNoise, build_distribution, law_of
from nppr.search.search_record import (
    FAMILY,
    GIVEN,
    BudgetRecord,
    ClassifierRecord,
    Diagnostics,
    FinishedStageRecord,
    LearnedNoiseRecord,
    ReferenceChoice,
    SearchConditions,
    SearchCurve,
    SearchRecord,
    StageRecord,
)
from nppr.search.search_settings import SearchSettings, Stage, walk
from nppr.search.selection import (
    Candidate,
    CleanInputs,
    Judge,
    best,
    candidates,
    diagnose,
    find_clean_inputs,
    paired_gain,
)
from nppr.search.starts import (
    EDGE_GAIN,
    START_GAIN,
    Band,
    KnownPoints,
    scan_bands,
    scan_box,
    scan_dictionary,
)
from nppr.sources import Source
from nppr.sources.learned import Learned
from nppr.system.records import UNREADABLE, add_prefix, take_prefix, write_record

FIT_INPUTS = 15_360
"""Inputs of the fit split that are predicted, but not more than half of the calls: patterns that are
fitted on few inputs do not carry over to others.
"""

CLEAN_SHARE = 0.07
"""Fit inputs over calls in a long search: more would cost more to predict than they add."""

SELECT_INPUTS = 1250
"""Inputs of the select split that are predicted; those that are clean-correct judge every stage."""

WANTED_SELECT = 300
"""If fewer of them are clean-correct, all inputs of the split are predicted."""

SELECT_DRAWS = 2000
"""Draws of all inputs together that judge a candidate."""

MOST_JUDGE_DRAWS = 16

FLAT = 0.01
"""Gain of a round on the select split below which a search ends: one percentage point."""

START_BOUND = 1.0
"""Means of a parent are brought within this: tanh is 0.76 there, and one step of 0.6 turns most."""


@dataclass(frozen=True, eq=False)
class FinishedStage:
    """A stage that is done: its record, and what was selected with its value on select.

    `fitted` is what was selected before it was sharpened: children start there. If the
    parent was kept, both are the parent's. `references` is None if no reference noises were compared.
    """

    record: StageRecord
    select_value: float | None
    references: ReferenceChoice | None
    fitted: Distribution
    selected: Distribution


@dataclass(eq=False)
class NoiseSearch:
    """One search on one classifier and its data; inputs are found once and shared by all seeds.

    `inputs` are the clean-correct inputs of the fit and select splits, if they are known already: it
    then costs no calls to find them. `given` is noise that was learned elsewhere, such as on a model
    that gives gradients: it is judged on the select split with what is found, and kept where it is
    lower. `described` goes into the records of what is found; `before_write` is given the paths of
    files in `folder` before they are written.
    """

    settings: SearchSettings
    classifier: PreparedClassifier
    data: Data
    budget: Budget
    seed: int = 0
    feature_model: Classifier | None = None
    folder: Path | None = None
    identity: str = ""
    before_write: Callable[..., None] | None = None
    progress: Callable[[FitProgress], None] | None = None
    references: Sequence[Source] = ()
    described: ClassifierRecord | None = None
    inputs: tuple[CleanInputs[Fit], CleanInputs[Select]] | None = None
    given: Sequence[LearnedNoise] = ()
    scans: dict[float, KnownPoints] = field(default_factory=dict)
    band: tuple[Band, int] | None = None
    """The worst band of stationary noise, and the passes that it took to find it."""
    stationary: Distribution | None = None
    """Stationary noise that was found, whose draws are starts of fixed patterns."""
    clean_calls: int = 0
    seen: IntArray | None = None

    def run(self) -> list[LearnedNoise]:
        """Return the noise of every stage and seed; the lowest on select has no seed suffix."""
        learned: list[LearnedNoise] = []
        stages = walk(self.settings, self.data.classes, self.shape)
        self.find_inputs()
        walks = [self._walk(stages, number) for number in range(self.settings.seeds)]
        for place in range(len(stages)):
            same = sorted(enumerate(walks), key=lambda each: each[1][place][-1].select_value or 0.0)
            for rank, (number, finished) in enumerate(same):
                learned.append(self.learned(finished[place], number if rank else None))
        return learned

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of a perturbation."""
        return self.budget.domain(self.data.shape)

    def find_inputs(self) -> tuple[CleanInputs[Fit], CleanInputs[Select]]:
        """The clean-correct inputs of fit and select with their features, found once."""
        if self.inputs is None:
            fit, select = self.data.fit, self.data.select
            for split in (fit, select):
                if not len(split):
                    raise NoFitDataError(
                        f"`data` must have a {split.kind.name} split to fit NPPR on, got none."
                        " Leave nppr out of --sources, or give data with such a split."
                    )
            kept = fit_inputs(len(fit), self.settings.calls)
            find = partial(
                find_clean_inputs,
                self.classifier,
                features=self.settings.family.dependency.sees_input,
                feature_model=self.feature_model,
            )
            some = select.limit(min(len(select), SELECT_INPUTS), self.seed, "select-inputs")
            chosen = find(split=some)
            if len(chosen) < WANTED_SELECT and len(some) < len(select):
                chosen = replace(found := find(split=select), calls=found.calls + chosen.calls)
            fitted = find(split=fit.limit(kept, self.seed, "fit-inputs"), keep_images=True)
            self.inputs = fitted, chosen
            self.clean_calls = sum(each.calls for each in self.inputs)
        return self.inputs

    def complete(
        self, stage: Stage, parents: Sequence[FinishedStage], number: int = 0
    ) -> FinishedStage:
        """Fit one family, then choose among what it found and its parents."""
        self.find_inputs()
        seed = (
            self.seed if number == 0 else derive_seed(self.seed, "fit/seed", number, 0) & 0x7FFFFFFF
        )
        if self.folder is None:
            return self._complete(stage, parents, seed, lambda _: None)
        slug = re.sub(r"[^a-z0-9.=-]+", "_", f"{number}-{stage.name}".lower())
        path = self.folder / f"{slug}.done.safetensors"
        done = load_finished(path, self.identity, self.classifier.device)
        if done is not None:
            return done
        files: list[StateFile] = []

        def file(fit: int) -> StateFile:
            files.append(
                StateFile(path.with_name(f"{slug}.{fit}.state.safetensors"), self.identity)
            )
            if self.before_write:
                self.before_write(path, files[-1].path)
            return files[-1]

        done = self._complete(stage, parents, seed, file)
        save_finished(path, self.identity, done)
        for each in files:
            each.path.unlink(missing_ok=True)
        return done

    def diagnose(self, finished: FinishedStage) -> Diagnostics:
        """Describe the noise of a finished stage on the select inputs."""
        _, select = self.find_inputs()
        judge = Judge(self.classifier, select, self.budget, 1, self.seed)
        return diagnose(finished.fitted, finished.selected, judge)

    def _walk(self, stages: Sequence[Stage], number: int) -> list[tuple[FinishedStage, ...]]:
        """The stages that led to each stage, itself included, for one seed."""
        self.scans, self.band, self.stationary = {}, None, None
        finished: list[FinishedStage] = []
        found: list[tuple[FinishedStage, ...]] = []
        for stage in stages:
            parents = [finished[parent] for parent in stage.parents]
            finished.append(self.complete(stage, parents, number))
            family = stage.family
            if family.structure == STATIONARY and not (family.dependency.knows or family.floor):
                self.stationary = finished[-1].selected
            before = found[stage.parents[-1]] if parents else ()
            found.append((*before, finished[-1]))
        return found

    def _complete(
        self,
        stage: Stage,
        parents: Sequence[FinishedStage],
        seed: int,
        file: Callable[[int], StateFile | None],
    ) -> FinishedStage:
        """Try the restarts for one round, continue the best until a round gains little, and choose."""
        inputs, _ = self.find_inputs()
        judge = self._judge()
        before = self._judged(stage, parents, judge)
        alike = [  # a stage cannot grow from noise of another structure
            (candidate.value, number)
            for number, (candidate, parent) in enumerate(zip(before, parents, strict=True))
            if parent.fitted.family.structure == stage.family.structure
        ]
        parent = parents[min(alike)[1]] if alike else None
        if not self.settings.walks:
            made = start(stage, parent, inputs, self.shape, self.data.classes, seed)
            state = self._fit(stage, made, stage.steps, seed, file(0))
            return self._choose(stage, state, None, parents, before, judge)
        values: list[float] = []
        chosen: tuple[Candidate, FitState] | None = None
        known, gain = None, math.inf
        for number, steps in enumerate((*stage.rounds[:1] * stage.restarts, *stage.rounds[1:])):
            if gain < FLAT:
                break
            own = derive_seed(seed, "fit/restart", number, 0) & 0x7FFFFFFF if number else seed
            if chosen and number >= stage.restarts:
                made = copy.deepcopy(chosen[1].distribution)
            else:
                made = start(stage, parent, inputs, self.shape, self.data.classes, own)
            if number == stage.restarts - 1:
                known = self._find_known(stage, made.to(self.classifier.device))
            state = self._fit(stage, made, steps, own, file(number))
            candidate = self._judge_round(stage, state, judge)
            values.append(candidate.value)
            if chosen and number >= stage.restarts:
                gain = paired_gain(chosen[0], candidate)
            if chosen is None or candidate.value < chosen[0].value:
                before_it = chosen[1] if chosen and number >= stage.restarts else None
                chosen = candidate, _continued(before_it, state)
        assert chosen is not None
        tried = sorted(values[: stage.restarts])
        curve = SearchCurve(
            restarts=tuple(tried),
            rounds=(tried[0], *values[stage.restarts :]),
            calls=stage.calls_until(1 + len(values) - stage.restarts),
            flat=gain < FLAT or not stage.steps,
        )
        best_known = []
        if known is not None:
            best_known = [Candidate(f"{stage.name}, known start", known, judge.of(known))]
            judge.calls += self._scan_calls(stage)
        return self._choose(stage, chosen[1], curve, parents, before, judge, best_known)

    def _judge_round(self, stage: Stage, state: FitState, judge: Judge) -> Candidate:
        law = state.distribution.at_largest()
        return Candidate(stage.name, law, judge.of(law))

    def _starts_at_band(self, family: Family) -> bool:
        return not family.dependency.knows and family.floor == self.settings.floors[0]

    def _scan_calls(self, stage: Stage) -> int:
        """Return the passes of a scan; stages that use it again, also after a resume, cost none."""
        if stage.family.dependency.knows:
            return 0
        if stage.family.structure == STATIONARY:
            return self.band[1] if self.band else 0
        box = self.budget.transform is not None
        return self.scans[stage.family.floor if box else 0.0].calls

    def _find_known(self, stage: Stage, made: Distribution) -> Distribution | None:
        """Return the law at the worst known points, and move a start there if that finds worse noise.

        In a box, and without gradients, it does. Gradients find worse patterns and filters from a
        random start.
        """
        box, family = self.budget.transform is not None, stage.family
        inputs, _ = self.find_inputs()
        if family.structure == STATIONARY and self._starts_at_band(family):
            if self.band is None:
                self.band = scan_bands(self.classifier, inputs, self.budget, made, seed=self.seed)
            law = copy.deepcopy(made)
            self.band[0].tune(law, EDGE_GAIN)
            if stage.recipe.scores:
                self.band[0].tune(made, START_GAIN)
            return law
        fixed = (
            family.structure == ANY and family.upsampler == "none" and self.settings.has_positions
        )
        if family.dependency.sees_input or not (box or fixed):
            return None
        floor = family.floor if box else 0.0
        if floor not in self.scans and box:
            self.scans[floor] = scan_box(
                self.classifier,
                inputs,
                self.budget,
                floor=floor,
                most_calls=self.settings.calls,
                seed=self.seed,
            )
        elif floor not in self.scans:
            self.scans[floor] = scan_dictionary(
                self.classifier,
                inputs,
                self.budget,
                stationary=self.stationary,
                seed=self.seed,
            )
        law = self.scans[floor].place(made if box or stage.recipe.scores else copy.deepcopy(made))
        if stage.recipe.bound is not None:
            with torch.no_grad():
                made.mixture.means.clamp_(-START_BOUND, START_BOUND)
        return law

    def _fit(
        self, stage: Stage, made: Distribution, steps: int, seed: int, file: StateFile | None
    ) -> FitState:
        inputs, _ = self.find_inputs()
        state = FitState.start(made.to(self.classifier.device), stage.recipe)
        if file:
            file.restore(state)
        fitting = Fitting(
            stage=stage.name,
            classifier=self.classifier,
            inputs=inputs,
            budget=self.budget,
            recipe=stage.recipe,
            steps=steps,
            seed=seed,
            pixels=math.prod(self.data.shape),
        )
        found = fit(fitting, state, progress=self.progress, save=file.save if file else None)
        if file:
            file.save(found, now=True)
        return found

    def _judged(
        self, stage: Stage, parents: Sequence[FinishedStage], judge: Judge
    ) -> list[Candidate]:
        """The parents at the floor of a stage, which start it and may be kept."""
        found = []
        for parent in parents if self.settings.walks else ():
            kept = parent.selected.with_floor(stage.family.floor)
            found.append(Candidate(parent.record.selected, kept, judge.of(kept)))
        return found

    def _judged_given(self, stage: Stage, judge: Judge) -> list[Candidate]:
        """The given noise that a stage's set contains, at its floor."""
        found = []
        for each in self.given:
            law = each.source.distribution
            same = (law.shape, law.classes) == (self.shape, self.data.classes)
            if same and stage.family.admissible.contains(law.family.admissible):
                law = law.with_floor(stage.family.floor).to(self.classifier.device)
                described = each.record.classifier
                name = described.name if described else "another model"
                found.append(Candidate(f"{stage.name}{GIVEN}{name}", law, judge.of(law)))
        return found

    def _choose(
        self,
        stage: Stage,
        state: FitState,
        curve: SearchCurve | None,
        parents: Sequence[FinishedStage],
        before: Sequence[Candidate],
        judge: Judge,
        scanned: Sequence[Candidate] = (),
    ) -> FinishedStage:
        """Choose the lowest on select: the fitted mixture, a variant of it, or a parent."""
        made, floor = state.distribution, stage.family.floor
        if curve is None:
            record = _record(stage, state, stage.name, made, {}, 0)
            return FinishedStage(record, None, None, made, made)
        edge = made.at_largest().at_edge()  # a search stays away from it, to turn
        found = [
            *candidates(stage.name, made, judge),
            Candidate(f"{stage.name}, at the edge", edge, judge.of(edge)),
            *scanned,
        ]
        own = [*found, *self._judged_given(stage, judge)]
        winner = best(own, before)
        choice = None
        if floor == 0 and self.references:
            noises, _ = self.reference_values
            lowest = min(noises, key=lambda name: noises[name])
            choice = ReferenceChoice(
                winner=lowest if noises[lowest] < winner.value else None,
                select_values={FAMILY: winner.value, **noises},
            )
        for parent, candidate in zip(parents, before, strict=True):
            if candidate is winner and parent.fitted.family.structure == made.family.structure:
                made = parent.fitted.with_floor(floor)
        values = {each.name: each.value for each in (*before, *own)}
        record = _record(stage, state, winner.name, made, values, judge.calls)
        record = record.model_copy(
            update={
                "curve": curve,
                "fit_calls": curve.calls,
                "all_calls": min(each.value for each in found),
                "select_inputs": len(judge.inputs),
            }
        )
        return FinishedStage(record, winner.value, choice, made, winner.distribution)

    @cached_property
    def reference_values(self) -> tuple[dict[str, float], int]:
        """The select values of the reference noises, and the forward passes that they took."""
        judge = self._judge()
        values = {each.name: float(judge.rates(each).mean()) for each in self.references}
        return values, judge.calls

    def _judge(self) -> Judge:
        """Enough inputs and draws to see a difference of two percentage points."""
        _, select = self.find_inputs()
        draws = min(MOST_JUDGE_DRAWS, -(-SELECT_DRAWS // len(select)))
        return Judge(self.classifier, select, self.budget, draws, self.seed)

    def learned(
        self, finished: Sequence[FinishedStage], fit_seed: int | None = None
    ) -> LearnedNoise:
        """Return the noise that the last stage selected, as a source with its record."""
        last, budget = finished[-1], self.budget
        source = Learned(
            budget,
            last.selected,
            self.feature_model,
            last.record.rung,
            fit_seed,
            structure=last.record.structure,
        )
        record = LearnedNoiseRecord(
            name=source.name,
            fit_seed=fit_seed,
            budget=BudgetRecord.of(budget, self.data.shape),
            search=self._search_record(finished),
            diagnostics=self.diagnose(last),
            nppr_version=version("nppr"),
            class_names=self.data.class_names,
            classifier=self.described,
            data=self.data.name,
            seed=self.seed,
            **dict(law_of(last.selected)),
        )
        if self.seen is None:
            own = [short_digests(each.split) for each in self.find_inputs()]
            self.seen = np.unique(np.concatenate([*own, *(each.seen for each in self.given)]))
        return LearnedNoise(source, record, self.seen)

    def _search_record(self, finished: Sequence[FinishedStage]) -> SearchRecord:
        stages = [each.record for each in finished]
        return SearchRecord(
            selected=stages[-1].selected,
            select_value=finished[-1].select_value,
            references=finished[-1].references,
            stages=tuple(each.rounded() for each in stages),
            fit_calls=sum(each.fit_calls for each in stages),
            forward_calls=self.clean_calls
            + (self.reference_values[1] if 0 in self.settings.floors else 0)
            + sum(each.forward_calls for each in stages),
            settings=self.settings,
            conditions=SearchConditions(
                fit_inputs=len(self.data.fit),
                select_inputs=len(self.data.select),
                seed=self.seed,
                quantise=self.classifier.quantise,
                fingerprint=self.described.fingerprint if self.described else None,
            ),
        )


def _continued(before: FitState | None, last: FitState) -> FitState:
    """Return the state of a fit with the history of the fit that it continued."""
    if before is None:
        return last
    return replace(last, loss=before.loss + last.loss, pr=before.pr + last.pr)


def fit_inputs(known: int, calls: int) -> int:
    """Return the number of inputs of a fit split that a search with these calls predicts and fits on.

    >>> fit_inputs(40_000, 20_000), fit_inputs(40_000, 92_160), fit_inputs(40_000, 400_000)
    (10000, 15360, 28000)
    """
    return min(known, max(1, min(calls // 2, FIT_INPUTS), int(CLEAN_SHARE * calls)))


def start(
    stage: Stage,
    parent: FinishedStage | None,
    inputs: CleanInputs[Fit],
    shape: tuple[int, int, int],
    classes: int,
    seed: int,
) -> Distribution:
    """Return the start of a stage: random, or the solution of its parent that is lowest at its floor.

    Noise that depends on nothing is at its worst with one component. Its children start with copies of
    that one, and classes are sent to different copies, which leaves the law as it is.
    """
    features = inputs.features.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, f"fit/start/{stage.name}", 0, 0))
        if parent is None:
            made = Distribution(stage.family, shape, classes, features)
            if made.features:
                made.mixture.standardise(inputs.features)
            if made.is_pattern and not stage.family.random_start:
                made.narrow()  # the worst law is one pattern: spread only blurs its gradients
            return made
        law = _basis(parent).with_floor(stage.family.floor)
        made = grow(law, stage.family, classes, features)
        patterns = not stage.family.dependency.sees_input  # features move what a child starts with
        if stage.recipe.bound is not None and patterns:  # a step can then turn every coordinate
            with torch.no_grad():
                made.mixture.means.clamp_(-START_BOUND, START_BOUND)
    if made.features and not law.features:
        made.mixture.standardise(inputs.features)
    if only_component(law) is not None and made.family.components > 1:
        if made.family.dependency.sees_label:
            route_by_label(made)
        elif made.features:
            route_by_features(made, inputs.features, torch.from_numpy(inputs.split.labels))
    return made


def save_finished(path: Path, identity: str, finished: FinishedStage) -> None:
    """Keep a finished stage of the run with this identity."""
    record = FinishedStageRecord(
        identity=f"{identity} {path.name}",
        stage=finished.record,
        select_value=finished.select_value,
        references=finished.references,
        fitted=law_of(finished.fitted),
        selected=law_of(finished.selected),
    )
    tensors = add_prefix("fitted/", finished.fitted.state_dict())
    write_record(path, tensors | add_prefix("selected/", finished.selected.state_dict()), record)


def load_finished(path: Path, identity: str, device: torch.device) -> FinishedStage | None:
    """The finished stage of the run with this identity, if the file is there."""
    found = read_stage(path)
    if found is None:
        return None
    tensors, content = found
    try:
        record = FinishedStageRecord.model_validate(content)
        if record.identity != f"{identity} {path.name}":
            raise ValueError("it belongs to another run")
        return FinishedStage(
            record.stage,
            record.select_value,
            record.references,
            build_distribution(record.fitted, take_prefix("fitted/", tensors)).to(device),
            build_distribution(record.selected, take_prefix("selected/", tensors)).to(device),
        )
    except (NpprError, *UNREADABLE) as error:
        raise unreadable_stage(path, error) from error


def _record(
    stage: Stage,
    state: FitState,
    selected: str,
    fitted: Distribution,
    values: dict[str, float],
    forward_calls: int,
) -> StageRecord:
    return StageRecord(
        stage=stage.name,
        rung=stage.family.dependency,
        structure=stage.family.structure,
        selected=selected,
        dependency=fitted.family.dependency,
        components=fitted.family.components,
        floor=fitted.family.floor,
        select_values=values,
        fit_calls=stage.calls,
        forward_calls=forward_calls,
        loss=tuple(state.loss),
        running_pr=tuple(state.pr),
    )


def _basis(parent: FinishedStage) -> Distribution:
    """Return what a child copies: the fitted mixture, or one component if it sees nothing."""
    if parent.fitted.family.dependency.knows or not parent.fitted.is_pattern:
        return parent.fitted
    own = parent.selected
    same = own.is_pattern and own.upsampler.latent_dim == parent.fitted.upsampler.latent_dim
    if same and only_component(own) is not None:
        return own
    return parent.fitted.sharpened(Rule.LARGEST)
