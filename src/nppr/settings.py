"""Every setting, declared once: its type, default, check and help.

Each group is a frozen object of Python, a set of flags of the command line, keys of policies and
studies, and a part of `settings` in `report.json`:

    nppr.assess(model, data, budget, search=Search(calls=50_000), measure=Measure(draws=200))
    nppr assess --fit-calls 50000 --draws 200

Nothing here imports PyTorch, so a wrong value is reported at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import wraps
from inspect import signature
from itertools import count
from pathlib import Path
from typing import Annotated, Any, ParamSpec, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails

from nppr.core.draw_count import DEFAULT_DRAWS, FEWEST_DRAWS, default_draws
from nppr.core.radius import LARGEST_RADIUS, NORM_NAMES, parse_radius
from nppr.errors import BudgetError, NpprError, SpecError, require_at_most, unknown
from nppr.noise.family import Family
from nppr.noise.rungs import LADDER, Dependency, choose_rung, rungs_of
from nppr.noise.structures import ANY, STRUCTURES
from nppr.search.search_settings import (
    AUTO,
    FEWEST_PER_INPUT,
    GRADIENTS,
    LOSSES,
    PAPER_COMPONENTS,
    PAPER_HIDDEN_DIM,
    PAPER_LATENT_DIM,
    PAPER_MIN_STD,
    PRESETS,
    Recipe,
    SearchSettings,
    default_settings,
    paper_settings,
)
from nppr.system.specs import EAGER, ENGINES, MOST_WORKERS

MOST_DRAWS, MOST_RARE_CALLS, LARGEST_SEED = 10**7, 10**10, 2**63 - 1
"""Upper limits: larger values never finish or overflow the seed."""

FINEST_PRECISION = 1e-5
"""Half-widths below this would take more than 10 billion inputs."""

RARE_CALLS = 1_000_000
"""Default for the images that the search for rare failures may classify."""

RARE_FLOOR = 1e-6
"""Rarer failures are not searched for: the input then counts with about this probability."""

RARE_CALLS_PER_INPUT = 5_500
"""Calls that reach the floor with the fewest particles, and one level to spare."""

RARE_ACCURACY = (
    f"an estimate from {RARE_CALLS_PER_INPUT:,} calls, the fewest per input, has a relative standard"
    " deviation of about 30 % at 1e-3 and 55 % at 1e-6"
)
"""Accuracy of splitting, measured on linear classifiers: 28 to 35 % and 48 to 61 %."""

GRADE_LETTERS = "ABCD"
"""Letters of a grade, the best first."""

FIGURE_FORMATS = ("svg", "png", "pdf")
_declared = count()


@dataclass(frozen=True)
class Effort:
    """Defaults of the settings that say how much work an assessment does; what is stated wins.

    `calls` and `draws` are multiples of the defaults of the normal effort.
    """

    calls: float = 1.0
    draws: float = 1.0
    seeds: int = 1
    per_input_calls: int = SearchSettings.per_input_calls


EFFORTS = {
    "quick": Effort(calls=1 / 3, draws=0.16, per_input_calls=8),
    "normal": Effort(),
    "thorough": Effort(calls=4.0, draws=4.0, seeds=3, per_input_calls=50),
}
QUICK, NORMAL, THOROUGH = EFFORTS


class Panel(StrEnum):
    """The panels of `--help`, in their order."""

    EVERYDAY = "Options"
    NOISE = "Noise"
    SEARCH = "Search"
    STATISTICS = "Statistics"
    OUTPUT = "Output"
    ADVANCED = "Advanced"


def option(
    default: Any, help_text: str, panel: Panel = Panel.EVERYDAY, flag: str | None = None
) -> Any:
    """Declare a setting; `flag` is its name on the command line if it is not that of the field.

    A flag in capitals is a positional argument. `--help` keeps the order of declaration, and fills in
    names in braces (`nppr.cli.app.fill_words`).
    """
    extra: dict[str, Any] = {"panel": panel, "flag": flag, "order": next(_declared)}
    return Field(default, description=help_text, json_schema_extra=extra)


def parse_numbers(value: Any, info: ValidationInfo) -> Any:
    """Return numbers from a text with commas, one number or a list."""
    if value is None:
        return None
    try:
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(map(float, parts if isinstance(parts, list | tuple) else [parts]))
    except (ValueError, TypeError):
        raise SpecError(
            f"`{info.field_name}` must be numbers separated by commas, got {value!r}."
            " Example: 0.5,0.5,0.5"
        ) from None


def parse_radii(value: Any) -> tuple[str, ...]:
    """Return radii as they were written, smallest first, from a text with commas or a list.

    >>> parse_radii("8/255, 0.01")
    ('0.01', '8/255')
    """
    parts = value.split(",") if isinstance(value, str) else value or ()
    written = [str(each).strip() for each in parts]
    try:
        known = {parse_radius(each): each for each in written}
    except BudgetError as error:
        raise BudgetError(str(error).replace("`radius`", "`radii`")) from error
    if len(known) < len(written):
        raise SpecError(f"`radii` must be different, got {', '.join(written)}.")
    return tuple(known[radius] for radius in sorted(known))


def parse_formats(value: Any) -> tuple[str, ...]:
    """Return the formats of figures in a text with commas, each once."""
    parts = value.split(",") if isinstance(value, str) else value or ()
    wanted = tuple(dict.fromkeys(each.strip().lower() for each in parts))
    for each in wanted:
        if each not in FIGURE_FORMATS:
            raise SpecError(
                f"`figures` must be svg, png or pdf, or several separated by commas, got {each!r}."
                " Example: --figures svg,pdf"
            )
    return wanted


def require_one_of(name: str, value: str, valid: Collection[str]) -> None:
    """Raise `SpecError`, with the nearest valid value, unless the value is one of the valid ones."""
    if value not in valid:
        raise unknown(name, value, valid)


def whole(least: int = 1, most: float = math.inf) -> AfterValidator:
    """Return the check that a setting is a whole number in this range, if it is given."""

    def check(value: int | None, info: ValidationInfo) -> int | None:
        name = str(info.field_name).replace("_", "-")
        if value is not None and value < least:
            raise SpecError(f"`{name}` must be a whole number >= {least}, got {value!r}.")
        require_at_most(name, value, most)
        return value

    return AfterValidator(check)


def one_of(valid: Collection[str]) -> AfterValidator:
    """Return the check that a setting is one of these names, if it is given."""

    def check(value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            require_one_of(str(info.field_name).replace("_", "-"), value, valid)
        return value

    return AfterValidator(check)


def name_frames(value: Any) -> str | None:
    """Return the path of frames, or words for an array of Python, for files."""
    if value is None:
        return None
    return str(value) if isinstance(value, str | Path) else "an array"


Frames = Annotated[Any, PlainSerializer(name_frames, str | None)]
Count = Annotated[int | None, whole()]
Numbers = Annotated[tuple[float, ...] | None, BeforeValidator(parse_numbers)]
Radii = Annotated[tuple[str, ...], BeforeValidator(parse_radii)]
Figures = Annotated[tuple[str, ...], BeforeValidator(parse_formats)]


class Group(BaseModel):
    """A group of settings: checked, frozen, unknown names refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_true_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false for a number; pydantic reads them as 1 and 0."""
        declared = cls.model_fields[str(info.field_name)]
        kinds = get_args(declared.annotation) or (declared.annotation,)
        if isinstance(value, bool) and bool not in kinds and {int, float} & {*kinds}:
            name = flag_name(str(info.field_name), declared)
            raise SpecError(f"`{name}` must be a number, got {value!r}.")
        return value

    def is_typed(self, name: str) -> bool:
        """Return whether a setting was stated, rather than left to its default."""
        return name in self.model_fields_set and getattr(self, name) is not None

    def with_(self, **changes: Any) -> Self:
        """Return the settings with these changes, which are checked too."""
        known = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**known | changes)


GroupT = TypeVar("GroupT", bound=Group)
P = ParamSpec("P")
T = TypeVar("T")
BY_FLAGS = {"by": "flags"}
"""The context of values whose mistakes are reported by the names of flags."""


class Keywords(Group):
    """A group that users write in Python: every mistake is a `SpecError` of one line."""

    @model_validator(mode="wrap")
    @classmethod
    def _state_mistakes(
        cls, given: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        if info.context is BY_FLAGS:
            return handler(given)
        if info.mode == "json":
            return cls._read(given, handler)
        for name in given if isinstance(given, dict) else ():
            if name not in cls.model_fields:
                raise misplaced(str(name), cls.model_fields, f"setting of {cls.__name__}")
        try:
            return handler(given)
        except ValidationError as error:
            mistake = error.errors()[0]
            raise wrong_value(str(mistake["loc"][0]), mistake) from None

    @classmethod
    def _read(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Return the group in a file of ours; pydantic's error for a mistake names its field."""
        try:
            return handler(given)
        except NpprError as error:
            name = str(error).split("`")[1].replace("-", "_")
            place = (name,) if name in cls.model_fields else ()
            value = given.get(name) if isinstance(given, dict) else given
            mistake = InitErrorDetails(
                type="value_error", loc=place, input=value, ctx={"error": error}
            )
            raise ValidationError.from_exception_data(cls.__name__, [mistake]) from None


