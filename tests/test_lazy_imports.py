from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("jinja2", "matplotlib", "pandas", "sklearn")


def loaded_by(code: str, names: tuple[str, ...]) -> set[str]:
    """Which of these modules are loaded after the code, in a process of its own."""
    shown = f"{code}\nimport sys\nprint(*(name for name in {names!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", shown], check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.slow
def test_importing_nppr_loads_no_library() -> None:
    assert not loaded_by("import nppr", (*HEAVY, "numpy", "pydantic", "rich", "torch"))


@pytest.mark.slow
def test_an_assessment_without_a_page_loads_nothing_of_the_page() -> None:
    few = "n.Measure(inputs=10, draws=2)"
    code = f"import nppr as n; n.assess(sources='uniform', measure={few}).table()"
    assert not loaded_by(code, HEAVY)
    assert "jinja2" in loaded_by(code.replace("table", "to_html"), HEAVY)
