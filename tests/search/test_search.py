from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from helpers import grouped, half_classifier, two_class_data
from nppr import learn
from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Fit, FloatArray, IntArray, Select, SplitKind
from nppr.data import Data, Split, StoredImages, from_arrays, load_data
from nppr.errors import DataError, NoFitDataError, RunFolderError
from nppr.measuring.measurement import probe
from nppr.models import Classifier, PreparedClassifier, load_classifier, prepare
from nppr.noise.distribution import Distribution
from nppr.noise.family import Family, Rule
from nppr.noise.mixture import Context
from nppr.noise.rungs import Dependency
from nppr.search.fitting import FitProgress, FitState
from nppr.search.learned_noise import LearnedNoise
from nppr.search.search import (
    FLAT,
    SELECT_DRAWS,
    SELECT_INPUTS,
    WANTED_SELECT,
    FinishedStage,
    NoiseSearch,
    load_finished,
    save_finished,
    start,
)
from nppr.search.search_record import FAMILY, ReferenceChoice, StageRecord
from nppr.search.search_settings import (
    SearchSettings,
    Stage,
    default_settings,
    paper_settings,
    walk,
)
from nppr.search.selection import Candidate, CleanInputs, Judge
from nppr.settings import Measure, Run
from nppr.sources import Uniform

pytestmark = pytest.mark.slow

BUDGET, CPU = Budget.linf(0.1), torch.device("cpu")
SHAPE, CLASSES, FEATURES = (1, 4, 4), 3, 5
SMALL = default_settings(
    Family(Dependency.JOINT), floors=(0.0, 0.5), calls=768, inputs=32
).without_positions()
WALKED = ["independent", "label", "joint"]


@pytest.fixture(scope="module")
def data() -> Data:
    return load_data("digits")


@pytest.fixture(scope="module")
def classifier(data: Data) -> PreparedClassifier:
    known = load_classifier("digits-cnn", data=data)
    return prepare(known, probe(data.evaluate), classes=10, micro_batch=64)


@pytest.fixture(scope="module")
def small(data: Data) -> Data:
    return data.limit(fit_inputs=150, select_inputs=30)


def searched(
    settings: SearchSettings, classifier: PreparedClassifier, data: Data
) -> list[LearnedNoise]:
    return NoiseSearch(settings, classifier, data, BUDGET, references=(Uniform(BUDGET),)).run()


@pytest.fixture(scope="module")
def ladder(classifier: PreparedClassifier, small: Data) -> list[LearnedNoise]:
    return searched(SMALL, classifier, small)


def test_the_three_splits_share_no_input(classifier: PreparedClassifier, data: Data) -> None:
    fit, select = (
        each.split for each in NoiseSearch(SMALL, classifier, data, BUDGET).find_inputs()
    )
    assert set(fit.indices.tolist()) <= set(data.fit.indices.tolist())
    assert set(select.indices.tolist()) <= set(data.select.indices.tolist())
    for first, second in ((fit, select), (fit, data.evaluate), (select, data.evaluate)):
        assert not set(first.indices.tolist()) & set(second.indices.tolist())


def test_the_evaluate_split_is_not_looked_at(classifier: PreparedClassifier, small: Data) -> None:
    labels = np.zeros_like(small.evaluate.labels)
    other = replace(small, evaluate=replace(small.evaluate, labels=labels))
    own = replace(SMALL, floors=(0.0,))
    first, second = (searched(own, classifier, each) for each in (small, other))
    assert [each.record for each in first] == [each.record for each in second]