KeywordsT = TypeVar("KeywordsT", bound=Keywords)


def misplaced(name: str, valid: Collection[str], what: str) -> SpecError:
    """Return the error for an unknown setting, which names the place that has it.

    `what` says what the valid names are, such as "setting of Measure".
    """
    for group, place in PLACES.items():
        for field_name, flag in flags_of(group).items():
            if name == flag.replace("-", "_") or (name == field_name and name not in valid):
                return SpecError(f"`{name}` belongs to {place.format(field_name)}.")
    return unknown(what, name, valid)


def refuse_misplaced(call: Callable[P, T]) -> Callable[P, T]:
    """Return the function, which raises `SpecError` for a keyword argument that it does not have."""
    known = signature(call).parameters

    @wraps(call)
    def checked(*args: P.args, **keywords: P.kwargs) -> T:
        for name in keywords:
            if name not in known:
                raise misplaced(name, known, f"argument of nppr.{call.__name__}")
        return call(*args, **keywords)

    return checked


def flags_of(group: type[Group]) -> dict[str, str]:
    """Return the names of the flags of a group by the names of its settings.

    >>> flags_of(Search)["calls"]
    'fit-calls'
    """
    return {name: flag_name(name, info) for name, info in group.model_fields.items()}


def flag_name(name: str, info: FieldInfo) -> str:
    """Return the name of the flag of a setting, without dashes in front."""
    extra = info.json_schema_extra
    flag = extra.get("flag") if isinstance(extra, dict) else None
    return str(flag or name).removeprefix("--").split(" ")[0].replace("_", "-")


