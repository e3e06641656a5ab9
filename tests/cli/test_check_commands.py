"""`nppr doctor`, `certify` and `gate`: exit codes, what is printed, and what is refused."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from nppr.cli import run
from nppr.doctor.flags import NPPR_ABOVE_PR, flag
from report.page.made_runs import made_report

from .conftest import Refused

pytestmark = pytest.mark.slow

POLICIES = Path(__file__).parents[2] / "examples" / "policies"
CERTIFY = ["certify", "--inputs", "150", "--batch-size", "64"]


def certificate(arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = run([*CERTIFY, *arguments.split(), "--json"])
    printed = capsys.readouterr()
    assert printed.err == ""
    record: dict[str, Any] = json.loads(printed.out)
    (found,) = record["decisions"]
    return code, found | {"calls": record["calls"], "seed": record["seed"]}


@pytest.mark.parametrize(
    ("arguments", "code", "verdict"),
    [
        ("--source uniform --at-least 0.9", 0, "holds"),
        ("--source pgd:steps=3 --eps 1 --at-least 0.9", 1, "violated"),
        ("--source uniform --at-least 0.999", 3, "undecided"),
        ("--source uniform --at-least 0.99 --about test-set --calls 2000", 0, "holds"),
        ("--about test-set --at-least 0.999 --calls 300", 3, "undecided"),
    ],
)
def test_the_exit_code_is_the_verdict(
    arguments: str, code: int, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = certificate(arguments, capsys)
    assert (found[0], found[1]["verdict"]) == (code, verdict)
    assert found[1]["claim"] == ("this test set" if "test-set" in arguments else "the population")


def test_two_lines_state_what_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(CERTIFY) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("uniform: holds: ")
    assert "at least 90 %" in first
    _, found = certificate("", capsys)
    assert f"{100 * found['value']:.1f} % observed in {found['draws']} draws" in second
    assert f"(at least {math.floor(1000 * found['low']) / 10:.1f} % with 95 % confidence" in second
    assert f"{found['inputs']} inputs, {found['calls']} calls" in second
    assert list(tmp_path.iterdir()) == [], "it writes nothing"


def test_every_class_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*CERTIFY, "--quiet", "--per-class", "--at-least", "0.5"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = printed.out.splitlines()[2:]
    assert [line.split(":")[0] for line in lines] == [f"  {name}" for name in "0123456789"]
    assert any(": holds (" in line for line in lines)
    _, found = certificate("--per-class --at-least 0.5", capsys)
    assert [each["requirement"] for each in found["slices"]] == list("0123456789")
    assert sum(each["draws"] for each in found["slices"]) == found["draws"]


def test_the_batch_size_does_not_matter(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (
        certificate(f"--eps 0.3 --at-least 0.8 --seed 5 --batch-size {size}", capsys)[1]
        for size in (3, 64)
    )
    assert first == second
    assert first["seed"] == 5


def test_learned_noise_is_read_from_its_folder(
    learned: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"--source nppr --distribution {learned}"
    code, found = certificate(f"{words} --at-least 0.2", capsys)
    assert (code, found["source"], found["metric"]) == (0, "nppr:joint", "NPPR")
    assert "the worst distribution found" in found["statement"]
    code, far = certificate(f"{words} --at-least 0.9 --eps 1", capsys)
    assert (code, far["verdict"]) == (1, "violated")
    assert "the worst admissible noise" in far["statement"]
    assert "`eps` must be at most 1" in refused([*CERTIFY, *words.split(), "--eps", "8"])


def test_a_flagged_search_is_undecided(
    learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flags are those of the run that the noise lies in."""
    run_folder = tmp_path / "run"
    shutil.copytree(learned, run_folder)
    flags = (flag(NPPR_ABOVE_PR, "3.0 percentage points above the PR of uniform", "nppr:joint"),)
    report = made_report()[0].model_copy(update={"flags": flags})
    (run_folder / "report.json").write_text(report.to_json(), encoding="utf-8")
    for place in (
        run_folder,
        run_folder / "distributions",
        run_folder / "distributions" / "nppr_joint",
    ):
        words = f"--source nppr --distribution {place} --at-least 0.2"
        code, found = certificate(words, capsys)
        assert (code, found["verdict"]) == (3, "undecided")
        assert found["low"] >= 0.2
        assert found["why"] == "flagged: nppr-above-pr"


