"""What a study file states, as checked values: data, classifiers, grids and tables.

Every table refuses keys it does not know; every mistake is one line that states where it is and what to
do. docs/studies.md describes every key.
"""

from __future__ import annotations

import re
import tomllib
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from nppr.budget import NORMS, Budget, parse_radius
from nppr.errors import NpprError, SpecError, unknown
from nppr.noise.family import Dependency, Family
from nppr.options import FamilyOptions, ModelOptions, Options, TrainOptions
from nppr.search.search_settings import LOSSES
from nppr.sources import ALL, NPPR, parse_sources

OWN = "own"
"""As a feature model or target: the classifier itself."""

AXES = (
    "grid", "data", "classifier", "target", "group", "source", "dependency", "components",
    "covariance", "upsampler", "loss", "feature_model", "floor", "epochs", "norm", "fit_radius",
    "radius",
)  # fmt: skip
"""What distinguishes two measurements, but for seeds, over which tables take the mean."""

VALUES = {
    "accuracy": "fraction of inputs classified correctly without noise",
    "normalised": "accuracy under the source over all inputs / clean accuracy",
    "robustness": "PR, NPPR or AR: over the clean-correct inputs",
    "stress": "mean over inputs of the stress",
    "normalised_stress": "the same divided by the clean loss",
    "entropy_ratio": "entropy of the weights / log K, before sharpening",
    "max_weight": "largest weight, before sharpening",
    "min_weight": "smallest weight, before sharpening",
    "std_weight": "standard deviation of the weights, before sharpening",
    "realised_std": "standard deviation of the perturbation / radius",
    "fit_loss": "loss of the fit, mean of the last tenth of its steps",
    "fit_pr": "fraction of correct answers in the fit, mean of the last tenth of its steps",
    "fit_calls": "classifier calls of this family's own fit",
    "fit_seconds": "seconds of this family's own fit",
    "fit_seconds_per_epoch": "the same for one pass over the fit inputs",
    "seconds": "seconds of the measurement",
    "calls": "classifier calls of the measurement",
}
"""What a table can show."""

TAKEN = ("study", "orders", "manifest")
"""Names of files that a study writes beside its tables."""

Whole = Annotated[int, Field(strict=True, ge=1)]
Seed = Annotated[int, Field(strict=True, ge=0)]
Slug = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Filter = dict[str, str | int | float | list[str | int | float]]


def _one_of(argument: str, valid: Sequence[str]) -> AfterValidator:
    """A text that must be one of these; the error names the nearest."""

    def check(value: str) -> str:
        if value not in valid:
            raise ValueError(str(unknown(argument, value, list(valid))))
        return value

    return AfterValidator(check)


def _accepted_by(check: Any) -> BeforeValidator:
    """A value that a function of the library accepts; its error is the mistake."""

    def validate(value: Any) -> Any:
        try:
            check(value)
        except NpprError as error:
            raise ValueError(str(error)) from None
        return value

    return BeforeValidator(validate)


def _check_filter(value: Filter) -> None:
    for name in value:
        if name not in AXES:
            raise unknown("where", name, AXES)


Radius = Annotated[float | str, _accepted_by(parse_radius)]
NormName = Annotated[str, _one_of("norms", list(NORMS))]
DependencyName = Annotated[str, _one_of("dependencies", [each.value for each in Dependency])]
CovarianceName = Annotated[str, _accepted_by(lambda value: Family(covariance=value))]
UpsamplerName = Annotated[str, _accepted_by(lambda value: Family(upsampler=value))]
LossName = Annotated[str, _one_of("losses", list(LOSSES))]
AxisName = Annotated[str, _one_of("axis", AXES)]
ValueName = Annotated[str, _one_of("value", list(VALUES))]
Where = Annotated[Filter, _accepted_by(_check_filter)]
Floor = Annotated[float, Field(ge=0, le=1)]


class Expected(Options):
    """How many inputs data have that are not here, for a plan."""

    fit: int = 0
    select: int = 0
    evaluate: int = 1


class DataEntry(Options):
    """A data set and how much of each split is used; `spec` is a name or path (docs/data.md)."""

    name: str
    spec: str
    split: str | None = None
    resize: Whole | None = None
    classes: Whole | None = None
    inputs: Whole | None = None
    fit_inputs: Whole | None = None
    select_inputs: Whole | None = None
    seed: Seed = 0
    expected: Expected | None = None


