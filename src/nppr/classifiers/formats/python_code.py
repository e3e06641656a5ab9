"""Models made by Python code: `pkg.module:callable` and `path/to/file.py:callable`.

This runs the code it is given.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from nppr.errors import ClassifierError, NpprError

__all__ = ["load_python"]


def load_python(spec: str) -> Any:
    """What the named callable returns: a module, or a callable from images to logits.

    A name that already is a module (an object, not a class) is taken as it is.
    """
    place, _, name = spec.rpartition(":")
    found = _attribute(_import(place, spec), name, spec)
    if isinstance(found, nn.Module):
        return found
    try:
        model = found()
    except NpprError:
        raise
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ClassifierError(
            f"`model` {spec!r} must return a model, it raised {type(error).__name__}: {reason}"
        ) from error
    if not callable(model):
        raise ClassifierError(
            f"`model` {spec!r} must return an nn.Module or a callable, got {type(model).__name__}."
        )
    return model


def _import(place: str, spec: str) -> ModuleType:
    try:
        if not place.endswith(".py"):
            # As `python -m` does, so that a package in the current folder is found.
            if "" not in sys.path:
                sys.path.insert(0, "")
            return importlib.import_module(place)
        path = Path(place)
        if not path.is_file():
            raise ClassifierError(f"`model` must name a file, got {place!r}, which does not exist.")
        found = importlib.util.spec_from_file_location(f"nppr_user_{path.stem}", path)
        if found is None or found.loader is None:
            raise ClassifierError(f"`model` must name a Python file, got {place!r}.")
        module = importlib.util.module_from_spec(found)
        sys.modules[found.name] = module
        found.loader.exec_module(module)
    except NpprError:
        raise
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ClassifierError(
            f"`model` {spec!r} must be importable, it raised {type(error).__name__}: {reason}"
        ) from error
    return module


def _attribute(module: ModuleType, name: str, spec: str) -> Any:
    found = getattr(module, name, None)
    if not callable(found):
        names = sorted(key for key, value in vars(module).items() if callable(value))
        public = [key for key in names if not key.startswith("_")]
        raise ClassifierError(
            f"`model` {spec!r} must name a callable, {name!r} is not one."
            f" There are: {', '.join(public[:10]) or 'none'}."
        )
    return found