EXPECTED = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text",
    "path_type": "a path",
    "list_type": "a list",
    "tuple_type": "a list",
}
"""Descriptions of valid values by the type of pydantic's error."""


def wrong_value(name: str, mistake: Mapping[str, Any], where: str = "") -> SpecError:
    """Return the error for a value that is not of the type of its setting."""
    if mistake["type"] == "missing":
        return SpecError(f"`{name}`{where} must be given, got nothing.")
    expected = EXPECTED.get(mistake["type"], "a value in range")
    return SpecError(f"`{name}`{where} must be {expected}, got {mistake['input']!r}.")


def require_sigma(sigma: float | None, where: str) -> float:
    """Return the standard deviation of Gaussian noise; raise `SpecError` unless it is a number > 0."""
    if sigma is None:
        raise SpecError(f"`sigma` must be given {where}. Example: --sigma 0.25")
    if not 0 < sigma < math.inf:
        raise SpecError(f"`sigma` must be a number > 0, got {sigma:g}. Example: --sigma 0.25")
    require_at_most("sigma", sigma, LARGEST_RADIUS)
    return sigma


class NetworkSettings(Group):
    """The classifier."""

    model: str = option(
        "digits-cnn",
        "A network of the zoo (digits-cnn, resnet18, resnet20, vgg16, ...), model.pt2, model.onnx,"
        " hf:NAME_OR_FOLDER, timm:NAME, torchvision:NAME, or Python code that makes a model:"
        " pkg.module:callable or path/to/file.py:callable. Only the last two run your code.",
    )
    weights: str | None = option(
        None,
        "A safetensors file, a PyTorch state dict, or random. Default: the model's own; in the zoo,"
        " nppr ships those of digits-cnn.",
    )
    mean: Numbers = option(
        None, "Normalisation: mean, one number or one per channel (0.5,0.5,0.5)."
    )
    std: Numbers = option(None, "Normalisation: standard deviation, as --mean.")
    classes: int | None = option(
        None, "Number of classes, if weights or labels do not show it.", Panel.ADVANCED
    )
    stem: str | None = option(
        None,
        "First layers of resnet18, resnet50, wide_resnet50_2 and vgg16: imagenet or small.",
        Panel.ADVANCED,
    )
    features: str | None = option(
        None,
        "Layer whose output input-dependent noise may see. Default: the input of the last linear"
        " layer.",
        Panel.NOISE,
    )


class ModelSettings(NetworkSettings):
    """The classifier, and another model whose features input-dependent noise may see."""

    feature_model: str | None = option(
        None, "Another model to take features from, as --model.", Panel.NOISE
    )
    feature_weights: str | None = option(None, "Weights of --feature-model.", Panel.NOISE)

    @model_validator(mode="after")
    def _require_feature_model(self) -> Self:
        if self.feature_weights is not None and self.feature_model is None:
            raise SpecError("`feature-weights` must be given with --feature-model, got it alone.")
        return self


class ImageSettings(Group):
    """The split of the data, and the size of its images."""

    split: str | None = option(
        None, "Named split of the data to evaluate. Default: the test split.", Panel.ADVANCED
    )
    resize: int | None = option(None, "Resize images to this many pixels per side.", Panel.ADVANCED)


class DataSettings(ImageSettings):
    """The data."""

    data: str = option(
        "digits",
        "digits, hf:NAME, or a path: CIFAR-10/100 or Tiny ImageNet (folder or archive), a folder of"
        " images, parquet, idx files, .npz.",
    )
    class_order: str | None = option(
        None,
        "A text file with the names of the classes, a line for each output of the classifier, or JSON"
        " (a list, or name to number). Default: words in sorted order, numbers as they are.",
        Panel.ADVANCED,
    )
    range: str | None = option(
        None,
        "Range of the numbers in a .npz that are not images in [0, 1], such as -1,1, or one pair per"
        " feature with ; between them. Inputs may then have any shape; --eps is a share of the range.",
        Panel.ADVANCED,
    )
    slices: Path | None = option(
        None,
        "Columns beside the data, such as weather or camera: a CSV or parquet file with a header and a"
        " line for every image. Each value of a column gets a row.",
        Panel.STATISTICS,
    )


