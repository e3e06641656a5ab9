from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from helpers import FAMILIES
from nppr.errors import SpecError
from nppr.noise.family import KEYS_KERNEL, TORCH_KERNEL, UPSAMPLERS, Family
from nppr.noise.rungs import Dependency

INSIDE = {
    "independent": {"independent", "label", "input", "joint", "per-input"},
    "label": {"label", "joint", "per-input"},
    "input": {"input", "joint", "per-input"},
    "joint": {"joint", "per-input"},
    "per-input": {"per-input"},
}


@pytest.mark.parametrize("small", Dependency)
@pytest.mark.parametrize("large", Dependency)
def test_contains_is_the_order_of_the_table(large: Dependency, small: Dependency) -> None:
    assert large.contains(small) == (large.value in INSIDE[small.value])


def test_what_each_dependency_sees() -> None:
    assert {d.value for d in Dependency if d.sees_label} == {"label", "joint", "per-input"}
    assert {d.value for d in Dependency if d.sees_input} == {"input", "joint", "per-input"}


def test_words_name_what_is_seen() -> None:
    assert len({d.describe() for d in Dependency}) == 5
    for d in FAMILIES:
        assert ("label" in d.describe()) == d.sees_label
        assert ("input" in d.describe()) == d.sees_input


ADAPTER = TypeAdapter(Family)
sizes = st.integers(1, 1000)
families = st.builds(
    Family,
    dependency=st.sampled_from(FAMILIES),
    components=sizes,
    covariance=st.sampled_from(["diag", "full", "lowrank:1", "lowrank:8"]),
    upsampler=st.sampled_from(UPSAMPLERS),
    latent_dim=st.none(),
    grid=st.none() | sizes,
    hidden_dim=sizes,
    label_dim=sizes,
    min_std=st.floats(1e-6, 10),
    floor=st.floats(0, 1),
    kernel=st.sampled_from([KEYS_KERNEL, TORCH_KERNEL]),
    label_only=st.booleans(),
    scaled=st.booleans(),
    wide_heads=st.booleans(),
)


@given(family=families)
def test_a_family_survives_json(family: Family) -> None:
    if family.upsampler == "trainable":
        family = family.with_(latent_dim=9)
    assert ADAPTER.validate_json(ADAPTER.dump_json(family)) == family
    assert Family(**json.loads(json.dumps(asdict(family)))) == family


@pytest.mark.parametrize("value", ["everything", "Joint", None])
def test_bad_dependency_is_named(value: Any) -> None:
    with pytest.raises(SpecError, match="`dependency` must be one of independent, input, joint"):
        Family(dependency=value)


@pytest.mark.slow
def test_settings_and_records_are_checked_without_torch() -> None:
    code = """
import sys
from nppr.noise.family import Family
from nppr.search.search_record import SearchRecord
from nppr.search.search_settings import default_settings, walk
walk(default_settings(Family(covariance="lowrank:8", upsampler="bicubic")), 10, (3, 32, 32))
sys.exit("torch" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["components", "latent_dim", "grid", "hidden_dim", "label_dim"])
@pytest.mark.parametrize("value", [0, -1, 2.5, "7", math.nan])
def test_bad_sizes_are_named(name: str, value: Any) -> None:
    argument = name.replace("_", "-")
    with pytest.raises(SpecError, match=f"`{argument}` must be a whole number >= 1, got"):
        Family(**{name: value})


@pytest.mark.parametrize("value", [0, -0.1, math.nan, math.inf, -math.inf])
def test_bad_min_std_is_named(value: float) -> None:
    with pytest.raises(SpecError, match="`min-std` must be a number > 0, got"):
        Family(min_std=value)


@pytest.mark.parametrize("value", [-0.01, 1.01, math.nan, math.inf])
def test_bad_floor_is_named(value: float) -> None:
    with pytest.raises(SpecError, match=r"`floor` must lie in \[0, 1\], got"):
        Family(floor=value)


@pytest.mark.parametrize("value", ["", "diagonal", "diag:2", "full:", "low-rank:3", "Diag"])
def test_bad_covariance_is_named(value: str) -> None:
    with pytest.raises(SpecError, match="`covariance` must be one of diag, full, lowrank:R, got"):
        Family(covariance=value)


@pytest.mark.parametrize("value", ["", "bicubics", "None", "nearest"])
def test_bad_upsampler_is_named(value: str) -> None:
    with pytest.raises(SpecError, match="`upsampler` must be one of bicubic, multiscale, none, tr"):
        Family(upsampler=value)


def test_the_nearest_name_is_suggested() -> None:
    with pytest.raises(SpecError, match="Did you mean 'bicubic'"):
        Family(upsampler="bicubics")
    with pytest.raises(SpecError, match="Did you mean 'diag'"):
        Family(covariance="diagonal")


def test_with_changes_one_setting_and_checks_it() -> None:
    family = Family(components=3)
    assert family.with_(floor=0.5) == Family(components=3, floor=0.5)
    assert family == Family(components=3)
    with pytest.raises(SpecError, match="`floor`"):
        family.with_(floor=2.0)
