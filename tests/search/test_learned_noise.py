from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import nppr
from helpers import FAMILIES, learned_noise
from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import IntArray
from nppr.data import Data, load_data
from nppr.errors import BudgetError, DistributionError, RunFolderError
from nppr.measuring.measurement import measure, probe
from nppr.models import PreparedClassifier, load_classifier, prepare
from nppr.noise.distribution import Distribution
from nppr.noise.family import UPSAMPLERS, Family, Rule
from nppr.noise.mixture import Context
from nppr.noise.rungs import Dependency
from nppr.search.fitting import FitProgress
from nppr.search.learned_noise import (
    LearnedNoise,
    load_learned,
    read_distribution,
    save_learned,
)
from nppr.search.search_record import LearnedNoiseRecord
from nppr.search.search_settings import default_settings
from nppr.sources.learned import Learned
from nppr.system.records import read_record, write_record

pytestmark = pytest.mark.slow

SHAPE, CLASSES, FEATURES = (1, 5, 6), 4, 6
BUDGET = Budget.linf("8/255")


def made(**changes: Any) -> Distribution:
    torch.manual_seed(0)
    small = Family(components=3, hidden_dim=8, label_dim=4, upsampler="bicubic").with_(**changes)
    distribution = Distribution(small, SHAPE, CLASSES, FEATURES).requires_grad_(False)
    for value in distribution.parameters():
        value.add_(0.5 * torch.randn_like(value))
    if small.dependency.sees_input:
        distribution.mixture.standardise(torch.randn(9, FEATURES))
    return distribution


def learned(distribution: Distribution) -> LearnedNoise:
    return learned_noise(distribution, BUDGET)


def saved(folder: Path, distribution: Distribution) -> Path:
    (path,) = save_learned(folder, [learned(distribution)])
    return path


def exact(distribution: Distribution) -> Tensor:
    draws = DrawBlock(0, "evaluate", tuple(range(4)), 0, 8, torch.device("cpu"))
    features = torch.randn(4, FEATURES, generator=torch.Generator().manual_seed(0))
    return distribution.exact(Context(torch.arange(4), features), draws, BUDGET)


def refused(path: Path) -> str:
    with pytest.raises(DistributionError) as error:
        load_learned(path)
    message = str(error.value)
    assert message.startswith("`distribution` must be a file written by nppr fit, got")
    assert "\n" not in message
    assert path.name in message
    return message


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """A crafted file: its checksum is that of what it holds."""
    tensors, content = read_record(path)
    change(content)
    write_record(path, tensors, content)


@pytest.mark.parametrize("dependency", FAMILIES)
@pytest.mark.parametrize("covariance", ["diag", "lowrank:2", "full"])
@pytest.mark.parametrize("upsampler", UPSAMPLERS)
def test_what_is_read_is_what_was_written(
    tmp_path: Path, dependency: Dependency, covariance: str, upsampler: str
) -> None:
    before = made(dependency=dependency, covariance=covariance, upsampler=upsampler, floor=0.25)
    after, notes, seen = read_distribution(saved(tmp_path, before))
    assert after.family == before.family
    assert (after.shape, after.classes, after.features) == (SHAPE, CLASSES, before.features)
    assert not after.training
    state, expected = after.state_dict(), before.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], value) for name, value in expected.items())
    assert torch.equal(exact(after.requires_grad_(False)), exact(before))
    assert notes == learned(before).record
    assert seen.tolist() == []
    assert learned(after).checksum == learned(before).checksum


@pytest.mark.parametrize(
    "changes",
    [
        {"label_only": True},
        {"scaled": False},
        {"wide_heads": True},
        {"random_start": True},
        {"kernel": -0.75},
        {"grid": 2},
    ],
)
def test_every_setting_comes_back(tmp_path: Path, changes: dict[str, Any]) -> None:
    before = made(**changes)
    after, _, _ = read_distribution(saved(tmp_path, before))
    assert after.family == before.family
    assert torch.equal(exact(after.requires_grad_(False)), exact(before))


