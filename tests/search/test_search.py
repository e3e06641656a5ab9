from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nppr import learn
from nppr.budget import Budget
from nppr.classifiers import Prepared, load_classifier, prepare
from nppr.data import Data, load_data
from nppr.errors import NoFitDataError, RunFolderError
from nppr.measurement import probe
from nppr.noise.family import Dependency, Family
from nppr.search.fitting import FitProgress
from nppr.search.learned_noise import LearnedNoise
from nppr.search.search import FORWARD_SHARE, Search
from nppr.search.search_record import FAMILY
from nppr.search.search_settings import SearchSettings, default_settings, paper_settings, walk
from nppr.search.selection import Candidate
from nppr.sources import Uniform

BUDGET = Budget.linf(0.1)
SMALL = default_settings(Family(Dependency.JOINT, components=2), calls=2048, inputs=64)


@pytest.fixture(scope="module")
def data() -> Data:
    return load_data("digits")


@pytest.fixture(scope="module")
def classifier(data: Data) -> Prepared:
    known = load_classifier("digits-cnn", data=data)
    return prepare(known, probe(data.evaluate), classes=10, micro_batch=64)


@pytest.fixture(scope="module")
def small(data: Data) -> Data:
    return data.limit(fit_inputs=150, select_inputs=60)


def searched(settings: SearchSettings, classifier: Prepared, data: Data) -> list[LearnedNoise]:
    return Search(settings, classifier, data, BUDGET, references=(Uniform(BUDGET),)).run()


def test_the_three_splits_share_no_input(classifier: Prepared, data: Data) -> None:
    fit, select = (each.part for each in Search(SMALL, classifier, data, BUDGET).find_inputs())
    assert set(fit.indices.tolist()) <= set(data.fit.indices.tolist())
    assert set(select.indices.tolist()) <= set(data.select.indices.tolist())
    for first, second in ((fit, select), (fit, data.evaluate), (select, data.evaluate)):
        assert not set(first.indices.tolist()) & set(second.indices.tolist())


def test_the_evaluate_split_is_not_looked_at(classifier: Prepared, small: Data) -> None:
    labels = np.zeros_like(small.evaluate.labels)
    other = replace(small, evaluate=replace(small.evaluate, labels=labels))
    first, second = (searched(SMALL, classifier, each) for each in (small, other))
    assert [each.record for each in first] == [each.record for each in second]


def test_forward_only_calls_stay_within_their_share(classifier: Prepared, data: Data) -> None:
    settings = default_settings(Family(components=7), calls=30_000, inputs=256, floors=(0.0,))
    search = Search(settings, classifier, data, BUDGET, references=(Uniform(BUDGET),))
    (learned,) = search.run()
    found = learned.record.search
    assert found.fit_calls == search.fit_calls <= 30_000
    assert found.forward_calls == search.clean_calls + search.forward_calls
    assert found.forward_calls <= FORWARD_SHARE * found.fit_calls


def test_inputs_that_are_known_cost_no_calls(classifier: Prepared, small: Data) -> None:
    settings = replace(SMALL, floors=(0.0,))
    first = Search(settings, classifier, small, BUDGET)
    second = Search(settings, classifier, small, BUDGET, inputs=first.find_inputs())
    stage = walk(settings)[0]
    finished = [search.complete(stage, []) for search in (first, second)]
    assert first.clean_calls > second.clean_calls == 0
    assert finished[0].record.loss == finished[1].record.loss
    found = [search.diagnose(done) for search, done in zip((first, second), finished, strict=True)]
    assert found[0].realised_std > 0


def test_every_seed_gives_every_floor(classifier: Prepared, small: Data) -> None:
    found = searched(replace(SMALL, seeds=2, floors=(0.0, 1.0)), classifier, small)
    assert [each.record.family.floor for each in found] == [0, 0, 1, 1]
    for pair in (found[:2], found[2:]):
        lowest, other = (each.record for each in pair)
        assert lowest.search.select_value <= other.search.select_value  # type: ignore[operator]
        assert lowest.fit_seed is None
        assert other.name == f"{lowest.name}:fit-seed={other.fit_seed}"
    stages = [each.record.search.stages for each in found[:2]]
    assert stages[0][0].loss != stages[1][0].loss
    (alone,) = searched(replace(SMALL, floors=(0.0,)), classifier, small)
    assert alone.record.search.stages == stages[0 if found[1].record.fit_seed else 1]


