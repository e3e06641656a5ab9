"""Imports go one way, and what a module exports is there."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import nppr

ROOT = Path(nppr.__file__).parent
ORDER = [
    "errors", "allocator", "interrupts", "draws", "budget", "types", "distributed", "tensor_files",
    "data", "classifiers", "distributions", "sources", "checkpoint", "measure", "statistics",
    "rare", "fit", "learned", "report", "flags", "checks", "run_folder", "collect", "run", "setup",
    "learn", "assess", "certify", "compare", "study", "console", "cli", "__init__", "__main__",
]  # fmt: skip
"""From the ground up: a module imports from its own room or from those before it."""

MODULES = sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports_of(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                found.append(f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    known = {name_of(module) for module in MODULES}
    return [
        name if name in known else name.rpartition(".")[0]
        for name in found
        if name.split(".")[0] == "nppr"
    ]


def test_every_room_has_its_place() -> None:
    assert {room_of(name_of(path)) for path in MODULES} == set(ORDER)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    own = ORDER.index(room_of(name_of(path)))
    for imported in imports_of(path):
        assert ORDER.index(room_of(imported)) <= own, f"{path.name} imports {imported}"


def test_no_cycles_within_a_room() -> None:
    graph = {name_of(path): set(imports_of(path)) - {name_of(path)} for path in MODULES}
    while graph:
        free = [name for name, needs in graph.items() if not needs & graph.keys()]
        assert free, f"import cycle among {sorted(graph)}"
        for name in free:
            del graph[name]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_exports_exist(path: Path) -> None:
    if path.name != "__init__.py" and "__all__" not in path.read_text():
        return  # only a front door says what it exports
    module = importlib.import_module(name_of(path)) if path.parent != ROOT else None
    module = module or importlib.import_module(name_of(path))
    tree = ast.parse(path.read_text())
    if path.name == "options.py":
        return
    if not hasattr(module, "__all__"):
        assert path.name != "__init__.py", f"{path} has no __all__"
        return
    for name in module.__all__:
        assert hasattr(module, name)
    if path.name == "__init__.py" and path.parent != ROOT:
        imported = {
            alias.asname or alias.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nppr.")
            for alias in node.names
        }
        unexported = imported - set(module.__all__)
        assert path.parent.name in ("cli", "zoo") or not unexported


def test_the_package_exports_what_it_promises() -> None:
    assert set(nppr.__all__) == set(nppr._HOMES)
    assert dir(nppr) == sorted(nppr.__all__)
    for name in nppr.__all__:
        assert getattr(nppr, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = nppr.nothing  # type: ignore[attr-defined]


def test_functions_keep_their_names_when_their_modules_are_imported() -> None:
    importlib.import_module("nppr.assess")
    importlib.import_module("nppr.measure")
    assert callable(nppr.assess)
    assert callable(nppr.measure)
