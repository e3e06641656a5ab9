from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers import half_classifier
from nppr.budget import Budget
from nppr.classifiers import Classifier, prepare
from nppr.data import from_arrays
from nppr.errors import RunFolderError
from nppr.measurement import probe
from nppr.noise.distribution import Distribution
from nppr.noise.family import Dependency, Family
from nppr.search.fitting import FitProgress, FitState, Fitting, StateFile, fit
from nppr.search.search_settings import Recipe
from nppr.search.selection import find_clean_inputs

STEPS = 10


@pytest.fixture(scope="module")
def fitting() -> Fitting:
    images = torch.rand(60, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    labels = (images[..., :2].sum((1, 2, 3)) <= images[..., 2:].sum((1, 2, 3))).long()
    data = from_arrays(images, labels, shares=(0.5, 0.2))
    known = Classifier(half_classifier())
    classifier = prepare(known, probe(data.evaluate), classes=2, micro_batch=16)
    inputs = find_clean_inputs(classifier, data.fit, features=False, keep_images=True)
    recipe = Recipe(inputs=8, draws=2)
    return Fitting("label", classifier, inputs, Budget.linf(0.1), recipe, STEPS, seed=0)


def fresh(fitting: Fitting) -> FitState:
    torch.manual_seed(0)
    made = Distribution(Family(Dependency.LABEL, components=2), (1, 4, 4), 2)
    return FitState.start(made, fitting.recipe)


def interrupted(fitting: Fitting, file: StateFile, at: int) -> None:
    def interrupt(state: FitProgress) -> None:
        if state.step == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(fitting, fresh(fitting), progress=interrupt, save=file.save)


def require_equal(first: FitState, second: FitState) -> None:
    assert (first.loss, first.pr) == (second.loss, second.pr)
    assert first.snapshot is not None
    assert second.snapshot is not None
    for one, two in (
        (first.distribution, second.distribution),
        (first.snapshot, second.snapshot),
    ):
        for name, value in one.state_dict().items():
            assert torch.equal(value, two.state_dict()[name]), name
    one_state, two_state = (step.optimiser.state_dict()["state"] for step in (first, second))
    for number, memory in one_state.items():
        for name, value in memory.items():
            assert torch.equal(value, two_state[number][name])


@pytest.mark.parametrize("at", [1, 4, 5, 6, STEPS - 1, STEPS])
def test_a_continued_fit_is_the_uninterrupted_one_to_the_bit(
    at: int, fitting: Fitting, tmp_path: Path
) -> None:
    whole = fit(fitting, fresh(fitting))
    file = StateFile(tmp_path / "a.safetensors", "mine")
    interrupted(fitting, file, at)
    state = fresh(fitting)
    file.restore(state)
    assert state.number == at
    assert (state.snapshot is not None) == (at >= STEPS // 2)
    require_equal(fit(fitting, state), whole)


def test_a_state_is_kept_on_a_timer_or_at_once(fitting: Fitting, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    state = fit(replace(fitting, steps=2), fresh(fitting))
    StateFile(path, "mine").save(state, now=False)
    assert not path.exists()
    StateFile(path, "mine", seconds=0.0).save(state, now=False)
    assert path.exists()
    path.unlink()
    file = StateFile(path, "mine")
    file.save(state, now=True)
    assert path.exists()


def test_equal_states_are_equal_bytes(fitting: Fitting, tmp_path: Path) -> None:
    for name in "ab":
        state = fit(replace(fitting, steps=3), fresh(fitting))
        StateFile(tmp_path / name / "state", "mine").save(state, now=True)
    assert (tmp_path / "a" / "state").read_bytes() == (tmp_path / "b" / "state").read_bytes()


def test_no_file_and_the_file_of_another_fit_leave_a_fresh_state(
    fitting: Fitting, tmp_path: Path
) -> None:
    path = tmp_path / "a.safetensors"
    interrupted(fitting, StateFile(path, "mine"), 3)
    for file in (StateFile(path, "yours"), StateFile(tmp_path / "missing", "mine")):
        state, untouched = fresh(fitting), fresh(fitting)
        file.restore(state)
        assert state.number == 0
        assert torch.equal(state.distribution.mixture.means, untouched.distribution.mixture.means)


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "another shape"])
def test_a_damaged_file_is_one_clear_line(damage: str, fitting: Fitting, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    file = StateFile(path, "mine")
    interrupted(fitting, file, 3)
    content = path.read_bytes()
    state = fresh(fitting)
    if damage == "another shape":
        made = Distribution(Family(Dependency.LABEL, components=3), (1, 4, 4), 2)
        state = FitState.start(made, fitting.recipe)
    else:
        damaged = {"cut": content[: len(content) // 2], "empty": b"", "text": b"not tensors"}
        path.write_bytes(damaged[damage])
    with pytest.raises(RunFolderError, match="`resume` must find whole files") as caught:
        file.restore(state)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
