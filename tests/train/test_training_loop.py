"""Whole trainings: what they reach, that they repeat, and that an interruption changes nothing."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import Linear
from nppr.core.budget import Budget
from nppr.data import Data, from_arrays, load_data
from nppr.errors import ClassifierError, RunFolderError, SpecError
from nppr.models import Classifier, load_classifier
from nppr.models.weight_files import read_weights
from nppr.models.zoo import ZOO, Architecture
from nppr.train import (
    Adversary,
    Optimiser,
    Outputs,
    TrainedNetwork,
    TrainProgress,
    TrainSettings,
    default_training,
    measure_accuracy,
    train_network,
)
from nppr.train.training_files import Checkpoint
from nppr.train.training_loop import (
    add_noise,
    attack_images,
    build_optimiser,
    draws_of_batch,
    relative_rate,
    set_rate,
)

pytestmark = pytest.mark.slow

QUICK = TrainSettings(
    epochs=3,
    batch_size=40,
    optimiser=Optimiser.ADAM,
    learning_rate=3e-3,
    crop=1,
    flip=True,
    threads=1,
)
METHODS = {
    "adam": QUICK,
    "sgd": replace(QUICK, optimiser=Optimiser.SGD, learning_rate=0.05),
    "pgd": replace(QUICK, adversary=Adversary(Budget.linf(0.1), steps=2)),
    "gaussian": replace(QUICK, sigma=0.25),
    "pgd-l2": replace(QUICK, adversary=Adversary(Budget.l2(0.5), steps=2)),
}


@pytest.fixture(scope="module")
def data() -> Data:
    return load_data("digits").limit(fit_inputs=90, select_inputs=30, inputs=50)


def files_of(trained: TrainedNetwork) -> tuple[bytes, bytes]:
    return trained.weights.read_bytes(), trained.log.read_bytes()


def test_the_defaults_reach_the_shipped_accuracy(tmp_path: Path) -> None:
    """A quarter of the epochs reach as much as the weights that are shipped."""
    digits = load_data("digits")
    path = tmp_path / "w.safetensors"
    settings = default_training("digits-cnn", (1, 8, 8))
    trained = train_network("digits-cnn", digits, path, replace(settings, epochs=10))
    assert trained.accuracy >= 0.97
    assert trained.epochs[-1].loss < trained.epochs[0].loss
    assert measure_accuracy(load_classifier("digits-cnn", weights=path), digits) == trained.accuracy
    assert measure_accuracy(load_classifier("digits-cnn"), digits) >= 0.97


def test_weights_and_log_say_what_they_are(tmp_path: Path, data: Data) -> None:
    trained = train_network("digits-cnn", data, tmp_path / "w.safetensors", METHODS["pgd"])
    metadata = read_weights(trained.weights).metadata
    assert {name: metadata[name] for name in metadata if name not in ("mean", "std")} == {
        "architecture": "digits-cnn", "budget": "linf 0.1", "classes": "10", "data": "digits",
        "epochs": "3", "method": "pgd", "seed": "0",
    }  # fmt: skip
    log = json.loads(trained.log.read_text())
    assert log["settings"]["eps"] == 0.1
    assert log["evaluate"] == {"inputs": 50, "accuracy": trained.accuracy}
    assert [entry["epoch"] for entry in log["train"]["epochs"]] == [1, 2, 3]
    assert log["normalisation"]["mean"] == [float(metadata["mean"])]
    assert {path.name for path in tmp_path.iterdir()} == {"w.safetensors", "w.json"}


def test_training_is_reproducible_by_seed(tmp_path: Path, data: Data) -> None:
    def files(number: int, seed: int) -> tuple[bytes, bytes]:
        torch.rand(number + 1)
        return files_of(
            train_network("digits-cnn", data, tmp_path / str(number), replace(QUICK, seed=seed))
        )

    first = files(0, 0)
    assert first == files(1, 0)
    assert first[0] != files(2, 1)[0]


def test_finished_files_are_safe(tmp_path: Path, data: Data) -> None:
    out = tmp_path / "w.safetensors"
    train_network("digits-cnn", data, out, QUICK)
    before = out.read_bytes()
    for resume in (False, True):
        with pytest.raises(RunFolderError, match="exists"):
            train_network("digits-cnn", data, out, replace(QUICK, seed=1), resume=resume)
    assert out.read_bytes() == before
    train_network("digits-cnn", data, out, replace(QUICK, seed=1), overwrite=True)
    assert out.read_bytes() != before


def test_the_callers_random_numbers_are_left_alone(tmp_path: Path, data: Data) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train_network("digits-cnn", data, tmp_path / "w", replace(QUICK, epochs=1))
    assert torch.equal(torch.rand(3), expected)


def stop_at(epoch: int, step: int) -> Callable[[TrainProgress], None]:
    def watch(state: TrainProgress) -> None:
        if (state.epoch, state.step) == (epoch, step):
            raise KeyboardInterrupt

    return watch


def signal_at(epoch: int, step: int) -> Callable[[TrainProgress], None]:
    def watch(state: TrainProgress) -> None:
        if (state.epoch, state.step) == (epoch, step):
            signal.raise_signal(signal.SIGINT)

    return watch


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_training_is_the_uninterrupted_one(
    method: str, tmp_path: Path, data: Data
) -> None:
    """Three steps an epoch: stopped in the middle, at an epoch's end, by signal, at the very end."""
    settings = METHODS[method]
    whole = files_of(train_network("digits-cnn", data, tmp_path / "whole", settings))
    out = tmp_path / "cut"
    for watch in (stop_at(1, 2), stop_at(1, 3), signal_at(2, 1), stop_at(3, 3)):
        with pytest.raises(KeyboardInterrupt):
            train_network("digits-cnn", data, out, settings, resume=True, progress=watch)
        assert Outputs(out).checkpoint.exists()
        assert not out.exists()
    seen: list[TrainProgress] = []
    trained = train_network("digits-cnn", data, out, settings, resume=True, progress=seen.append)
    assert not seen, "all steps were done before"
    assert files_of(trained) == whole
    assert not Outputs(out).checkpoint.exists()