REFUSED = {
    "--source stress": "`source` must be noise, an attack or a corruption",
    "--source bound": "`source` must be noise, an attack or a corruption",
    "--source universal": "`source` must not be universal",
    "--source uniform,gaussian": "`source` must name one source",
    "--source nppr:floor=0.5": "`source` must name one source",
    "--source all": "`source` must name one source",
    "--source unifrm": "Did you mean 'uniform'",
    "--source nppr": "`distribution` must be given",
    "--source nppr --distribution nowhere": "`distribution` must",
    "--source uniform --distribution nowhere": "`distribution` must be given with --source nppr only",
    "--at-least 0": "must lie in (0, 1), got 0",
    "--at-least nan": "must lie in (0, 1), got nan",
    "--at-least much": "`at-least` must be a number, got 'much'",
    "--confidence 1": "`confidence`",
    "--calls 0": "`calls` must be a whole number >= 1, got 0",
    "--about all": "`about` must be one of population, test-set, got 'all'",
    "--seed -1": "`seed`",
    "--eps 8": "`eps` must be at most 1",
    "--norm l2": "`eps` must be given",
    "--out here": "No such option: --out",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_bad_input_of_certify_is_one_clear_line(arguments: str, refused: Refused) -> None:
    assert REFUSED[arguments] in refused([*CERTIFY, *arguments.split()])


def test_doctor_has_a_line_per_flag_and_the_grade(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    assert capsys.readouterr().out.endswith("grade A: no flag limits the numbers\n")
    assert run(["doctor", "--weights", "random", "--inputs", "100"]) == 0
    *flags, last = capsys.readouterr().out.splitlines()
    assert any(line.startswith("near-chance: accuracy ") for line in flags)
    assert last.startswith("grade D: ")
    assert "near-chance" in last


def test_doctor_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--inputs", "20", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["grade"] == "C"
    assert "few-inputs" in content["reason"]
    assert [flag["id"] for flag in content["flags"]] == ["few-inputs"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--model nothing", "`model`"),
        ("--seed -1", "`seed`"),
        ("--inputs 0", "`inputs`"),
        ("--device meta", "`device`"),
        ("--batch-size 0", "`batch-size`"),
    ],
)
def test_bad_input_of_doctor_is_one_line(options: str, message: str, refused: Refused) -> None:
    assert message in refused(["doctor", *options.split()])


def test_of_several_rungs_the_widest_is_certified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "rungs"
    words = f"fit --dependency label --floor 0,0.5 --fit-calls 1024 --quiet --out {folder}"
    assert run([*words.split(), "--fit-inputs", "80", "--select-inputs", "40"]) == 0
    capsys.readouterr()
    given = f"--source nppr --distribution {folder} --at-least 0.2"
    assert certificate(given, capsys)[1]["source"] == "nppr:label"
    run([*CERTIFY, *given.split()])
    assert "nppr:label: the widest set of 12 learned noises is used" in capsys.readouterr().err
    file = folder / "distributions" / "nppr_independent_floor=0.5.safetensors"
    _, found = certificate(f"--source nppr --distribution {file} --at-least 0.2", capsys)
    assert found["source"] == "nppr:independent:floor=0.5"


@pytest.mark.parametrize(("name", "code"), [("holds", 0), ("violated", 1), ("undecided", 3)])
def test_the_example_policies_end_as_they_are_named(name: str, code: int, tmp_path: Path) -> None:
    path, policy = tmp_path / "out.xml", tmp_path / "policy.toml"
    fewer = "" if name == "holds" else "draws = 20\nfit_calls = 10_240\n"  # just enough for a grade
    policy.write_text(fewer + (POLICIES / f"{name}.toml").read_text())
    assert run(["gate", str(policy), "--junit", str(path), "--quiet"]) == code
    root = ElementTree.parse(path).getroot()
    counts = [int(root.get(each) or 0) for each in ("failures", "errors")]
    assert [count > 0 for count in counts] == [code == 1, code == 3]


def test_a_policy_is_printed_written_and_overridden(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, markdown = tmp_path / "policy.toml", tmp_path / "gate.md"
    policy.write_text('require = ["PR uniform >= 0.9", "accuracy >= 0.9"]\n')
    assert run(["gate", str(policy), "--markdown", str(markdown)]) == 0
    assert "PR uniform >= 0.9" in capsys.readouterr().out
    assert markdown.read_text().startswith("### Robustness gate: holds")
    assert run(["gate", str(policy), "--weights", "random", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["decisions"][1]["verdict"] == "violated"
    assert found["classifier"]["weights_sha256"] is None


def test_bad_input_is_one_line(tmp_path: Path, refused: Refused) -> None:
    policy = tmp_path / "policy.toml"
    assert "must be a TOML file" in refused(["gate", str(policy)])
    policy.write_text('require = ["PR unifrom >= 0.9"]\n')
    assert "Did you mean 'uniform'?" in refused(["gate", str(policy)])
    policy.write_text("require = []\n")
    assert "at least one requirement" in refused(["gate", str(policy)])
    policy.write_text('require = ["no flag maskng"]\n')
    assert "`flag` must be one of" in refused(["gate", str(policy)])
    slices = tmp_path / "slices.csv"
    slices.write_text("site\na\n")
    policy.write_text(f'require = ["worst site >= 0.9"]\nslices = "{slices}"\n')
    assert "each of the 1,797 images" in refused(["gate", str(policy)])
    assert "each of the 1,797" in refused(
        ["assess", "--sources", "uniform", "--slices", str(slices)]
    )
    assert "Did you mean 'cyclonedx'?" in refused(["export", "runs/x", "--to", "cyclonedex"])
    assert "does not exist" in refused(["export", "runs/x"])
    assert "`fail-below` must be one of" in refused(["doctor", "--fail-below", "E"])


@pytest.mark.parametrize(("words", "code"), [("--fail-below B", 1), ("--fail-below D", 0), ("", 0)])
def test_the_doctor_fails_below_a_grade(words: str, code: int) -> None:
    assert run(["doctor", "--weights", "random", *words.split()]) == code


def test_code_that_a_policy_names_runs_only_where_it_is_allowed(
    tmp_path: Path, refused: Refused
) -> None:
    marker, code, policy = (tmp_path / name for name in ("ran", "mine.py", "policy.toml"))
    code.write_text(f"import pathlib\npathlib.Path({str(marker)!r}).touch()\ndef make(): ...\n")
    policy.write_text(f'model = "{code}:make"\nrequire = ["PR uniform >= 0.9"]\n')
    assert "Read that code, then add --run-code" in refused(["gate", str(policy)])
    assert not marker.exists()
    assert "must return an nn.Module" in refused(["gate", str(policy), "--run-code"])
    assert marker.exists()


@pytest.mark.parametrize("ending", ["SystemExit(0)", "KeyboardInterrupt()", "GeneratorExit()"])
def test_a_model_that_ends_the_process_fails_the_gate(
    ending: str, tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "leaving.py").write_text(
        "from torch import nn\n\n\nclass Leaving(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.layer, self.left = nn.Linear(64, 10), 60\n\n"
        "    def forward(self, x):\n        self.left -= 1\n        if self.left < 0:\n"
        f"            raise {ending}\n        return self.layer(x.flatten(1))\n"
    )
    policy = tmp_path / "policy.toml"
    policy.write_text(
        'model = "leaving.py:Leaving"\neps = "0.1"\nrequire = ["PR uniform >= 0.01"]\n'
    )
    kind = ending.partition("(")[0]
    assert f"it raised {kind}" in refused(["gate", str(policy), "--run-code"])
    words = ["--model", "leaving.py:Leaving", "--data", "digits", "--sources", "uniform"]
    assert f"it raised {kind}" in refused(["assess", *words, "--draws", "4", "--inputs", "20"])


@pytest.mark.parametrize("ending", ["typer.Exit(0)", "typer.Abort()", "SystemExit(0)"])
def test_a_model_whose_weights_end_the_process_fails_every_command(
    ending: str, tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "leaving.py").write_text(
        "import typer\nfrom torch import nn\n\n\nclass Leaving(nn.Linear):\n"
        "    def __init__(self):\n        super().__init__(64, 10)\n\n"
        "    def forward(self, x):\n        return super().forward(x.flatten(1))\n\n"
        f"    def state_dict(self, *a, **k):\n        raise {ending}\n"
    )
    policy = tmp_path / "policy.toml"
    policy.write_text(
        'model = "leaving.py:Leaving"\neps = "0.1"\nrequire = ["PR uniform >= 0.01"]\n'
    )
    kind = ending.partition("(")[0].rpartition(".")[2]
    assert f"it raised {kind}" in refused(["gate", str(policy), "--run-code"])
    words = ["--model", "leaving.py:Leaving", "--data", "digits"]
    assert f"it raised {kind}" in refused(["doctor", *words])
    assert f"it raised {kind}" in refused(["assess", *words, "--sources", "uniform"])
