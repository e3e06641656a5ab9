"""Every option, declared once: its type, default, check and help.

The command line makes its flags from these models, a study file its tables, and both turn them into
the settings of the library. A command's options are the fields of one model, which inherits from the
groups below. Nothing here imports PyTorch, so a wrong value is reported at once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from nppr.budget import LARGEST, NORMS, Budget, parse_radius
from nppr.errors import BudgetError, SpecError, require_at_most, unknown
from nppr.noise.family import Dependency, Family
from nppr.random_draws import DRAWS
from nppr.run_settings import PRECISION_DRAWS, RunSettings
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
from nppr.sources import (
    SOURCES,
    Source,
    default_sources,
    option_defaults,
    parse_sources,
    split_search,
)
from nppr.sources.gaussian_offset import CALLS, FEWEST_CALLS, bracket
from nppr.specs import EAGER
from nppr.tally import RARE_ACCURACY
from nppr.transformations import EDGES, GROUPS, PARAMETERS, parse_transform

RARE_CALLS = 1_000_000
GRADES = "ABCD"
"""Letters of a grade, the best first."""

FIGURE_FORMATS = ("svg", "png", "pdf")
_declared = count()


class Panel(StrEnum):
    """Where `--help` shows an option, in this order."""

    EVERYDAY = "Options"
    NOISE = "Noise"
    SEARCH = "Search"
    STATISTICS = "Statistics"
    OUTPUT = "Output"
    ADVANCED = "Advanced"


def option(
    default: Any, help_text: str, panel: Panel = Panel.EVERYDAY, flag: str | None = None
) -> Any:
    """A field that is an option of the command line; `flag` where it is not the field's name.

    A flag in capitals is a positional argument. `--help` keeps the order of declaration.
    """
    extra: dict[str, Any] = {"panel": panel, "flag": flag, "order": next(_declared)}
    return Field(default, description=help_text, json_schema_extra=extra)


def parse_numbers(value: Any, info: ValidationInfo) -> Any:
    """Numbers from a text with commas, one number or a list."""
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


Numbers = Annotated[tuple[float, ...] | None, BeforeValidator(parse_numbers)]


class Options(BaseModel):
    """A group of options: checked, frozen, unknown names refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    _typed: frozenset[str] | None = PrivateAttr(None)

    def with_typed(self, names: Iterable[str]) -> Self:
        """The same options, of which these were typed and the others are defaults."""
        self._typed = frozenset(names)
        return self

    def is_typed(self, name: str) -> bool:
        """Whether an option was stated, as every one is that differs from its default."""
        if self._typed is not None:
            return name in self._typed
        return bool(getattr(self, name) != type(self).model_fields[name].default)


OptionsT = TypeVar("OptionsT", bound=Options)


def flag_name(name: str, field: FieldInfo | None = None) -> str:
    """The name of a field's flag, without dashes."""
    extra = field.json_schema_extra if field else None
    flag = extra.get("flag") if isinstance(extra, dict) else None
    return str(flag or name).removeprefix("--").split(" ")[0].replace("_", "-")


EXPECTED = {"int_parsing": "a whole number", "float_parsing": "a number"}
"""What a value must be, by the type of pydantic's error."""


def checked_options(model: type[OptionsT], given: Mapping[str, Any]) -> OptionsT:
    """The options; the first value that is not of its type is an error of one line."""
    try:
        return model(**given)
    except ValidationError as error:
        mistake = error.errors()[0]
        field = model.model_fields.get(str(mistake["loc"][0]))
        name = flag_name(str(mistake["loc"][0]), field)
        expected = EXPECTED.get(mistake["type"], "a value in range")
        raise SpecError(f"`{name}` must be {expected}, got {mistake['input']!r}.") from None


def require_one_of(name: str, value: str, valid: Collection[str]) -> None:
    """Raise `SpecError`, with the nearest valid value, where a value is not one of the valid ones."""
    if value not in valid:
        raise unknown(name, value, valid)


def require_sources(text: str | None, budget: Budget | None = None) -> None:
    """Raise `SpecError` where a list of sources names one that does not exist in the budget."""
    others = split_search(text, budget)[1] if text else None
    if others:
        parse_sources(others, budget or Budget.linf(0.1))


def require_sigma(sigma: float | None, where: str) -> float:
    """The standard deviation of Gaussian noise; raise `SpecError` unless it is a number > 0."""
    if sigma is None:
        raise SpecError(f"`sigma` must be given {where}. Example: --sigma 0.25")
    if not 0 < sigma < math.inf:
        raise SpecError(f"`sigma` must be a number > 0, got {sigma:g}. Example: --sigma 0.25")
    require_at_most("sigma", sigma, LARGEST)
    return sigma