def test_every_rung_of_every_floor_is_a_result(ladder: list[LearnedNoise], small: Data) -> None:
    names = ["nppr:independent", "nppr:label", "nppr:joint"]
    assert [each.source.name for each in ladder] == [
        *names, *(f"{name}:floor=0.5" for name in names)
    ]  # fmt: skip
    by_name = {each.source.name: each.record.search for each in ladder}
    assert [stage.rung.value for stage in by_name["nppr:joint"].stages] == WALKED
    assert by_name["nppr:joint"].stages[:2] == by_name["nppr:label"].stages
    lasts = [each.record.search.stages[-1] for each in ladder]
    chosen = [last for last in lasts if last.selected.startswith(last.stage)]
    assert chosen, "not every rung keeps its parent"
    for last in chosen:
        assert last.all_calls is not None
        assert last.all_calls >= last.select_values[last.selected] - 1e-9
    stages = walk(SMALL, 10, (1, 8, 8))
    for each, stage in zip(ladder, stages, strict=True):
        last = each.record.search.stages[-1]
        assert last.curve is not None
        taken = stage.calls_until(len(last.curve.rounds))
        assert (last.stage, last.fit_calls, last.curve.calls) == (stage.name, taken, taken)
        assert taken <= stage.calls
        assert each.record.search.fit_calls == sum(
            known.fit_calls for known in each.record.search.stages
        )
        assert last.select_inputs == len(small.select)  # all of them are clean-correct
        assert last.all_calls is not None
        assert len(last.curve.restarts) == stage.restarts


class Counted(nn.Module):
    """Counts the images whose gradient is wanted, and those that are only classified."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.gradients, self.others = model, 0, 0

    def __deepcopy__(self, memory: object) -> Counted:
        return self

    def forward(self, x: Tensor) -> Tensor:
        self.gradients += len(x) if x.requires_grad else 0
        self.others += 0 if x.requires_grad else len(x)
        logits: Tensor = self.model(x)
        return logits


@cache
def halves() -> Data:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(60, 1, 4, 4, generator=generator)
    labels = (images[..., :2].sum((1, 2, 3)) < images[..., 2:].sum((1, 2, 3))).long()
    return from_arrays(images, labels, shares=(0.5, 0.4))


@cache
def counted() -> tuple[Counted, PreparedClassifier]:
    model = Counted(half_classifier())
    known = Classifier(model)
    ready = prepare(known, probe(halves().evaluate), classes=2, micro_batch=16)
    return model, replace(ready, fast=known)


def first_stage(own: SearchSettings, steps: int, restarts: int) -> Stage:
    (stage,) = walk(own, 2, halves().shape)
    return replace(stage, steps=steps, restarts=restarts)


ALONE = default_settings(
    Family(Dependency.INDEPENDENT), floors=(0.0,), inputs=4, draws=2
).without_positions()


@contextmanager
def rounds_end_below(gain: float) -> Iterator[None]:
    """Searches end when a round gains less than this: -2 goes on to the maximum, 2 stops at once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("nppr.search.search.FLAT", gain)
        yield


@settings(max_examples=16)
@given(
    steps=st.integers(1, 40), restarts=st.integers(1, 5), gain=st.sampled_from([-2.0, FLAT, 2.0])
)
def test_restarts_and_rounds_take_exactly_the_calls_that_are_stated(
    steps: int, restarts: int, gain: float
) -> None:
    model, classifier = counted()
    stage = first_stage(ALONE, steps, restarts)
    search = NoiseSearch(ALONE, classifier, halves(), Budget.linf(0.1))
    search.find_inputs()
    gradients, others = model.gradients, model.others
    with rounds_end_below(gain):
        record = search.complete(stage, []).record
    assert record.curve is not None
    rounds = len(record.curve.rounds)
    calls = stage.calls_until(rounds)
    assert model.gradients - gradients == calls == record.fit_calls == record.curve.calls
    assert model.others - others == record.forward_calls
    assert len(record.curve.restarts) == restarts
    assert calls <= stage.calls == 8 * steps
    assert gain >= FLAT or (calls == stage.calls and not record.curve.flat)
    assert gain <= FLAT or rounds == min(2, len(stage.rounds))


