from __future__ import annotations

import numpy as np
import pytest
import torch

from nppr.budget import Budget
from nppr.data import Part, TensorImages
from nppr.noise import Dependency, Family, Rule
from nppr.noise.distribution import Distribution
from nppr.noise.mixture import Context
from nppr.draws import DrawBlock
from nppr.search import default_settings
from nppr.fit.inputs import Found  # FIXME
from nppr.fit.loop import History  # FIXME
from nppr.fit.stages import Finished  # FIXME
from nppr.fit.start import start  # FIXME
from nppr.fit.walk import Stage, walk  # FIXME
from nppr.types import Fit

SHAPE, CLASSES, FEATURES = (1, 4, 4), 3, 5


@pytest.fixture(scope="module")
def inputs() -> Found[Fit]:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(30, *SHAPE, generator=generator)
    features = 4 + 3 * torch.randn(30, FEATURES, generator=generator)
    part = Part(Fit, TensorImages(images), np.arange(30), np.arange(30) % CLASSES)
    return Found(part, features, images, 30)


def stages(dependency: Dependency) -> dict[str, Stage]:
    made = walk(default_settings(Family(dependency, components=3, hidden_dim=16)))
    return {stage.name: stage for stage in made}


def finished(made: Distribution, value: float, selected: Distribution | None = None) -> Finished:
    return Finished("some", "some", made, selected or made, History([], []), {}, {}, 0, 0, value)


def noise(made: Distribution, inputs: Found[Fit]) -> torch.Tensor:
    block = DrawBlock(0, "fit", tuple(range(30)), 0, 8, torch.device("cpu"))
    context = Context(torch.from_numpy(inputs.part.labels), inputs.features)
    with torch.no_grad():
        return made.exact(context, block, Budget.linf(0.1))


def test_the_seed_decides_a_start_and_the_callers_numbers_are_left_alone(
    inputs: Found[Fit],
) -> None:
    stage = stages(Dependency.JOINT)["independent"]
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    first, again, other = (start(stage, [], inputs, SHAPE, CLASSES, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(2), expected)
    assert torch.equal(first.mixture.means, again.mixture.means)
    assert not torch.equal(first.mixture.means, other.mixture.means)


def test_features_are_standardised_on_the_fit_part(inputs: Found[Fit]) -> None:
    for parents in ([], ["independent"]):
        known = stages(Dependency.INPUT)
        before = [
            finished(start(known[name], [], inputs, SHAPE, CLASSES, 0), 0.5) for name in parents
        ]
        made = start(known["input"], before, inputs, SHAPE, CLASSES, 0)
        seen = (inputs.features - made.mixture.feature_mean) * made.mixture.feature_scale
        torch.testing.assert_close(seen.mean(0), torch.zeros(FEATURES), atol=1e-5, rtol=0)
        torch.testing.assert_close(seen.std(0), torch.ones(FEATURES), atol=1e-4, rtol=0)


@pytest.mark.parametrize("child", ["label", "input"])
def test_a_child_of_one_component_starts_with_its_very_noise(
    child: str, inputs: Found[Fit]
) -> None:
    known = stages(Dependency.JOINT)
    parent = start(known["independent"], [], inputs, SHAPE, CLASSES, 0)
    sharp = parent.sharpened(Rule.CHOSEN, torch.tensor(1))
    made = start(known[child], [finished(parent, 0.5, sharp)], inputs, SHAPE, CLASSES, 0)
    assert made.family == known[child].family
    torch.testing.assert_close(noise(made, inputs), noise(sharp, inputs))


def test_classes_are_sent_to_different_copies(inputs: Found[Fit]) -> None:
    known = stages(Dependency.LABEL)
    parent = start(known["independent"], [], inputs, SHAPE, CLASSES, 0)
    sharp = parent.sharpened(Rule.CHOSEN, torch.tensor(1))
    made = start(known["label"], [finished(parent, 0.5, sharp)], inputs, SHAPE, CLASSES, 0)
    weights = made.mixture(Context(torch.arange(CLASSES))).log_weights
    assert sorted(weights.argmax(1).tolist()) == [0, 1, 2]


def test_of_several_parents_the_lowest_on_select_is_taken(inputs: Found[Fit]) -> None:
    known = stages(Dependency.JOINT)
    label, seen = (start(known[name], [], inputs, SHAPE, CLASSES, 1) for name in ("label", "input"))
    for low, (first, second) in ((label, (0.1, 0.2)), (seen, (0.2, 0.1))):
        parents = [finished(label, first), finished(seen, second)]
        made = start(known["joint"], parents, inputs, SHAPE, CLASSES, 0)
        torch.testing.assert_close(noise(made, inputs), noise(low, inputs))


def test_a_higher_floor_starts_at_the_same_latent_noise(inputs: Found[Fit]) -> None:
    known = stages(Dependency.LABEL)["label"]
    parent = start(known, [], inputs, SHAPE, CLASSES, 0)
    raised = Stage("label, floor 0.5", known.family.with_(floor=0.5), (), known.recipe, 1)
    made = start(raised, [finished(parent, 0.5)], inputs, SHAPE, CLASSES, 0)
    torch.testing.assert_close(noise(made, inputs), noise(parent.with_floor(0.5), inputs))
