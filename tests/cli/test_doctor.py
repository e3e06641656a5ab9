from __future__ import annotations

import json

import pytest

from nppr.cli import run


def test_the_demo_has_grade_a(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    assert capsys.readouterr().out == "grade A: no flag limits the numbers\n"


def test_one_line_a_flag_and_the_grade(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--weights", "random", "--inputs", "100"]) == 0
    *flags, last = capsys.readouterr().out.splitlines()
    assert any(line.startswith("near-chance: accuracy ") for line in flags)
    assert last.startswith("grade D: ")
    assert "near-chance" in last


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--inputs", "20", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["grade"] == "B"
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
        ("--mean x", "`mean`"),
    ],
)
def test_bad_input_is_one_line(
    options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", *options.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