def test_rounds_start_again_with_twice_the_steps_and_the_lowest_is_kept() -> None:
    _, classifier = counted()
    reported: list[FitProgress] = []
    search = NoiseSearch(ALONE, classifier, halves(), Budget.linf(0.1), progress=reported.append)
    with rounds_end_below(-2):
        record = search.complete(first_stage(ALONE, 27, 3), []).record
    assert [(each.step, each.steps) for each in reported] == [
        (step, steps) for steps in (3, 3, 3, 6, 12) for step in range(1, steps + 1)
    ]
    losses = tuple(each.loss for each in reported)
    fits = [losses[start:end] for start, end in ((0, 3), (3, 6), (6, 9), (9, 15), (15, 27))]
    assert len({fit[:3] for fit in fits}) == 5, "every fit has a start of its own"
    curve = record.curve
    assert curve is not None
    assert curve.restarts == tuple(sorted(curve.restarts))
    assert curve.rounds[0] == curve.restarts[0]
    assert record.loss in fits
    assert record.all_calls is not None
    assert record.all_calls <= min(curve.rounds), "the noise is that of the lowest round"


@pytest.mark.parametrize(
    ("values", "rounds", "flat"),
    [
        ((0.5, 0.495, 0.0), 2, True),  # the second round gains too little
        ((0.5, 0.489, 0.48), 3, True),
        ((0.5, 0.489, 0.47), 3, False),  # it still falls at the maximum
        ((0.5, 0.6, 0.0), 2, True),
    ],
)
def test_rounds_go_on_until_one_gains_less_than_a_point(
    values: tuple[float, ...], rounds: int, flat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, classifier = counted()
    search = NoiseSearch(ALONE, classifier, halves(), Budget.linf(0.1))
    left = iter(values)

    def judged(_: NoiseSearch, stage: Stage, state: FitState, judge: Judge) -> Candidate:
        rates = np.full(len(judge.inputs), next(left))
        return Candidate(stage.name, state.distribution, rates)

    monkeypatch.setattr(NoiseSearch, "_judge_round", judged)
    stage = first_stage(ALONE, 9, 1)
    curve = search.complete(replace(stage, restarts=1), []).record.curve
    assert curve is not None
    assert stage.rounds == (9,), "one restart has one round"
    left = iter((0.9, *values))
    stage = first_stage(ALONE, 8, 2)
    assert stage.rounds == (2, 2, 2)
    curve = search.complete(stage, []).record.curve
    assert curve is not None
    assert curve.rounds == pytest.approx(values[:rounds])
    assert curve.restarts == pytest.approx((values[0], 0.9))
    assert (curve.calls, curve.flat) == (stage.calls_until(rounds), flat)


def test_a_search_that_has_nothing_to_fit_is_flat() -> None:
    _, classifier = counted()
    own = replace(ALONE, floors=(1.0,))
    search = NoiseSearch(own, classifier, halves(), Budget.linf(0.1))
    (stage,) = walk(own, 2, halves().shape)
    curve = search.complete(stage, []).record.curve
    assert curve is not None
    assert (curve.calls, curve.flat) == (0, True)


def test_a_round_that_is_not_lower_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    _, classifier = counted()
    search = NoiseSearch(ALONE, classifier, halves(), Budget.linf(0.1))
    values = iter((0.5, 0.9, 0.6))
    judged: list[Distribution] = []

    def judge_round(_: NoiseSearch, stage: Stage, state: FitState, judge: Judge) -> Candidate:
        judged.append(copy.deepcopy(state.distribution))
        return Candidate(stage.name, judged[-1], np.full(len(judge.inputs), next(values)))

    monkeypatch.setattr(NoiseSearch, "_judge_round", judge_round)
    done = search.complete(first_stage(ALONE, 8, 2), [])
    lowest, other, worse = (each.mixture.means for each in judged)
    assert not torch.equal(lowest, other)
    assert not torch.equal(lowest, worse)
    assert torch.equal(done.fitted.mixture.means, lowest)


def test_a_child_that_gains_less_than_a_point_stops_after_two_rounds() -> None:
    _, classifier = counted()
    own = default_settings(Family(Dependency.LABEL), floors=(0.0,), inputs=4).without_positions()
    search = NoiseSearch(own, classifier, halves(), Budget.linf(1e-4))  # no noise does any harm
    parent, child = (replace(each, steps=8, restarts=2) for each in walk(own, 2, halves().shape))
    before = search.complete(parent, [])
    curve = search.complete(child, [before]).record.curve
    assert curve is not None
    assert (len(curve.rounds), curve.flat, curve.calls) == (2, True, child.calls_until(2))


class Busy:
    """Images of one class each, made when they are asked for; counts which ones were."""

    def __init__(self) -> None:
        self.read: set[int] = set()

    def __len__(self) -> int:
        return 10**6

    def digest(self, position: int) -> bytes:
        return position.to_bytes(16, "little")

    def load(self, indices: IntArray) -> Tensor:
        self.read.update(indices.tolist())
        images = torch.full((len(indices), 1, 4, 4), 0.2)
        for row, index in enumerate(indices.tolist()):
            half = images[row, :, :, :2] if index % 2 == 0 else images[row, :, :, 2:]
            half.add_(0.1 + 0.6 * ((index * 37) % 101) / 101)
        return images


def large_split(kind: type[SplitKind], busy: Busy, inputs: int, wrong: float) -> Split[Any]:
    """So many inputs, of which a fraction is misclassified."""
    indices = np.arange(inputs) + (inputs if kind is Select else 0)
    labels = indices % 2
    flipped = np.random.default_rng(0).random(inputs) < wrong
    return Split(kind, busy, indices, np.where(flipped, 1 - labels, labels))


@pytest.mark.parametrize("wrong", [0.0, 0.5, 0.9])
def test_a_large_split_neither_starves_the_selection_nor_is_predicted_in_vain(wrong: float) -> None:
    inputs = 20_000
    fit, select = Busy(), Busy()
    data = replace(
        two_class_data(20),
        fit=large_split(Fit, fit, inputs, 0.0),
        select=large_split(Select, select, inputs, wrong),
    )
    _, classifier = counted()
    own = default_settings(Family(Dependency.LABEL), calls=512, inputs=32).without_positions()
    search = NoiseSearch(own, classifier, data, Budget.linf(0.1))
    found = search.run()
    judge = search._judge()
    assert len(judge.inputs) >= WANTED_SELECT == 300
    assert len(judge.inputs) * judge.draws >= min(SELECT_DRAWS, 16 * len(judge.inputs))
    for each in found:
        assert each.record.search.stages[-1].select_inputs == len(judge.inputs)
    assert len(fit.read) == own.calls // 2
    assert len(select.read) == (SELECT_INPUTS if wrong < 0.75 else inputs)
    assert search.clean_calls == len(fit.read) + len(select.read) + (
        SELECT_INPUTS if len(select.read) == inputs else 0
    )


def test_a_select_split_of_one_class_is_enough(classifier: PreparedClassifier, small: Data) -> None:
    one = small.select.labels == 3
    select = replace(
        small.select, indices=small.select.indices[one], labels=small.select.labels[one]
    )
    own = default_settings(Family(Dependency.LABEL), calls=256, inputs=32)
    found = searched(own, classifier, replace(small, select=select))
    assert found
    for each in found:
        assert each.record.search.stages[-1].select_inputs == int(one.sum()) > 0
        assert each.record.search.select_value is not None


def test_a_select_split_without_a_clean_correct_input_is_one_clear_line(
    classifier: PreparedClassifier, small: Data
) -> None:
    select = replace(small.select, labels=(small.select.labels + 1) % 10)
    with pytest.raises(DataError, match="select split must hold at least one clean-correct") as no:
        searched(SMALL, classifier, replace(small, select=select))
    assert "\n" not in str(no.value)


def test_inputs_that_are_known_cost_no_calls(classifier: PreparedClassifier, small: Data) -> None:
    own = replace(SMALL, floors=(0.0,))
    first = NoiseSearch(own, classifier, small, BUDGET)
    second = NoiseSearch(own, classifier, small, BUDGET, inputs=first.find_inputs())
    stage = walk(own, small.classes, small.shape)[0]
    finished = [search.complete(stage, []) for search in (first, second)]
    assert first.clean_calls > second.clean_calls == 0
    assert finished[0].record.loss == finished[1].record.loss
    found = [search.diagnose(done) for search, done in zip((first, second), finished, strict=True)]
    assert found[0].realised_std > 0


def test_every_seed_gives_every_floor(classifier: PreparedClassifier, small: Data) -> None:
    own = default_settings(
        Family(Dependency.LABEL), floors=(0.0, 1.0), calls=256, inputs=32
    ).without_positions()
    found = searched(replace(own, seeds=2), classifier, small)
    assert [each.record.family.floor for each in found] == [0, 0, 0, 0, 1, 1, 1, 1]
    for number in range(0, 8, 2):
        lowest, other = (each.record for each in found[number : number + 2])
        assert lowest.search.select_value <= other.search.select_value  # type: ignore[operator]
        assert lowest.fit_seed is None
        assert other.name == f"{lowest.name}:fit-seed={other.fit_seed}"
    stages = [each.record.search.stages for each in found[:2]]
    assert stages[0][0].loss != stages[1][0].loss
    alone, *_ = searched(replace(own, floors=(0.0,)), classifier, small)
    assert alone.record.search.stages == stages[0 if found[1].record.fit_seed else 1]


def test_a_child_that_is_not_better_is_its_parent(
    classifier: PreparedClassifier, small: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parents_only(own: Sequence[Candidate], parents: Sequence[Candidate]) -> Candidate:
        return min(parents or own, key=lambda each: each.value)

    monkeypatch.setattr("nppr.search.search.best", parents_only)
    *_, learned = searched(replace(SMALL, floors=(0.0,)), classifier, small)
    found = learned.record.search
    assert learned.source.name == "nppr:joint"
    assert found.selected.startswith("independent")
    assert learned.source.distribution.family.dependency is Dependency.INDEPENDENT
    assert {stage.selected for stage in found.stages} == {found.selected}
    parent, *_, child = found.stages
    assert child.select_values[found.selected] == found.select_value
    assert parent.dependency is child.dependency is Dependency.INDEPENDENT


def test_what_was_chosen_is_lowest_or_a_parent(ladder: list[LearnedNoise]) -> None:
    for learned in ladder:
        found = learned.record.search
        for stage in found.stages:
            values = stage.select_values
            own = [name for name in values if name.startswith(stage.stage)]
            parents = [name for name in values if name not in own]
            rivals = own if stage.selected in own else parents
            assert values[stage.selected] == min(values[name] for name in rivals)
        assert found.select_value == found.stages[-1].select_values[found.selected]


def test_the_family_is_compared_with_reference_noises(ladder: list[LearnedNoise]) -> None:
    for learned in ladder:
        found = learned.record.search.references
        assert (found is None) == (learned.source.floor > 0)
        if found is None:
            continue
        assert set(found.select_values) == {FAMILY, "uniform"}
        assert found.select_values[FAMILY] == learned.record.search.select_value
        winner = found.select_values[found.winner or FAMILY]
        assert winner == min(found.select_values.values())


@pytest.mark.parametrize("split", ["fit", "select"])
def test_data_without_a_split_to_fit_or_choose_on_are_refused(
    split: str, classifier: PreparedClassifier, small: Data
) -> None:
    known = getattr(small, split)
    empty = replace(known, indices=known.indices[:0], labels=known.labels[:0])
    with pytest.raises(NoFitDataError, match=f"`data` must have a {split} split"):
        searched(SMALL, classifier, replace(small, **{split: empty}))


def test_the_papers_preset_chooses_nothing(classifier: PreparedClassifier, small: Data) -> None:
    own = paper_settings(Family(Dependency.LABEL, components=2), inputs=150, calls=4096)
    (learned,) = searched(own, classifier, small)
    assert learned.record.search.select_value is None
    (stage,) = learned.record.search.stages
    assert stage.forward_calls == 0
    assert len(stage.loss) == 2


def test_a_search_leaves_the_callers_random_numbers_alone(
    classifier: PreparedClassifier, small: Data
) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    searched(replace(SMALL, floors=(0.0,)), classifier, small)
    assert torch.equal(torch.rand(2), expected)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "distributions").iterdir())}