@pytest.mark.parametrize("rule", Rule)
def test_the_rule_and_the_chosen_components_come_back(tmp_path: Path, rule: Rule) -> None:
    before = made().sharpened(rule, torch.tensor([2, 0, 1, 1]))
    after, _, _ = read_distribution(saved(tmp_path, before))
    assert after.rule is rule
    assert after.chosen.tolist() == [2, 0, 1, 1]
    assert torch.equal(exact(after.requires_grad_(False)), exact(before))


@pytest.mark.parametrize(
    ("floor", "name"),
    [(0.0, "nppr:joint"), (0.5, "nppr:joint:floor=0.5"), (1.0, "nppr:joint:floor=1")],
)
@pytest.mark.parametrize("ending", ["", ".safetensors"])
def test_the_file_is_found_with_and_without_its_ending(
    tmp_path: Path, floor: float, name: str, ending: str
) -> None:
    before = made(floor=floor)
    path = saved(tmp_path / "new", before)
    assert path.name == name.replace(":", "_") + ".safetensors"
    (found,) = load_learned(str(path).removesuffix(".safetensors") + ending)
    assert found.source.name == name
    assert found.source.budget == BUDGET
    assert torch.equal(exact(found.source.distribution.requires_grad_(False)), exact(before))


def test_reading_leaves_the_random_numbers_alone(tmp_path: Path) -> None:
    path = saved(tmp_path, made())
    before = torch.random.get_rng_state()
    read_distribution(path)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_missing_file(tmp_path: Path) -> None:
    path = saved(tmp_path, made())
    path.unlink()
    assert "No such file" in refused(path)
    assert "No such file" in refused(tmp_path / "nothing")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file(tmp_path: Path, share: float) -> None:
    path = saved(tmp_path, made())
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    refused(path)


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused(tmp_path: Path, place: float, bit: int) -> None:
    path = saved(tmp_path, made())
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    path.write_bytes(content)
    refused(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", 2),
        ("format", "one"),
        ("rule", "smallest"),
        ("shape", [1, 5]),
        ("shape", [2, 5, 6]),
        ("shape", [1, -5, 6]),
        ("classes", 5),
        ("classes", -1),
        ("features", 7),
        ("features", None),
        ("budget", {}),
        ("budget", {"norm": "l3", "radius": 0.1, "text": "0.1"}),
        ("budget", {"norm": "linf", "radius": -1, "text": "-1"}),
        ("budget", {"norm": ["linf"], "radius": 1, "text": "1"}),
        ("family", []),
        ("search", {}),
        ("diagnostics", {"floor": 0.0}),
        ("unheard_of", 1),
    ],
)
def test_an_edited_field(tmp_path: Path, field: str, value: Any) -> None:
    path = saved(tmp_path, made())
    edited(path, lambda values: values.update({field: value}))
    refused(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dependency", "label"),
        ("dependency", "everything"),
        ("components", 4),
        ("components", 0),
        ("covariance", "full"),
        ("covariance", "lowrank:99"),
        ("upsampler", "none"),
        ("upsampler", "nearest"),
        ("latent_dim", 3),
        ("grid", 3),
        ("hidden_dim", 9),
        ("label_dim", 3),
        ("min_std", 0),
        ("min_std", "small"),
        ("floor", 2),
        ("floor", None),
        ("kernel", "keys"),
        ("scaled", False),
        ("label_only", True),
        ("wide_heads", True),
        ("unheard_of", 1),
    ],
)
def test_an_edited_family(tmp_path: Path, field: str, value: Any) -> None:
    path = saved(tmp_path, made())
    edited(path, lambda values: values["family"].update({field: value}))
    refused(path)


@pytest.mark.parametrize("name", sorted(set(LearnedNoiseRecord.model_fields) - {"seeds"}))
def test_a_field_left_out(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path, made())
    edited(path, lambda values: values.pop(name))
    refused(path)


