"""Gates on the digits: every kind of requirement, one confidence, and failing closed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import nppr
from nppr.core.tally import Direction
from nppr.errors import RunFolderError, SpecError
from nppr.gate.gate import decide_policy
from nppr.gate.policy import find_flag, make_policy
from nppr.report.gate_record import Decision, GateRecord
from nppr.statistics.sequential import Verdict

pytestmark = pytest.mark.slow


def decided(*require: str, **keys: Any) -> GateRecord:
    return decide_policy(make_policy({"require": list(require), "batch_size": 64, **keys}))


def one(words: str, **keys: Any) -> Decision:
    return decided(words, **keys).decisions[0]


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("baseline") / "run"
    nppr.assess(
        sources="uniform,pgd",
        measure=nppr.Measure(draws=20),
        run=nppr.Run(batch_size=64, out=folder),
    )
    return folder


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose search is far too short, and flagged for it."""
    folder = tmp_path_factory.mktemp("learned") / "run"
    family = nppr.Family(nppr.Dependency.INDEPENDENT, components=1)
    nppr.assess(
        sources="nppr,uniform",
        search=nppr.default_settings(family, floors=(0.5,), calls=1024).without_positions(),
        measure=nppr.Measure(draws=10),
        run=nppr.Run(batch_size=64, out=folder),
    )
    return folder


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("accuracy >= 0.9", Verdict.HOLDS),
        ("accuracy >= 0.999", Verdict.VIOLATED),
        ("PR uniform >= 0.9", Verdict.HOLDS),
        ("AR pgd >= 0.9", Verdict.VIOLATED),
        ("AR pgd >= 0.1", Verdict.HOLDS),
        ("corruption jpeg >= 0.9", Verdict.HOLDS),
        ("bound tv:0.05 >= 0.9", Verdict.HOLDS),
        ("worst class >= 0.7", Verdict.HOLDS),
        ("worst class under AR pgd >= 0.9", Verdict.VIOLATED),
        ("PR uniform >= 0.9999", Verdict.UNDECIDED),
    ],
)
def test_known_levels_get_their_verdicts(words: str, verdict: Verdict) -> None:
    found = one(words)
    assert found.verdict is verdict
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.value <= found.high
    assert found.statement.startswith(f"{verdict}: ")


def test_more_requirements_leave_each_a_smaller_share_of_the_error() -> None:
    words = ["PR uniform >= 0.9", "accuracy >= 0.9", "PR gaussian >= 0.9"]
    alone, together = decided(words[0], "grade >= C"), decided(*words)
    assert (alone.tested, together.tested) == (1, 3)
    first, shared = alone.decisions[0], together.decisions[0]
    assert first.low is not None
    assert shared.low is not None
    assert first.draws == shared.draws, "both are decided after as many draws"
    assert first.low > shared.low


def test_draws_are_shared_and_stop_when_all_are_decided() -> None:
    found = decided("PR uniform >= 0.9", "worst class >= 0.5", "bound tv:0.05 >= 0.8")
    first, second, third = found.decisions
    assert first.draws == second.draws < 588
    assert first.inputs <= 588
    assert third.draws % 16 == 0  # it takes several draws of an input
    assert third.inputs < 588


def test_what_a_search_shows_is_said_in_these_words() -> None:
    holds, violated = one("AR pgd >= 0.1"), one("AR pgd >= 0.9")
    assert holds.direction is violated.direction is Direction.UPPER_BOUND
    assert holds.status == "holds for this attack"
    assert "worse perturbations may exist" in holds.statement
    assert "worst admissible perturbation" in violated.statement


def test_a_doubted_search_never_turns_green(learned: Path) -> None:
    words = ["NPPR independent floor 0.5 >= 0.5", "no flag starved", "NPPR joint >= 0.5"]
    found, flag, missing = decided(*words, run=learned, eps=0.1).decisions
    assert found.verdict is Verdict.UNDECIDED
    assert found.why == "flagged: starved"
    assert found.low is not None
    assert found.low > 0.5
    assert flag.verdict is Verdict.VIOLATED
    assert missing.verdict is Verdict.UNDECIDED
    assert missing.why == "the run has no NPPR joint with floor 0"


def test_a_gate_measures_the_run_that_it_needs(tmp_path: Path) -> None:
    out = tmp_path / "run"
    require = ["NPPR independent >= 0.999", "grade >= A"]
    policy = make_policy({"require": require, "draws": 10, "fit_calls": 2048})
    found = decide_policy(policy, out=out)
    assert found.decisions[0].verdict is Verdict.VIOLATED
    assert found.decisions[1].verdict is Verdict.VIOLATED
    report = nppr.read_run(out).report
    assert report.grade.letter in found.decisions[1].statement


def test_what_was_not_looked_for_is_undecided(baseline: Path) -> None:
    words = ["no flag masking", "no flag starved", "no flag near-chance", "grade >= C"]
    found = decided(*words, run=baseline, eps=0.1)
    verdicts = [each.verdict for each in found.decisions]
    assert verdicts == [Verdict.HOLDS, Verdict.UNDECIDED, Verdict.HOLDS, Verdict.HOLDS]
    assert found.verdict is Verdict.UNDECIDED
    assert found.tested == 0


