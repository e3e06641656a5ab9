"""What a study file states, as checked values: data, classifiers, grids and tables.

Every table refuses keys it does not know; every mistake is one line that states where it is and what to
do. docs/studies.md describes every key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from nppr.core.budget import Budget
from nppr.core.draw_count import DEFAULT_DRAWS
from nppr.core.radius import NORM_NAMES, parse_radius
from nppr.core.transformations import parse_transform
from nppr.errors import NpprError, SpecError, unknown
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.search.search_settings import FEWEST_PER_INPUT, LOSSES, SearchSettings
from nppr.settings import (
    Counting,
    FamilySettings,
    Group,
    ImageSettings,
    Limits,
    NetworkSettings,
    TrainOptions,
    require_one_of,
)
from nppr.sources import ALL, NPPR, SOURCES, parse_sources
from nppr.system.specs import read_toml

OWN = "own"
"""As a feature model or target: the classifier itself."""


@dataclass(frozen=True)
class Place:
    """Where a measurement is on every axis: all that distinguishes two but for seeds."""

    grid: str = ""
    data: str = ""
    classifier: str = ""
    target: str = ""
    group: str = ""
    source: str = ""
    dependency: str = ""
    components: int | str = ""
    covariance: str = ""
    upsampler: str = ""
    loss: str = ""
    feature_model: str = ""
    floor: float | str = ""
    epochs: int | str = ""
    norm: str = ""
    fit_radius: str = ""
    radius: str = ""

    def texts(self, axes: Iterable[str]) -> tuple[str, ...]:
        """The values on these axes, as tables show them."""
        values = (getattr(self, axis) for axis in axes)
        return tuple(f"{each:g}" if isinstance(each, float) else str(each) for each in values)


AXES = tuple(field.name for field in fields(Place))


@dataclass(frozen=True)
class Value:
    """What a table can show.

    It is `of` a measurement, a fit, or the clean answers of a classifier; a `fraction` is shown in
    percent, and of a `seeded` value the standard deviation over evaluation seeds is shown. `meaning`
    is for the caption of a table without a title.
    """

    of: Literal["measure", "fit", "clean"] = "measure"
    fraction: bool = False
    seeded: bool = False
    meaning: str = ""


VALUES = {
    "accuracy": Value("clean", fraction=True),
    "normalised": Value(
        fraction=True,
        seeded=True,
        meaning="accuracy under the source over all inputs / clean accuracy",
    ),
    "robustness": Value(
        fraction=True, seeded=True, meaning="PR, NPPR or AR over the clean-correct inputs"
    ),
    "stress": Value(seeded=True),
    "normalised_stress": Value(seeded=True),
    "entropy_ratio": Value("fit", fraction=True),
    "max_weight": Value("fit", fraction=True),
    "min_weight": Value("fit", fraction=True),
    "std_weight": Value("fit", fraction=True),
    "realised_std": Value("fit"),
    "fit_loss": Value("fit"),
    "fit_pr": Value("fit", fraction=True),
    "fit_calls": Value("fit"),
    "fit_seconds": Value("fit"),
    "fit_seconds_per_epoch": Value("fit"),
    "seconds": Value(seeded=True),
    "calls": Value(),
}
"""By name; docs/studies.md states what each is."""

TAKEN = ("study", "orders", "manifest")
"""Names of files that a study writes beside its tables."""

Whole = Annotated[int, Field(strict=True, ge=1)]
Seed = Annotated[int, Field(strict=True, ge=0)]
Slug = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


def _accepted_by(check: Callable[[Any], object] | None = None) -> WrapValidator:
    """A value that the library and a check of it accept: their errors get a place in the file."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            valid = handler(value)
            if check is not None:
                check(valid)
        except NpprError as error:
            raise ValueError(str(error)) from None
        return valid

    return WrapValidator(validate)


def _one_of(argument: str, valid: Collection[str]) -> WrapValidator:
    return _accepted_by(lambda value: require_one_of(argument, value, valid))


def _check_axes(where: dict[str, object]) -> None:
    for name in where:
        require_one_of("where", name, AXES)