class ClassifierEntry(ModelOptions):
    """A classifier: a model with weights, or a training; `feature_model` names another classifier."""

    name: str
    model: str
    data: str | None = None
    feature_model: str | None = None
    group: str = ""
    label: str = ""
    training: TrainOptions | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> ClassifierEntry:
        if self.training is not None and self.weights is not None:
            raise ValueError(
                f"`weights` of classifier {self.name!r} must be left out where it has a training."
            )
        return self

    def load_options(self) -> ModelOptions:
        """What states how to load it."""
        return ModelOptions(**{name: getattr(self, name) for name in ModelOptions.model_fields})


class FitEntry(FamilyOptions):
    """How noise is learned.

    `calls` is the budget of a walk up to joint noise with one number of components; every family takes
    its share of it. `epochs` states the same in passes over the fit inputs.
    """

    calls: Whole | None = None
    epochs: Whole | None = None
    draws: Whole | None = None
    step_inputs: Whole | None = None

    @model_validator(mode="after")
    def _one_budget(self) -> FitEntry:
        if self.calls is not None and self.epochs is not None:
            raise ValueError("`calls` and `epochs` of fit must not both be given.")
        return self


class MeasureEntry(Options):
    """How sources are measured."""

    draws: Whole = 100
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    quantise: bool = False
    threads: Whole = 1


class Grid(Options):
    """Everything that is combined with everything: a product of its lists."""

    name: str = ""
    classifiers: list[str] | None = None
    norms: list[NormName] = ["linf"]
    radii: list[Radius] | None = None
    fit_radii: list[Radius] | None = None
    dependencies: list[DependencyName] = []
    components: list[Whole] = [7]
    covariances: list[CovarianceName] | None = None
    upsamplers: list[UpsamplerName] | None = None
    losses: list[LossName] = ["margin"]
    floors: list[Floor] = [0.0]
    feature_models: list[str] | None = None
    targets: list[str] | None = None
    epochs: list[Whole] | None = None
    sources: list[str] = []
    seeds: list[Seed] = [0]
    fit_seeds: list[Seed] = [0]
    draws: Whole | None = None
    fit: FitEntry | None = None

    @field_validator("*")
    @classmethod
    def _something_once(cls, value: Any, info: Any) -> Any:
        if isinstance(value, list):
            if not value and info.field_name not in ("dependencies", "sources"):
                raise ValueError(
                    f"`{info.field_name}` must name at least one value: the grid is empty."
                )
            twice = [each for number, each in enumerate(value) if each in value[:number]]
            if twice:
                raise ValueError(f"`{info.field_name}` must name {twice[0]!r} once, got it twice.")
        return value

    @model_validator(mode="after")
    def _not_empty(self) -> Grid:
        if not self.dependencies and not self.sources:
            raise ValueError(
                "`grids` must name `dependencies` to fit or `sources` to measure: the grid is empty."
            )
        if self.radii is None and self.fit_radii is None:
            raise ValueError(
                'a grid must have `radii` or `fit_radii`, got neither. Example: radii = ["8/255"]'
            )
        return self


class Column(Options):
    """One column, or one for every value of the axes in `by`."""

    header: str = ""
    value: ValueName = "normalised"
    where: Where = {}
    by: list[AxisName] = []


class Paper(Options):
    """Numbers of the paper: each row has the labels of a row of ours, then one entry per column."""

    citation: str
    rows: list[list[str | float]]


class TableEntry(Options):
    """What a table has in its rows and columns."""

    name: Slug
    title: str = ""
    rows: list[AxisName]
    columns: Annotated[list[Column], Field(min_length=1)]
    where: Where = {}
    percent: bool = True
    decimals: Annotated[int, Field(ge=0, le=6)] = 2
    paper: Paper | None = None

    @field_validator("name")
    @classmethod
    def _free(cls, value: str) -> str:
        if value in TAKEN:
            raise ValueError(
                f"`name` of a table must not be that of another file of the study, got {value!r}."
            )
        return value