def test_the_format_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path, made())
    edited(path, lambda values: values.update(format=4))
    assert "it has format 4, this version reads 3" in refused(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinite_numbers(tmp_path: Path, value: float) -> None:
    broken = made()
    broken.mixture.means[1, 2] = value
    assert "hold NaN or infinite numbers" in refused(saved(tmp_path, broken))


@pytest.mark.parametrize("value", [-1, 3])
def test_a_chosen_component_that_does_not_exist(tmp_path: Path, value: int) -> None:
    broken = made().sharpened(Rule.CHOSEN, torch.tensor([0, 1, value, 2]))
    assert "chooses components it does not have" in refused(saved(tmp_path, broken))


def test_tensors_that_do_not_fit_their_family(tmp_path: Path) -> None:
    path = saved(tmp_path, made(covariance="diag"))
    tensors, content = read_record(path)
    means = tensors["mixture.means"]
    for changes in ({"mixture.means": means.reshape(-1)}, {"mixture.more": means}):
        write_record(path, {**tensors, **changes}, content)
        refused(path)
    write_record(path, {"mixture.means": means}, content)
    refused(path)


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Path]]:
        return Path.touch, (self.path,)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    path, sprung = saved(tmp_path, made()), tmp_path / "sprung"
    pickle.loads(pickle.dumps(Trap(sprung)))
    assert sprung.exists(), "the trap works"
    sprung.unlink()
    path.write_bytes(pickle.dumps(Trap(sprung)))
    refused(path)
    torch.save({"mixture.means": Trap(sprung)}, path)
    refused(path)
    assert not sprung.exists()


SMALL = default_settings(
    Family(Dependency.LABEL), floors=(0.0, 0.5), calls=512, inputs=32, seeds=2
).without_positions()


@pytest.fixture(scope="module")
def fitted() -> list[LearnedNoise]:
    return nppr.learn(search=SMALL, measure=nppr.Measure(fit_inputs=150, select_inputs=60))


@pytest.fixture(scope="module")
def data() -> Data:
    return load_data("digits").limit(inputs=40)


@pytest.fixture
def folder(fitted: list[LearnedNoise], tmp_path: Path) -> Path:
    save_learned(tmp_path / "distributions", fitted)
    return tmp_path


@pytest.fixture(scope="module")
def classifier(data: Data) -> PreparedClassifier:
    known = load_classifier("digits-cnn", data=data)
    return prepare(known, probe(data.evaluate), classes=10, micro_batch=64)


def correct(source: Learned, data: Data, classifier: PreparedClassifier) -> IntArray:
    return measure(source, classifier, data.evaluate, draws=8).correct


def test_the_lowest_of_a_rung_and_floor_bears_the_plain_name(fitted: list[LearnedNoise]) -> None:
    names = [each.source.name for each in fitted]
    plain = ["nppr:independent", "nppr:label"]
    assert names[::2] == [*plain, *(f"{each}:floor=0.5" for each in plain)]
    assert [each.record.name for each in fitted] == names
    for first, other in zip(fitted[::2], fitted[1::2], strict=True):
        assert other.source.name in {f"{first.source.name}:fit-seed={seed}" for seed in (0, 1)}
        low, high = (each.record.search.select_value for each in (first, other))
        assert low is not None
        assert high is not None
        assert low <= high


def test_what_is_loaded_is_what_was_saved(
    fitted: list[LearnedNoise], folder: Path, data: Data, classifier: PreparedClassifier
) -> None:
    loaded = {each.source.name: each for each in load_learned(folder)}
    assert loaded.keys() == {each.source.name for each in fitted}
    for before in fitted:
        after = loaded[before.source.name]
        assert after.source.budget == before.source.budget
        assert after.record == before.record
        assert after.checksum == before.checksum
        assert len(before.seen) > 100
        assert after.seen.tolist() == before.seen.tolist()
        np.testing.assert_array_equal(
            correct(after.source, data, classifier), correct(before.source, data, classifier)
        )


