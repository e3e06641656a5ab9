"""Models made by Python code: `pkg.module:callable` and `path/to/file.py:callable`.

This runs the code it is given.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from torch import nn

from nppr.classifiers.classifier import reason_of
from nppr.errors import ClassifierError, NpprError
from nppr.user_code import ProcessEnded, contained

T = TypeVar("T")


def load_python(spec: str) -> Any:
    """What the named callable returns: a module, or a callable from images to logits.

    A name that already is a module (an object, not a class) is taken as it is.
    """
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
        with contained():
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
        # As `python -m` does, so that a package in the current folder is found.
        if "" not in sys.path:
            sys.path.insert(0, "")
        return importlib.import_module(place)
    path = Path(place)
    found = importlib.util.spec_from_file_location(f"nppr_user_{path.stem}", path)
    assert found is not None  # the name ends in .py
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


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
