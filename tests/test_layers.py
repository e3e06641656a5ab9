"""The architecture: rooms import one way, names are unique, sources are known in one room only."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import nppr
import nppr.sources.custom
import nppr.sources.learned
from nppr.core.tally import Metric
from nppr.sources import SOURCES, Source

ROOT = Path(nppr.__file__).parent
ORDER = [
    "errors", "system.user_code", "system.process", "system.bounded", "core.radius", "core.losses",
    "core.nouns", "core.random_draws", "core.tally", "core.task", "core.transform_parameters",
    "core.transformations", "core.budget", "core",
    "system", "formats", "data", "models", "train", "noise", "source_names", "statistics",
    "sources", "measuring",
    "search.search_settings", "settings", "search", "rare", "report", "doctor", "compare", "export",
    "run", "gate", "testing", "study", "cli", "__init__", "__main__",
]  # fmt: skip
"""From the ground up: a module imports from its own room or from those before it."""

PRESENTATION = ("report", "compare", "export")
READABLE = (
    "report", "compare", "export", "search.search_record", "search.search_settings", "noise.family",
    "noise.rungs", "noise.structures", "noise.admissible_set",
    "statistics", "core.nouns", "core.tally", "core.budget", "core.radius",
    "core.transformations", "formats", "settings", "system.records", "system.manifest",
    "system.bounded", "system.registry", "errors",
)  # fmt: skip
"""What presentation may import: records and numbers, nothing that fits or measures."""

TRAINING = {"train/training_settings.py", "settings.py"}
OTHER_MEANINGS = {
    "uniform": {"noise/family.py", "cli/commands.py"},
    "patterns": {"report/bounds_table.py", "core/nouns.py"},
    **dict.fromkeys(("gaussian", "pgd"), TRAINING),
    **{
        name: {"core/transform_parameters.py", "core/transformations.py"}
        for name in ("brightness", "motion-blur")
    },
    **{metric.value: None for metric in (Metric.BOUND, Metric.STRESS)},
}
"""Names of sources outside `sources/`: the noise of the floor and the default of two options, the
patterns of a bound, methods of training, parameters of transformations, and two that are names of
metrics too, which may occur anywhere.
"""

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.rglob("*.py")
}


def room_of(module: str) -> str:
    """The longest entry of the order that is the module or contains it."""
    return max((room for room in ORDER if f"{module}.".startswith(f"{room}.")), key=len)


@cache
def imports_of(module: str) -> tuple[str, ...]:
    """The modules of the package that a module imports, also where only types need them."""
    return tuple(imports_in(module))


def imports_in(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            top, _, inner = name.partition(".")
            if top == "nppr":
                outer = inner.rpartition(".")[0]
                options = (inner, f"{inner}.__init__", outer, f"{outer}.__init__", "__init__")
                yield next(option for option in options if option in MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_one_way(module: str) -> None:
    own = ORDER.index(room_of(module))
    for imported in imports_of(module):
        assert ORDER.index(room_of(imported)) <= own, f"{module} imports {imported}"


def test_no_module_imports_itself_through_others() -> None:
    graph = {module: set(imports_of(module)) - {module} for module in MODULES}
    while graph:
        free = [name for name, needs in graph.items() if not needs & graph.keys()]
        assert free, f"import cycle among {sorted(graph)}"
        for name in free:
            del graph[name]


def test_presentation_neither_fits_nor_measures() -> None:
    shown = [module for module in MODULES if room_of(module) in PRESENTATION]
    assert {room_of(module) for module in shown} == set(PRESENTATION)
    for module in shown:
        for imported in imports_of(module):
            allowed = any(f"{imported}.".startswith(f"{name}.") for name in READABLE)
            assert allowed, f"{module} imports {imported}"


def named_in(path: Path) -> Iterator[str]:
    """The classes and the public functions of a module, and its file unless it is `__init__.py`."""
    if path.name != "__init__.py":
        yield path.name
    tree = ast.parse(path.read_text())
    yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    functions = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    yield from (name for name in functions if not name.startswith("_"))


def test_names_of_files_classes_and_functions_are_unique() -> None:
    names = Counter(name for path in MODULES.values() for name in named_in(path))
    assert [name for name, count in names.items() if count > 1] == []


def test_only_front_doors_list_what_they_export() -> None:
    listing = [path for path in MODULES.values() if "__all__" in path.read_text()]
    assert listing
    assert [path for path in listing if path.name != "__init__.py"] == []


@cache
def named_outside_sources() -> tuple[list[tuple[str, str, int]], list[tuple[str, str, int]]]:
    """The texts of all modules but those of the room, and the names that they ask the class for."""
    texts, asked = [], []
    for module, path in MODULES.items():
        if room_of(module) in ("sources", "source_names"):
            continue
        place = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append((node.value, place, node.lineno))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                asks = node.func.id in ("isinstance", "issubclass")
                parts = ast.walk(node.args[1]) if asks else ()
                names = [getattr(part, "id", getattr(part, "attr", "")) for part in parts]
                asked += [(name, place, node.lineno) for name in names]
    return texts, asked


def test_sources_are_listed_in_their_room_only() -> None:
    texts, _ = named_outside_sources()
    named = [each for each in texts if each[0] in SOURCES]
    assert {name for name, _, _ in named} >= set(OTHER_MEANINGS)
    anywhere = {name for name, places in OTHER_MEANINGS.items() if places is None}
    limited = [each for each in named if each[0] not in anywhere]
    assert [each for each in limited if each[1] not in (OTHER_MEANINGS.get(each[0]) or ())] == []


def test_no_module_asks_which_source_it_has() -> None:
    def below(kind: type[Any]) -> Iterator[str]:
        for sub in kind.__subclasses__():
            yield from (sub.__name__, *below(sub))

    kinds = {*below(Source)}
    assert {"PGD", "Learned", "CustomNoise"} <= kinds
    _, asked = named_outside_sources()
    assert "str" in {name for name, _, _ in asked}
    assert [each for each in asked if each[0] in kinds] == []


def test_the_package_exports_what_it_promises() -> None:
    assert set(nppr.__all__) == {name for names in nppr._HOMES.values() for name in names}
    assert dir(nppr) == sorted(nppr.__all__)
    for name in nppr.__all__:
        assert getattr(nppr, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = nppr.nothing
    importlib.import_module("nppr.run.assess")
    assert callable(nppr.assess)


STARTED = """
import sys
from nppr.cli import run
code = run(["assess", *sys.argv[1:]])
loaded = ("torch._C", "scipy", "sklearn", "matplotlib")
print(code, *(name for name in loaded if name in sys.modules))
"""


def started(*words: str) -> tuple[str, str]:
    """The exit code with the slow modules that were imported, and the error as one line."""
    ended = subprocess.run(
        [sys.executable, "-c", STARTED, *words], capture_output=True, text=True, check=True
    )
    return ended.stdout.strip(), " ".join(ended.stderr.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--dependency", "imput"), "Did you mean 'input'?"),
        (("--draws", "many"), "`draws` must be a whole number, got 'many'"),
        (("--weights", "none.safetensors"), "none.safetensors"),
        (("--sources", "gausian"), "Did you mean 'gaussian'?"),
    ],
)
def test_a_wrong_setting_is_reported_before_anything_slow_is_imported(
    words: tuple[str, ...], message: str
) -> None:
    code, error = started(*words)
    assert code == "2"
    assert message in error
