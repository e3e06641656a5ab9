from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers import evaluate_part, half_classifier, two_class_data
from nppr.core.tally import IntArray
from nppr.data import Data, from_arrays
from nppr.doctor.flags import (
    ATTACK_FAILS,
    BATCH_DEPENDENT,
    CLASS_IMBALANCE,
    EXPLODING_GRADIENTS,
    FEW_INPUTS,
    LOOK_SCALED,
    MODEL_CHANGED,
    NAN_GRADIENTS,
    NEAR_CHANCE,
    NO_GRADIENTS,
    NORMALISATION,
    NOT_LOGITS,
    OUT_OF_RANGE,
    OVERLAP,
    RANDOMISED,
    TRAIN_MODE,
    ZERO_GRADIENTS,
)
from nppr.doctor.model_checks import COMMON, check_model, check_normalisation, examine
from nppr.errors import ClassifierError
from nppr.models import Classifier

DATA = two_class_data()
HALVES = half_classifier().eval()


class Made(nn.Module):
    """A classifier that is always correct, with something before or after it."""

    def __init__(
        self,
        before: Callable[[Tensor], Tensor] = lambda x: x,
        after: Callable[[Tensor, Tensor], Tensor] = lambda logits, _: logits,
    ) -> None:
        super().__init__()
        self.inner = half_classifier()
        self.before = before
        self.after = after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.inner(self.before(x)), x)


def ids(model: Any, data: Data = DATA) -> set[str]:
    if isinstance(model, nn.Module):
        model = model.eval()
    return {flag.id for flag in check_model(Classifier(model), data)}


def message(model: nn.Module, flag: str, data: Data = DATA) -> str:
    return next(each.message for each in check_model(Classifier(model), data) if each.id == flag)


def straight_through(x: Tensor) -> Tensor:
    return x + (torch.round(x * 255) / 255 - x).detach()


def per_image(x: Tensor) -> Tensor:
    return x - x.mean((1, 2, 3), keepdim=True)