def figure_formats(text: str | None) -> tuple[str, ...]:
    """The formats of figures in a text with commas, each once."""
    listed = text.split(",") if text is not None else []
    wanted = tuple(dict.fromkeys(each.strip().lower() for each in listed))
    for each in wanted:
        if each not in FIGURE_FORMATS:
            raise SpecError(
                f"`figures` must be svg, png or pdf, or several separated by commas, got {each!r}."
                " Example: --figures svg,pdf"
            )
    return wanted


def _sources_help() -> str:
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name, kind in SOURCES.items():
        names = [each.replace("_", "-") for each in option_defaults(kind)]
        kinds.setdefault(tuple(names), []).append(name)
    listed = [f"{', '.join(names)}: {', '.join(options)}." for options, names in kinds.items()]
    presets = [name for kind in SOURCES.values() for name in kind.presets]
    boxed = [name for name, kind in SOURCES.items() if kind.transforms]
    return " ".join(
        [
            "Sources separated by commas, each with its options after colons, as in pgd:steps=20.",
            "nppr: the worst noise found by a search (panels Noise and Search).",
            *listed,
            f"Presets: {', '.join(presets)}. all: every source.",
            f"Default of assess: {default_sources()}. With --transform: {', '.join(boxed)}.",
        ]
    )


STEM_OPTION = option(
    None,
    "First layers of resnet18, resnet50, wide_resnet50_2 and vgg16: imagenet or small.",
    Panel.ADVANCED,
)


class ModelOptions(Options):
    """The classifier, and the layer that gives features."""

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
        None, "Number of classes, where weights or labels do not show it.", Panel.ADVANCED
    )
    stem: str | None = STEM_OPTION
    features: str | None = option(
        None,
        "Layer whose output input-dependent noise may see. Default: the input of the last linear"
        " layer.",
        Panel.NOISE,
    )


class DataOptions(Options):
    """The data and how much of them."""

    data: str = option(
        "digits",
        "digits, hf:NAME, or a path: CIFAR-10/100 or Tiny ImageNet (folder or archive), a folder of"
        " images, parquet, idx files, .npz.",
    )
    inputs: int | None = option(
        None,
        "Evaluate at most this many inputs, stratified by class, including those misclassified without"
        " noise.",
    )
    split: str | None = option(
        None, "Named split of the data to evaluate. Default: the test split.", Panel.ADVANCED
    )
    class_order: str | None = option(
        None,
        "A text file with the names of the classes, a line for each output of the classifier, or JSON"
        " (a list, or name to number). Default: words in sorted order, numbers as they are.",
        Panel.ADVANCED,
    )
    resize: int | None = option(None, "Resize images to this many pixels per side.", Panel.ADVANCED)
    range: str | None = option(
        None,
        "Range of the numbers in a .npz that are not images in [0, 1], such as -1,1, or one pair per"
        " feature with ; between them. Inputs may then have any shape; --eps is a share of the range.",
        Panel.ADVANCED,
    )
    fit_inputs: int | None = option(None, "As --inputs, for the fit split.", Panel.ADVANCED)
    select_inputs: int | None = option(None, "As --inputs, for the select split.", Panel.ADVANCED)


class BudgetOptions(Options):
    """The budget."""

    norm: str = option("linf", f"Norm of the budget: {' or '.join(NORMS)}.")
    eps: str | None = option(
        None, "Radius of the budget, such as 8/255 or 0.03. Default for digits: 0.1 (linf)."
    )

    transform: str | None = option(
        None,
        "Natural perturbations instead of added noise: parameters and their ranges, such as"
        " rotate=15,shift=0.05,exposure=0.5 or blur=0:2. Parameters: "
        + ", ".join(
            [
                *GROUPS,
                *(
                    name + f" ({known.unit})" * bool(known.unit)
                    for name, known in PARAMETERS.items()
                ),
            ]
        )
        + f"; edges={'|'.join(EDGES)} for what lies outside the image.",
    )

    @model_validator(mode="after")
    def _require_budget(self) -> Self:
        if self.transform is not None:
            if self.eps is not None or self.norm != "linf":
                raise BudgetError(
                    "`transform` must be given without --norm and --eps: its ranges are the budget."
                    " Example: --transform rotate=15"
                )
            parse_transform(self.transform)
            return self
        require_one_of("norm", self.norm, NORMS)
        if self.eps is None and self.norm != "linf":
            raise BudgetError(f"`eps` must be given with --norm {self.norm}. Example: --eps 0.5")
        if self.eps is not None:
            parse_radius(self.eps)
        return self

    def budget(self) -> Budget | None:
        """The budget, or None where it was not stated."""
        if self.transform is not None:
            return Budget.box(self.transform)
        return None if self.eps is None else Budget.parse(self.norm, self.eps)


