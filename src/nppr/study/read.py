"""From a TOML file to a checked study; every mistake is one line that says where and what to do."""

from __future__ import annotations

import re
import tomllib
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from nppr.budget import Budget
from nppr.errors import NpprError, SpecError, unknown
from nppr.sources.spec import NPPR, parse_sources
from nppr.study.spec import OWN, StudySpec

__all__ = ["read_study", "study_from"]


def read_study(path: str | Path, paths: Mapping[str, str] | None = None) -> StudySpec:
    """The study in a file, with values of `[paths]` replaced by those given."""
    try:
        text = Path(path).read_bytes().decode("utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise SpecError(
            f"`study` must be a TOML file that can be read, got {str(path)!r}:"
            f" {error.strerror or error}."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"`study` must be TOML, got {str(path)!r}: {error}.") from error
    return study_from(content, paths)


def study_from(content: Mapping[str, Any], paths: Mapping[str, str] | None = None) -> StudySpec:
    """A study from plain values."""
    try:
        spec = StudySpec.model_validate(content)
    except ValidationError as error:
        raise SpecError(_first(error)) from error
    for name in paths or {}:
        if name not in spec.paths:
            raise unknown("set", name, spec.paths or ["(this study has no paths)"])
    known = {**spec.paths, **(paths or {})}
    filled = StudySpec.model_validate(_filled(spec.model_dump(exclude={"paths"}), known))
    _check_names(filled)
    return filled.model_copy(update={"paths": known})


def _filled(content: Any, paths: Mapping[str, str]) -> Any:
    """Every `{name}` in a path replaced by what `[paths]` says."""
    if isinstance(content, dict):
        return {
            key: _replaced(value, paths)
            if key in ("spec", "weights", "model") and isinstance(value, str)
            else _filled(value, paths)
            for key, value in content.items()
        }
    if isinstance(content, list):
        return [_filled(each, paths) for each in content]
    return content


def _replaced(text: str, paths: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        if found[1] not in paths:
            raise unknown("paths", found[1], paths or ["(none)"])
        return paths[found[1]]

    return re.sub(r"\{([A-Za-z0-9_-]+)\}", value, text)


def _check_names(spec: StudySpec) -> None:
    """Names that stand for something else in the file must be there, once."""
    data = _unique("data", [each.name for each in spec.data])
    names = _unique("classifiers", [each.name for each in spec.classifiers])
    _unique("tables", [each.name for each in spec.tables])
    for classifier in spec.classifiers:
        if classifier.data is None and len(data) > 1:
            raise SpecError(
                f"`data` of classifier {classifier.name!r} must be one of {', '.join(data)}, got"
                " nothing."
            )
        if classifier.data is not None and classifier.data not in data:
            raise unknown(f"data of classifier {classifier.name}", classifier.data, data)
        if classifier.feature_model not in (None, *names):
            raise unknown("feature_model", str(classifier.feature_model), names)
    for grid in spec.grids:
        for name in grid.classifiers or ():
            if name not in names:
                raise unknown("classifiers", name, names)
        for name in grid.feature_models or ():
            if name not in (OWN, *names):
                raise unknown("feature_models", name, [OWN, *names])
        for name in grid.targets or ():
            if name not in (OWN, *names):
                raise unknown("targets", name, [OWN, *names])
        _check_sources(grid.sources)


def _check_sources(sources: Sequence[str]) -> None:
    for text in sources:
        if text.split(":")[0] in (NPPR, "all"):
            raise SpecError(
                f"`sources` of a grid must be named one by one and without nppr, got {text!r}."
                " Learned noise comes from `dependencies`."
            )
        if len(parse_sources(text, Budget.linf(0.1))) != 1:
            raise SpecError(f"`sources` must name one source in each text, got {text!r}.")


def _unique(argument: str, names: list[str]) -> list[str]:
    for name in names:
        if names.count(name) > 1:
            raise SpecError(f"`{argument}` must have different names, got {name!r} twice.")
    return names


def _first(error: ValidationError) -> str:
    """The first mistake as one line; a key that is not known explains one that is missing."""
    mistakes = error.errors()
    found = next((each for each in mistakes if each["type"] == "extra_forbidden"), mistakes[0])
    place = [each for each in found["loc"] if isinstance(each, int) or "-" not in str(each)]
    where = ".".join(str(part) for part in place if not str(part).startswith("function"))
    if found["type"] == "extra_forbidden":
        key = str(found["loc"][-1])
        valid = _keys_at(found["loc"][:-1])
        try:
            raise unknown(f"key {where.rpartition('.')[0] or 'of the study'}", key, valid)
        except NpprError as mistake:
            return str(mistake)
    message = found["msg"].removeprefix("Value error, ").rstrip(".")
    if found["type"] == "missing":
        return f"`{where}` must be given in the study, got nothing."
    if found["type"] == "value_error":
        return f"{message}." if where in ("", "study") else f"{message} (in {where})."
    return f"`{where}` of the study is wrong: {message}, got {found['input']!r}."


def _keys_at(place: Sequence[int | str]) -> list[str]:
    """The keys that are known at a place of the file."""
    model: type[BaseModel] = StudySpec
    for part in place:
        if isinstance(part, str) and part in model.model_fields:
            inner = _model_in(model.model_fields[part].annotation)
            model = inner or model
    return sorted(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (list, Union, types.UnionType):
        for each in get_args(annotation):
            found = _model_in(each)
            if found is not None:
                return found
    return None