def test_a_resumed_training_goes_on_where_it_was(tmp_path: Path, data: Data) -> None:
    with pytest.raises(KeyboardInterrupt):
        train_network("digits-cnn", data, tmp_path / "w", QUICK, progress=stop_at(2, 2))
    seen: list[TrainProgress] = []
    train_network("digits-cnn", data, tmp_path / "w", QUICK, resume=True, progress=seen.append)
    assert [(state.epoch, state.step) for state in seen] == [(2, 3), (3, 1), (3, 2), (3, 3)]


def test_dropout_is_repeated_after_an_interruption(
    tmp_path: Path, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(classes: int, channels: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64 * channels, classes))

    monkeypatch.setitem(ZOO, "dropping", Architecture(build))
    whole = files_of(train_network("dropping", data, tmp_path / "whole", QUICK))
    with pytest.raises(KeyboardInterrupt):
        train_network("dropping", data, tmp_path / "cut", QUICK, progress=stop_at(2, 1))
    assert files_of(train_network("dropping", data, tmp_path / "cut", QUICK, resume=True)) == whole


def test_the_number_of_threads_is_resumed_too(tmp_path: Path, data: Data) -> None:
    before = torch.get_num_threads()
    free = replace(QUICK, threads=None)
    seen: list[int] = []

    def watch(_: TrainProgress) -> None:
        seen.append(torch.get_num_threads())

    with pytest.raises(KeyboardInterrupt):
        train_network("digits-cnn", data, tmp_path / "w", free, progress=stop_at(1, 1))
    try:
        torch.set_num_threads(before + 1)
        train_network("digits-cnn", data, tmp_path / "w", free, resume=True, progress=watch)
        assert set(seen) == {before}
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_the_number_of_threads_can_be_set(tmp_path: Path, data: Data) -> None:
    before = torch.get_num_threads()
    seen: list[int] = []

    def watch(_: TrainProgress) -> None:
        seen.append(torch.get_num_threads())

    settings = replace(QUICK, epochs=1, threads=before + 1)
    train_network("digits-cnn", data, tmp_path / "w", settings, progress=watch)
    assert set(seen) == {before + 1}
    assert torch.get_num_threads() == before