class BudgetSettings(Group):
    """The largest perturbation that is admitted."""

    norm: Annotated[str, one_of(NORM_NAMES)] = option(
        "linf", f"Norm of the budget: {' or '.join(NORM_NAMES)}."
    )
    eps: str | None = option(
        None, "Radius of the budget, such as 8/255 or 0.03. Default for digits: 0.1 (linf)."
    )
    transform: str | None = option(
        None,
        "Natural perturbations instead of added noise: parameters and their ranges, such as"
        " rotate=15,shift=0.05,exposure=0.5 or blur=0:2. Parameters: {parameters}; edges={edges} for"
        " what lies outside the image.",
    )

    @field_validator("eps", mode="before")
    @classmethod
    def _as_written(cls, value: Any) -> Any:
        return repr(value) if isinstance(value, int | float) else value

    @model_validator(mode="after")
    def _require_budget(self) -> Self:
        if self.transform is not None:
            if self.eps is not None or self.norm != "linf":
                raise BudgetError(
                    "`transform` must be given without --norm and --eps: its ranges are the budget."
                    " Example: --transform rotate=15"
                )
            return self
        if self.eps is None and self.norm != "linf":
            raise BudgetError(f"`eps` must be given with --norm {self.norm}. Example: --eps 0.5")
        if self.eps is not None:
            parse_radius(self.eps)
        return self


class Limits(Group):
    """How many inputs of each split are used, and the seed that chooses them."""

    inputs: Count = option(
        None,
        "Evaluate at most this many inputs, stratified by class, including those misclassified without"
        " noise.",
    )
    fit_inputs: Count = option(None, "As --inputs, for the fit split.", Panel.ADVANCED)
    select_inputs: Count = option(None, "As --inputs, for the select split.", Panel.ADVANCED)
    seed: Annotated[int, whole(0, LARGEST_SEED)] = option(
        0, "Seed of subsets, draws and resampling."
    )


class Counting(Group):
    """How sources are measured."""

    draws: Annotated[int | None, whole(most=MOST_DRAWS)] = option(
        None,
        f"Perturbations drawn per input. Default: {DEFAULT_DRAWS}, fewer for more than 1,000 inputs;"
        f" with --precision, {FEWEST_DRAWS} to start with.",
    )
    confidence: float = option(0.95, "Confidence of the intervals and bounds.", Panel.STATISTICS)
    quantise: bool = option(False, "Round perturbed inputs to 8 bits.", Panel.ADVANCED)

    @field_validator("confidence")
    @classmethod
    def _require_confidence(cls, value: float) -> float:
        if not 0 < value < 1:
            raise SpecError(f"`confidence` must lie in (0, 1), got {value!r}. Example: 0.95")
        return value


