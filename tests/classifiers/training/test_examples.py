import numpy as np
import pytest
import torch

from nppr.classifiers import Classifier
from nppr.classifiers.training import accuracy, image_shape
from nppr.classifiers.training.examples import Examples
from nppr.data import Data, from_arrays
from nppr.errors import DataError


def colour_data(inputs: int = 700) -> Data:
    images = torch.rand(inputs, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    images[:, 2] = 0.25
    return from_arrays(images, np.arange(inputs) % 2)


def test_positions_run_over_fit_and_then_select() -> None:
    data = colour_data(40)
    examples = Examples.of(data)
    assert len(examples) == len(data.fit) + len(data.select) == 28
    assert image_shape(data) == (3, 4, 4)
    last = len(examples) - 1
    x, y = examples.batch(np.array([last, 0, 3, len(data.fit)]))
    first, labels = data.fit.batch(np.array([0, 3]))
    then, others = data.select.batch(np.array([len(data.select) - 1, 0]))
    assert torch.equal(x, torch.stack([then[0], first[0], first[1], then[1]]))
    assert y.tolist() == [others[0], labels[0], labels[1], others[1]]


def test_the_normalisation_is_that_of_all_training_images() -> None:
    data = colour_data()
    examples = Examples.of(data)
    x, _ = examples.batch(np.arange(len(examples)))
    found = examples.normalisation()
    assert found.mean == pytest.approx(x.mean((0, 2, 3)).tolist(), abs=1e-6)
    assert found.std[:2] == pytest.approx(x.std((0, 2, 3))[:2].tolist(), rel=1e-3)
    assert found.std[2] == 1.0, "a constant channel is only centred"


def test_data_without_training_images_is_refused() -> None:
    data = from_arrays(torch.rand(4, 1, 2, 2), np.array([0, 1, 0, 1]), shares=(0.0, 0.0))
    with pytest.raises(DataError, match="fit or a select part"):
        Examples.of(data)


def test_accuracy_counts_the_evaluate_part_only() -> None:
    images = torch.zeros(600, 1, 2, 2)
    data = from_arrays(images, np.arange(600) % 3, shares=(0.2, 0.1))
    always_first = Classifier(lambda x: torch.tensor([[1.0, 0.0, 0.0]]).repeat(len(x), 1))
    assert accuracy(always_first, data) == float((data.evaluate.labels == 0).mean())
