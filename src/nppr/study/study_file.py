"""The content of a study file as checked values: data, classifiers, grids and tables.

An unknown key is an error, and every mistake is one line with its place in the file and the remedy.
docs/studies.md describes every key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
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
"""Name for the classifier itself, as a feature model or a target."""


@dataclass(frozen=True)
class Place:
    """Values of a measurement on all axes. Two measurements in one place differ in their seeds only."""

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
        """Return the values on these axes as tables show them."""
        return tuple(text_of(getattr(self, axis)) for axis in axes)


def text_of(value: object) -> str:
    """Return the value of an axis as tables show it.

    >>> text_of(0.50), text_of(3), text_of("linf")
    ('0.5', '3', 'linf')
    """
    return f"{value:g}" if isinstance(value, float) else str(value)


AXES = tuple(field.name for field in fields(Place))


@dataclass(frozen=True)
class ValueKind:
    """A kind of number that tables can show: of a measurement, a fit, or clean answers (`of`).

    A `fraction` is shown in percent, a `seeded` value with its standard deviation over evaluation
    seeds, and its `meaning` in the caption of a table without a title.
    """

    of: Literal["measure", "fit", "clean"] = "measure"
    fraction: bool = False
    seeded: bool = False
    meaning: str = ""


VALUES = {
    "accuracy": ValueKind("clean", fraction=True),
    "normalised": ValueKind(
        fraction=True,
        seeded=True,
        meaning="accuracy under the source over all inputs / clean accuracy",
    ),
    "robustness": ValueKind(
        fraction=True, seeded=True, meaning="PR, NPPR or AR over the clean-correct inputs"
    ),
    "stress": ValueKind(seeded=True),
    "normalised_stress": ValueKind(seeded=True),
    "seconds": ValueKind(seeded=True),
    "calls": ValueKind(),
    **dict.fromkeys(
        ("entropy_ratio", "max_weight", "min_weight", "std_weight", "fit_pr"),
        ValueKind("fit", fraction=True),
    ),
    **dict.fromkeys(
        ("realised_std", "fit_loss", "fit_calls", "fit_seconds", "fit_seconds_per_epoch"),
        ValueKind("fit"),
    ),
}
"""Values by name; docs/studies.md explains each."""

TAKEN = ("study", "orders", "manifest")
"""Names that tables cannot have, because a study writes other files with them."""

Whole = Annotated[int, Field(strict=True, ge=1)]
Seed = Annotated[int, Field(strict=True, ge=0)]
Slug = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


def _accepted_by(check: Callable[[Any], object]) -> AfterValidator:
    """Return a validator that runs a check and turns its `NpprError` into a mistake with a place."""

    def validate(value: Any) -> Any:
        try:
            check(value)
        except NpprError as error:
            raise ValueError(str(error)) from None
        return value

    return AfterValidator(validate)


def _one_of(argument: str, valid: Collection[str]) -> AfterValidator:
    return _accepted_by(lambda value: require_one_of(argument, value, valid))


def _check_axes(where: dict[str, object]) -> None:
    for name in where:
        require_one_of("where", name, AXES)


def _check_table_name(name: str) -> None:
    if name in TAKEN:
        raise SpecError(
            f"`name` of a table must differ from other files of the study, got {name!r}."
        )


def _check_norm(text: str) -> None:
    """Raise an error unless the text is a norm or the ranges of a transformation."""
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
    """Return the text with each `{name}` replaced by its path in the context of the validation."""
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


class StudyEntry(Group):
    """A table of the file. Mistakes get a place; an unknown key is reported before a missing one."""

    @model_validator(mode="wrap")
    @classmethod
    def _place_mistakes(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        for key in value if isinstance(value, dict) else ():
            if key not in cls.model_fields:
                raise ValueError(str(unknown("key", key, sorted(cls.model_fields))))
        try:
            return handler(value)
        except NpprError as error:
            raise ValueError(str(error)) from None


class InputCounts(StudyEntry):
    """Inputs of each split, as expected of data that are not here."""

    fit: int = 0
    select: int = 0
    evaluate: int = 1


class DataEntry(StudyEntry, Limits, ImageSettings):
    """A data set and the inputs used of each split; `spec` is a name or path (docs/data.md)."""

    name: str
    spec: PathText
    classes: Whole | None = None
    expected: InputCounts | None = None


class Training(StudyEntry, TrainOptions):
    """The training of a classifier."""


class ClassifierEntry(StudyEntry, NetworkSettings):
    """A classifier: a model with its weights or its training.

    `feature_model` names another classifier, whose features its noise sees.
    """

    name: str
    model: PathText
    weights: Annotated[str | None, AfterValidator(_fill)] = None
    data: str | None = None
    feature_model: str | None = None
    group: str = ""
    label: str = ""
    training: Training | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> ClassifierEntry:
        if self.training is not None and self.weights is not None:
            raise ValueError(
                f"`weights` of classifier {self.name!r} must be left out, because it has a training."
            )
        return self

    @property
    def network(self) -> NetworkSettings:
        """The settings that load it."""
        return NetworkSettings(**self.model_dump(include=set(NetworkSettings.model_fields)))


class FitEntry(StudyEntry, FamilySettings):
    """Settings of the fits.

    `calls` is the budget of a walk up to joint noise with one number of components; each family uses a
    third of it. `epochs` states it in passes over the fit inputs instead. `per_input_calls` is the
    budget of each input with the dependency `per-input`.
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


class MeasureEntry(StudyEntry, Counting):
    """Settings of the measurements."""

    draws: Whole = DEFAULT_DRAWS
    threads: Whole = 1


class Grid(StudyEntry):
    """Fits and measurements: the product of the lists."""

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


class ColumnEntry(StudyEntry):
    """One column, or one column for every combination of values on the axes in `by`."""

    header: str = ""
    value: ValueName = "normalised"
    where: Where = {}
    by: list[AxisName] = []


class Paper(StudyEntry):
    """Numbers of the paper. Each row holds the labels of a row of ours, then one entry per column."""

    citation: str
    rows: list[list[str | float]]


class TableEntry(StudyEntry):
    """A table: the axes of its rows, and its columns."""

    name: Annotated[Slug, _accepted_by(_check_table_name)]
    title: str = ""
    rows: list[AxisName]
    columns: Annotated[list[ColumnEntry], Field(min_length=1)]
    where: Where = {}
    percent: bool = True
    decimals: Annotated[int, Field(ge=0, le=6)] = 2
    paper: Paper | None = None


class Study(StudyEntry):
    """The whole file."""

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
    """Read a study from a file; `paths` replaces values of its `[paths]`."""
    return study_from(read_toml("study", path), paths)


def study_from(content: Mapping[str, Any], paths: Mapping[str, str] | None = None) -> Study:
    """Return the study that plain values describe."""
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
    """Raise `SpecError` if a name is used twice, or refers to something that is not in the file."""
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
    """Return the first mistake as one line with its place in the file."""
    found = error.errors()[0]
    names = map(str, found["loc"])  # those with a hyphen, and functions, are pydantic's own
    where = ".".join(name for name in names if "-" not in name and not name.startswith("function"))
    message = found["msg"].removeprefix("Value error, ").rstrip(".")
    if found["type"] == "missing":
        return f"`{where}` must be given in the study, got nothing."
    if found["type"] == "value_error":
        return f"{message} (in {where})." if where else message + "." * (message[-1] != "?")
    shown = repr(found["input"])
    shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
    return f"`{where}` of the study is wrong: {message}, got {shown}."