class Measure(Limits, Counting, Keywords):
    """How much is measured, and how.

    With classifier, data, budget and search this determines the numbers of a run.

    `draws` perturbations per input: 100 by default, fewer for more than 1,000 inputs, at least 16.
    `inputs`, `fit_inputs`, `select_inputs`: at most this many inputs of a split, stratified by class.
    `confidence` of all intervals and bounds.
    `seed` of subsets, draws and resampling.
    `quantise`: round perturbed inputs to 8 bits.
    `only_merged`: report AR over all attacks together, and skip inputs that are already broken.
    `precision`: add inputs (up to `inputs`), then draws (from `draws`, by default 16), until the
    interval of every PR and NPPR has at most this half-width.
    `rare_calls`: images that the search for failures rarer than one in the draws may classify.
    `radii`: measure the sources at these radii too.
    `engine`: exact (`eager`), or `bfloat16` (audited 16-bit floats).
    `evaluate_all`: evaluate every input of data that come in one split; for sources that need no fit.
    `effort`: `quick`, `normal` or `thorough`, which sets what is not stated (`nppr.settings.EFFORTS`).
    `noise_samples`: frames of a constant scene, a path or an array, to measure their noise.

    >>> Measure(draws=200, radii="8/255,2/255").radii
    ('2/255', '8/255')
    """

    only_merged: bool = option(
        False,
        "Report AR over all sources together instead of for each attack; broken inputs are not attacked"
        " again.",
        Panel.STATISTICS,
    )
    precision: float | None = option(
        None,
        "Add inputs, then draws, until every PR and NPPR is within this much, 0.01 for ±1 percentage"
        " point, by an interval that holds after stopping. --inputs is then the most to use.",
        Panel.STATISTICS,
    )
    rare_calls: Annotated[int | None, whole(RARE_CALLS_PER_INPUT, MOST_RARE_CALLS)] = option(
        None,
        f"Images that --rare may classify in total. Default: {RARE_CALLS:,}; {RARE_ACCURACY}.",
        Panel.STATISTICS,
    )
    radii: Radii = option(
        (),
        "Measure the sources at these radii too: 2/255,4/255,16/255; with --transform, in these"
        " fractions of the ranges: 0.25,0.5. Learned noise is scaled, not learned again.",
        Panel.STATISTICS,
    )
    engine: Annotated[str, one_of(ENGINES)] = option(
        EAGER,
        "How the model runs. eager: exact. bfloat16: about a quarter less time, on processors"
        " with 16-bit floats, which take the clear decisions and lead fits. The model repeats a random"
        " part of these decisions, and intervals are widened to allow for errors (docs/speed.md).",
        Panel.ADVANCED,
    )
    evaluate_all: bool = option(
        False,
        "If the data come in one split, evaluate every input instead of 30 %. Needs sources without a"
        " fit: all but nppr and universal.",
        Panel.ADVANCED,
    )
    effort: Annotated[str, one_of(EFFORTS)] = option(
        NORMAL,
        "quick: a first look with fewer calls and draws, about 20 seconds on the demo. normal."
        " thorough: several seeds, more calls and draws. Settings that you state win.",
    )
    noise_samples: Frames = option(
        None,
        "At least 10 frames of one constant scene, or dark frames, of your sensor: a folder of images,"
        " a .npy or a .npz. The report then describes their noise, names the structure that fits and"
        " suggests --eps, and noise-samples is PR under this noise.",
        Panel.NOISE,
        flag="--noise-samples <path>",
    )

    @model_validator(mode="after")
    def _require_measure(self) -> Self:
        if self.radii and self.only_merged:
            raise SpecError(
                "`radii` must be given without `only-merged`, which reports one row for all attacks."
            )
        if self.precision is not None and not (FINEST_PRECISION <= self.precision < 0.5):
            raise SpecError(
                f"`precision` must lie in [{FINEST_PRECISION:g}, 0.5), got {self.precision}:"
                " how far intervals may reach from their value. Example: 0.01"
            )
        if self.engine != EAGER and (self.precision is not None or self.rare_calls is not None):
            other = "precision" if self.precision is not None else "rare"
            raise SpecError(
                f"`engine` {self.engine} must be given without `{other}`, which needs exact counts."
                " Leave out --engine."
            )
        if self.draws is None:  # not a stated setting: it stays open to the number of inputs
            self.model_fields_set.discard("draws")
            object.__setattr__(
                self, "draws", DEFAULT_DRAWS if self.precision is None else FEWEST_DRAWS
            )
        return self

    def of_inputs(self, inputs: int) -> Measure:
        """Return the same settings with the draws for this many inputs, unless they are stated."""
        if self.is_typed("draws") or self.precision is not None:
            return self
        return self.with_(draws=default_draws(inputs, EFFORTS[self.effort].draws))


class Run(Keywords):
    """The folder of a run and how it is computed; nothing here changes a number.

    `out`: the run folder. `resume`: continue an interrupted run of the same settings in it.
    `overwrite`: replace the run that the folder holds. `device`: such as `cpu` or `cuda:0`.
    `batch_size`: images per micro-batch. `anyway`: measure a classifier that hardly beats guessing.
    `workers`: measure the inputs in this many processes. `ray`: address of a Ray cluster that does.

    >>> Run(out="runs/mine", resume=True).resume
    True
    """

    out: Path | None = option(None, "Run folder. Default: one under runs/ for these settings.")
    resume: bool = option(False, "Continue an interrupted run of the same settings.")
    overwrite: bool = option(False, "Replace the run that the folder holds.")
    device: str | None = option(
        None, "Device, such as cpu or cuda:0. Default: the accelerator, if there is one."
    )
    batch_size: int | None = option(
        None, "Images per micro-batch. Default: found by a short trial.", Panel.ADVANCED
    )
    anyway: bool = option(
        False,
        "Measure the classifier even if it hardly beats guessing, such as one without its weights.",
        Panel.ADVANCED,
    )
    workers: Annotated[int | None, whole(most=MOST_WORKERS)] = option(
        None,
        "Measure the inputs in this many processes, each with one thread. Counts do not depend on it."
        " Default: 1.",
        Panel.ADVANCED,
    )
    ray: str | None = option(
        None,
        "Measure the inputs on the Ray cluster at this address (HOST:PORT or auto; extra ray). Without"
        " an address: a cluster of --workers processes is started on this machine. All machines must"
        " see the run folder, the model and the data.",
        Panel.ADVANCED,
        flag="--ray [ADDRESS]",
    )

    @field_validator("device", mode="before")
    @classmethod
    def _name_device(cls, value: Any) -> Any:
        return None if value is None else str(value)