@pytest.fixture(scope="module")
def _rounds() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:  # restarts and all rounds for few steps
        patched.setattr("nppr.search.search_settings.FEWEST_STEPS", 4)
        patched.setattr("nppr.search.search.FLAT", -2.0)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, _rounds: None) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    learn(
        search=SMALL,
        measure=Measure(fit_inputs=100, select_inputs=40),
        run=Run(out=folder, overwrite=True),
    )
    return contents(folder)


FITS = {
    "first restart": ("independent", 1, 1),
    "second restart": ("independent", 2, 1),
    "between": ("independent", 2, 0),
    "second round": ("independent", 3, 2),
    "third round": ("independent", 4, 1),
    "child, second restart": ("label", 2, 2),
    "child, third round": ("label", 4, 2),
    "joint, floor 0.5": ("joint, floor 0.5", 2, 1),
}
"""Stage, number of the fit in it (two restarts, then two rounds), and the step after which it is
interrupted: 2 steps each, but 1, 1, 1 and 3 at the further floor. Step 0: while the fit is judged.
"""


@pytest.mark.parametrize("place", FITS)
def test_an_interrupted_fit_ends_in_the_same_bytes(
    place: str, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, number, step = FITS[place]
    begun: list[str] = []

    def interrupt(state: FitProgress) -> None:
        if state.step == 1:
            begun.append(state.stage)
        if (begun.count(stage), begun[-1], state.step) == (number, stage, step):
            raise KeyboardInterrupt

    asked = {"search": SMALL, "fit_inputs": 100, "select_inputs": 40, "out": tmp_path / "run"}
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        if not step:
            of, calls = Judge.of, count(1)

            def judged(self: Judge, distribution: Distribution) -> FloatArray:
                if next(calls) == number:
                    raise KeyboardInterrupt
                return of(self, distribution)

            patched.setattr(Judge, "of", judged)
        learn(progress=interrupt, **grouped(**asked))
    assert not (tmp_path / "run" / "distributions").exists()
    steps: list[str] = []
    learn(
        progress=lambda state: steps.append(f"{state.stage} {state.step}"),
        **grouped(resume=True, **asked),
    )
    assert steps.count(f"{stage} 1") == 4 - number  # it went on, it did not start again
    assert contents(tmp_path / "run") == whole


def test_the_micro_batch_of_measuring_does_not_change_a_fit(
    whole: dict[str, bytes], tmp_path: Path
) -> None:
    learn(
        search=SMALL,
        measure=Measure(fit_inputs=100, select_inputs=40),
        run=Run(out=tmp_path / "run", batch_size=7),
    )
    assert contents(tmp_path / "run") == whole


def test_a_stage_whose_state_is_damaged_is_fitted_again(
    whole: dict[str, bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt(state: FitProgress) -> None:
        if state.stage == "label":
            raise KeyboardInterrupt

    asked = {"search": SMALL, "fit_inputs": 100, "select_inputs": 40, "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        learn(progress=interrupt, **grouped(batch_size=7, **asked))
    damaged = list((tmp_path / "run" / "fit").iterdir())
    for path in damaged:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    learn(**grouped(resume=True, batch_size=7, **asked))
    assert contents(tmp_path / "run") == whole
    assert caplog.text.count("that stage is fitted again") == len(damaged) > 0


def finished() -> FinishedStage:
    torch.manual_seed(0)
    made = Distribution(Family(Dependency.JOINT, components=2, floor=0.25), (1, 4, 4), 3, 5)
    record = StageRecord(
        stage="some",
        rung=Dependency.JOINT,
        selected="joint, best per class",
        dependency=Dependency.JOINT,
        components=2,
        floor=0.25,
        select_values={"joint": 0.5, "label": 2 / 3},
        fit_calls=1000,
        forward_calls=99,
        loss=(0.3, 0.1 + 0.2),
        running_pr=(1.0, 1 / 3),
    )
    return FinishedStage(
        record,
        select_value=0.5,
        references=ReferenceChoice(winner=None, select_values={"family": 0.5}),
        fitted=made,
        selected=made.sharpened(Rule.CHOSEN, torch.tensor([1, 0, 1])),
    )


def test_a_finished_stage_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "0-joint.done.safetensors"
    assert load_finished(path, "run", CPU) is None
    before = finished()
    save_finished(path, "run", before)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    after = load_finished(path, "run", CPU)
    assert torch.equal(torch.rand(3), expected)  # the caller's numbers are left alone
    assert after is not None
    assert after.record == before.record  # to the last bit
    assert (after.select_value, after.references) == (before.select_value, before.references)
    for one, two in ((before.fitted, after.fitted), (before.selected, after.selected)):
        assert (one.family, one.rule, one.shape) == (two.family, two.rule, two.shape)
        for name, value in one.state_dict().items():
            assert torch.equal(value, two.state_dict()[name])


def test_histories_are_rounded_for_the_report_only() -> None:
    record = finished().record
    assert record.rounded().loss == (0.3, 0.3)
    assert record.rounded().running_pr == (1.0, 0.333333)
    assert record.rounded().select_values == record.select_values


@pytest.mark.parametrize("damage", ["another run", "another stage"])
def test_files_of_another_run_are_refused_in_one_line(damage: str, tmp_path: Path) -> None:
    path, identity = tmp_path / "0-joint.done.safetensors", "run"
    save_finished(path, identity, finished())
    if damage == "another run":
        identity = "other"
    else:
        path = path.rename(tmp_path / "0-label.done.safetensors")
    with pytest.raises(RunFolderError, match="Delete it to fit that stage again") as caught:
        load_finished(path, identity, CPU)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_a_damaged_stage_counts_as_not_finished(
    kept: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "0-joint.done.safetensors"
    save_finished(path, "run", finished())
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    assert load_finished(path, "run", CPU) is None
    assert caplog.text.count("that stage is fitted again") == 1


@pytest.fixture(scope="module")
def inputs() -> CleanInputs[Fit]:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(30, *SHAPE, generator=generator)
    features = 4 + 3 * torch.randn(30, FEATURES, generator=generator)
    split = Split(Fit, StoredImages(images.numpy()), np.arange(30), np.arange(30) % CLASSES)
    return CleanInputs(split, features, images, 30)


def stages(dependency: Dependency) -> dict[str, Stage]:
    own = default_settings(Family(dependency, components=3, hidden_dim=16)).without_positions()
    made = walk(own, CLASSES, SHAPE)
    return {stage.name: stage for stage in made}


def finished_at(
    made: Distribution, value: float, selected: Distribution | None = None
) -> FinishedStage:
    return FinishedStage(finished().record, value, None, made, selected or made)


def noise(made: Distribution, inputs: CleanInputs[Fit]) -> torch.Tensor:
    block = DrawBlock(0, "fit", tuple(range(30)), 0, 8, torch.device("cpu"))
    context = Context(torch.from_numpy(inputs.split.labels), inputs.features)
    with torch.no_grad():
        return made.exact(context, block, Budget.linf(0.1))


def test_the_seed_decides_a_start_and_the_callers_numbers_are_left_alone(
    inputs: CleanInputs[Fit],
) -> None:
    stage = stages(Dependency.JOINT)["independent"]
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    first, again, other = (start(stage, None, inputs, SHAPE, CLASSES, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(2), expected)
    assert torch.equal(first.mixture.means, again.mixture.means)
    assert not torch.equal(first.mixture.means, other.mixture.means)


def test_features_are_standardised_on_the_fit_split(inputs: CleanInputs[Fit]) -> None:
    for parents in ([], ["independent"]):
        known = stages(Dependency.INPUT)
        before = [
            finished_at(start(known[name], None, inputs, SHAPE, CLASSES, 0), 0.5)
            for name in parents
        ]
        made = start(known["input"], before[0] if before else None, inputs, SHAPE, CLASSES, 0)
        seen = (inputs.features - made.mixture.feature_mean) * made.mixture.feature_scale
        torch.testing.assert_close(seen.mean(0), torch.zeros(FEATURES), atol=1e-5, rtol=0)
        torch.testing.assert_close(seen.std(0), torch.ones(FEATURES), atol=1e-4, rtol=0)


@pytest.mark.parametrize("child", ["label", "input"])
def test_a_child_of_one_component_starts_with_its_very_noise(
    child: str, inputs: CleanInputs[Fit]
) -> None:
    known = stages(Dependency.JOINT) | stages(Dependency.INPUT)
    parent = start(known["independent"], None, inputs, SHAPE, CLASSES, 0)
    sharp = parent.sharpened(Rule.CHOSEN, torch.tensor(1))
    made = start(known[child], finished_at(parent, 0.5, sharp), inputs, SHAPE, CLASSES, 0)
    assert made.family == known[child].family
    torch.testing.assert_close(noise(made, inputs), noise(sharp, inputs))


def test_classes_are_sent_to_different_copies(inputs: CleanInputs[Fit]) -> None:
    known = stages(Dependency.LABEL)
    parent = start(known["independent"], None, inputs, SHAPE, CLASSES, 0)
    sharp = parent.sharpened(Rule.CHOSEN, torch.tensor(1))
    made = start(known["label"], finished_at(parent, 0.5, sharp), inputs, SHAPE, CLASSES, 0)
    weights = made.mixture(Context(torch.arange(CLASSES))).log_weights.exp()
    torch.testing.assert_close(weights, torch.eye(CLASSES), atol=1e-6, rtol=0)
    # So the inputs of a class move its own component and no other.
    context = Context(torch.full((5,), 1))
    block = DrawBlock(0, "fit", tuple(range(5)), 0, 8, torch.device("cpu"))
    delta, _ = made.relaxed(context, block, Budget.linf(0.1), tau=1.0)
    delta.sum().backward()
    assert made.mixture.means.grad is not None
    moved = made.mixture.means.grad.abs().sum(1)
    assert float(moved[1]) > 1e3 * float(moved[[0, 2]].max())


def test_a_stage_starts_at_the_parent_that_is_lowest_at_its_own_floor(
    classifier: PreparedClassifier, small: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = NoiseSearch(SMALL, classifier, small, Budget.linf(0.3))
    stage = walk(SMALL, small.classes, small.shape)[0]
    weak, strong = (search.complete(replace(stage, steps=steps), []) for steps in (1, 16))
    # What was measured at another floor decides nothing.
    weak = replace(weak, select_value=0.0)
    taken: list[FinishedStage | None] = []

    def recorded(stage: Stage, parent: FinishedStage | None, *rest: Any) -> Distribution:
        taken.append(parent)
        return start(stage, parent, *rest)

    monkeypatch.setattr("nppr.search.search.start", recorded)
    raised = replace(stage, family=stage.family.with_(floor=0.1), steps=2)
    search.complete(raised, [weak, strong])
    assert taken[0] is strong


@pytest.mark.parametrize("bound", [3.0, None])
def test_a_child_starts_where_its_steps_can_turn_the_pattern(
    bound: float | None, inputs: CleanInputs[Fit]
) -> None:
    stage = stages(Dependency.LABEL)["label"]
    stage = replace(stage, recipe=replace(stage.recipe, bound=bound))
    parent = start(stage, None, inputs, SHAPE, CLASSES, 0)
    with torch.no_grad():
        parent.mixture.means.mul_(2.5)
    made = start(stage, finished_at(parent, 0.5), inputs, SHAPE, CLASSES, 0)
    expected = parent.mixture.means if bound is None else parent.mixture.means.clamp(-1, 1)
    torch.testing.assert_close(made.mixture.means, expected)
    assert float(parent.mixture.means.detach().abs().max()) > 1


def test_a_higher_floor_starts_at_the_same_latent_noise(inputs: CleanInputs[Fit]) -> None:
    known = stages(Dependency.LABEL)["label"]
    parent = start(known, None, inputs, SHAPE, CLASSES, 0)
    raised = Stage("label, floor 0.5", known.family.with_(floor=0.5), (), known.recipe, 1)
    made = start(raised, finished_at(parent, 0.5), inputs, SHAPE, CLASSES, 0)
    torch.testing.assert_close(noise(made, inputs), noise(parent.with_floor(0.5), inputs))
