"""`nppr bracket`: what it prints, writes and refuses."""

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
from nppr.core.tally import Claim, Metric
from nppr.report.printed_numbers import percent
from nppr.report.run_files import read_report

from .conftest import Refused

QUICK = ["bracket", "--inputs", "40", "--draws", "30", "--eps", "0.25", "--sigma", "0.25"]
QUICK += ["--search-calls", "12"]


def test_it_prints_the_bracket_and_writes_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*QUICK, "--radii", "1/8", "--out", "run", "--figures", "svg"]
    assert run(words) == 0
    out = " ".join(capsys.readouterr().out.split())
    report = read_report("run/report.json")
    test_set = {
        row.metric: interval
        for row in report.numbers
        if row.bound and row.bound.size == 1
        for interval in row.intervals
        if interval.claim is Claim.TEST_SET
    }
    low, high = test_set[Metric.BOUND].low, test_set[Metric.NPPR].high
    ends = percent(low, "at-least"), percent(high, "at-most")
    assert "[at least {} %, at most {} %] of the draws are".format(*ends) in out
    assert "0.125 0.5 [" in out
    assert {row.error for row in report.numbers} == {None}
    assert Path("run/figures/brackets.svg").exists()
    assert 'id="bracket-table"' in Path("run/report.html").read_text()


def test_json_has_a_row_for_every_radius(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*QUICK, "--radii", "0.125,0.25", "--json", "--no-page"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["radius"] for row in rows] == [0.125, 0.25]
    for row in rows:
        assert row["test_set_low"] < row["observed"] < row["test_set_high"]


def test_numbers_do_not_depend_on_the_batch(capsys: pytest.CaptureFixture[str]) -> None:
    printed = set()
    for batch in ("1", "7"):
        assert run([*QUICK, "--json", "--no-page", "--batch-size", batch, "--out", batch]) == 0
        printed.add(capsys.readouterr().out)
    assert len(printed) == 1


REFUSED = {
    "bracket": "`eps` must be given with --norm l2",
    "bracket --eps 0.25": "`sigma` must be given for a bracket: the standard deviation per pixel",
    "bracket --norm linf --eps 0.1 --sigma 0.25": "`norm` must be l2 for a bracket, got 'linf': Gau",
    "bracket --norm linf": "`norm` must be l2 for a bracket, got 'linf'",
    "bracket --norm l3 --eps 1 --sigma 1": "`norm` must be one of l2, linf",
    "bracket --eps 0.25 --sigma 0": "`sigma` must be a number > 0, got 0. Example: --sigma 0.25",
    "bracket --eps 0.25 --sigma -0.1": "`sigma` must be a number > 0, got -0.1",
    "bracket --eps 0.25 --sigma nan": "`sigma` must be a number > 0, got nan",
    "bracket --eps 0.25 --sigma some": "sigma",
    "bracket --eps 0 --sigma 0.25": "`eps` must be a number > 0, got '0'",
    "bracket --eps 0.25 --sigma 0.25 --radii 0.1,-1": "`radii` must be a number > 0, got '-1'",
    "bracket --eps 0.25 --sigma 0.25 --search-calls 3": "`search-calls` must be a whole number >= 8",
    "bracket --eps 0.25 --sigma 0.25 --precision 0.01": "`precision` must be left out here",
    "bracket --eps 0.25 --sigma 0.25 --confidence 0.4": "`confidence` must be at least 0.5",
    "bracket --eps 0.25 --sigma 0.25 --rare": "`rare` must be given with noise that splitting can",
    "bracket --eps 0.25 --sigma 0.25 --draws 0": "`draws` must be a whole number >= 1",
    "bracket --eps 1e6 --sigma 1e-300": "size of offset",
}


@pytest.mark.parametrize("words", REFUSED)
def test_bad_input_is_one_clear_line(words: str, refused: Refused) -> None:
    assert REFUSED[words] in refused(words.split())
    assert not Path("runs").exists()


@pytest.mark.slow
def test_an_interrupted_run_is_resumed_to_the_same_report() -> None:
    words = [*QUICK, "--draws", "300", "--no-page", "--batch-size", "8", "--quiet", "--out"]
    with subprocess.Popen([sys.executable, "-m", "nppr", *words, "cut"]) as process:
        while not list(Path("cut/blocks").glob("*offset=1*")):
            assert process.poll() is None, "the run ended before it could be interrupted"
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGINT)
        process.wait()
    assert run([*words, "cut", "--resume"]) == 0
    assert run([*words, "whole"]) == 0
    # What was found for inputs that are not finished is searched for again: calls are more.
    cut, whole = (
        [row.model_copy(update={"calls": 0}) for row in read_report(f"{name}/report.json").numbers]
        for name in ("cut", "whole")
    )
    assert cut == whole
