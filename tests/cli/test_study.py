from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nppr.cli import run
from study.toys import log_of, run_toy, texts_of, toy

STUDY = """
name = "toy"
data = [{ name = "digits", spec = "{place}", inputs = 30, fit_inputs = 80, select_inputs = 30 }]
classifiers = [{ name = "cnn", model = "digits-cnn" }]
fit = { calls = 2048, step_inputs = 64 }
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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "toy.toml"
    path.write_text(STUDY)
    return path


def test_a_plan_runs_nothing(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["study", str(file), "--plan", "--cache", str(tmp_path / "cache")]) == 0
    shown = capsys.readouterr().out
    assert "24 nodes and 1 table," in shown
    rows = {line.split()[0]: line.split()[1:3] for line in shown.splitlines() if line.split()}
    assert rows["measure"][0] == "18"
    assert rows["fit"] == ["4", "1,920"]  # whole steps of 64
    assert not (tmp_path / "cache").exists()


def test_a_plan_without_the_data_lists_its_nodes_and_says_what_to_put_where(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = str(tmp_path / "absent")
    assert run(["study", str(file), "--plan", "--set", f"place={absent}"]) == 2
    shown = capsys.readouterr()
    assert "24 nodes" in shown.out
    assert "put data 'digits' at" in shown.err
    assert "--set NAME=PATH" in shown.err


def test_a_run_prints_its_tables_and_a_failure_is_exit_code_1(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out")]
    assert run(["study", str(file), *place]) == 0
    shown, told = capsys.readouterr()
    assert [line.split()[0] for line in told.splitlines()] == [f"{n}/24" for n in range(1, 25)]
    assert "nested pairs" in shown
    assert "24 nodes computed, 0 from the cache" in shown
    assert str(tmp_path / "out" / "study.html") in shown
    broken = 'model = "digits-cnn", features = "none"'
    file.write_text(STUDY.replace('model = "digits-cnn"', broken))
    assert run(["study", str(file), "--quiet", *place]) == 1
    assert "skipped, it needs features cnn" in capsys.readouterr().err


def test_a_failure_is_told_at_once(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = STUDY.replace('model = "digits-cnn"', 'model = "digits-cnn", features = "none"')
    file.write_text(broken.replace("[0.1, 0.2, 0.3]", "[0.2]"))
    place = ["--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out")]
    assert run(["study", str(file), *place]) == 1
    lines = capsys.readouterr().err.splitlines()
    failed = [number for number, line in enumerate(lines) if line.startswith("features cnn: ")]
    ended = [number for number, line in enumerate(lines) if "/" in line.split()[0]]
    assert len(failed) == 1
    assert failed[0] < ended[-1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "plase=x"], "Did you mean 'place'?"),
        (["--set", "place"], "`set` must be NAME=PATH"),
        (["--workers", "0"], "`workers` must be a whole number"),
        (["--ray", "127.0.0.1:9"], "`ray` must be a cluster that answers"),
        (["--no-such-option"], "No such option"),
    ],
    ids=["unknown path", "no value", "workers", "ray", "option"],
)
def test_bad_options_are_one_line(
    file: Path,
    tmp_path: Path,
    options: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "--ray" in options:
        pytest.importorskip("ray", reason="needs the extra ray: pip install 'nppr[ray]'")
    assert run(["study", str(file), "--cache", str(tmp_path / "cache"), *options]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize("words", [["--ray", "--plan"], ["--plan", "--ray"]], ids=" ".join)
def test_ray_may_stand_without_an_address(file: Path, words: list[str]) -> None:
    assert run(["study", *words, str(file)]) == 0
    assert run(["study", str(file), *words]) == 0


def test_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["study", "no-such.toml"]) == 2
    assert "`study` must be a TOML file that can be read" in capsys.readouterr().err


def test_killed_at_random_moments_it_goes_on_and_nothing_finished_runs_twice(
    file: Path, tmp_path: Path
) -> None:
    cache, out = tmp_path / "cache", tmp_path / "out"
    command = [sys.executable, "-m", "nppr", "study", str(file), "--quiet"]
    command += ["--cache", str(cache), "--out", str(out)]
    moments = random.Random(time.time_ns())
    finished: dict[Path, int] = {}
    for workers in (2, 1, 2):
        enough = len(finished) + moments.randint(1, 4)
        process = subprocess.Popen([*command, "--workers", str(workers)])
        end = time.monotonic() + 120
        while len(_done(cache)) < enough and process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(moments.random() * 0.02)
        process.kill()
        process.wait()
        _ended(cache)  # its workers end by themselves
        assert process.returncode == -signal.SIGKILL, "it was over before it was killed"
        assert finished.items() <= _done(cache).items()
        finished = _done(cache)
        assert len(finished) >= enough
    subprocess.run(command, check=True, timeout=200)
    assert finished.items() <= _done(cache).items()
    assert len(_done(cache)) == 24
    run_toy(toy(), tmp_path / "whole")
    assert texts_of(out) == texts_of(tmp_path / "whole" / "out")
    assert json.loads((out / "study.json").read_text())["failures"] == []


def _done(cache: Path) -> dict[Path, int]:
    """The records of finished nodes, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in cache.glob("*/node.json")}


def _ended(cache: Path) -> None:
    """Wait until no process that worked on a cache is left; one that nobody buried does not count."""
    end = time.monotonic() + 30
    left = {entry["process"] for entry in log_of(cache)}
    while left and time.monotonic() < end:
        left = {process for process in left if _alive(process)}
        time.sleep(0.02)
    assert not left, "a worker outlived the study"


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
        stat = Path(f"/proc/{process}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