def _check_norm(text: str) -> None:
    """A norm, or the ranges of a transformation."""
    if "=" in text:
        parse_transform(text)
    else:
        require_one_of("norms", text, NORM_NAMES)


def _check_source(text: str) -> None:
    if text.split(":")[0] in (NPPR, ALL):
        raise SpecError(
            f"`sources` of a grid must be named one by one and without nppr, got {text!r}."
            " Learned noise comes from `dependencies`."
        )
    kind = SOURCES.get(text.split(":")[0])
    budget = Budget.linf(0.1) if kind is None or kind.adds else Budget.box("rotate=1")
    if len(parse_sources(text, budget)) != 1:
        raise SpecError(f"`sources` must name one source in each text, got {text!r}.")


def _fill(text: str | None, info: ValidationInfo) -> str | None:
    """A text with every `{name}` replaced by its path in the context of the validation."""
    paths: dict[str, str] = info.context or {}

    def path(found: re.Match[str]) -> str:
        if found[1] not in paths:
            raise unknown("paths", found[1], paths or ["(none)"])
        return str(paths[found[1]])

    return None if text is None else re.sub(r"\{([A-Za-z0-9_-]+)\}", path, text)


Radius = Annotated[float | str, _accepted_by(parse_radius)]
NormName = Annotated[str, _accepted_by(_check_norm)]
DependencyName = Annotated[str, _one_of("dependencies", [each.value for each in Dependency])]
CovarianceName = Annotated[str, _accepted_by(lambda value: Family(covariance=value))]
UpsamplerName = Annotated[str, _accepted_by(lambda value: Family(upsampler=value))]
SourceText = Annotated[str, _accepted_by(_check_source)]
LossName = Annotated[str, _one_of("losses", LOSSES)]
AxisName = Annotated[str, _one_of("axis", AXES)]
ValueName = Annotated[str, _one_of("value", VALUES)]
Where = Annotated[dict[str, str | int | float | list[str | int | float]], _accepted_by(_check_axes)]
PathText = Annotated[str, AfterValidator(_fill)]
Floor = Annotated[float, Field(ge=0, le=1)]


class Entry(BaseModel):
    """A table of the file: a key that is not known is reported before one that is missing."""

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        for key in value if isinstance(value, dict) else ():
            if key not in cls.model_fields:
                raise ValueError(str(unknown("key", key, sorted(cls.model_fields))))
        return value


class Expected(Entry, Group):
    """How many inputs data have that are not here, for a plan."""

    fit: int = 0
    select: int = 0
    evaluate: int = 1


class DataEntry(Entry, Limits, ImageSettings):
    """A data set and how much of each split is used; `spec` is a name or path (docs/data.md)."""

    name: str
    spec: PathText
    classes: Whole | None = None
    expected: Expected | None = None


class Training(Entry, TrainOptions):
    """A recipe that a classifier is trained with."""


class ClassifierEntry(Entry, NetworkSettings):
    """A classifier: a model with weights, or a training; `feature_model` names another classifier."""

    name: str
    model: PathText
    weights: Annotated[str | None, AfterValidator(_fill)] = None
    data: str | None = None
    feature_model: str | None = None
    group: str = ""
    label: str = ""
    training: Annotated[Training | None, _accepted_by()] = None

    @model_validator(mode="after")
    def _one_origin(self) -> ClassifierEntry:
        if self.training is not None and self.weights is not None:
            raise ValueError(
                f"`weights` of classifier {self.name!r} must be left out where it has a training."
            )
        return self

    def load_options(self) -> NetworkSettings:
        """Return the settings that it is loaded with."""
        return NetworkSettings(**self.model_dump(include=set(NetworkSettings.model_fields)))


class FitEntry(Entry, FamilySettings):
    """How noise is learned.

    `calls` is the budget of a walk up to joint noise with one number of components; every family takes
    a third of it. `epochs` states the same in passes over the fit inputs. `per_input_calls` are those
    of every input of the dependency `per-input`.
    """

    calls: Whole | None = None
    epochs: Whole | None = None
    draws: Whole | None = None
    step_inputs: Whole | None = None
    per_input_calls: Annotated[int, Field(ge=FEWEST_PER_INPUT)] = SearchSettings.per_input_calls

    @model_validator(mode="after")
    def _one_budget(self) -> FitEntry:
        if self.calls is not None and self.epochs is not None:
            raise ValueError("`calls` and `epochs` of fit must not both be given.")
        return self


