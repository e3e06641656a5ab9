"""What a study file says, as checked values: data, classifiers, grids and tables.

Every model refuses keys it does not know. docs/studies.md describes every key.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from nppr.budget import NORMS, parse_radius
from nppr.classifiers.training import Method, Optimiser
from nppr.distributions import Dependency, Family
from nppr.errors import NpprError, unknown
from nppr.fit import PRESETS
from nppr.fit.losses import LOSSES
from nppr.study.axes import AXES, VALUES

__all__ = [
    "OWN",
    "ClassifierEntry",
    "Column",
    "DataEntry",
    "Expected",
    "FitEntry",
    "Grid",
    "MeasureEntry",
    "Paper",
    "StudySpec",
    "TableEntry",
    "Training",
]

OWN = "own"
"""As a feature model: the features of the classifier itself."""

Whole = Annotated[int, Field(strict=True, ge=1)]
Seed = Annotated[int, Field(strict=True, ge=0)]
Slug = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Filter = dict[str, str | int | float | list[str | int | float]]


def _one_of(argument: str, valid: Any) -> AfterValidator:
    """A text that must be one of these; the error names the nearest."""

    def check(value: str) -> str:
        if value not in valid:
            raise ValueError(str(unknown(argument, value, [str(each) for each in valid])))
        return value

    return AfterValidator(check)


def _radius(value: float | str) -> float | str:
    try:
        parse_radius(value)
    except NpprError as error:
        raise ValueError(str(error)) from None
    return value


def _covariance(value: str) -> str:
    try:
        Family(covariance=value)
    except NpprError as error:
        raise ValueError(str(error)) from None
    return value


def _upsampler(value: str) -> str:
    try:
        Family(upsampler=value)
    except NpprError as error:
        raise ValueError(str(error)) from None
    return value


def _filter(value: Filter) -> Filter:
    for name in value:
        if name not in AXES:
            raise ValueError(str(unknown("where", name, AXES)))
    return value


Radius = Annotated[float | str, AfterValidator(_radius)]
NormName = Annotated[str, _one_of("norms", NORMS)]
DependencyName = Annotated[str, _one_of("dependencies", [each.value for each in Dependency])]
CovarianceName = Annotated[str, AfterValidator(_covariance)]
UpsamplerName = Annotated[str, AfterValidator(_upsampler)]
LossName = Annotated[str, _one_of("losses", LOSSES)]
AxisName = Annotated[str, _one_of("axis", AXES)]
ValueName = Annotated[str, _one_of("value", VALUES)]
Where = Annotated[Filter, AfterValidator(_filter)]
Floor = Annotated[float, Field(ge=0, le=1)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Expected(_Entry):
    """How many inputs data have that are not here, for a plan."""

    fit: int = 0
    select: int = 0
    evaluate: int = 1


class DataEntry(_Entry):
    """A data set and how much of each part is used; `spec` is a name or path (docs/data.md)."""

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


class Training(_Entry):
    """A training instead of weights; what is left out is the network's default (docs/training.md)."""

    epochs: Whole | None = None
    batch_size: Whole | None = None
    optimiser: Annotated[str, _one_of("optimiser", [x.value for x in Optimiser])] | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    momentum: float | None = None
    warm_up: float | None = None
    label_smoothing: float | None = None
    crop: int | None = None
    flip: bool | None = None
    method: Annotated[str, _one_of("method", [x.value for x in Method])] = "standard"
    norm: NormName = "linf"
    eps: Radius | None = None
    attack_steps: Whole = 10
    attack_step: float = 0.25
    seed: Seed = 0


class ClassifierEntry(_Entry):
    """A classifier: a model with weights, or a training; `feature_model` names another classifier."""

    name: str
    model: str
    data: str | None = None
    weights: str | None = None
    mean: float | list[float] | None = None
    std: float | list[float] | None = None
    classes: Whole | None = None
    stem: str | None = None
    features: str | None = None
    feature_model: str | None = None
    group: str = ""
    label: str = ""
    training: Training | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> ClassifierEntry:
        if self.training is not None and self.weights is not None:
            raise ValueError(
                f"`weights` of classifier {self.name!r} must be left out where it has a training."
            )
        return self


class FitEntry(_Entry):
    """How distributions are fitted.

    `calls` is the budget of a walk up to joint noise with one number of components; every family takes
    its share of it. `epochs` states the same in passes over the fit inputs.
    """

    preset: Annotated[str, _one_of("preset", PRESETS)] = "nppr"
    calls: Whole | None = None
    epochs: Whole | None = None
    draws: Whole | None = None
    step_inputs: Whole | None = None
    kappa: float = 1.0
    latent_dim: Whole | None = None
    grid: Whole | None = None
    hidden_dim: Whole | None = None
    label_dim: Whole = 64
    min_std: Annotated[float, Field(gt=0)] = 0.05

    @model_validator(mode="after")
    def _one_budget(self) -> FitEntry:
        if self.calls is not None and self.epochs is not None:
            raise ValueError("`calls` and `epochs` of fit must not both be given.")
        return self


class MeasureEntry(_Entry):
    """How sources are measured."""

    draws: Whole = 100
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    quantise: bool = False
    threads: Whole = 1


class Grid(_Entry):
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


class Column(_Entry):
    """One column, or one for every value of the axes in `by`."""

    header: str = ""
    value: ValueName = "normalised"
    where: Where = {}
    by: list[AxisName] = []


class Paper(_Entry):
    """Numbers of the paper: each row has the labels of a row of ours, then one entry per column."""

    citation: str
    rows: list[list[str | float]]


class TableEntry(_Entry):
    """What stands in rows and columns."""

    name: Slug
    title: str = ""
    rows: list[AxisName]
    columns: Annotated[list[Column], Field(min_length=1)]
    where: Where = {}
    percent: bool = True
    decimals: Annotated[int, Field(ge=0, le=6)] = 2
    paper: Paper | None = None


class StudySpec(_Entry):
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