SOURCES_OPTION = option(None, _sources_help())
DRAWS_OPTION = option(
    None,
    f"Perturbations drawn per input. Default: {DRAWS}, fewer for more than 1,000 inputs; with"
    f" --precision, {PRECISION_DRAWS} to start"
    " with.",
)
CONFIDENCE_OPTION = option(
    RunSettings.confidence, "Confidence of the intervals and bounds.", Panel.STATISTICS
)
SEED_OPTION = option(0, "Seed of subsets, draws and resampling.")
DEVICE_OPTION = option(
    None, "Device, such as cpu or cuda:0. Default: the accelerator, if there is one."
)
FIGURES_OPTION = option(None, "Also write the figures as files: svg,png,pdf.", Panel.OUTPUT)
EVALUATE_ALL_OPTION = option(
    False,
    "If the data come in one split, evaluate every input instead of 30 %. Needs sources without a"
    " fit: all but nppr and universal.",
    Panel.ADVANCED,
)
SLICES_OPTION = option(
    None,
    "Columns beside the data, such as weather or camera: a CSV or parquet file with a header and a line"
    " for every image. Each value of a column gets a row of its own.",
    Panel.STATISTICS,
)
QUIET_OPTION = option(False, "Print nothing but the path of the result.")
JSON_OPTION = option(False, "Print the result as JSON instead of a table.", flag="--json")


class RunOptions(ModelOptions, DataOptions):
    """A classifier that is run on data."""

    seed: int = SEED_OPTION
    device: str | None = DEVICE_OPTION
    batch_size: int | None = option(
        None, "Images per micro-batch. Default: found by a short trial.", Panel.ADVANCED
    )

    def run_settings(self, **changed: Any) -> RunSettings:
        """The settings whose names are those of options; a mistake in them is reported here."""
        shared = RunSettings.__dataclass_fields__.keys() & type(self).model_fields.keys()
        return RunSettings(**{name: getattr(self, name) for name in shared} | changed)


class NoisyRunOptions(RunOptions, BudgetOptions):
    """A classifier that is run on perturbed inputs."""

    quantise: bool = option(False, "Round perturbed inputs to 8 bits.", Panel.ADVANCED)
    quiet: bool = QUIET_OPTION


class FolderOptions(Options):
    """The run folder."""

    out: Path | None = option(None, "Run folder. Default: one under runs/ for these settings.")
    resume: bool = option(False, "Continue an interrupted run of the same settings.")
    overwrite: bool = option(False, "Replace the run that the folder holds.")


class MeasureOptions(NoisyRunOptions, FolderOptions):
    """How much is measured, and what is written and printed."""

    draws: int | None = DRAWS_OPTION
    confidence: float = CONFIDENCE_OPTION
    precision: float | None = option(
        None,
        "Add inputs, then draws, until every PR and NPPR is within this much, 0.01 for ±1 percentage"
        " point, by an interval that holds after stopping. --inputs is then the most to use.",
        Panel.STATISTICS,
    )
    rare: bool = option(
        False,
        "Search for failures rarer than one in the number of draws, by multilevel splitting, on inputs"
        " without a failure: for fixed noise, nppr and bound.",
        Panel.STATISTICS,
    )
    rare_calls: int | None = option(
        None,
        f"Images that --rare may classify in total. Default: {RARE_CALLS:,}; {RARE_ACCURACY}.",
        Panel.STATISTICS,
    )
    radii: str | None = option(
        None,
        "Measure the sources at these radii too: 2/255,4/255,16/255; with --transform, in these"
        " fractions of the ranges: 0.25,0.5. Learned noise is scaled, not learned again.",
        Panel.STATISTICS,
    )
    evaluate_all: bool = EVALUATE_ALL_OPTION
    slices: Path | None = SLICES_OPTION
    anyway: bool = option(
        False,
        "Measure the classifier even if it hardly beats guessing, such as one without its weights.",
        Panel.ADVANCED,
    )
    page: bool = option(
        True, "Write report.html, the page for readers. Default: yes.", Panel.OUTPUT
    )
    figures: str | None = FIGURES_OPTION
    as_json: bool = JSON_OPTION

    @model_validator(mode="after")
    def _require_valid(self) -> Self:
        if self.rare_calls is not None and not self.rare:
            raise SpecError("`rare-calls` must be given with --rare, got it alone.")
        figure_formats(self.figures)
        return self

    def run_settings(self, **changed: Any) -> RunSettings:
        """The settings of the run, radii and calls for rare failures as numbers."""
        calls = RARE_CALLS if self.rare_calls is None else self.rare_calls
        radii = self.radii.split(",") if self.radii else ()
        return super().run_settings(
            rare_calls=calls if self.rare else None,
            radii=tuple(text.strip() for text in radii),
            **changed,
        )