class FamilySettings(Group):
    """Settings of learned noise that the command line and study files share."""

    preset: Annotated[str, one_of(PRESETS)] = option(
        "nppr",
        "nppr, or paper: the recipe of the paper as published, without selection afterwards.",
        Panel.SEARCH,
    )
    kappa: float = option(Recipe.kappa, "Margin of the loss.", Panel.SEARCH)
    latent_dim: int | None = option(
        None,
        "Latent dimension of --upsampler trainable. Default: as many as the grid has;"
        f" {PAPER_LATENT_DIM} with --preset paper.",
        Panel.ADVANCED,
    )
    grid: int | None = option(
        None,
        "Side of the coarse grid of bicubic and trainable. Default: 4, or 7 for images of more than 32"
        " pixels.",
        Panel.ADVANCED,
    )
    hidden_dim: int | None = option(
        None,
        f"Width of the network that sees the features. Default: {Family.hidden_dim};"
        f" {PAPER_HIDDEN_DIM} with --preset paper.",
        Panel.SEARCH,
    )
    label_dim: int = option(Family.label_dim, "Size of the label embedding.", Panel.SEARCH)
    min_std: float | None = option(
        None,
        "Least standard deviation of a latent coordinate; up-sampling and squashing may leave less."
        f" Default: {Family.min_std}; {PAPER_MIN_STD} with --preset paper.",
        Panel.ADVANCED,
    )

    @property
    def is_paper(self) -> bool:
        """Whether every family is fitted from scratch and nothing is selected."""
        return self.preset == "paper"

    def family(
        self,
        dependency: Dependency,
        components: int,
        covariance: str | None = None,
        upsampler: str | None = None,
        floor: float = 0.0,
        structure: str = ANY,
    ) -> Family:
        """The family with these settings; what is None has the default of the preset."""
        paper = self.is_paper
        hidden_dim = PAPER_HIDDEN_DIM if paper else Family.hidden_dim
        min_std = PAPER_MIN_STD if paper else Family.min_std
        return Family(
            dependency=dependency,
            components=components,
            covariance=covariance or ("full" if paper else "diag"),
            upsampler=upsampler or ("trainable" if paper else "none"),
            latent_dim=self.latent_dim,
            grid=self.grid,
            hidden_dim=hidden_dim if self.hidden_dim is None else self.hidden_dim,
            label_dim=self.label_dim,
            min_std=min_std if self.min_std is None else self.min_std,
            floor=floor,
            structure=structure,
        )


FLOOR_HELP = (
    "Least randomness rho, from 0 to 1, one value or several: that fraction of every perturbation is"
    " Uniform noise. 0 is the paper's set. Each value has a row."
)


