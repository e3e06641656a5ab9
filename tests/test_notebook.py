"""The notebook of the examples, cell by cell as a kernel runs it, without a kernel."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from nppr import Report

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """The value of the last expression of a cell, which a notebook displays."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


@pytest.mark.slow
def test_every_cell_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas", reason="the extra pandas is not installed")
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    shown = [run_cell(each, names) for each in code]
    report, *_ = [each for each in shown if isinstance(each, Report)]
    assert "The ladder" in report._repr_html_()
    assert len(shown[-2]) == len(report.to_pandas())
    printed = capsys.readouterr().out
    assert f"grade {report.grade.letter}" in printed
    assert "at most" in printed
    assert "evaluate=597" in printed