class FamilyOptions(Options):
    """Settings of learned noise that the command line and study files share."""

    preset: str = option(
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

    @field_validator("preset")
    @classmethod
    def _require_preset(cls, value: str) -> str:
        require_one_of("preset", value, PRESETS)
        return value

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
        )


FLOOR_HELP = (
    "Least randomness rho, from 0 to 1, one value or several: that fraction of every perturbation is"
    " Uniform noise. 0 is the paper's set. Each value has a row."
)


class SearchOptions(FamilyOptions):
    """The admissible set and how it is searched."""

    dependency: str | None = option(
        None,
        "How far down the ladder to go, the most that the noise may depend on: independent, label,"
        " input, joint (input and true label) or per-input (the worst for every input on its own)."
        " Each rung on the way has a row. Default: per-input; joint with --preset paper.",
        Panel.NOISE,
    )
    floor: Numbers = option(
        None, f"{FLOOR_HELP} Default: 0,0.5; 0 with --preset paper.", Panel.NOISE
    )
    components: int | None = option(
        None,
        f"Components of the mixture, K in the paper. Default: {Family.components}, or one per class"
        f" where the noise sees the label; {PAPER_COMPONENTS} with --preset paper.",
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
    search: str = option(
        AUTO,
        "How the worst noise is searched for: gradients, scores (from the model's answers alone, on a"
        " coarse grid or with --transform), or auto: gradients where the model gives them.",
        Panel.SEARCH,
    )
    loss: str = option(Recipe.loss, f"Loss of the search: {' or '.join(LOSSES)}.", Panel.SEARCH)
    fit_calls: int | None = option(
        None,
        "Budget of a search: forward and backward passes of one image. Further floors take more."
        " Fewer passes leave NPPR higher, not the classifier safer."
        f" Default: {SearchSettings.calls:,}; 50 epochs with --preset paper.",
        Panel.SEARCH,
    )
    fit_draws: int | None = option(
        None, "Draws per input in one step. Default: 1; 32 with --preset paper.", Panel.SEARCH
    )
    fit_seeds: int = option(
        SearchSettings.seeds,
        "Repeat the search with this many seeds; all are reported, the lowest of each rung on the"
        " select split bears its plain name.",
        Panel.SEARCH,
    )
    per_input_calls: int | None = option(
        None,
        "Forward and backward passes per input on the rung per-input, at least"
        f" {FEWEST_PER_INPUT}; 0 leaves it out. Default: {SearchSettings.per_input_calls}.",
        Panel.SEARCH,
    )

    @model_validator(mode="after")
    def _require_settings(self) -> Self:
        self.search_settings(1)
        return self

    def search_settings(self, inputs: int) -> SearchSettings:
        """The settings of a search on a fit split of this many inputs."""
        known = [each.value for each in Dependency if not (self.is_paper and each == "per-input")]
        rung = known[-1] if self.dependency is None else self.dependency
        require_one_of("dependency", rung, known)
        own = rung == Dependency.PER_INPUT
        if self.per_input_calls and not own:
            wrong = "--preset paper" if self.is_paper else f"--dependency {rung}"
            raise SpecError(
                f"`per-input-calls` must be given with --dependency per-input, got {wrong}."
            )
        components = PAPER_COMPONENTS if self.is_paper else Family.components
        family = self.family(
            Dependency.JOINT if own else Dependency(rung),
            components if self.components is None else self.components,
            self.covariance,
            self.upsampler,
        )
        chosen: dict[str, Any] = {
            "calls": self.fit_calls, "seeds": self.fit_seeds, "kappa": self.kappa, "loss": self.loss,
        }  # fmt: skip
        if self.fit_draws is not None:
            chosen["draws"] = self.fit_draws
        if self.is_paper:
            require_one_of("search", self.search, (AUTO, GRADIENTS))
            floors = (0.0,) if self.floor is None else self.floor
            return paper_settings(family, inputs=inputs, floors=floors, **chosen)
        floors = SearchSettings.floors if self.floor is None else self.floor
        calls = (
            SearchSettings.per_input_calls if self.per_input_calls is None else self.per_input_calls
        )
        return replace(
            default_settings(family, floors=floors, **chosen),
            method=self.search,
            per_class=self.components is None,
            per_input_calls=calls if own else 0,
        )


class FeatureModelOptions(Options):
    """Another model whose features input-dependent noise sees."""

    feature_model: str | None = option(
        None, "Another model to take features from, as --model.", Panel.NOISE
    )
    feature_weights: str | None = option(None, "Weights of --feature-model.", Panel.NOISE)

    @model_validator(mode="after")
    def _require_feature_model(self) -> Self:
        if self.feature_weights is not None and self.feature_model is None:
            raise SpecError("`feature-weights` must be given with --feature-model, got it alone.")
        return self


DISTRIBUTION_OPTION = option(
    None, "Learned noise: a file written by nppr fit, or a folder of them.", Panel.NOISE
)


class SourcesOptions(MeasureOptions, FeatureModelOptions):
    """What is measured."""

    sources: str | None = SOURCES_OPTION
    distribution: Path | None = DISTRIBUTION_OPTION
    engine: str = option(
        EAGER,
        "How the model runs. eager: exact. bfloat16: about a quarter less time, on processors"
        " with 16-bit floats, which take the clear decisions and lead fits. The model repeats a random"
        " part of these decisions, and intervals are widened to allow for errors (docs/speed.md).",
        Panel.ADVANCED,
    )

    @model_validator(mode="after")
    def _require_sources(self) -> Self:
        require_sources(self.sources, self.budget())
        return self


class BracketOptions(MeasureOptions):
    """Options of `nppr bracket`."""

    norm: str = option("l2", "Norm of the offset: l2, the norm that belongs to Gaussian noise.")
    eps: str | None = option(None, "Longest offset R, in the l2 norm, such as 0.25.")
    sigma: float | None = option(
        None, "Standard deviation of the Gaussian noise per pixel, such as 0.25."
    )
    radii: str | None = option(None, "Brackets at these R too, separated by commas: 0.05,0.1.")
    draws: int | None = option(
        500, "Noise drawn per input, without an offset and under the worst one found."
    )
    search_calls: int = option(
        CALLS,
        "Forward and backward passes per input of the search for the worst offset, at least"
        f" {FEWEST_CALLS}.",
        Panel.SEARCH,
    )

    @model_validator(mode="after")
    def _require_bracket(self) -> Self:
        if self.transform is not None:
            raise SpecError("`transform` must be left out here: a bracket is for Gaussian noise.")
        if self.norm != "l2":
            raise SpecError(
                f"`norm` must be l2 for a bracket, got {self.norm!r}: Gaussian noise of sigma bounds"
                " offsets by their l2 length. Example: --norm l2 --eps 0.25 --sigma 0.25"
            )
        require_sigma(self.sigma, "for a bracket: the standard deviation per pixel")
        if self.precision is not None:
            raise SpecError(
                "`precision` must be left out here: the bounds hold for a number of draws that was"
                " fixed beforehand. Example: --draws 2000"
            )
        if self.confidence < 0.5:
            raise SpecError(
                f"`confidence` must be at least 0.5 here, got {self.confidence:g}. Example: 0.95"
            )
        self.sources()
        return self

    def run_settings(self, **changed: Any) -> RunSettings:
        """The settings of the run; each radius has sources of its own."""
        return replace(super().run_settings(**changed), radii=())

    def sources(self) -> list[Source]:
        """The noise without an offset, and the search for the worst one at each radius."""
        radii = {parse_radius(text) for text in (self.eps or "", *super().run_settings().radii)}
        return [*bracket(self.sigma or 0.0, sorted(radii), self.search_calls)]


class TrainOptions(Options):
    """A training; what is left out is the network's default (docs/training.md)."""

    method: str = option(
        "standard",
        "standard, gaussian (images with Gaussian noise), or pgd: adversarial training by PGD.",
    )
    epochs: int | None = option(None, "Passes over the training images.")
    batch_size: int | None = option(None, "Images per step.")
    optimiser: str | None = option(None, "sgd, or adam (with decoupled weight decay, AdamW).")
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
    norm: str | None = option(None, "Norm of the budget of pgd: linf or l2. Default: linf.")
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
        require_one_of("method", self.method, ("standard", "gaussian", "pgd"))
        if self.optimiser is not None:
            require_one_of("optimiser", self.optimiser, ("adam", "sgd"))
        if self.method == "pgd":
            if self.eps is None:
                raise BudgetError("`eps` must be given with --method pgd. Example: --eps 8/255")
            Budget.parse(self.norm or "linf", self.eps)
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