def test_a_run_folder_its_distributions_and_each_file_can_be_loaded(folder: Path) -> None:
    inner = folder / "distributions"
    assert len(load_learned(folder)) == len(load_learned(inner)) == 8
    for name in ("nppr:independent", "nppr:label", "nppr:label:floor=0.5"):
        for ending in ("", ".safetensors"):
            (one,) = load_learned(inner / (name.replace(":", "_") + ending))
            assert one.source.name == one.record.name == name


def test_a_renamed_file_is_loaded_with_the_others(folder: Path, tmp_path: Path) -> None:
    (own := tmp_path / "own").mkdir()
    for name, to in (("nppr_label", "nppr_label"), ("nppr_label_floor=0.5", "mine")):
        content = (folder / "distributions" / f"{name}.safetensors").read_bytes()
        (own / f"{to}.safetensors").write_bytes(content)
    names = {each.source.name for each in load_learned(own)}
    assert names == {"nppr:label", "nppr:label:floor=0.5"}


def test_another_radius_scales_the_noise(
    folder: Path, data: Data, classifier: PreparedClassifier
) -> None:
    (near,) = load_learned(folder / "distributions" / "nppr_label")
    (far,) = load_learned(folder / "distributions" / "nppr_label", Budget.linf(0.3))
    x, y = data.evaluate.batch(np.arange(4))
    first, second = (each.source.sample(x, y, 3, model=classifier.original) for each in (near, far))
    torch.testing.assert_close(3 * first, second)
    means = [correct(each.source, data, classifier).mean() for each in (near, far)]
    assert means[1] < means[0]


def test_a_folder_without_distributions_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(DistributionError, match="`distribution` must be a folder with"):
        load_learned(tmp_path)
    with pytest.raises(DistributionError, match="`distribution` must be a file written"):
        load_learned(tmp_path / "nothing")


def test_what_was_learned_is_assessed_without_a_search(fitted: list[LearnedNoise]) -> None:
    steps: list[object] = []
    report = nppr.assess(
        sources="uniform",
        distributions=fitted,
        progress=steps.append,
        measure=nppr.Measure(inputs=40, draws=8),
    )
    names = {row.name for row in report.numbers}
    assert {"uniform", *(each.source.name for each in fitted)} <= names
    assert not [each for each in steps if isinstance(each, FitProgress)]


def test_distributions_of_another_budget_are_refused(fitted: list[LearnedNoise]) -> None:
    with pytest.raises(BudgetError, match="must be that of all sources"):
        nppr.assess(budget=Budget.linf(0.2), distributions=fitted, measure=nppr.Measure(inputs=10))


@pytest.mark.parametrize("winner", [None, "laplace"])
def test_a_reference_that_was_worse_is_named(winner: str | None) -> None:
    found = learned_noise(made(), BUDGET, winner=winner)
    assert found.winner == winner
    described = found.describe()
    assert described.winner == winner
    assert described.search == found.record.search


def test_it_was_compared_on_its_own_classifier_in_its_own_budget_only() -> None:
    known = learned(made())
    assert known.was_compared("abc")
    assert not known.was_compared("another")
    moved = replace(known, source=replace(known.source, budget=Budget.linf(0.2)))
    assert not moved.was_compared("abc")


def test_another_fit_does_not_resume_a_run(tmp_path: Path) -> None:
    search = default_settings(Family(Dependency.INDEPENDENT), calls=64, inputs=32)
    search = search.without_positions()
    first, second = (
        nppr.learn(search=search, measure=nppr.Measure(fit_inputs=100, select_inputs=50, seed=seed))
        for seed in (0, 1)
    )
    nppr.assess(
        sources="",
        distributions=first,
        measure=nppr.Measure(inputs=20, draws=4),
        run=nppr.Run(out=tmp_path),
    )
    with pytest.raises(RunFolderError, match="nppr"):
        nppr.assess(
            sources="",
            distributions=second,
            measure=nppr.Measure(inputs=20, draws=4),
            run=nppr.Run(out=tmp_path, resume=True),
        )


def test_the_root_folder_holds_no_distributions() -> None:
    with pytest.raises(DistributionError, match="with none"):
        load_learned("/")