class Study(Options):
    """A whole study."""

    name: Slug
    title: str = ""
    paths: dict[str, str] = {}
    data: Annotated[list[DataEntry], Field(min_length=1)]
    classifiers: Annotated[list[ClassifierEntry], Field(min_length=1)]
    grids: Annotated[list[Grid], Field(min_length=1)]
    tables: list[TableEntry] = []
    fit: FitEntry = FitEntry()
    measure: MeasureEntry = MeasureEntry()


def read_study(path: str | Path, paths: Mapping[str, str] | None = None) -> Study:
    """The study in a file, with values of `[paths]` replaced by those given."""
    try:
        content = tomllib.loads(Path(path).read_bytes().decode("utf-8"))
    except OSError as error:
        raise SpecError(
            f"`study` must be a TOML file that can be read, got {str(path)!r}:"
            f" {error.strerror or error}."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"`study` must be TOML, got {str(path)!r}: {error}.") from error
    return study_from(content, paths)


def study_from(content: Mapping[str, Any], paths: Mapping[str, str] | None = None) -> Study:
    """A study from plain values."""
    try:
        study = Study.model_validate(content)
    except ValidationError as error:
        raise SpecError(_first_mistake(error)) from error
    for name in paths or {}:
        if name not in study.paths:
            raise unknown("set", name, study.paths or ["(this study has no paths)"])
    known = {**study.paths, **(paths or {})}
    filled = Study.model_validate(_filled(study.model_dump(exclude={"paths"}), known))
    _check_names(filled)
    return filled.model_copy(update={"paths": known})


def _filled(content: Any, paths: Mapping[str, str]) -> Any:
    """Every `{name}` in a path replaced by what `[paths]` states."""
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


def _check_names(study: Study) -> None:
    """Names that refer to something else in the file must be there, once."""
    data = _unique("data", [each.name for each in study.data])
    names = _unique("classifiers", [each.name for each in study.classifiers])
    _unique("tables", [each.name for each in study.tables])
    for classifier in study.classifiers:
        if classifier.data is None and len(data) > 1:
            raise SpecError(
                f"`data` of classifier {classifier.name!r} must be one of {', '.join(data)}, got"
                " nothing."
            )
        if classifier.data is not None and classifier.data not in data:
            raise unknown(f"data of classifier {classifier.name}", classifier.data, data)
        if classifier.feature_model not in (None, *names):
            raise unknown("feature_model", str(classifier.feature_model), names)
    for grid in study.grids:
        for argument, own in (("classifiers", False), ("feature_models", True), ("targets", True)):
            valid = [OWN, *names] if own else names
            for name in getattr(grid, argument) or ():
                if name not in valid:
                    raise unknown(argument, name, valid)
        _check_sources(grid.sources)


def _check_sources(sources: Sequence[str]) -> None:
    for text in sources:
        if text.split(":")[0] in (NPPR, ALL):
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


def _first_mistake(error: ValidationError) -> str:
    """The first mistake as one line; a key that is not known explains one that is missing."""
    mistakes = error.errors()
    found = next((each for each in mistakes if each["type"] == "extra_forbidden"), mistakes[0])
    place = [each for each in found["loc"] if isinstance(each, int) or "-" not in str(each)]
    where = ".".join(str(part) for part in place if not str(part).startswith("function"))
    if found["type"] == "extra_forbidden":
        key = str(found["loc"][-1])
        table = where.rpartition(".")[0] or "of the study"
        return str(unknown(f"key {table}", key, _keys_at(found["loc"][:-1])))
    message = found["msg"].removeprefix("Value error, ").rstrip(".")
    if found["type"] == "missing":
        return f"`{where}` must be given in the study, got nothing."
    if found["type"] == "value_error":
        return f"{message}." if where in ("", "study") else f"{message} (in {where})."
    return f"`{where}` of the study is wrong: {message}, got {found['input']!r}."


def _keys_at(place: Sequence[int | str]) -> list[str]:
    """The keys that are known at a place of the file."""
    model: type[BaseModel] = Study
    for part in place:
        if isinstance(part, str) and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation) or model
    return sorted(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (list, Union, types.UnionType):
        return next(filter(None, map(_model_in, get_args(annotation))), None)
    return None
