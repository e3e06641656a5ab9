from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from nppr.classifiers import Prepared, frozen, load_classifier, prepare
from nppr.data import Data, load_data
from nppr.errors import DataError
from nppr.measurement import probe
from nppr.search.selection import CleanInputs, find_clean_inputs
from nppr.tally import Fit

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data() -> Data:
    return load_data("digits").limit(fit_inputs=100)


@pytest.fixture(scope="module")
def classifier(data: Data) -> Prepared:
    known = load_classifier("digits-cnn", data=data)
    return prepare(known, probe(data.evaluate), classes=10, micro_batch=32)


@pytest.fixture(scope="module")
def noisy(data: Data) -> Data:
    """The same with the labels of every third input of fit wrong."""
    labels = data.fit.labels.copy()
    labels[::3] = (labels[::3] + 1) % 10
    return replace(data, fit=replace(data.fit, labels=labels))


@pytest.fixture(scope="module")
def found(noisy: Data, classifier: Prepared) -> CleanInputs[Fit]:
    return find_clean_inputs(classifier, noisy.fit, features=True, keep_images=True)


def test_only_inputs_that_are_right_without_noise_are_found(
    noisy: Data, classifier: Prepared, found: CleanInputs[Fit]
) -> None:
    x, y = noisy.fit.batch(np.arange(len(noisy.fit)))
    with frozen(classifier.reference) as model, torch.inference_mode():
        right = (model.logits(x).argmax(1) == y).numpy()
    np.testing.assert_array_equal(found.part.indices, noisy.fit.indices[right])
    np.testing.assert_array_equal(found.part.labels, noisy.fit.labels[right])
    assert 0 < len(found) <= 67
    assert found.calls == len(noisy.fit)


def test_features_are_those_of_the_model(classifier: Prepared, found: CleanInputs[Fit]) -> None:
    x, _ = found.batch(np.arange(len(found)), CPU)
    with frozen(classifier.reference) as model, torch.inference_mode():
        expected = model.features(x)
    torch.testing.assert_close(found.features, expected, atol=1e-4, rtol=1e-4)


def test_images_in_memory_are_those_of_the_data(
    noisy: Data, classifier: Prepared, found: CleanInputs[Fit]
) -> None:
    other = find_clean_inputs(classifier, noisy.fit, features=False)
    assert found.images is not None
    assert other.images is None
    positions = np.array([5, 0, 17])
    for kept, read in zip(found.batch(positions, CPU), other.batch(positions, CPU), strict=True):
        assert torch.equal(kept, read)


def test_without_features_there_are_none(noisy: Data, classifier: Prepared) -> None:
    found = find_clean_inputs(classifier, noisy.fit, features=False)
    assert found.features_by_index() is None
    assert found.features_at(np.arange(3), CPU) is None


def test_a_subset_is_nested_and_its_features_still_belong_to_its_inputs(
    found: CleanInputs[Fit],
) -> None:
    everything = found.features_by_index()
    assert everything is not None
    before: set[int] = set()
    for inputs in (1, 8, 30, len(found), 10**6):
        some = found.limit(inputs, seed=3)
        assert len(some) == min(inputs, len(found))
        assert before <= set(some.part.indices.tolist())
        before = set(some.part.indices.tolist())
        known = some.features_by_index()
        assert known is not None
        assert some.images is not None
        assert all(torch.equal(known[index], everything[index]) for index in known)
        x, y = some.part.batch(np.arange(len(some)))
        assert torch.equal(some.images, x)
        np.testing.assert_array_equal(some.part.labels, y.numpy())


def test_known_features_are_by_dataset_index(found: CleanInputs[Fit]) -> None:
    known = found.features_by_index()
    assert known is not None
    assert list(known) == found.part.indices.tolist()
    seen = found.features_at(np.array([7]), CPU)
    assert seen is not None
    assert torch.equal(known[int(found.part.indices[7])], seen[0])


def test_features_of_another_model_cost_calls(data: Data, classifier: Prepared) -> None:
    other = load_classifier("digits-cnn", data=data)
    part = data.fit.limit(20, 0, "fit-inputs")
    found = find_clean_inputs(classifier, part, features=True, feature_model=other)
    assert found.calls == 40
    own = find_clean_inputs(classifier, part, features=True)
    torch.testing.assert_close(found.features, own.features, atol=1e-4, rtol=1e-4)


def test_a_classifier_that_is_never_right_is_one_clear_error(
    data: Data, classifier: Prepared
) -> None:
    right = find_clean_inputs(classifier, data.fit, features=False).part
    wrong = replace(right, labels=(right.labels + 1) % 10)
    with pytest.raises(
        DataError, match="fit split must hold at least one input that is classified"
    ):
        find_clean_inputs(classifier, wrong, features=False)
