from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import nppr
from nppr.budget import Budget
from nppr.classifiers import Prepared, load_classifier, prepare
from nppr.data import Data, load_data
from nppr.noise import Family
from nppr.errors import BudgetError, DistributionError, RunFolderError
from nppr.search import default_settings
from nppr.search.search_record import FAMILY
from nppr.search.learned_noise import LearnedNoise, load_learned, save_learned
from nppr.measure import measure, probe
from nppr.sources import Learned
from nppr.types import IntArray

SMALL = default_settings(Family(components=2), calls=2048, inputs=64, seeds=2)


@pytest.fixture(scope="module")
def fitted() -> list[LearnedNoise]:
    return nppr.learn(fit=SMALL, fit_inputs=150, select_inputs=60)


@pytest.fixture(scope="module")
def data() -> Data:
    return load_data("digits").limit(inputs=40)


@pytest.fixture
def folder(fitted: list[LearnedNoise], tmp_path: Path) -> Path:
    save_learned(tmp_path / "distributions", fitted)
    return tmp_path


@pytest.fixture(scope="module")
def classifier(data: Data) -> Prepared:
    known = load_classifier("digits-cnn", data=data)
    return prepare(known, probe(data.evaluate), classes=10, micro_batch=64)


def right(source: Learned, data: Data, classifier: Prepared) -> IntArray:
    return measure(source, classifier, data.evaluate, draws=8).right


def test_the_lowest_of_a_floor_bears_the_plain_name(fitted: list[LearnedNoise]) -> None:
    names = [each.source.name for each in fitted]
    assert names[::2] == ["nppr", "nppr:floor=0.5"]
    for plain, other in (names[:2], names[2:]):
        assert other in (f"{plain}:fit-seed=0", f"{plain}:fit-seed=1")
    values = [each.saved.fit["select_value"] for each in fitted]
    assert values[0] <= values[1]
    assert values[2] <= values[3]


def test_what_is_loaded_is_what_was_saved(
    fitted: list[LearnedNoise], folder: Path, data: Data, classifier: Prepared
) -> None:
    loaded = {each.source.name: each for each in load_learned(folder)}
    assert loaded.keys() == {each.source.name for each in fitted}
    for before in fitted:
        after = loaded[before.source.name]
        assert after.source.budget == before.source.budget
        assert {**after.described()} == {**before.described()}
        np.testing.assert_array_equal(
            right(after.source, data, classifier), right(before.source, data, classifier)
        )


def test_a_run_folder_its_distributions_and_each_file_can_be_loaded(folder: Path) -> None:
    inner = folder / "distributions"
    assert len(load_learned(folder)) == len(load_learned(inner)) == 4
    for name in ("nppr", "nppr.json", "nppr.safetensors", "nppr_floor=0.5", "nppr_floor=0.5.json"):
        (one,) = load_learned(inner / name)
        assert one.source.name == ("nppr:floor=0.5" if "0.5" in name else "nppr")


def test_another_radius_scales_the_noise(folder: Path, data: Data, classifier: Prepared) -> None:
    (near,) = load_learned(folder / "distributions" / "nppr")
    (far,) = load_learned(folder / "distributions" / "nppr", Budget.linf(0.3))
    x, y = data.evaluate.batch(np.arange(4))
    first, second = (
        each.source.sample(x, y, 3, model=classifier.reference) for each in (near, far)
    )
    torch.testing.assert_close(3 * first, second)
    means = [right(each.source, data, classifier).mean() for each in (near, far)]
    assert means[1] < means[0]


def test_a_folder_without_distributions_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(DistributionError, match="`distribution` must be a folder with"):
        load_learned(tmp_path)
    with pytest.raises(DistributionError, match="`distribution` must be a pair of files"):
        load_learned(tmp_path / "nothing")


def test_what_was_learned_is_assessed_without_a_search(fitted: list[LearnedNoise]) -> None:
    told: list[object] = []
    report = nppr.assess(
        inputs=40, draws=8, sources="uniform", distributions=fitted, on_fit=told.append
    )
    names = {row.source for row in report.results}
    assert {"uniform", *(each.source.name for each in fitted)} <= names
    assert told == []


def test_distributions_of_another_budget_are_refused(fitted: list[LearnedNoise]) -> None:
    with pytest.raises(BudgetError, match="must be that of all sources"):
        nppr.assess(inputs=10, budget=Budget.linf(0.2), distributions=fitted)


@pytest.mark.parametrize("winner", [FAMILY, "laplace"])
def test_a_reference_that_was_worse_is_named(winner: str, fitted: list[LearnedNoise]) -> None:
    fit = {**fitted[0].saved.fit, "with_references": {"winner": winner}}
    changed = replace(fitted[0], saved=fitted[0].saved.model_copy(update={"fit": fit}))
    assert changed.winner == (None if winner == FAMILY else winner)


def test_another_fit_does_not_resume_a_run(tmp_path: Path) -> None:
    fit = default_settings(Family(components=2), floors=(0.0,), calls=1024, inputs=64)
    first, second = (nppr.learn(fit=fit, fit_inputs=100, select_inputs=50, seed=n) for n in (0, 1))
    nppr.assess(inputs=20, draws=4, sources="", distributions=first, out=tmp_path)
    with pytest.raises(RunFolderError, match="nppr"):
        nppr.assess(inputs=20, draws=4, sources="", distributions=second, out=tmp_path, resume=True)
