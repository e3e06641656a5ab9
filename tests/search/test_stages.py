from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from nppr.budget import Budget
from nppr.data import Split, TensorImages
from nppr.errors import RunFolderError
from nppr.noise.distribution import Distribution
from nppr.noise.family import Dependency, Family, Rule
from nppr.noise.mixture import Context
from nppr.random_draws import DrawBlock
from nppr.search.search import FinishedStage, load_finished, save_finished, start
from nppr.search.search_record import ReferenceChoice, StageRecord
from nppr.search.search_settings import Stage, default_settings, walk
from nppr.search.selection import CleanInputs
from nppr.tally import Fit

CPU = torch.device("cpu")


def finished() -> FinishedStage:
    torch.manual_seed(0)
    made = Distribution(Family(Dependency.JOINT, components=2, floor=0.25), (1, 4, 4), 3, 5)
    record = StageRecord(
        stage="some",
        selected="joint, best per class",
        dependency=Dependency.JOINT,
        components=2,
        floor=0.25,
        select_values={"joint": 0.5, "label": 2 / 3},
        fit_calls=1000,
        forward_calls=99,
        loss=(0.3, 0.1 + 0.2),
        running_pr=(1.0, 1 / 3),
    )
    return FinishedStage(
        record,
        select_value=0.5,
        references=ReferenceChoice(winner=None, select_values={"family": 0.5}),
        fitted=made,
        selected=made.sharpened(Rule.CHOSEN, torch.tensor([1, 0, 1])),
    )


def test_a_finished_stage_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "0-joint.done.safetensors"
    assert load_finished(path, "run", CPU) is None
    before = finished()
    save_finished(path, "run", before)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    after = load_finished(path, "run", CPU)
    assert torch.equal(torch.rand(3), expected)  # the caller's numbers are left alone
    assert after is not None
    assert after.record == before.record  # to the last bit
    assert (after.select_value, after.references) == (before.select_value, before.references)
    for one, two in ((before.fitted, after.fitted), (before.selected, after.selected)):
        assert (one.family, one.rule, one.shape) == (two.family, two.rule, two.shape)
        for name, value in one.state_dict().items():
            assert torch.equal(value, two.state_dict()[name])


def test_histories_are_rounded_for_the_report_only() -> None:
    record = finished().record
    assert record.rounded().loss == (0.3, 0.3)
    assert record.rounded().running_pr == (1.0, 0.333333)
    assert record.rounded().select_values == record.select_values


@pytest.mark.parametrize("damage", ["cut", "empty", "another run", "another stage"])
def test_files_that_are_damaged_or_of_another_run_are_refused_in_one_line(
    damage: str, tmp_path: Path
) -> None:
    path, identity = tmp_path / "0-joint.done.safetensors", "run"
    save_finished(path, identity, finished())
    content = path.read_bytes()
    if damage == "another run":
        identity = "other"
    elif damage == "another stage":
        path = path.rename(tmp_path / "0-label.done.safetensors")
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    with pytest.raises(RunFolderError, match="Delete it to fit that stage again") as caught:
        load_finished(path, identity, CPU)
    assert "\n" not in str(caught.value)


SHAPE, CLASSES, FEATURES = (1, 4, 4), 3, 5


@pytest.fixture(scope="module")
def inputs() -> CleanInputs[Fit]:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(30, *SHAPE, generator=generator)
    features = 4 + 3 * torch.randn(30, FEATURES, generator=generator)
    part = Split(Fit, TensorImages(images), np.arange(30), np.arange(30) % CLASSES)
    return CleanInputs(part, features, images, 30)


def stages(dependency: Dependency) -> dict[str, Stage]:
    made = walk(default_settings(Family(dependency, components=3, hidden_dim=16)))
    return {stage.name: stage for stage in made}


def finished_at(
    made: Distribution, value: float, selected: Distribution | None = None
) -> FinishedStage:
    return FinishedStage(finished().record, value, None, made, selected or made)


