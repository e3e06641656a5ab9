"""`nppr gate`, `nppr export` and `nppr doctor --fail-below`: exit codes, files, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from nppr.cli import run
from nppr.export.documents import Document
from nppr.export.exports import EXPORTS
from report.page.made_runs import made_report

from .conftest import Refused

pytestmark = pytest.mark.slow

POLICIES = Path(__file__).parents[2] / "examples" / "policies"


@pytest.mark.parametrize(("name", "code"), [("holds", 0), ("violated", 1), ("undecided", 3)])
def test_the_example_policies_end_as_they_are_named(name: str, code: int, tmp_path: Path) -> None:
    path, policy = tmp_path / "out.xml", tmp_path / "policy.toml"
    fewer = "draws = 20\nfit_calls = 10_240\n"  # the fewest calls that show enough for a grade
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


def test_an_export_prints_the_paths_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").write_text(made_report()[0].to_json())
    out = tmp_path / "filed"
    assert run(["export", str(tmp_path), "--to", "safety-case", "--out", str(out)]) == 0
    written = [Path(line) for line in capsys.readouterr().out.split()]
    assert written == [out / "safety-case.json", out / "safety-case.mmd"]
    assert all(path.is_file() for path in written)


@pytest.mark.parametrize("kind", EXPORTS)
def test_the_command_knows_every_registered_export(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").write_text(made_report()[0].to_json())
    assert run(["export", str(tmp_path), "--to", kind]) == 0
    written = [Path(line) for line in capsys.readouterr().out.split()]
    assert written == [tmp_path / "exports" / (kind + suffix) for suffix in EXPORTS[kind].files]
    assert run(["export", "--help"]) == 0
    assert kind in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_a_new_export_needs_no_other_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report.json").write_text(made_report()[0].to_json())
    made = EXPORTS.copy()
    made.add("plain", Document({".txt": lambda filed: filed.report.classifier.name}))
    monkeypatch.setattr("nppr.export.exports.EXPORTS", made)
    assert run(["export", str(tmp_path), "--to", "plain"]) == 0
    assert (tmp_path / "exports" / "plain.txt").read_text() == "resnet20"


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
