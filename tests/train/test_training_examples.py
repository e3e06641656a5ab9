import numpy as np
import pytest
import torch

from nppr.data import Data, from_arrays
from nppr.errors import DataError
from nppr.models import Classifier
from nppr.train import TrainSettings, image_shape, measure_accuracy
from nppr.train.training_examples import (
    EpochPlan,
    Examples,
    flip_images,
    shift_images,
    steps_per_epoch,
)

IMAGES = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).float()


def colour_data(inputs: int = 700) -> Data:
    images = torch.rand(inputs, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    images[:, 2] = 0.25
    return from_arrays(images, np.arange(inputs) % 2)


def test_positions_run_over_fit_and_then_select() -> None:
    data = colour_data(40)
    examples = Examples(data)
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
    examples = Examples(data)
    x, _ = examples.batch(np.arange(len(examples)))
    mean, std = examples.normalisation()
    assert mean == pytest.approx(x.mean((0, 2, 3)).tolist(), abs=1e-6)
    assert std[:2] == pytest.approx(x.std((0, 2, 3))[:2].tolist(), rel=1e-3)
    assert std[2] == 1.0, "a constant channel is only centred"


def test_data_without_training_images_is_refused() -> None:
    data = from_arrays(torch.rand(4, 1, 2, 2), np.array([0, 1, 0, 1]), shares=(0.0, 0.0))
    with pytest.raises(DataError, match="fit or a select split"):
        Examples(data)


def test_accuracy_counts_the_evaluate_split_only() -> None:
    images = torch.zeros(600, 1, 2, 2)
    data = from_arrays(images, np.arange(600) % 3, shares=(0.2, 0.1))
    always_first = Classifier(lambda x: torch.tensor([[1.0, 0.0, 0.0]]).repeat(len(x), 1))
    assert measure_accuracy(always_first, data) == float((data.evaluate.labels == 0).mean())


def test_shifts_move_pixels_exactly() -> None:
    moved = shift_images(IMAGES, torch.tensor([[1, -2], [0, 0]]))
    assert torch.equal(moved[0, :, 1:, :3], IMAGES[0, :, :3, 2:])
    assert torch.equal(moved[0, :, 0], moved[0, :, 1]), "the top border is repeated"
    assert torch.equal(moved[0, :, :, 3], moved[0, :, :, 2]), "the right border is repeated"
    assert torch.equal(moved[1], IMAGES[1])


def test_no_shift_is_no_work() -> None:
    assert shift_images(IMAGES, torch.zeros(2, 2, dtype=torch.long)) is IMAGES


def test_flips_mirror_the_chosen_images() -> None:
    mirrored = flip_images(IMAGES, torch.tensor([True, False]))
    assert torch.equal(mirrored[0], IMAGES[0].flip(-1))
    assert torch.equal(mirrored[1], IMAGES[1])


def test_an_epoch_visits_every_image_once_in_batches_of_nearly_one_size() -> None:
    settings = TrainSettings(batch_size=8)
    plan = EpochPlan.draw(settings, 33, epoch=1)
    assert sorted(np.concatenate(plan.batches).tolist()) == list(range(33))
    assert len(plan.batches) == steps_per_epoch(settings, 33) == 5
    assert {len(batch) for batch in plan.batches} == {6, 7}


def test_a_plan_depends_on_seed_and_epoch_only() -> None:
    def drawn(seed: int, epoch: int, batch_size: int = 8) -> tuple[list[int], list[list[int]]]:
        settings = TrainSettings(seed=seed, batch_size=batch_size, crop=2, flip=True)
        torch.rand(3)
        plan = EpochPlan.draw(settings, 50, epoch)
        return np.concatenate(plan.batches).tolist(), plan.shifts.tolist()

    assert drawn(0, 1) == drawn(0, 1) == drawn(0, 1, batch_size=5)
    assert drawn(0, 1)[0] != drawn(0, 2)[0]
    assert drawn(0, 1)[1] != drawn(0, 2)[1]
    assert drawn(0, 1)[0] != drawn(1, 1)[0]


@pytest.mark.parametrize("crop", [0, 1, 3])
def test_shifts_and_flips_take_all_their_values(crop: int) -> None:
    plan = EpochPlan.draw(TrainSettings(crop=crop, flip=True), 2000, epoch=3)
    assert set(plan.shifts.flatten().tolist()) == set(range(-crop, crop + 1))
    assert 900 < int(plan.flips.sum()) < 1100
    assert not EpochPlan.draw(TrainSettings(flip=False), 2000, epoch=3).flips.any()


def test_images_are_moved_as_planned_wherever_they_are_in_a_batch() -> None:
    plan = EpochPlan.draw(TrainSettings(crop=1, flip=True), 2, epoch=1)
    both = plan.augment(IMAGES, np.array([0, 1]))
    assert torch.equal(plan.augment(IMAGES[1:], np.array([1]))[0], both[1])
