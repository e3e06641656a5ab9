from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nppr.cli import run

QUICK = [
    "assess",
    "--no-page",
    "--inputs",
    "30",
    "--draws",
    "8",
    "--sources",
    "uniform,pgd:steps=2",
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_assess_prints_a_table_and_writes_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*QUICK, "--out", "out"]) == 0
    printed = capsys.readouterr()
    assert "uniform" in printed.out
    assert "out/report.json" in printed.out
    assert "about" in printed.err
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "blocks", "evidence.safetensors", "per_input.csv", "report.json", "run.json",
    }  # fmt: skip


def test_quiet_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*QUICK, "--out", "out", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "out/report.json\n"
    assert printed.err == ""
    assert run([*QUICK, "--out", "out", "--quiet", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["settings"]["draws"] == 8


def test_the_default_folder_belongs_to_the_settings(tmp_path: Path) -> None:
    assert run([*QUICK, "--quiet"]) == 0
    assert run([*QUICK, "--quiet"]) == 0
    assert run([*QUICK, "--quiet", "--seed", "1"]) == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_train(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "digits-cnn", "--epochs", "1", "--out", "w.safetensors"]) == 0
    assert capsys.readouterr().out == "w.safetensors\n"
    assert run([*QUICK, "--weights", "w.safetensors", "--quiet"]) == 0


BAD = {
    "--eps -0.1": "`radius` must be a number > 0, got '-0.1'",
    "--eps 0": "`radius`",
    "--eps nan": "`radius`",
    "--eps 8/0": "`radius`",
    "--eps wide": "`radius`",
    "--norm linff --eps 0.1": "Did you mean 'linf'",
    "--norm l2": "`eps` must be given",
    "--norm lnf": "Did you mean 'linf'",
    "--seed -1": "`seed`",
    "--classes -3": "`classes`",
    "--device meta": "`device`",
    "--features nothing": "`features`",
    "--stem small": "`stem`",
    "--feature-model resnet20": "`weights` must be given for 'resnet20'",
    "--data nowhere/at/all": "`data`",
    "--model missing.pt2": "does not exist",
    "--model nothing.py:make": "does not exist",
    "--sources gausian": "Did you mean 'gaussian'",
    "--sources pgd:stepss=3": "Did you mean 'steps'",
    "--model digitscnn": "Did you mean 'digits-cnn'",
    "--data digts": "Did you mean 'digits'",
    "--draws 0": "`draws`",
    "--inputs 0": "`inputs`",
    "--confidence 1": "`confidence`",
    "--confidence nan": "`confidence`",
    "--batch-size 0": "`batch-size`",
    "--device warp": "`device`",
    "--mean a,b": "`mean`",
    "--std 0": "`std`",
    "--mean 0.1,0.2": "1 or 1 numbers",
    "--weights missing.safetensors": "does not exist",
    "--weights notes.txt": "must be a safetensors file",
    "--classes 7": "`classes` must be at least the 10",
    "--classes 12": "must fit DigitsCNN",
    "--feature-weights w.safetensors": "`feature-weights`",
    "--eps 8": "at most 1",
    "--out notes.txt": "`out`",
    "--draws many": "draws",
    "--no-such-option": "no-such-option",
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_input_is_one_clear_line(
    arguments: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("not weights")
    assert run(["assess", *arguments.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert BAD[arguments] in printed.err
    assert not (tmp_path / "runs").exists()


def test_another_runs_folder_is_safe(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*QUICK, "--out", "out", "--quiet"]) == 0
    before = Path("out/report.json").read_text()
    assert run([*QUICK, "--out", "out", "--seed", "3"]) == 2
    assert "seed" in capsys.readouterr().err
    assert Path("out/report.json").read_text() == before
    assert run([*QUICK, "--out", "out", "--seed", "3", "--overwrite", "--quiet"]) == 0


def test_help_has_examples_and_loads_no_torch() -> None:
    code = (
        "import sys; from nppr.cli import run; run(['--help']); run(['assess', '--help']);"
        " assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Examples:" in done.stdout
    assert "--sources" in done.stdout


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Examples:" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("nppr ")


LONG = [
    "assess",
    "--no-page",
    "--sources",
    "gaussian,pgd",
    "--draws",
    "2400",
    "--inputs",
    "80",
]


def numbers_of(folder: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads((folder / "report.json").read_text())
    return {name: content[name] for name in content if name not in ("timing", "environment")}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert run([*LONG, "--out", str(folder), "--quiet"]) == 0
    return numbers_of(folder)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_is_resumed_to_the_same_report(
    sent: signal.Signals, uninterrupted: dict[str, object]
) -> None:
    """The real thing: a process that is stopped half-way."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nppr", *LONG, "--out", "cut"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not list(Path("cut/blocks").glob("gaussian*")):
        assert process.poll() is None, "the run ended before it could be interrupted"
        time.sleep(0.05)
    os.kill(process.pid, sent)
    _, err = process.communicate()
    assert not Path("cut/report.json").exists()
    if sent is signal.SIGINT:
        assert process.returncode == 130
        assert "--resume" in err
        assert "Traceback" not in err
    assert run([*LONG, "--out", "cut"]) == 2
    assert run([*LONG, "--out", "cut", "--resume", "--quiet"]) == 0
    assert numbers_of(Path("cut")) == uninterrupted


def test_a_failed_source_gives_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from helpers import Broken
    from nppr.sources import SOURCES

    monkeypatch.setitem(SOURCES, "uniform", lambda budget: Broken(budget, 0.0, "uniform"))
    monkeypatch.setattr("nppr.sources.spec.options", lambda _: {})
    assert run(["assess", "--no-page", "--inputs", "20", "--sources", "uniform"]) == 1
    assert "source 'uniform' failed: this source is broken" in capsys.readouterr().err
