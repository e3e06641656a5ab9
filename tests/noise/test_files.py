from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from nppr.budget import Budget
from nppr.distributions import (
    Context,
    Dependency,
    Distribution,
    Family,
    Rule,
    Saved,
    load_distribution,
    save_distribution,
)  # FIXME
from nppr.distributions.upsample import UPSAMPLERS  # FIXME
from nppr.draws import DrawBlock
from nppr.errors import DistributionError

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


def record(distribution: Distribution) -> Saved:
    return Saved(
        nppr_version="0.1.0",
        budget={"norm": "linf", "radius": BUDGET.radius},
        family=distribution.family.as_dict(),
        rule=distribution.rule,
        shape=distribution.shape,
        classes=CLASSES,
        class_names=("a", "b", "c", "d"),
        features=distribution.features,
        classifier={"name": "small", "mean": [0.5]},
        data={"name": "made up"},
        fit={"seed": 1, "history": [0.5, 0.25]},
        diagnostics={"entropy": 1.25},
    )


def saved(folder: Path, distribution: Distribution, name: str = "nppr") -> Path:
    save_distribution(folder / name, distribution, record(distribution))
    return folder / name


def exact(distribution: Distribution) -> Tensor:
    draws = DrawBlock(0, "evaluate", tuple(range(4)), 0, 8, torch.device("cpu"))
    features = torch.randn(4, FEATURES, generator=torch.Generator().manual_seed(0))
    return distribution.exact(Context(torch.arange(4), features), draws, BUDGET)


def refused(path: Path) -> str:
    with pytest.raises(DistributionError) as error:
        load_distribution(path)
    message = str(error.value)
    assert message.startswith("`distribution` must be a pair of files written by nppr fit, got")
    assert "\n" not in message
    assert path.name in message
    return message


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = path.with_name(path.name + ".json")
    values = json.loads(file.read_text())
    change(values)
    file.write_text(json.dumps(values))


@pytest.mark.parametrize("dependency", Dependency)
@pytest.mark.parametrize("covariance", ["diag", "lowrank:2", "full"])
@pytest.mark.parametrize("upsampler", UPSAMPLERS)
def test_what_is_read_is_what_was_written(
    tmp_path: Path, dependency: Dependency, covariance: str, upsampler: str
) -> None:
    before = made(dependency=dependency, covariance=covariance, upsampler=upsampler, floor=0.25)
    after, notes = load_distribution(saved(tmp_path, before))
    assert after.family == before.family
    assert (after.shape, after.classes, after.features) == (SHAPE, CLASSES, before.features)
    assert not after.training
    state, expected = after.state_dict(), before.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], value) for name, value in expected.items())
    assert torch.equal(exact(after.requires_grad_(False)), exact(before))
    assert notes.stated_budget() == BUDGET
    assert notes.model_copy(update={"checksum": ""}) == record(before)


@pytest.mark.parametrize(
    "changes",
    [{"label_only": True}, {"scaled": False}, {"wide_heads": True}, {"kernel": -0.75}, {"grid": 2}],
)
def test_every_setting_comes_back(tmp_path: Path, changes: dict[str, Any]) -> None:
    before = made(**changes)
    after, _ = load_distribution(saved(tmp_path, before))
    assert after.family == before.family
    assert torch.equal(exact(after.requires_grad_(False)), exact(before))


@pytest.mark.parametrize("rule", Rule)
def test_the_rule_and_the_chosen_components_come_back(tmp_path: Path, rule: Rule) -> None:
    before = made().sharpened(rule, torch.tensor([2, 0, 1, 1]))
    after, _ = load_distribution(saved(tmp_path, before))
    assert after.rule is rule
    assert after.chosen.tolist() == [2, 0, 1, 1]
    assert torch.equal(exact(after.requires_grad_(False)), exact(before))


@pytest.mark.parametrize("name", ["nppr", "nppr.v1", "nppr:floor=0.5"])
@pytest.mark.parametrize("ending", ["", ".json", ".safetensors"])
def test_either_file_or_the_name_can_be_given(tmp_path: Path, name: str, ending: str) -> None:
    path = saved(tmp_path / "new", made(), name)
    after, _ = load_distribution(f"{path}{ending}")
    assert torch.equal(exact(after.requires_grad_(False)), exact(made()))


def test_saving_twice_gives_the_same_bytes_and_leaves_nothing_else(tmp_path: Path) -> None:
    for name in ("one", "two"):
        saved(tmp_path, made(), name)
    for ending in (".json", ".safetensors"):
        assert (tmp_path / f"one{ending}").read_bytes() == (tmp_path / f"two{ending}").read_bytes()
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["one.json", "one.safetensors", "two.json", "two.safetensors"]