class Search(FamilySettings, Keywords):
    """The set of noise that is searched, and how.

    `method`: gradients, scores (from the answers alone) or auto.
    `preset`: nppr, or paper (the recipe of the paper as published).
    `dependency`: how far down the ladder to go: independent, label, input, joint or per-input.
    `structure`: what the noise is made of: white, stationary or any (docs/noise.md).
    `correlation_length`: that of stationary noise in pixels.
    `floor`: the least randomness rho, one value or several.
    `components`, `covariance`, `upsampler`, `grid`, `latent_dim`, `hidden_dim`, `label_dim`, `min_std`:
    the family of the noise (docs/noise.md).
    `loss`, `kappa`: the loss of the search and its margin.
    `calls`: forward and backward passes of the search; `draws` per input in one step; `seeds`: searches
    with different seeds; `per_input_calls`: passes per input on the rung per-input.

    >>> Search(dependency="label", calls=50_000).resolve(100).rungs[-1].value
    'label'
    """

    dependency: str | None = option(
        None,
        "How far down the ladder to go:"
        f" {', '.join(f'{each} ({each.declared.dependence})' for each in LADDER)}."
        f" Each rung on the way has a row. Default: {choose_rung('nppr')};"
        f" {choose_rung('paper')} with --preset paper.",
        Panel.NOISE,
    )
    structure: str = option(
        ANY,
        f"Structure of the noise: {', '.join(STRUCTURES)}; any is not restricted.",
        Panel.ADVANCED,
    )
    correlation_length: int | None = option(
        None,
        "Distance in pixels beyond which the values of stationary noise are independent. Default: 9,"
        " or a third of the shorter side if that is less.",
        Panel.NOISE,
    )
    floor: Numbers = option(None, f"{FLOOR_HELP} Default: 0.", Panel.NOISE)
    components: int | None = option(
        None,
        f"Components of the mixture, K in the paper. Default: {Family.components}, or one per class"
        f" if the noise sees the label; {PAPER_COMPONENTS} with --preset paper.",
        Panel.NOISE,
    )
    covariance: str | None = option(
        None,
        "Covariance of a component: diag, lowrank:R or full. Default: diag; full with --preset paper.",
        Panel.NOISE,
    )
    upsampler: str | None = option(
        None,
        "Resolution of the noise: none (every pixel), bicubic or trainable (a coarse grid), multiscale"
        " (grids of all sizes). Default: none; trainable with --preset paper.",
        Panel.NOISE,
    )
    method: str = option(
        AUTO,
        "How the worst noise is searched for: gradients, scores (from the model's answers alone, on a"
        " coarse grid or with --transform), or auto: gradients where the model gives them.",
        Panel.SEARCH,
        flag="--search",
    )
    loss: str = option(Recipe.loss, f"Loss of the search: {' or '.join(LOSSES)}.", Panel.SEARCH)
    calls: int | None = option(
        None,
        "Budget of a search: forward and backward passes of one image. Further floors take more."
        " Fewer passes leave NPPR higher, not the classifier safer."
        f" Default: {SearchSettings.calls:,}; 50 epochs with --preset paper.",
        Panel.SEARCH,
        flag="--fit-calls",
    )
    draws: int | None = option(
        None,
        "Draws per input in one step. Default: 1; 32 with --preset paper.",
        Panel.SEARCH,
        flag="--fit-draws",
    )
    seeds: int = option(
        SearchSettings.seeds,
        "Repeat the search with this many seeds. All are reported; the lowest on the select split"
        " gets the plain name of its rung.",
        Panel.SEARCH,
        flag="--fit-seeds",
    )
    per_input_calls: int | None = option(
        None,
        "Forward and backward passes per input on the rung per-input, at least"
        f" {FEWEST_PER_INPUT}; 0 leaves it out. Default: {SearchSettings.per_input_calls}.",
        Panel.SEARCH,
    )

    @model_validator(mode="after")
    def _require_settings(self) -> Self:
        self.resolve(1)
        return self

    def resolve(self, inputs: int, effort: str = NORMAL) -> SearchSettings:
        """Return all settings of a search on a fit split of this many inputs."""
        work = EFFORTS[effort]
        if self.dependency is not None:
            known = [each.value for each in rungs_of(self.preset)]
            require_one_of("dependency", self.dependency, known)
        asked = self.dependency
        rung = choose_rung(self.preset) if asked is None else Dependency(asked)
        if self.structure in STRUCTURES and asked is None:
            rung = [each for each in rung.path if each in STRUCTURES[self.structure].rungs][-1]
        if self.per_input_calls and rung.is_fitted:
            wrong = "--preset paper" if self.is_paper else f"--dependency {rung}"
            wrong = wrong if asked or self.is_paper else f"--structure {self.structure}"
            raise SpecError(
                f"`per-input-calls` must be given with --dependency per-input, got {wrong}."
            )
        components = PAPER_COMPONENTS if self.is_paper else Family.components
        family = self.family(
            rung.fitted,
            components if self.components is None else self.components,
            self.covariance,
            self.upsampler,
            structure=self.structure,
        ).with_(correlation_length=self.correlation_length)
        chosen: dict[str, Any] = {
            "calls": self.calls,
            "seeds": self.seeds if self.is_typed("seeds") else work.seeds,
            "kappa": self.kappa,
            "loss": self.loss,
        }
        if self.draws is not None:
            chosen["draws"] = self.draws
        if self.is_paper:
            require_one_of("search", self.method, (AUTO, GRADIENTS))
            if effort == QUICK:
                raise SpecError(
                    "`effort` must not be quick with --preset paper, whose calls are published."
                    " Example: --effort normal"
                )
            floors = (0.0,) if self.floor is None else self.floor
            return paper_settings(family, inputs=inputs, floors=floors, **chosen)
        if self.calls is None and work.calls != 1:
            chosen["calls"] = round(work.calls * SearchSettings.calls)
        floors = SearchSettings.floors if self.floor is None else self.floor
        calls = work.per_input_calls if self.per_input_calls is None else self.per_input_calls
        return replace(
            default_settings(family, floors=floors, **chosen),
            method=self.method,
            per_class=self.components is None,
            per_input_calls=0 if rung.is_fitted else calls,
        )


class TrainOptions(Group):
    """A training; what is left out is the network's default (docs/training.md)."""

    method: Annotated[str, one_of(("standard", "gaussian", "pgd"))] = option(
        "standard",
        "standard, gaussian (images with Gaussian noise), or pgd: adversarial training by PGD.",
    )
    epochs: int | None = option(None, "Passes over the training images.")
    batch_size: int | None = option(None, "Images per step.")
    optimiser: Annotated[str | None, one_of(("adam", "sgd"))] = option(
        None, "sgd, or adam (with decoupled weight decay, AdamW)."
    )
    learning_rate: float | None = option(None, "Largest learning rate.")
    weight_decay: float | None = option(None, "Weight decay.")
    momentum: float | None = option(None, "Momentum of sgd.")
    warm_up: float | None = option(
        None, "Fraction of the steps in which the learning rate rises; a cosine follows."
    )
    label_smoothing: float | None = option(
        None, "Weight spread over all classes instead of the label."
    )
    crop: int | None = option(None, "Shift images by up to this many pixels, border repeated.")
    flip: bool | None = option(None, "Mirror images at random. Default: colour images only.")
    norm: Annotated[str | None, one_of(NORM_NAMES)] = option(
        None, "Norm of the budget of pgd: linf or l2. Default: linf."
    )
    eps: str | float | None = option(None, "Radius of the budget of pgd, such as 8/255.")
    attack_steps: int | None = option(None, "Steps of the attack. Default: 10.")
    attack_step: float | None = option(
        None, "Size of a step relative to the radius. Default: 0.25."
    )
    sigma: float | None = option(
        None, "Standard deviation per pixel of the noise of gaussian, such as 0.25."
    )
    seed: int = option(
        0, "Seed of subsets, initial weights, order, crops, flips, noise and attacks."
    )

    @model_validator(mode="after")
    def _require_method(self) -> Self:
        if self.method == "pgd":
            if self.eps is None:
                raise BudgetError("`eps` must be given with --method pgd. Example: --eps 8/255")
            parse_radius(self.eps)
        if self.method == "gaussian":
            require_sigma(self.sigma, "with --method gaussian")
        attack = dict.fromkeys(("norm", "eps", "attack_steps", "attack_step"), "pgd")
        for name, method in {**attack, "sigma": "gaussian"}.items():
            if getattr(self, name) is not None and self.method != method:
                raise SpecError(
                    f"`{name.replace('_', '-')}` must be left out with --method {self.method}, got"
                    f" {getattr(self, name)!r}. Add --method {method} to train against"
                    f" {'attacks' if method == 'pgd' else 'noise'}."
                )
        return self