def test_a_resume_with_other_settings_or_images_is_refused(tmp_path: Path, data: Data) -> None:
    with pytest.raises(KeyboardInterrupt):
        train_network("digits-cnn", data, tmp_path / "w", QUICK, progress=stop_at(1, 1))
    other = replace(QUICK, batch_size=41, learning_rate=0.5)
    with pytest.raises(
        RunFolderError, match=r"batch-size 41 instead of 40; learning-rate 0\.5 instead"
    ):
        train_network("digits-cnn", data, tmp_path / "w", other, resume=True)
    fewer = data.limit(fit_inputs=80)
    with pytest.raises(RunFolderError, match=r"got images .* instead of"):
        train_network("digits-cnn", fewer, tmp_path / "w", QUICK, resume=True)


class Failing(nn.Module):
    """A network whose logits are NaN from its eighth batch on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        logits: torch.Tensor = self.layer(x.flatten(1))
        return logits * float("nan") if self.calls >= 8 else logits


def test_a_diverging_training_stops_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ZOO, "failing", Architecture(lambda *_: Failing()))
    with pytest.raises(SpecError, match="a loss of nan in epoch 3 after 1 steps"):
        train_network("failing", data, tmp_path / "w", QUICK)
    kept = Checkpoint.load(Outputs(tmp_path / "w").checkpoint)
    assert (kept.standing.epoch, kept.standing.step) == (3, 0)
    assert all(bool(tensor.isfinite().all()) for tensor in kept.tensors.values())


def test_broken_weights_are_never_kept(tmp_path: Path, data: Data) -> None:
    """One step an epoch, whose loss is finite and whose update is not."""
    wild = replace(
        QUICK, batch_size=200, optimiser=Optimiser.SGD, learning_rate=1e38, weight_decay=1e9
    )
    with pytest.raises(SpecError, match="`learning-rate` must keep the training finite, got NaN"):
        train_network("digits-cnn", data, tmp_path / "w", wild)
    assert not list(tmp_path.iterdir())


def test_networks_and_images_that_do_not_fit_are_named(tmp_path: Path, data: Data) -> None:
    with pytest.raises(SpecError, match="`crop` must be less than the side of the images, 8"):
        train_network("digits-cnn", data, tmp_path / "w", replace(QUICK, crop=8))
    with pytest.raises(SpecError, match="`device`"):
        train_network("digits-cnn", data, tmp_path / "w", QUICK, device="warp")
    with pytest.raises(SpecError, match="`stem`"):
        train_network("digits-cnn", data, tmp_path / "w", replace(QUICK, stem="small"))
    assert not list(tmp_path.iterdir())


def test_a_batch_too_small_for_batch_normalisation_is_named(tmp_path: Path) -> None:
    images = torch.rand(12, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    data = from_arrays(images, np.arange(12) % 2)
    with pytest.raises(ClassifierError, match="`batch-size` must be larger for 'resnet18'"):
        train_network("resnet18", data, tmp_path / "w", TrainSettings(epochs=1, batch_size=1))


def test_colour_images_and_a_stem(tmp_path: Path) -> None:
    images = torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    data = from_arrays(images, np.arange(12) % 2)
    settings = replace(default_training("resnet18", (3, 8, 8)), epochs=1, stem="small")
    trained = train_network("resnet18", data, tmp_path / "w.safetensors", settings)
    weights = read_weights(trained.weights)
    assert weights.metadata["stem"] == "small"
    assert len(weights.numbers("mean") or ()) == len(weights.numbers("std") or ()) == 3


SIDE = 8
POSITIONS = np.arange(16)
X = torch.rand(16, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
Y = torch.arange(16) % 10


def attacked(classifier: Classifier, adversary: Adversary, epoch: int = 1) -> torch.Tensor:
    draws = draws_of_batch(0, epoch, POSITIONS, X)
    return attack_images(classifier, X, Y % 2, adversary, draws)


@pytest.mark.parametrize("budget", [Budget.linf(0.1), Budget.l2(0.5)], ids=str)
def test_the_attack_stays_in_the_budget_and_raises_the_loss(budget: Budget) -> None:
    torch.manual_seed(0)
    classifier = Classifier(ZOO["digits-cnn"].build(10, 1), mean=[0.3], std=[0.4])
    found = attacked(classifier, Adversary(budget))
    assert bool(budget.contains(found - X).all())
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
    assert classifier.module is not None
    classifier.module.eval()
    before = F.cross_entropy(classifier.forward(X), Y % 2)
    assert F.cross_entropy(classifier.forward(found), Y % 2) > before


def test_a_linear_network_is_attacked_at_the_corner_of_the_ball() -> None:
    w = torch.randn(1, SIDE, SIDE, generator=torch.Generator().manual_seed(2))
    found = attacked(Classifier(Linear(w, 0.0)), Adversary(Budget.linf(0.1)))
    away = (1 - 2 * (1 - Y % 2)).view(-1, 1, 1, 1) * w.sign()
    assert torch.allclose(found, (X + 0.1 * away).clamp(0, 1), atol=1e-6)


def test_the_network_and_its_modes_are_left_alone() -> None:
    module = ZOO["digits-cnn"].build(10, 1).train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    attacked(Classifier(module), Adversary(Budget.linf(0.1), steps=2))
    assert all(layer.training for layer in module.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_the_start_depends_on_seed_epoch_and_image() -> None:
    def start(epoch: int, positions: list[int]) -> torch.Tensor:
        draws = draws_of_batch(0, epoch, np.array(positions), X)
        return Budget.linf(0.1).uniform(draws, "pgd-training", (1, 2, 2))[:, 0]

    assert torch.equal(start(1, [3, 4])[1], start(1, [4])[0])
    assert not torch.equal(start(1, [4]), start(2, [4]))


def test_noise_has_the_deviation_asked_for_and_is_clipped_as_in_measuring() -> None:
    grey = torch.full((64, 1, SIDE, SIDE), 0.5)
    draws = draws_of_batch(0, 1, np.arange(64), grey)
    moved = add_noise(grey, 0.05, draws) - grey
    assert float(moved.std()) == pytest.approx(0.05, rel=0.05)
    assert float(moved.mean()) == pytest.approx(0, abs=0.003)
    wide = add_noise(grey, 2.0, draws)
    assert (float(wide.min()), float(wide.max())) == (0, 1)
    assert torch.allclose(wide, (grey + 40 * moved).clamp(0, 1), atol=1e-4), "the same draws"


@pytest.mark.parametrize(
    ("done", "warm_up", "expected"),
    [
        (0.0, 0.5, 0.0),
        (0.25, 0.5, 0.5),
        (0.5, 0.5, 1.0),
        (0.75, 0.5, 0.5),
        (1.0, 0.5, 0.0),
        (0.0, 0.0, 1.0),
        (1 / 3, 0.0, 0.75),
    ],
)
def test_linear_up_then_cosine_down(done: float, warm_up: float, expected: float) -> None:
    assert relative_rate(done, warm_up) == pytest.approx(expected)


def test_rates_are_taken_at_the_middle_of_a_step() -> None:
    settings = TrainSettings(learning_rate=2.0, warm_up=0.5)
    optimiser = build_optimiser(nn.Linear(1, 1).parameters(), settings)
    rates = []
    for step in range(4):
        set_rate(optimiser, settings, step, steps=4)
        rates.append(optimiser.param_groups[0]["lr"])
    assert rates[:2] == [0.5, 1.5]
    assert rates[2] + rates[3] == pytest.approx(2.0)
    assert min(rates) > 0


def test_the_optimisers_have_their_settings() -> None:
    layer = nn.Linear(1, 1)
    sgd = build_optimiser(layer.parameters(), TrainSettings(momentum=0.7, weight_decay=0.3))
    assert isinstance(sgd, torch.optim.SGD)
    assert (sgd.defaults["momentum"], sgd.defaults["weight_decay"]) == (0.7, 0.3)
    adam = build_optimiser(layer.parameters(), TrainSettings(optimiser=Optimiser.ADAM))
    assert isinstance(adam, torch.optim.AdamW)
