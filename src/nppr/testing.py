"""Robustness as a test in pytest.

from nppr.testing import assert_robust

def test_robustness():
    assert_robust(model, (images, labels), "policy.toml")
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nppr.data import DataSpec
from nppr.gate.gate import decide_policy
from nppr.gate.policy import Policy, make_policy, read_policy
from nppr.models import ModelSpec
from nppr.report.gate_record import GateRecord
from nppr.statistics.sequential import Verdict


def assert_robust(
    model: ModelSpec, data: DataSpec, policy: str | Path | Policy | Mapping[str, Any]
) -> GateRecord:
    """Raise `AssertionError` unless every requirement of a policy holds; return the decisions.

    `policy` is a TOML file or its keys; `model` and `data` replace the policy's own. Undecided
    requirements also fail.

    >>> found = assert_robust("digits-cnn", "digits", {"require": ["PR uniform >= 0.9"]})
    >>> found.decisions[0].status
    'holds'
    """
    __tracebackhide__ = True  # pytest then shows the caller and the message
    if isinstance(policy, str | Path):
        policy = read_policy(policy)
    elif isinstance(policy, Mapping):
        policy = make_policy(dict(policy))
    found = decide_policy(policy, model, data)
    if found.verdict is not Verdict.HOLDS:
        lines = [f"{each.requirement}: {each.status}" for each in found.decisions]
        raise AssertionError("\n".join([found.headline, *lines, *found.notes()]))
    return found