def waves(slope: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Adds `0.001 sin(slope x / 0.001)` of a pixel to a logit."""

    def add(logits: Tensor, x: Tensor) -> Tensor:
        wave = 1e-3 * torch.sin(slope / 1e-3 * x[:, 0, 0, 0])
        return logits + torch.stack([wave, torch.zeros_like(wave)], 1)

    return add


def root(least: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Adds a square root whose argument is `least` everywhere."""
    return lambda logits, x: logits + ((x - x.detach()).sum((1, 2, 3)) + least).sqrt()[:, None]


TRIGGERS = {
    "statistics of the batch": (Made(lambda x: x - x.mean(0)), BATCH_DEPENDENT),
    "noise in eval mode": (Made(after=lambda h, _: h + 0.1 * torch.randn_like(h)), RANDOMISED),
    "softmax": (Made(after=lambda h, _: h.softmax(1)), NOT_LOGITS),
    "sigmoid": (Made(after=lambda h, _: h.sigmoid()), NOT_LOGITS),
    "rounding": (Made(lambda x: torch.round(x * 255) / 255), ZERO_GRADIENTS),
    "a root at 0": (Made(after=root(0.0)), NAN_GRADIENTS),
    "steep waves": (Made(after=waves(1e8)), EXPLODING_GRADIENTS),
    "a callable without gradients": (lambda x: HALVES(x).detach(), NO_GRADIENTS),
    "a module without gradients": (Made(lambda x: x.detach()), NO_GRADIENTS),
}
NEIGHBOURS = {
    "huge logits": (Made(after=lambda h, _: 1e6 * h), ATTACK_FAILS),
    "statistics of the image": (Made(per_image), BATCH_DEPENDENT),
    "drops dimensions of one": (Made(after=lambda h, _: h.squeeze(0)), BATCH_DEPENDENT),
    "rounding errors": (Made(after=lambda h, _: h + 1e-7 * torch.randn_like(h)), RANDOMISED),
    "log-softmax": (Made(after=lambda h, _: h.log_softmax(1)), NOT_LOGITS),
    "rounding with a gradient": (Made(straight_through), ZERO_GRADIENTS),
    "certain": (Made(after=lambda h, _: 1e6 * h), ZERO_GRADIENTS),
    "a root at 1": (Made(after=root(1.0)), NAN_GRADIENTS),
    "waves": (Made(after=waves(1e2)), EXPLODING_GRADIENTS),
    "large logits": (Made(after=lambda h, _: 10 * h), ATTACK_FAILS),
    "a callable with gradients": (lambda x: HALVES(x), NO_GRADIENTS),
}


def test_a_sound_classifier_has_no_flags() -> None:
    assert ids(HALVES) == set()


@pytest.mark.parametrize("case", TRIGGERS)
def test_raised(case: str) -> None:
    model, flag = TRIGGERS[case]
    assert flag in ids(model)


@pytest.mark.parametrize("case", NEIGHBOURS)
def test_not_raised(case: str) -> None:
    model, flag = NEIGHBOURS[case]
    assert flag not in ids(model)


def test_neighbours_that_are_sound_have_no_flag_at_all() -> None:
    odd = {"certain", "waves"}
    assert {case: ids(model) for case, (model, _) in NEIGHBOURS.items() if case not in odd} == {
        case: set() for case in NEIGHBOURS if case not in odd
    }


def test_the_message_names_softmax_or_sigmoid() -> None:
    assert "softmax" in message(TRIGGERS["softmax"][0].eval(), NOT_LOGITS)  # type: ignore[attr-defined]
    assert "sigmoid" in message(TRIGGERS["sigmoid"][0].eval(), NOT_LOGITS)  # type: ignore[attr-defined]


def test_logits_that_happen_to_lie_between_0_and_1() -> None:
    def after(logits: Tensor, x: Tensor) -> Tensor:
        brightness = x.mean((1, 2, 3))
        return torch.stack([0.5 + 0.05 * logits[:, 0], 1.5 * brightness - 0.25], 1)

    model = Made(after=after)
    outputs = model(DATA.evaluate.batch(np.arange(len(DATA.evaluate)))[0]).detach()
    assert 0 <= float(outputs.min()) <= float(outputs.max()) <= 1
    assert NOT_LOGITS not in ids(model)


def test_training_mode_of_any_layer() -> None:
    assert TRAIN_MODE not in ids(HALVES)
    halves = half_classifier().train()
    assert [flag.id for flag in check_model(Classifier(halves), DATA)] == [TRAIN_MODE]
    assert halves.training
    layered = nn.Sequential(nn.Dropout(0.5), half_classifier()).eval()
    layered[0].train()
    assert "1 of 3 layers" in message(layered, TRAIN_MODE)
    assert [layer.training for layer in layered.modules()] == [False, True, False]


class Counting(nn.Module):
    """Counts its calls in a buffer that no state dict shows, or adds nothing to it."""

    count: Tensor

    def __init__(self, by: int) -> None:
        super().__init__()
        self.inner = half_classifier()
        self.by = by
        self.register_buffer("count", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.count += self.by
        logits: Tensor = self.inner(x)
        return logits


class Switching(nn.Module):
    """Sets the mode of its dropout in every call."""

    def __init__(self, *, training: bool) -> None:
        super().__init__()
        self.inner = half_classifier()
        self.drop = nn.Dropout(0.0)
        self.mode = training

    def forward(self, x: Tensor) -> Tensor:
        self.drop.train(self.mode)
        logits: Tensor = self.inner(self.drop(x))
        return logits


def test_models_that_calls_change() -> None:
    assert ids(Counting(by=0)) == set()
    assert ids(Counting(by=1)) == {MODEL_CHANGED}
    assert "count changed" in message(Counting(by=1).eval(), MODEL_CHANGED)
    assert ids(Switching(training=False)) == set()
    assert ids(Switching(training=True)) == {MODEL_CHANGED}


def test_statistics_that_are_updated_in_eval_mode() -> None:
    class Drifting(nn.BatchNorm2d):
        def __init__(self, *, drifts: bool) -> None:
            super().__init__(1)
            self.drifts = drifts

        def forward(self, x: Tensor) -> Tensor:
            self.train(self.drifts)
            return super().forward(x)

    def made(*, drifts: bool) -> nn.Module:
        return nn.Sequential(Drifting(drifts=drifts), half_classifier())

    assert ids(made(drifts=False)) == set()
    assert {MODEL_CHANGED, BATCH_DEPENDENT} <= ids(made(drifts=True))


@pytest.mark.parametrize(("stuck", "raised"), [(1, False), (2, True)])
def test_at_most_a_tenth_may_withstand_an_attack_on_everything(stuck: int, raised: bool) -> None:
    images, labels = two_class_data(16).evaluate.batch(np.arange(16))
    images = images * 0.9
    images[:stuck, 0, 0, 0] = 1.0

    def after(logits: Tensor, x: Tensor) -> Tensor:
        return torch.where((x[:, 0, 0, 0] == 1)[:, None], logits.detach(), logits)

    model = Made(after=after)
    brighter = model(images).argmax(1)
    data = from_arrays(images, brighter, shares=(0.0, 0.0), classes=2)
    assert len(labels) == len(data.evaluate) == 16
    assert (ATTACK_FAILS in ids(model, data)) is raised
    assert ZERO_GRADIENTS not in ids(model, data)


def test_half_of_the_inputs_without_a_gradient_are_flagged() -> None:
    images, _ = DATA.evaluate.batch(np.arange(20))
    labels = [0, 1] * 10

    def data(stuck: int) -> Data:
        marked = images * 0.9
        marked[:stuck, 0, 0, 0] = 1.0
        return from_arrays(marked, labels, shares=(0.0, 0.0))

    model = Made(
        after=lambda h, x: torch.where((x[:, 0, 0, 0] == 1)[:, None], h.detach(), h),
    )
    assert ZERO_GRADIENTS in ids(model, data(10))
    assert ZERO_GRADIENTS not in ids(model, data(9))


@dataclass(frozen=True)
class Raw:
    """Images that nobody has checked."""

    tensor: Tensor

    def __len__(self) -> int:
        return len(self.tensor)

    def load(self, positions: IntArray) -> Tensor:
        return self.tensor[torch.from_numpy(positions)]

    def digest(self, position: int) -> bytes:
        return self.tensor[position].numpy().tobytes()


def raw(images: Tensor) -> Data:
    return replace(DATA, evaluate=replace(DATA.evaluate, images=Raw(images)))


def test_pixels_out_of_range() -> None:
    images = torch.rand(40, 1, 4, 4)
    assert OUT_OF_RANGE not in ids(HALVES, raw(images))
    (flag,) = check_model(Classifier(HALVES), raw(images * 255))
    assert flag.id == OUT_OF_RANGE
    assert "normalised" not in flag.message.partition(":")[0]
    scores = (images - images.mean()) / images.std()
    (flag,) = check_model(Classifier(HALVES), raw(scores))
    assert "apparently normalised already" in flag.message
    images[5, 0, 0, 0] = float("nan")
    assert ids(HALVES, raw(images)) == {OUT_OF_RANGE}


def test_images_divided_by_255_twice() -> None:
    images, _ = DATA.evaluate.batch(np.arange(len(DATA.evaluate)))
    assert LOOK_SCALED in ids(HALVES, raw(images / 255))
    assert LOOK_SCALED not in ids(HALVES, raw(images / 30))


def labelled(counts: list[int], classes: int) -> Data:
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    split = evaluate_part(torch.rand(len(labels), 1, 4, 4), labels)
    return replace(DATA, class_names=tuple("abcdefghij"[:classes]), evaluate=split)


@pytest.mark.parametrize(
    ("counts", "classes", "raised"),
    [
        ([90, 30], 2, False),
        ([91, 30], 2, True),
        ([29, 5], 2, False),
        ([60, 20, 20], 3, False),
        ([61, 20, 20], 3, True),
        ([20, 20], 3, True),
        ([14, 14], 3, False),
    ],
)
def test_class_imbalance(counts: list[int], classes: int, raised: bool) -> None:
    def model(x: Tensor) -> Tensor:
        return torch.cat([HALVES(x), x.flatten(1)], 1)[:, :classes]

    assert (CLASS_IMBALANCE in ids(model, labelled(counts, classes))) is raised


def test_it_is_brief_and_leaves_no_trace() -> None:
    seen = 0

    def count(logits: Tensor, x: Tensor) -> Tensor:
        nonlocal seen
        seen += len(x)
        assert len(x) <= 32
        return logits + 0 * torch.rand_like(logits)

    before = torch.random.get_rng_state()
    ids(Made(lambda x: torch.round(x * 255) / 255, count))
    assert torch.equal(before, torch.random.get_rng_state())
    assert 300 < seen < 1300


def test_one_input_is_enough() -> None:
    one = replace(DATA, evaluate=evaluate_part(DATA.evaluate.batch(np.arange(1))[0], [0]))
    assert not {BATCH_DEPENDENT, RANDOMISED, NOT_LOGITS} & ids(HALVES, one)


def test_a_model_of_other_classes_is_refused() -> None:
    with pytest.raises(ClassifierError, match="one logit per class"):
        check_model(Classifier(lambda x: x.flatten(1)), DATA)


class Bands(nn.Module):
    """Ten classes by the mean of what it is given, in bands of [0, 1] after its own normalisation."""

    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, x: Tensor) -> Tensor:
        brightness = (x.mean((1, 2, 3)) * self.std + self.mean)[:, None]
        centres = torch.linspace(0.05, 0.95, 10)
        return -((brightness - centres) ** 2)


def bands(inputs: int = 300, channels: int = 3) -> Data:
    labels = torch.arange(inputs) % 10
    x = (0.05 + 0.1 * labels.float())[:, None, None, None].expand(-1, channels, 4, 4)
    return from_arrays(x.contiguous(), labels, shares=(0.0, 0.0))


@pytest.mark.parametrize("name", COMMON)
def test_the_right_normalisation_is_named(name: str) -> None:
    mean, std = COMMON[name]
    data = bands(channels=3 if mean and len(mean) == 3 else 1)
    own = (
        (0.0, 1.0) if mean is None or std is None else (sum(mean) / len(mean), sum(std) / len(std))
    )
    model = Bands(*own)
    wrong = {} if mean is not None else {"mean": 0.3, "std": 0.2}
    (found,) = check_normalisation(Classifier(model, **wrong), data)  # type: ignore[arg-type]
    assert found.id == NORMALISATION
    right = Classifier(model, mean=mean, std=std)
    assert list(check_normalisation(right, data)) == []


@pytest.mark.parametrize(
    ("own", "advice"),
    [
        ((0.5, 0.5), "--mean 0.5 --std 0.5"),
        ((0.0, 1 / 255), "--mean 0 --std 0.003922"),
    ],
)
def test_the_message_has_the_numbers_to_give(own: tuple[float, float], advice: str) -> None:
    (found,) = check_normalisation(Classifier(Bands(*own)), bands(channels=1))
    assert advice in found.message


def test_a_few_inputs_show_nothing() -> None:
    assert list(check_normalisation(Classifier(Bands(0.5, 0.5)), bands(8))) == []


def test_normalisations_that_a_model_refuses_are_left_out() -> None:
    class Refusing(Bands):
        def forward(self, x: Tensor) -> Tensor:
            if float(x.min()) < -1.5:
                raise ValueError("not an image")
            return super().forward(x)

    (found,) = check_normalisation(Classifier(Refusing(0.5, 0.5)), bands())
    assert "pixels from -1 to 1" in found.message


def examined(data: Data) -> list[str]:
    return [flag.id for flag in examine(Classifier(half_classifier().eval()), data)]


def test_flags_of_splits_model_and_accuracy_come_together() -> None:
    assert examined(two_class_data(60)) == []
    assert examined(two_class_data(20)) == [FEW_INPUTS]
    images = torch.rand(400, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(400) % 2
    assert examined(from_arrays(images, labels)) == [NEAR_CHANCE]
    copies = images[:20].repeat(20, 1, 1, 1)
    assert OVERLAP in examined(from_arrays(copies, labels))
    assert examined(from_arrays(images / 255, labels)) == [LOOK_SCALED, NEAR_CHANCE]


def test_pixels_that_no_measurement_would_accept_are_flagged() -> None:
    data = two_class_data()
    split = evaluate_part(torch.randn(20, 1, 4, 4), [0, 1] * 10)
    assert examined(replace(data, evaluate=split)) == [OUT_OF_RANGE]


def test_a_forgotten_normalisation_is_found() -> None:
    found = examine(Classifier(Bands(0.5, 0.5)), bands())
    assert NORMALISATION in [flag.id for flag in found]
    found = examine(Classifier(Bands(0.5, 0.5), mean=0.5, std=0.5), bands())
    assert NORMALISATION not in [flag.id for flag in found]
