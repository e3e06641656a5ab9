"""Models made by Python code: `pkg.module:callable` and `path/to/file.py:callable`.

This runs the given code. A file may import files beside it, also later, while it classifies. The
standard library and installed packages come first: a `random.py` beside it replaces nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TypeVar

from torch import nn

from nppr.errors import ClassifierError, NpprError, reason_of
from nppr.models.model_formats import LoadedModel, ModelFormat
from nppr.system.user_code import ProcessEnded, contain_exits

T = TypeVar("T")


def load_python(spec: str) -> Any:
    """Return the named `nn.Module`, or call the named function, which returns a model."""
    place, _, name = spec.rpartition(":")
    found = _attribute(_run(lambda: _imported(place), spec, "be importable"), name, spec)
    if isinstance(found, nn.Module):
        return found
    model = _run(found, spec, "return a model")
    if not callable(model):
        raise ClassifierError(
            f"`model` {spec!r} must return an nn.Module or a callable, got {type(model).__name__}."
        )
    return model


def _run(code: Callable[[], T], spec: str, duty: str) -> T:
    try:
        with contain_exits():
            return code()
    except NpprError:
        raise
    except ProcessEnded as error:
        raise ClassifierError(f"`model` {spec!r} must {duty}, {error}") from error
    except Exception as error:
        raise ClassifierError(
            f"`model` {spec!r} must {duty}, it raised {type(error).__name__}: {reason_of(error)}"
        ) from error


def _imported(place: str) -> ModuleType:
    if not place.endswith(".py"):
        # Like `python -m`, find packages in the current folder.
        if "" not in sys.path:
            sys.path.insert(0, "")
        return importlib.import_module(place)
    path = Path(place)
    _BESIDE.admit(path)
    found = importlib.util.spec_from_file_location(f"nppr_user_{path.stem}", path)
    assert found is not None  # the name ends in .py
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


class _Beside(MetaPathFinder):
    """Finds modules beside model files, for code in their folders, after all other places."""

    def __init__(self) -> None:
        self.folders: set[str] = set()
        self.found: dict[str, str] = {}
        """Folders of the modules found, by name."""

    def admit(self, model: Path) -> None:
        """Let a file import files beside it; forget equally named files beside other models."""
        folder = _folder_of(str(model))
        self.folders.add(folder)
        if self not in sys.meta_path:
            sys.meta_path.append(self)
        for name in [name for name, other in self.found.items() if other != folder]:
            if PathFinder.find_spec(name, [folder]) is not None:
                for each in [each for each in sys.modules if f"{each}.".startswith(f"{name}.")]:
                    del sys.modules[each]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module in the folder of the code that imports it, but not parts of packages."""
        folder = self._folder_of_importer() if path is None else None
        spec = None if folder is None else PathFinder.find_spec(fullname, [folder], target)
        if folder is not None and spec is not None:
            self.found[fullname] = folder
        return spec

    def _folder_of_importer(self) -> str | None:
        """Return the innermost folder that contains the importing code."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and str(frame.f_globals.get("__name__")).startswith(_IMPORTING):
            frame = frame.f_back
        file = frame.f_globals.get("__file__") if frame is not None else None
        if not isinstance(file, str):
            return None
        here = _folder_of(file) + os.sep
        return max((each for each in self.folders if here.startswith(each + os.sep)), default=None)


_IMPORTING = ("importlib", "_frozen_importlib")
_BESIDE = _Beside()


def files_beside(model: Path) -> list[Path]:
    """Return the imported files beside a model's file, which a study hashes with the model."""
    folder = Path(_folder_of(str(model)))
    files = (getattr(each, "__file__", None) for each in list(sys.modules.values()))
    real = (file for file in files if isinstance(file, str) and os.path.isabs(file))
    paths = {Path(os.path.realpath(file)) for file in real if os.path.isfile(file)}
    return sorted(
        path
        for path in paths - {Path(os.path.realpath(model))}
        if path.is_relative_to(folder) and "site-packages" not in path.parts
    )


def _folder_of(file: str) -> str:
    return os.path.dirname(os.path.realpath(file))


def _attribute(module: ModuleType, name: str, spec: str) -> Any:
    found = getattr(module, name, None)
    if not callable(found):
        names = sorted(key for key, value in vars(module).items() if callable(value))
        public = [key for key in names if not key.startswith("_")]
        raise ClassifierError(
            f"`model` {spec!r} must name a callable, {name!r} is not one."
            f" Found: {', '.join(public[:10]) or 'none'}."
        )
    return found


PYTHON_CODE = ModelFormat(lambda wanted: LoadedModel(load_python(wanted.name)))