def test_a_child_that_is_not_better_is_its_parent(
    classifier: Prepared, small: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parents_only(own: Sequence[Candidate], parents: Sequence[Candidate]) -> Candidate:
        return min(parents or own, key=lambda each: each.value)

    monkeypatch.setattr("nppr.search.search.best", parents_only)
    (learned,) = searched(replace(SMALL, floors=(0.0,)), classifier, small)
    found = learned.record.search
    assert found.selected.startswith("independent")
    assert learned.source.distribution.family.dependency is Dependency.INDEPENDENT
    assert {stage.selected for stage in found.stages} == {found.selected}
    parent, *_, child = found.stages
    assert child.select_values[found.selected] == found.select_value
    assert parent.dependency is child.dependency is Dependency.INDEPENDENT


def test_what_was_chosen_is_lowest_or_a_parent(classifier: Prepared, small: Data) -> None:
    for learned in searched(SMALL, classifier, small):
        found = learned.record.search
        for stage in found.stages:
            values = stage.select_values
            own = [name for name in values if name.startswith(stage.stage)]
            parents = [name for name in values if name not in own]
            rivals = own if stage.selected in own else parents
            assert values[stage.selected] == min(values[name] for name in rivals)
        assert found.select_value == found.stages[-1].select_values[found.selected]


def test_the_family_is_compared_with_reference_noises(classifier: Prepared, small: Data) -> None:
    for learned in searched(SMALL, classifier, small):
        found = learned.record.search.references
        assert found is not None
        assert set(found.select_values) == {FAMILY, "uniform"}
        assert found.select_values[FAMILY] == learned.record.search.select_value
        winner = found.select_values[found.winner or FAMILY]
        assert winner == min(found.select_values.values())


@pytest.mark.parametrize("split", ["fit", "select"])
def test_data_without_a_split_to_fit_or_choose_on_are_refused(
    split: str, classifier: Prepared, small: Data
) -> None:
    known = getattr(small, split)
    empty = replace(known, indices=known.indices[:0], labels=known.labels[:0])
    with pytest.raises(NoFitDataError, match=f"`data` must have a {split} split"):
        searched(SMALL, classifier, replace(small, **{split: empty}))


def test_the_papers_preset_chooses_nothing(classifier: Prepared, small: Data) -> None:
    settings = paper_settings(Family(Dependency.LABEL, components=2), inputs=150, calls=4096)
    (learned,) = searched(settings, classifier, small)
    assert learned.record.search.select_value is None
    (stage,) = learned.record.search.stages
    assert stage.forward_calls == 0
    assert len(stage.loss) == 2


def test_a_search_leaves_the_callers_random_numbers_alone(
    classifier: Prepared, small: Data
) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    searched(replace(SMALL, floors=(0.0,)), classifier, small)
    assert torch.equal(torch.rand(2), expected)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "distributions").iterdir())}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    learn(fit=SMALL, fit_inputs=200, select_inputs=80, out=folder, overwrite=True)
    return contents(folder)


@pytest.mark.parametrize("stage", ["independent", "input", "joint, floor 0.5"])
def test_an_interrupted_fit_ends_in_the_same_bytes(
    stage: str, whole: dict[str, bytes], tmp_path: Path
) -> None:
    def interrupt(state: FitProgress) -> None:
        if state.stage == stage and state.step == max(1, state.steps - 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(fit=SMALL, fit_inputs=200, select_inputs=80, out=tmp_path / "run", on_fit=interrupt)
    assert not (tmp_path / "run" / "distributions").exists()
    steps: list[str] = []
    learn(
        fit=SMALL, fit_inputs=200, select_inputs=80, out=tmp_path / "run", resume=True,
        on_fit=lambda state: steps.append(f"{state.stage} {state.step}"),
    )  # fmt: skip
    assert f"{stage} 1" not in steps  # it went on, it did not start again
    assert contents(tmp_path / "run") == whole


def test_the_micro_batch_of_measuring_does_not_change_a_fit(
    whole: dict[str, bytes], tmp_path: Path
) -> None:
    learn(fit=SMALL, fit_inputs=200, select_inputs=80, out=tmp_path / "run", batch_size=7)
    assert contents(tmp_path / "run") == whole


def test_damaged_states_are_refused_in_one_line(tmp_path: Path) -> None:
    def interrupt(state: FitProgress) -> None:
        if state.stage == "input":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(fit=SMALL, fit_inputs=200, select_inputs=80, out=tmp_path, on_fit=interrupt)
    for path in (tmp_path / "fit").iterdir():
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(RunFolderError, match="`resume` must find whole files") as caught:
            learn(fit=SMALL, fit_inputs=200, select_inputs=80, out=tmp_path, resume=True)
        assert "\n" not in str(caught.value)
        path.write_bytes(content)
