"""Every key of a policy changes what is tested or is refused by name, also with objects of the call."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nppr.errors import InputError, SpecError
from nppr.gate.gate import decide_policy, resolve_policy
from nppr.gate.policy import (
    KEYS,
    LEFT_OUT,
    MEASURING,
    make_policy,
    read_policy,
)
from nppr.noise.rungs import Dependency
from nppr.run.assessment_run import AssessmentRun
from nppr.statistics.sequential import Verdict

INPUTS = 120
CODE = """
import torch

class Halves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())
        self.head = torch.nn.Linear(16, 2)
        side = torch.tensor([1.0, 1.0, -1.0, -1.0]).repeat(4)
        self.head.weight.data = torch.stack([side, -side])
        self.head.bias.data = torch.zeros(2)

    def forward(self, x):
        return self.head(self.body(x))

def make():
    return Halves()

def other():
    found = Halves()
    found.head.bias.data += torch.tensor([0.1, 0.0])
    return found
"""


@dataclass(frozen=True)
class Case:
    """A value that must be felt, the other keys that it needs, and the routes that refuse it."""

    value: Any
    beside: dict[str, Any] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    """Keys that cannot be given with it."""
    says: str = ""
    """Words of the refusal, where they are not the key."""


ROUTES = ("policy", "names", "objects")
"""Model and data are named by the policy, named by the call, or are objects of the call."""

RESOLVED = {
    "norm": Case("l2"),
    "eps": Case("0.2"),
    "transform": Case("brightness=0.2", drops=("eps",)),
    "data": Case("words.npz"),
    "inputs": Case(10),
    "split": Case("train", {"data": "split.npz"}, refused=("objects",)),
    "class-order": Case("order.txt", {"data": "words.npz"}),
    "resize": Case(8),
    "range": Case("-1,1"),
    "fit-inputs": Case(10),
    "select-inputs": Case(10),
    "model": Case("other"),
    "weights": Case("other.pt", refused=("objects",)),
    "mean": Case(0.5),
    "std": Case(0.5),
    "classes": Case(3, refused=ROUTES, says="got 0..2"),  # of a model with two outputs
    "stem": Case("small", refused=ROUTES),
    "features": Case("body"),
    "feature-model": Case("other"),
    "feature-weights": Case("other.pt", {"feature-model": "make"}),
    "seed": Case(7),
    "device": Case("nowhere", refused=ROUTES),
    "batch-size": Case(32),
    "quantise": Case(value=True),
    "draws": Case(77),
    "confidence": Case(0.9),
    "slices": Case("site.csv"),
    "evaluate-all": Case(value=True),
    "effort": Case("thorough"),
}
SEARCHED = {
    "preset": "paper",
    "kappa": 2.0,
    "latent-dim": 5,
    "grid": 2,
    "hidden-dim": 7,
    "label-dim": 3,
    "min-std": 0.2,
    "correlation-length": 3,
    "components": 5,
    "covariance": "full",
    "upsampler": "multiscale",
    "search": "scores",
    "loss": "cross-entropy",
    "fit-calls": 4096,
    "fit-draws": 3,
    "fit-seeds": 2,
    "per-input-calls": 12,
}
"""Keys that are felt in the settings of a search."""
BESIDE = {"latent-dim": {"upsampler": "trainable"}}
"""Keys that another one needs."""
DECIDED = ("require", "about", "calls", "run")
"""Keys that are felt in what is decided on one setup."""
FILES = ("data", "class-order", "weights", "feature-weights", "slices")
CALLABLES = ("model", "feature-model")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("policy")
    images = np.random.default_rng(0).random((INPUTS, 1, 4, 4), dtype=np.float32)
    labels = (images[..., :2].sum((1, 2, 3)) <= images[..., 2:].sum((1, 2, 3))).astype(int)
    np.savez(made / "whole.npz", x=images, y=labels)
    np.savez(made / "words.npz", x=images, y=np.where(labels == 0, "left", "right"))
    np.savez(
        made / "split.npz", x_train=images[:60], y_train=labels[:60], x_test=images[60:],
        y_test=labels[60:],
    )  # fmt: skip
    (made / "order.txt").write_text("right\nleft\n")
    (made / "site.csv").write_text("site\n" + "a\nb\n" * (INPUTS // 2))
    (made / "halves.py").write_text(CODE)
    torch.save(made_by(made, "other").state_dict(), made / "other.pt")
    return made


def made_by(folder: Path, name: str) -> torch.nn.Module:
    spec = importlib.util.spec_from_file_location("halves", folder / "halves.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: torch.nn.Module = getattr(module, name)()
    return made


def resolved(route: str, folder: Path, **changed: Any) -> AssessmentRun:
    """What is tested with these keys."""
    keys: dict[str, Any] = {"model": "make", "data": "whole.npz", "eps": "0.1", "batch-size": 64}
    keys |= changed
    model, data = keys["model"], keys["data"]
    keys |= {name: str(folder / keys[name]) for name in FILES if name in keys}
    keys |= {name: f"{folder / 'halves.py'}:{keys[name]}" for name in CALLABLES if name in keys}
    keys = {name: value for name, value in keys.items() if value is not None}
    keys["require"] = ["PR uniform >= 0.5"]
    if route == "policy":
        return resolve_policy(make_policy(keys))
    named = keys.pop("model"), keys.pop("data")
    if route == "names":
        return resolve_policy(make_policy(keys), *named)
    with np.load(folder / data) as arrays:
        pair = arrays[arrays.files[0]], arrays[arrays.files[1]]
    return resolve_policy(make_policy(keys), made_by(folder, model), pair)


def effect(route: str, folder: Path, key: str) -> str:
    """Whether a key is refused by its name, changes what is tested, or is ignored."""
    case = RESOLVED[key]
    before = facts(resolved(route, folder, **case.beside))
    changed = {**case.beside, key: case.value, **dict.fromkeys(case.drops)}
    try:
        after = facts(resolved(route, folder, **changed))
    except InputError as error:
        return "refused" if (case.says or f"`{key}`") in str(error) else str(error)
    return "ignored" if after == before else "changed"


def facts(setup: AssessmentRun) -> str:
    """All that determines what is tested, as text."""
    data = setup.data
    found = [
        setup.record.model_dump(mode="json"),
        setup.classifier.micro_batch,
        [each.indices.tolist() for each in data.splits],
        {name: list(values) for name, values in (data.slices or {}).items()},
        data.class_names,
        data.evaluate.labels.tolist(),
        data.evaluate.batch(np.arange(1))[0].shape,
    ]
    return json.dumps(found, default=str)


def test_no_key_is_forgotten() -> None:
    assert sorted([*RESOLVED, *SEARCHED, *DECIDED]) == sorted(KEYS)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("key", RESOLVED)
def test_a_key_changes_what_is_tested_or_is_refused(route: str, key: str, folder: Path) -> None:
    expected = "refused" if route in RESOLVED[key].refused else "changed"
    assert effect(route, folder, key) == expected


@pytest.mark.parametrize("key", SEARCHED)
def test_a_key_changes_the_search(key: str) -> None:
    plain = make_policy({"require": ["grade >= C"]})
    changed = make_policy({"require": ["grade >= C"], key: SEARCHED[key], **BESIDE.get(key, {})})
    assert changed.search.resolve(100) != plain.search.resolve(100)


@pytest.mark.parametrize("key", MEASURING)
def test_keys_of_a_run_that_is_measured_are_refused_with_another_run(key: str) -> None:
    value = {**SEARCHED, "draws": 5, "effort": "quick"}[key]
    with pytest.raises(SpecError, match=f"`{key}` must be left out of a policy with a run, got"):
        make_policy(
            {"require": ["grade >= C"], "run": "runs/main", key: value, **BESIDE.get(key, {})}
        )


@pytest.mark.parametrize(
    ("name", "value"), [("dependency", Dependency.JOINT.value), ("floor", 0.5), ("quiet", True)]
)
def test_options_that_a_policy_cannot_have_are_refused(name: str, value: object) -> None:
    assert name in LEFT_OUT
    with pytest.raises(SpecError, match=f"`{name}` must be left out of a policy"):
        make_policy({"require": ["grade >= C"], name: value})


def test_keys_may_have_hyphens_or_underscores_once(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("require = ['grade >= C']\nfit_calls = 4096\nclass-order = 'a.txt'\n")
    policy = read_policy(path, **{"fit-calls": 8192})
    assert (policy.search.calls, policy.data.class_order) == (8192, "a.txt")
    with pytest.raises(SpecError, match="`fit-calls` must be given once"):
        make_policy({"require": ["grade >= C"], "fit-calls": 4096, "fit_calls": 4096})


def test_messages_spell_keys_as_the_documentation_does() -> None:
    with pytest.raises(SpecError) as refused:
        make_policy({"require": ["grade >= C"], "fit_cals": 1})
    assert "got 'fit-cals'" in str(refused.value)
    assert "Did you mean 'fit-calls'?" in str(refused.value)
    with pytest.raises(
        SpecError, match="`fit-calls` of the policy must be a whole number, got 'many'"
    ):
        make_policy({"require": ["grade >= C"], "fit_calls": "many"})


def test_evaluate_all_tests_every_input(folder: Path) -> None:
    policy = {"require": ["accuracy >= 0.9"], "evaluate-all": True, "eps": 0.1, "batch-size": 64}
    found = decide_policy(make_policy(policy), made_by(folder, "make"), folder / "whole.npz")
    alone = decide_policy(
        make_policy(policy | {"evaluate-all": False}),
        made_by(folder, "make"),
        folder / "whole.npz",
    )
    assert (found.verdict, found.decisions[0].inputs) == (Verdict.HOLDS, 64)
    assert alone.decisions[0].inputs < 64
    with pytest.raises(SpecError, match="`evaluate-all` must be left out with 'NPPR joint"):
        make_policy({"require": ["NPPR joint >= 0.5"], "evaluate-all": True})


def test_what_is_decided_follows_the_policy(folder: Path) -> None:
    def decided(**keys: Any) -> tuple[Any, ...]:
        policy = make_policy(
            {"require": ["PR uniform >= 0.99"], "eps": 0.1, "batch-size": 64} | keys
        )
        found = decide_policy(policy, made_by(folder, "make"), folder / "whole.npz").decisions[0]
        return found.requirement, found.claim, found.draws

    plain = decided()
    for changed in ({"require": ["PR gaussian >= 0.99"]}, {"about": "test-set"}):
        assert decided(**changed) != plain
    assert decided(about="test-set", calls=64) != decided(about="test-set")
    with pytest.raises(InputError, match=r"`run`|does not exist"):
        decided(run="runs/none", require=["grade >= C"])