def test_reading_leaves_the_random_numbers_alone(tmp_path: Path) -> None:
    path = saved(tmp_path, made())
    before = torch.random.get_rng_state()
    load_distribution(path)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("ending", [".json", ".safetensors"])
def test_a_missing_file(tmp_path: Path, ending: str) -> None:
    path = saved(tmp_path, made())
    (tmp_path / f"nppr{ending}").unlink()
    assert "No such file" in refused(path)
    (tmp_path / f"nppr{ending}").mkdir()
    refused(path)


@pytest.mark.parametrize("ending", [".json", ".safetensors"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file(tmp_path: Path, ending: str, share: float) -> None:
    path = saved(tmp_path, made())
    file = tmp_path / f"nppr{ending}"
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    refused(path)


@pytest.mark.parametrize("ending", [".json", ".safetensors"])
@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_changes_no_tensor(
    tmp_path: Path, ending: str, place: float, bit: int
) -> None:
    path = saved(tmp_path, made())
    file = tmp_path / f"nppr{ending}"
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    file.write_bytes(content)
    try:
        after, _ = load_distribution(path)
    except DistributionError as error:
        message = str(error)
    else:
        message, expected = "`distribution`", made().state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in after.state_dict().items())
    assert "`distribution`" in message
    assert "\n" not in message


def test_every_flipped_bit_among_the_numbers_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, made())
    file = tmp_path / "nppr.safetensors"
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    for place in range(start, len(content), (len(content) - start) // 20):
        damaged = bytearray(content)
        damaged[place] ^= 1
        file.write_bytes(damaged)
        assert "do not belong together" in refused(path)


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
        ("budget", {"norm": "l3", "radius": 0.1}),
        ("budget", {"norm": "linf", "radius": -1}),
        ("budget", {"norm": ["linf"], "radius": 1}),
        ("family", {}),
        ("family", []),
        ("checksum", "0"),
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
        ("components", "3"),
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


@pytest.mark.parametrize("name", sorted(set(Saved.model_fields) - {"format"}))
def test_a_field_left_out(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path, made())
    edited(path, lambda values: values.pop(name))
    refused(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '"text"', "[" * 100_000, "\x00"])
def test_json_that_is_something_else(tmp_path: Path, text: str) -> None:
    path = saved(tmp_path, made())
    (tmp_path / "nppr.json").write_text(text)
    refused(path)
    (tmp_path / "nppr.json").write_bytes(b"\xff\xfe\x00")
    refused(path)


def test_the_format_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path, made())
    edited(path, lambda values: values.update(format=2))
    assert "it is of format 2, this version reads 1" in refused(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none(tmp_path: Path, value: float) -> None:
    broken = made()
    broken.mixture.means[1, 2] = value
    assert "hold NaN or Inf" in refused(saved(tmp_path, broken))


@pytest.mark.parametrize("value", [-1, 3])
def test_a_chosen_component_that_does_not_exist(tmp_path: Path, value: int) -> None:
    broken = made().sharpened(Rule.CHOSEN, torch.tensor([0, 1, value, 2]))
    assert "chooses components it does not have" in refused(saved(tmp_path, broken))


def test_swapped_and_renamed_tensors(tmp_path: Path) -> None:
    path = saved(tmp_path, made(covariance="diag"))
    file = tmp_path / "nppr.safetensors"
    tensors = load_file(file)
    means, raw = tensors["mixture.means"], tensors["mixture.raw"]
    for changes in (
        {"mixture.means": raw, "mixture.raw": means},
        {"mixture.means": means.flip(0).clone()},
        {"mixture.means": means.double()},
        {"mixture.means": means.reshape(-1)},
        {"mixture.more": means.clone()},
    ):
        save_file({**tensors, **changes}, file)
        assert "do not belong together" in refused(path)
    save_file({name: value for name, value in tensors.items() if name != "mixture.raw"}, file)
    refused(path)
    save_file(tensors, file)
    load_distribution(path)


def test_files_of_two_distributions(tmp_path: Path) -> None:
    path = saved(tmp_path, made())
    other = made().with_floor(0.0)
    other.mixture.means.add_(1)
    saved(tmp_path, other, "other")
    (tmp_path / "other.safetensors").replace(tmp_path / "nppr.safetensors")
    assert "do not belong together" in refused(path)


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
    for ending in (".json", ".safetensors"):
        saved(tmp_path, made())
        file = tmp_path / f"nppr{ending}"
        file.write_bytes(pickle.dumps(Trap(sprung)))
        refused(path)
        torch.save({"mixture.means": Trap(sprung)}, file)
        refused(path)
    assert not sprung.exists()
