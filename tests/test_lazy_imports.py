from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("jinja2", "matplotlib", "pandas", "sklearn")


def loaded_by(*pieces: str, names: tuple[str, ...]) -> list[set[str]]:
    """Which of these modules are loaded after each piece of code, in a process of its own."""
    show = f"print('loaded', *(name for name in {names!r} if name in sys.modules))"
    code = "\n".join(["import sys", *(f"{piece}\n{show}" for piece in pieces)])
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    return [set(words[1:]) for words in lines if words[:1] == ["loaded"]]


@pytest.mark.slow
def test_importing_nppr_loads_no_library() -> None:
    names = (*HEAVY, "numpy", "pydantic", "rich", "torch")
    assert loaded_by("import nppr", names=names) == [set()]


@pytest.mark.slow
def test_an_assessment_without_a_page_loads_nothing_of_the_page() -> None:
    few = "n.Measure(inputs=10, draws=2)"
    code = f"import nppr as n; report = n.assess(sources='uniform', measure={few}); report.table()"
    without, with_page = loaded_by(code, "report.to_html()", names=HEAVY)
    assert without == set()
    assert "jinja2" in with_page