def test_a_source_that_fails_is_undecided() -> None:
    """A plain callable gives no gradients."""

    def constant(x: torch.Tensor) -> torch.Tensor:
        return torch.eye(10)[torch.zeros(len(x), dtype=torch.long)]

    policy = make_policy({"require": ["AR pgd >= 0.5", "PR uniform >= 0.5"], "batch_size": 64})
    attack, noise = decide_policy(policy, constant).decisions
    assert attack.verdict is Verdict.UNDECIDED
    assert attack.statement == "undecided: it could not be measured"
    assert "gradient" in attack.why
    assert noise.value == 1.0


def test_the_same_classifier_is_not_worse_than_itself(baseline: Path) -> None:
    words = [
        f"not worse than {baseline} by more than 5 points",
        f"accuracy not worse than {baseline} by more than 5 points",
        f"AR pgd not worse than {baseline} by more than 5 points",
    ]
    found = decided(*words)
    assert [each.verdict for each in found.decisions] == [Verdict.HOLDS] * 3
    assert found.decisions[1].value == 0.0
    worse = one(words[0], weights="random")
    assert worse.verdict is not Verdict.HOLDS


def test_a_baseline_of_other_things_is_refused(baseline: Path) -> None:
    words = f"not worse than {baseline} by more than 5 points"
    with pytest.raises(RunFolderError, match="another data"):
        one(words, inputs=50)
    with pytest.raises(RunFolderError, match="another budget"):
        one(words, eps=0.2)
    with pytest.raises(SpecError, match="Did you mean 'uniform'"):
        one(f"PR uniform:scale=2 not worse than {baseline} by more than 5 points")
    with pytest.raises(RunFolderError, match="does not exist"):
        one("not worse than runs/none by more than 5 points")
    with pytest.raises(RunFolderError, match="another classifier"):
        one("grade >= B", run=baseline, weights="random")


def test_a_baseline_with_screened_counts_is_refused(baseline: Path, tmp_path: Path) -> None:
    folder = tmp_path / "screened"
    shutil.copytree(baseline, folder)
    report = json.loads((folder / "report.json").read_text())
    report["settings"]["measure"]["engine"] = "bfloat16"
    report["audits"] = [
        {"source": "uniform", "share": 0.02, "alone": 9000, "audited": 180, "discarded": False,
         "widened_by": 0.005}
    ]  # fmt: skip
    (folder / "report.json").write_text(json.dumps(report))
    with pytest.raises(SpecError, match=r"exact counts of 'uniform'.*without --engine"):
        one(f"PR uniform not worse than {folder} by more than 5 points")


def test_names_that_do_not_exist_are_refused() -> None:
    assert find_flag("near-chance") == "near-chance"
    with pytest.raises(SpecError, match="Did you mean 'starved'"):
        one("no flag starvd")
    with pytest.raises(SpecError, match="`column of slices` must be one of class"):
        one("worst weather >= 0.7")
    with pytest.raises(SpecError, match="it cannot be shown"):
        one("bound tv:0.05 >= 0.96")
    beside = "independent, independent:stationary, independent:white, input, got 'label'"
    with pytest.raises(SpecError, match=f"`rung beside input` must be one of {beside}"):
        decided("NPPR label >= 0.9", "NPPR input >= 0.9", "grade >= C", inputs=50)


def test_slices_are_gated(tmp_path: Path) -> None:
    path = tmp_path / "site.csv"
    path.write_text("site\n" + "".join(f"{'ab'[at % 2]}\n" for at in range(1797)))
    found = one("worst site >= 0.8", slices=path)
    assert found.verdict is Verdict.HOLDS
    assert {each.requirement for each in found.slices} == {"a", "b"}
    assert "in every slice of site; lowest observed: " in found.statement


class Rounded(torch.nn.Module):
    """The demo's network on rounded images: all gradients are 0, so attacks and searches fail."""

    def __init__(self) -> None:
        super().__init__()
        self.known = nppr.load_classifier("digits-cnn")
        self.inner = self.known.module

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.known.forward(torch.round(images * 4) / 4)


def test_flags_of_the_classifier_keep_attacks_from_turning_green() -> None:
    policy = {"require": ["AR pgd >= 0.5", "PR uniform >= 0.5"], "eps": 0.1, "batch_size": 64}
    attack, noise = decide_policy(make_policy(policy), Rounded(), "digits").decisions
    assert attack.verdict is Verdict.UNDECIDED
    assert "zero-gradients" in attack.why
    assert noise.verdict is Verdict.HOLDS


def test_a_classifier_that_guesses_never_turns_green() -> None:
    class Guess(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.eye(10)[3].expand(len(images), 10) + 0 * images.sum()

    policy = {
        "require": ["PR uniform >= 0.5", "bound tv:0.05 >= 0.5"],
        "eps": 0.1,
        "batch_size": 64,
    }
    found = decide_policy(make_policy(policy), Guess(), "digits")
    assert found.verdict is Verdict.UNDECIDED
    assert ["flagged: " in each.why for each in found.decisions] == [True, True]
