"""`nppr study`: plans, runs, what it refuses, and interruptions."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nppr.cli import run

from .conftest import Refused

pytestmark = pytest.mark.slow

STUDY = """
name = "toy"
data = [{ name = "digits", spec = "{place}", inputs = 20, fit_inputs = 60, select_inputs = 20 }]
classifiers = [{ name = "cnn", model = "digits-cnn" }]
fit = { calls = 1024, step_inputs = 64 }
measure = { draws = 2 }
paths = { place = "digits" }

[[grids]]
radii = [0.1, 0.2, 0.3]
fit_radii = [0.2]
dependencies = ["independent", "joint"]
components = [2]
sources = ["uniform"]
seeds = [0, 1]

[[tables]]
name = "main"
rows = ["classifier", "source", "dependency"]
columns = [{ by = ["radius"] }, { value = "entropy_ratio" }]
"""

PLACE = ["--cache", "cache", "--out", "out"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "toy.toml"
    path.write_text(STUDY)
    return path


def test_a_plan_runs_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["study", str(file), "--plan", *PLACE]) == 0
    shown = capsys.readouterr().out
    assert re.search(
        r"22 nodes and 1 table, about \d+ s with 1 at work, less what is cached", shown
    )
    rows = {line.split()[0]: line.split()[1:3] for line in shown.splitlines() if line.split()}
    assert rows["measure"][0] == "18"
    assert rows["fit"] == ["4", "1,280"], "whole steps of 64"
    assert not Path("cache").exists()
    assert not Path("out").exists()


def test_a_plan_without_the_data_lists_its_nodes_and_what_to_put_where(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["study", str(file), "--plan", "--set", "place=absent"]) == 2
    shown = capsys.readouterr()
    assert "22 nodes" in shown.out
    assert "missing: data 'digits' at" in shown.err
    assert "--set NAME=PATH" in shown.err


def test_a_run_prints_its_tables(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["study", str(file), *PLACE]) == 0
    printed = capsys.readouterr()
    steps = [line.split()[0] for line in printed.err.splitlines()]
    assert steps == [f"{n}/22" for n in range(1, 23)]
    assert "| classifier |" in printed.out
    assert "nested pairs" in printed.out
    assert "22 nodes computed, 0 from the cache" in printed.out
    assert printed.out.splitlines()[-1] == "out/study.html"
    assert run(["study", str(file), *PLACE, "--quiet"]) == 0
    assert tuple(capsys.readouterr()) == ("out/study.html\n", "")


def test_a_failure_is_reported_at_once_and_is_exit_code_1(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = STUDY.replace('model = "digits-cnn"', 'model = "digits-cnn", features = "none"')
    file.write_text(broken.replace("[0.1, 0.2, 0.3]", "[0.2]").replace("[0, 1]", "[0]"))
    assert run(["study", str(file), *PLACE]) == 1
    lines = capsys.readouterr().err.splitlines()
    input_dependent = r"fit cnn, .*, input-2: `features` must be one of"
    noted = next(number for number, line in enumerate(lines) if re.match(input_dependent, line))
    ended = [number for number, line in enumerate(lines) if re.match(r"\d/7 ", line)]
    assert noted < ended[-1]
    assert any(re.match(rf"error: {input_dependent}", line) for line in lines[ended[-1] :])
    assert any(re.match(r"error: fit .* joint-2: skipped, it needs fit", line) for line in lines)


CODE = """
from pathlib import Path
import torch

with Path("{ran}").open("a") as file:
    file.write("imported ")


