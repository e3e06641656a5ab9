"""Presentation takes records: it imports nothing that searches, perturbs or measures."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import nppr

ROOT = Path(nppr.__file__).parent
ALLOWED = (
    "nppr.bounded", "nppr.budget", "nppr.compare", "nppr.data", "nppr.errors", "nppr.manifest",
    "nppr.noise.family", "nppr.noise_sets", "nppr.records", "nppr.report", "nppr.search.search_record",
    "nppr.search.search_settings", "nppr.statistics", "nppr.tally",
)  # fmt: skip
MODULES = [path for room in ("report", "compare") for path in sorted((ROOT / room).rglob("*.py"))]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_records_and_statistics_are_imported(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("nppr"):
            assert str(node.module).startswith(ALLOWED), node.module