def noise(made: Distribution, inputs: CleanInputs[Fit]) -> torch.Tensor:
    block = DrawBlock(0, "fit", tuple(range(30)), 0, 8, torch.device("cpu"))
    context = Context(torch.from_numpy(inputs.part.labels), inputs.features)
    with torch.no_grad():
        return made.exact(context, block, Budget.linf(0.1))


def test_the_seed_decides_a_start_and_the_callers_numbers_are_left_alone(
    inputs: CleanInputs[Fit],
) -> None:
    stage = stages(Dependency.JOINT)["independent"]
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    first, again, other = (start(stage, [], inputs, SHAPE, CLASSES, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(2), expected)
    assert torch.equal(first.mixture.means, again.mixture.means)
    assert not torch.equal(first.mixture.means, other.mixture.means)


def test_features_are_standardised_on_the_fit_split(inputs: CleanInputs[Fit]) -> None:
    for parents in ([], ["independent"]):
        known = stages(Dependency.INPUT)
        before = [
            finished_at(start(known[name], [], inputs, SHAPE, CLASSES, 0), 0.5) for name in parents
        ]
        made = start(known["input"], before, inputs, SHAPE, CLASSES, 0)
        seen = (inputs.features - made.mixture.feature_mean) * made.mixture.feature_scale
        torch.testing.assert_close(seen.mean(0), torch.zeros(FEATURES), atol=1e-5, rtol=0)
        torch.testing.assert_close(seen.std(0), torch.ones(FEATURES), atol=1e-4, rtol=0)


@pytest.mark.parametrize("child", ["label", "input"])
def test_a_child_of_one_component_starts_with_its_very_noise(
    child: str, inputs: CleanInputs[Fit]
) -> None:
    known = stages(Dependency.JOINT)
    parent = start(known["independent"], [], inputs, SHAPE, CLASSES, 0)
    sharp = parent.sharpened(Rule.CHOSEN, torch.tensor(1))
    made = start(known[child], [finished_at(parent, 0.5, sharp)], inputs, SHAPE, CLASSES, 0)
    assert made.family == known[child].family
    torch.testing.assert_close(noise(made, inputs), noise(sharp, inputs))


def test_classes_are_sent_to_different_copies(inputs: CleanInputs[Fit]) -> None:
    known = stages(Dependency.LABEL)
    parent = start(known["independent"], [], inputs, SHAPE, CLASSES, 0)
    sharp = parent.sharpened(Rule.CHOSEN, torch.tensor(1))
    made = start(known["label"], [finished_at(parent, 0.5, sharp)], inputs, SHAPE, CLASSES, 0)
    weights = made.mixture(Context(torch.arange(CLASSES))).log_weights
    assert sorted(weights.argmax(1).tolist()) == [0, 1, 2]


def test_of_several_parents_the_lowest_on_select_is_taken(inputs: CleanInputs[Fit]) -> None:
    known = stages(Dependency.JOINT)
    label, seen = (start(known[name], [], inputs, SHAPE, CLASSES, 1) for name in ("label", "input"))
    for low, (first, second) in ((label, (0.1, 0.2)), (seen, (0.2, 0.1))):
        parents = [finished_at(label, first), finished_at(seen, second)]
        made = start(known["joint"], parents, inputs, SHAPE, CLASSES, 0)
        torch.testing.assert_close(noise(made, inputs), noise(low, inputs))


def test_a_higher_floor_starts_at_the_same_latent_noise(inputs: CleanInputs[Fit]) -> None:
    known = stages(Dependency.LABEL)["label"]
    parent = start(known, [], inputs, SHAPE, CLASSES, 0)
    raised = Stage("label, floor 0.5", known.family.with_(floor=0.5), (), known.recipe, 1)
    made = start(raised, [finished_at(parent, 0.5)], inputs, SHAPE, CLASSES, 0)
    torch.testing.assert_close(noise(made, inputs), noise(parent.with_floor(0.5), inputs))