def make():
    with Path("{ran}").open("a") as file:
        file.write("called ")
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
"""


@pytest.fixture
def with_code(file: Path, tmp_path: Path) -> Path:
    """A study that names Python code, which leaves a file when it runs."""
    (tmp_path / "mine.py").write_text(CODE.format(ran=tmp_path / "ran"))
    made = file.read_text().replace('"digits-cnn"', f'"{tmp_path / "mine.py"}:make"')
    file.write_text(made.replace('["independent", "joint"]', "[]"))
    return file


def test_code_that_a_study_names_runs_only_when_asked(
    with_code: Path, tmp_path: Path, refused: Refused
) -> None:
    words = ["study", str(with_code), "--quiet", *PLACE]
    error = refused(words)
    assert "--run-code" in error
    assert f"{tmp_path / 'mine.py'}:make" in error
    assert not (tmp_path / "ran").exists()
    assert not Path("cache").exists()
    assert run([*words, "--run-code"]) == 0
    assert "called" in (tmp_path / "ran").read_text()
    assert Path("out/study.html").exists()


@pytest.mark.parametrize("more", [[], ["--run-code"]], ids=["alone", "run-code"])
def test_a_plan_never_runs_code(
    with_code: Path, tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["study", str(with_code), "--plan", *more]) == 0
    shown = capsys.readouterr().out
    assert not (tmp_path / "ran").exists()
    assert "6 nodes and 1 table, time unknown" in shown
    assert f"{tmp_path / 'mine.py'}:make" in shown
    assert "--run-code" in shown
    code = with_code.read_text().replace(f"{tmp_path / 'mine.py'}:make", "nppr_no_package:make")
    with_code.write_text(code)
    assert run(["study", str(with_code), "--plan", *more]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "plase=x"], "Did you mean 'place'?"),
        (["--set", "place"], "`set` must be NAME=PATH"),
        (["--workers", "0"], "`workers` must be a whole number >= 1, got 0"),
        (["--workers", "two"], "`workers` must be a whole number, got 'two'"),
    ],
    ids=["unknown path", "no value", "workers", "word"],
)
def test_bad_options_are_one_line(
    file: Path, options: list[str], message: str, refused: Refused
) -> None:
    assert message in refused(["study", str(file), *PLACE, *options])


def test_a_cluster_that_does_not_answer_is_one_line(file: Path, refused: Refused) -> None:
    pytest.importorskip("ray", reason="needs the extra ray: pip install 'nppr[ray]'")
    error = refused(["study", str(file), *PLACE, "--ray", "127.0.0.1:9"])
    assert "`ray` must be a cluster that answers" in error


@pytest.mark.parametrize("words", [["--ray", "--plan"], ["--plan", "--ray"]], ids=" ".join)
def test_ray_may_come_without_an_address(file: Path, words: list[str]) -> None:
    assert run(["study", *words, str(file)]) == 0
    assert run(["study", str(file), *words]) == 0


def test_a_missing_file(refused: Refused) -> None:
    assert "`study` must be a TOML file that can be read" in refused(["study", "no-such.toml"])


def test_killed_at_random_moments_it_continues_and_nothing_finished_runs_twice(file: Path) -> None:
    file.write_text(STUDY.replace("seeds = [0, 1]", "seeds = [0]"))
    command = [sys.executable, "-m", "nppr", "study", str(file), "--quiet", *PLACE]
    seed = time.time_ns()
    moments = random.Random(seed)
    finished: dict[Path, int] = {}
    for workers in (2, 1):
        enough = len(finished) + moments.randint(1, 4)
        process = subprocess.Popen([*command, "--workers", str(workers)], start_new_session=True)
        while len(_finished()) < enough and process.poll() is None:
            time.sleep(0.005)
        time.sleep(moments.random() * 0.02)
        process.kill()
        process.wait()
        _wait_for_workers(process.pid)
        assert process.returncode == -signal.SIGKILL, f"it was over before it was killed ({seed})"
        assert finished.items() <= _finished().items()
        finished = _finished()
    assert run(["study", str(file), "--quiet", *PLACE]) == 0
    assert finished.items() <= _finished().items()
    assert len(_finished()) == 13
    assert run(["study", str(file), "--quiet", "--cache", "other", "--out", "whole"]) == 0
    tables = [path for path in Path("whole").iterdir() if path.suffix in (".csv", ".md", ".tex")]
    assert {path.suffix for path in tables} == {".csv", ".md", ".tex"}
    for path in tables:
        assert Path("out", path.name).read_bytes() == path.read_bytes()


def _finished() -> dict[Path, int]:
    """The records of finished nodes, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in Path("cache").glob("*/node.json")}


def _wait_for_workers(group: int) -> None:
    """Wait until no process of a killed study is left: its workers end by themselves."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail("a worker outlived the study")