class Assessment(Group):
    """All settings of an assessment."""

    model: ModelSettings
    data: DataSettings
    budget: BudgetSettings
    search: Search
    measure: Measure
    run: Run


PLACES: dict[type[Group], str] = {
    Measure: "measure=nppr.Measure({}=...)",
    Search: "search=nppr.Search({}=...)",
    Run: "run=nppr.Run({}=...)",
    NetworkSettings: "model=nppr.load_classifier(model, {}=...)",
    ImageSettings: "data=nppr.load_data(data, {}=...)",
    BudgetSettings: "budget=nppr.Budget.linf(...), nppr.Budget.l2(...) or nppr.Budget.box(...)",
}
"""The arguments of `nppr.assess` that take the settings of a group."""


@dataclass(frozen=True)
class Excerpt:
    """The settings of a group that a command or a policy has.

    `words` and `defaults` replace the help and the defaults of the group.
    """

    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """A setting as a flag of a command or a key of a file: `name` of the `group` of a tree."""

    group: str
    name: str
    info: FieldInfo
    kind: Any
    """The type in the declaration of the group."""
    is_own: bool
    """Whether the tree declares the setting or changes its help or default."""
    has_own_default: bool = False
    """Whether the tree changes the default of the group."""

    @property
    def extra(self) -> dict[str, Any]:
        """What `option` was told beside default and help."""
        assert isinstance(self.info.json_schema_extra, dict)
        return dict(self.info.json_schema_extra)

    @property
    def flag(self) -> str:
        """The name of the flag, without dashes."""
        return flag_name(self.name, self.info)


def settings_in(tree: type[Group]) -> dict[str, Setting]:
    """Return the settings of a tree by the name of their flag, in which underscores are hyphens."""
    found = {}
    for top, declared in tree.model_fields.items():
        kind = declared.annotation
        if not (isinstance(kind, type) and issubclass(kind, Group)):
            own = top in tree.__annotations__
            found[top] = Setting("", top, declared, kind, own)
            continue
        shown = next((each for each in declared.metadata if isinstance(each, Excerpt)), Excerpt())
        for name, info in kind.model_fields.items():
            if name not in shown.without and (shown.only is None or name in shown.only):
                changed = copy(info)
                changed.description = shown.words.get(name, info.description)
                changed.default = shown.defaults.get(name, info.default)
                redefined = name in shown.defaults
                own = redefined or name in shown.words
                found[f"{top}.{name}"] = Setting(
                    top, name, changed, info.annotation, own, redefined
                )
    return {each.flag: each for each in found.values()}


def build_tree(tree: type[GroupT], given: Mapping[str, Any], where: str = "") -> GroupT:
    """Return the tree with values by the names of their flags; the first mistake is one line.

    `where` is a word for the file that the values come from.
    """
    known = settings_in(tree)
    flags = {(each.group, each.name): each.flag for each in known.values()}
    values: dict[str, dict[str, Any]] = {"": {}}
    for setting in known.values():
        own = values.setdefault(setting.group, {})
        if setting.has_own_default:
            own[setting.name] = setting.info.default
    for flag, value in given.items():
        if flag not in known:
            raise unknown(f"key{where}" if where else "option", flag, known)
        values[known[flag].group][known[flag].name] = value

    def build(kind: Any, group: str, own: Mapping[str, Any]) -> Any:
        try:
            return kind.model_validate(own, context=BY_FLAGS)
        except ValidationError as error:
            mistake = error.errors()[0]
            name = str(mistake["loc"][0])
            raise wrong_value(flags.get((group, name), name), mistake, where) from None

    top = values.pop("")
    groups = {
        group: build(tree.model_fields[group].annotation, group, own)
        for group, own in values.items()
    }
    built: GroupT = build(tree, "", {**top, **groups})
    return built
