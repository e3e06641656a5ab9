"""`assert_robust`: silent where all holds, a readable failure where not."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import half_classifier, two_class_data
from nppr.errors import SpecError
from nppr.testing import assert_robust

SMALL = {"eps": 0.01, "batch_size": 64}


def test_a_robust_model_passes_and_the_record_is_returned() -> None:
    found = assert_robust(
        half_classifier(), two_class_data(400), {"require": ["PR uniform >= 0.8"], **SMALL}
    )
    assert found.decisions[0].status == "holds"
    assert found.classifier.name == "Linear"


def test_a_failure_names_every_requirement_and_the_reason(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        'require = ["PR uniform >= 0.9", "AR pgd >= 0.9", "PR gaussian >= 0.9999"]\neps = 0.5\n'
    )
    with pytest.raises(AssertionError) as failed:
        assert_robust(half_classifier(), two_class_data(400), policy)
    lines = str(failed.value).splitlines()
    assert lines[0].startswith("violated: ")
    assert "AR pgd >= 0.9: violated" in lines
    assert any(line.startswith("AR pgd >= 0.9: violated: under the worst") for line in lines)


def test_what_is_undecided_fails_too() -> None:
    require = ["PR uniform >= 0.999", "accuracy >= 0.999"]
    with pytest.raises(AssertionError, match=r"^undecided: ") as failed:
        assert_robust(half_classifier(), two_class_data(40), {"require": require, **SMALL})
    noise, accuracy = (
        line for line in str(failed.value).splitlines() if "every input was used" in line
    )
    assert 'To decide it, provide more inputs, or set `about` to "test-set"' in noise
    assert accuracy.endswith("To decide it, provide more inputs.")
    assert "divided" not in str(failed.value)


def test_a_wrong_policy_is_an_error_of_its_own() -> None:
    with pytest.raises(SpecError, match="Did you mean 'PR'"):
        assert_robust(half_classifier(), two_class_data(), {"require": ["P uniform >= 0.9"]})
