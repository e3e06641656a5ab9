from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from helpers import FAMILIES, half_classifier, open_run, two_class_data
from nppr.core.budget import Budget
from nppr.data import load_data
from nppr.models import Classifier, load_classifier
from nppr.models.prepare_classifier import FIT_MICRO_BATCH
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.search.search_settings import default_settings
from nppr.settings import Measure

BUDGET = Budget.linf(0.1)


class Plain(nn.Module):
    """A model of the digits without a layer that gives features."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :10]


@pytest.mark.parametrize("dependency", FAMILIES)
def test_only_joint_noise_without_features_falls_back_to_the_label(
    dependency: Dependency,
) -> None:
    ready = open_run(half_classifier(), two_class_data(), BUDGET, Measure())
    fit = default_settings(Family(dependency))
    joint = dependency is Dependency.JOINT
    assert ready.lacks_features(fit) == joint
    learned = ready.search(fit).settings.family.dependency
    assert learned is (Dependency.LABEL if joint else dependency)
    assert not ready.lacks_features(None)


def test_the_features_are_described() -> None:
    data = load_data("digits")
    ready = open_run("digits-cnn", data, BUDGET, Measure())
    known = ready.record.classifier.features
    assert known is not None
    other = load_classifier("digits-cnn", data=data)
    seen = open_run(Plain(), data, BUDGET, Measure(), feature_model=other)
    assert seen.feature_model is not None
    assert seen.record.classifier.features == known


def test_a_search_has_the_same_micro_batch_whatever_the_batch_size() -> None:
    for size in (None, 3):
        ready = open_run("digits-cnn", load_data("digits"), BUDGET, Measure(), batch_size=size)
        assert ready.search(default_settings()).classifier.micro_batch == FIT_MICRO_BATCH


def test_the_division_of_a_run_is_recorded_and_repeated(tmp_path: Path) -> None:
    data, out = two_class_data(), tmp_path / "run"
    first = open_run(half_classifier(), data, BUDGET, Measure(), batch_size=11, out=out)
    assert first.folder is not None
    again = open_run(half_classifier(), data, BUDGET, Measure(), out=out, resume=True)
    assert again.classifier.micro_batch == 11
    assert again.classifier.speedups == first.classifier.speedups
    recorded = json.dumps(json.loads((out / "run.json").read_text()))
    assert f'"threads": {torch.get_num_threads()}' in recorded


def test_two_callables_differ_by_their_answers() -> None:
    data = two_class_data()
    model = half_classifier()
    prints = [
        open_run(Classifier(given), data, BUDGET, Measure()).record.classifier.fingerprint
        for given in (lambda x: model(x), lambda x: model(x), lambda x: -model(x))
    ]
    assert prints[0] == prints[1] != prints[2]