class MeasureEntry(Entry, Counting):
    """How sources are measured."""

    draws: Whole = DEFAULT_DRAWS
    threads: Whole = 1


class Grid(Entry, Group):
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
    sources: list[SourceText] = []
    seeds: list[Seed] = [0]
    fit_seeds: list[Seed] = [0]
    draws: Whole | None = None
    fit: Annotated[FitEntry | None, _accepted_by()] = None

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


class Column(Entry, Group):
    """One column, or one for every value of the axes in `by`."""

    header: str = ""
    value: ValueName = "normalised"
    where: Where = {}
    by: list[AxisName] = []


class Paper(Entry, Group):
    """Numbers of the paper: each row has the labels of a row of ours, then one entry per column."""

    citation: str
    rows: list[list[str | float]]


class TableEntry(Entry, Group):
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


class Study(Entry, Group):
    """A whole study."""

    name: Slug
    title: str = ""
    paths: dict[str, str] = {}
    data: Annotated[list[Annotated[DataEntry, _accepted_by()]], Field(min_length=1)]
    classifiers: Annotated[list[ClassifierEntry], Field(min_length=1)]
    grids: Annotated[list[Grid], Field(min_length=1)]
    tables: list[TableEntry] = []
    fit: Annotated[FitEntry, _accepted_by()] = FitEntry()
    measure: Annotated[MeasureEntry, _accepted_by()] = MeasureEntry()


def read_study(path: str | Path, paths: Mapping[str, str] | None = None) -> Study:
    """The study in a file, with values of `[paths]` replaced by those given."""
    return study_from(read_toml("study", path), paths)


def study_from(content: Mapping[str, Any], paths: Mapping[str, str] | None = None) -> Study:
    """A study from plain values."""
    own = content.get("paths")
    known = own if isinstance(own, dict) else {}
    for name in paths or {}:
        if name not in known:
            raise unknown("set", name, known or ["(this study has no paths)"])
    known = {**known, **(paths or {})}
    try:
        filled = {**content, "paths": known} if known else content
        study = Study.model_validate(filled, context=known)
    except ValidationError as error:
        raise SpecError(_first_mistake(error)) from error
    _check_names(study)
    return study


def _check_names(study: Study) -> None:
    """Names that refer to something else in the file must be there, once."""
    data = [each.name for each in study.data]
    names = [each.name for each in study.classifiers]
    tables = [each.name for each in study.tables]
    for argument, given in {"data": data, "classifiers": names, "tables": tables}.items():
        for name in given:
            if given.count(name) > 1:
                raise SpecError(f"`{argument}` must have different names, got {name!r} twice.")
    for classifier in study.classifiers:
        if classifier.data is None and len(data) > 1:
            raise SpecError(
                f"`data` of classifier {classifier.name!r} must be one of {', '.join(data)}, got"
                " nothing."
            )
        require_one_of(f"data of classifier {classifier.name}", classifier.data or data[0], data)
        require_one_of("feature_model", classifier.feature_model or names[0], names)
    for grid in study.grids:
        for argument in ("classifiers", "feature_models", "targets"):
            valid = names if argument == "classifiers" else [OWN, *names]
            for name in getattr(grid, argument) or ():
                require_one_of(argument, name, valid)


def _first_mistake(error: ValidationError) -> str:
    """The first mistake as one line with its place in the file."""
    found = error.errors()[0]
    names = [str(each) for each in found["loc"] if "-" not in str(each)]  # pydantic's own have one
    where = ".".join(name for name in names if not name.startswith("function"))
    message = found["msg"].removeprefix("Value error, ").rstrip(".")
    if found["type"] == "missing":
        return f"`{where}` must be given in the study, got nothing."
    if found["type"] == "value_error":
        return f"{message} (in {where})." if where else message + "." * (message[-1] != "?")
    shown = repr(found["input"])
    shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
    return f"`{where}` of the study is wrong: {message}, got {shown}."
