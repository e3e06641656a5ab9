from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from helpers import half_classifier, two_class_data
from nppr.budget import Budget
from nppr.classifiers import Classifier, load_classifier
from nppr.data import load_data
from nppr.errors import BudgetError
from nppr.noise import Dependency, Family
from nppr.run import Settings
from nppr.search import default_settings
from nppr.setup import FIT_MICRO_BATCH, limited, set_up, stated_budget

BUDGET = Budget.linf(0.1)


class Plain(nn.Module):
    """A model of the digits without a layer that gives features."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :10]


@pytest.mark.parametrize("dependency", Dependency)
def test_only_joint_noise_without_features_falls_back_to_the_label(
    dependency: Dependency,
) -> None:
    ready = set_up(half_classifier(), two_class_data(), BUDGET, Settings(), {})
    fit = default_settings(Family(dependency))
    joint = dependency is Dependency.JOINT
    assert ready.blind(fit) == joint
    learned = ready.learner(fit, None).settings.family.dependency
    assert learned is (Dependency.LABEL if joint else dependency)
    assert not ready.blind(None)


def test_the_features_are_described() -> None:
    data = load_data("digits")
    ready = set_up("digits-cnn", data, BUDGET, Settings(), {})
    known = ready.facts.classifier["features"]
    assert known["number"] > 1
    other = load_classifier("digits-cnn", data=data)
    seen = set_up(Plain(), data, BUDGET, Settings(), {}, feature_model=other)
    assert seen.feature_model is not None
    assert seen.facts.classifier["features"]["number"] == known["number"]


def test_a_fit_has_the_same_micro_batch_whatever_the_batch_size() -> None:
    for size in (None, 3):
        ready = set_up("digits-cnn", load_data("digits"), BUDGET, Settings(), {}, batch_size=size)
        learner = ready.learner(default_settings(), None)
        assert learner.classifier.micro_batch == FIT_MICRO_BATCH


def test_the_division_of_a_run_is_recorded_and_repeated(tmp_path: Path) -> None:
    data, out = two_class_data(), tmp_path / "run"
    first = set_up(half_classifier(), data, BUDGET, Settings(), {}, batch_size=11, out=out)
    assert first.folder is not None
    again = set_up(half_classifier(), data, BUDGET, Settings(), {}, out=out, resume=True)
    assert again.classifier.micro_batch == 11
    assert again.classifier.form == first.classifier.form
    recorded = json.dumps(json.loads((out / "run.json").read_text()))
    assert f'"threads": {torch.get_num_threads()}' in recorded


def test_two_callables_are_told_apart_by_their_answers() -> None:
    data = two_class_data()
    model = half_classifier()
    prints = [
        set_up(Classifier(given), data, BUDGET, Settings(), {}).facts.classifier["fingerprint"]
        for given in (lambda x: model(x), lambda x: model(x), lambda x: -model(x))
    ]
    assert prints[0] == prints[1] != prints[2]


def test_a_budget_is_a_budget_within_the_images_and_stated() -> None:
    digits, other = load_data("digits"), two_class_data()
    assert stated_budget(None, digits) == BUDGET
    assert stated_budget(Budget.l2(3.0), other) == Budget.l2(3.0)
    for budget, data, message in (
        (None, other, "must be stated"),
        (Budget.linf(1.5), digits, "at most 1"),
        (0.1, digits, "must be a Budget"),
    ):
        with pytest.raises(BudgetError, match=message):
            stated_budget(budget, data)  # type: ignore[arg-type]


def test_every_part_is_limited() -> None:
    settings = Settings(inputs=7, fit_inputs=30, select_inputs=12)
    data = limited("digits", settings)
    assert (len(data.fit), len(data.select), len(data.evaluate)) == (30, 12, 7)
