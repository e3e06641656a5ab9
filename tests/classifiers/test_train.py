from pathlib import Path

import pytest

from nppr.classifiers import load_classifier
from nppr.classifiers.train import Epoch, TrainSettings, accuracy, train
from nppr.data import load_data
from nppr.errors import SpecError


def test_training_reaches_the_shipped_accuracy(tmp_path: Path) -> None:
    epochs: list[Epoch] = []
    path = tmp_path / "w.safetensors"
    reached = train("digits-cnn", load_data("digits"), path, TrainSettings(), epochs.append)
    assert reached >= 0.97
    assert epochs[-1].number == epochs[-1].of == len(epochs)
    assert epochs[-1].loss < epochs[0].loss
    trained = load_classifier("digits-cnn", weights=path)
    assert accuracy(trained, load_data("digits")) == reached
    assert accuracy(load_classifier("digits-cnn"), load_data("digits")) >= 0.97


def test_training_is_reproducible_by_seed(tmp_path: Path) -> None:
    data = load_data("digits").limit(fit_inputs=100, select_inputs=20)
    files = []
    for number, seed in enumerate((0, 0, 1)):
        files.append(tmp_path / str(number))
        train("digits-cnn", data, files[-1], TrainSettings(epochs=2, seed=seed))
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes() != files[2].read_bytes()


def test_bad_settings_are_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="`epochs`"):
        TrainSettings(epochs=0)
    with pytest.raises(SpecError, match="`learning-rate`"):
        TrainSettings(learning_rate=-1)
    with pytest.raises(SpecError, match="Did you mean 'digits-cnn'"):
        train("digits-cn", load_data("digits"), tmp_path / "w")
