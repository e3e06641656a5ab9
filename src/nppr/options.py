"""Every option, declared once: its type, default, check and help.

The command line makes its flags from these models, a study file its tables, and both turn them into
the settings of the library. Nothing here imports PyTorch, so a wrong value is reported at once.
Everyday options have no panel; `--help` shows the others below, panel by panel.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from nppr.assessment.run_settings import DRAWS, PRECISION_DRAWS, RunSettings
from nppr.budget import NORMS, Budget, parse_radius
from nppr.errors import BudgetError, SpecError, unknown
from nppr.noise.family import Dependency, Family
from nppr.search.search_settings import (
    LOSSES,
    PRESETS,
    Recipe,
    SearchSettings,
    default_settings,
    paper_settings,
)
from nppr.sources import SOURCES, default_sources, option_defaults, parse_sources, split_search

RARE_CALLS = 1_000_000
FIGURE_FORMATS = ("svg", "png", "pdf")


class Panel(StrEnum):
    """Where `--help` shows an option."""

    NOISE = "Noise"
    SEARCH = "Search"
    STATISTICS = "Statistics"
    OUTPUT = "Output"
    ADVANCED = "Advanced"


def option(
    default: Any, help_text: str, panel: Panel | None = None, flag: str | None = None
) -> Any:
    """A field that is an option of the command line; `flag` where it is not the field's name."""
    extra: dict[str, Any] = {"panel": panel.value if panel else None, "flag": flag}
    return Field(default, description=help_text, json_schema_extra=extra)


def parse_numbers(value: Any, info: ValidationInfo) -> Any:
    """Numbers from a text with commas, one number or a list."""
    if value is None:
        return None
    try:
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(
            float(part) for part in (parts if isinstance(parts, list | tuple) else [parts])
        )
    except (ValueError, TypeError):
        raise SpecError(
            f"`{info.field_name}` must be numbers separated by commas, got {value!r}."
            " Example: 0.5,0.5,0.5"
        ) from None


Numbers = Annotated[tuple[float, ...] | None, BeforeValidator(parse_numbers)]
WeightsPath = Annotated[
    str | None, BeforeValidator(lambda each: None if each is None else str(each))
]


class Options(BaseModel):
    """A group of options: checked, frozen, unknown names refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def one_of(name: str, value: str, valid: Collection[str]) -> str:
    """The value, if it is one of the valid ones."""
    if value not in valid:
        raise unknown(name, value, valid)
    return value


class ModelOptions(Options):
    """The classifier, and the model that gives features."""

    model: str = option(
        "digits-cnn",
        "A network of the zoo (digits-cnn, resnet18, resnet20, vgg16, ...), model.pt2, model.onnx,"
        " hf:NAME_OR_FOLDER, timm:NAME, torchvision:NAME, or Python code that makes a model:"
        " pkg.module:callable or path/to/file.py:callable. Python code is run; every other format runs"
        " none.",
    )
    weights: WeightsPath = option(
        None, "safetensors file or PyTorch state dict, or random. Default: those nppr ships."
    )
    mean: Numbers = option(None, "Normalisation, one number or one per channel: 0.5,0.5,0.5.")
    std: Numbers = option(None, "Normalisation, as --mean.")
    classes: int | None = option(
        None, "Number of classes, where weights or labels do not show it.", Panel.ADVANCED
    )
    stem: str | None = option(
        None, "imagenet or small, for resnet18, resnet50, wide_resnet50_2, vgg16.", Panel.ADVANCED
    )
    features: str | None = option(
        None,
        "Layer whose output input-dependent noise may see. Default: input of the last linear layer.",
        Panel.NOISE,
    )


class FeatureModelOptions(Options):
    """Another model whose features input-dependent noise sees."""

    feature_model: str | None = option(
        None, "Another model to take features from, as --model.", Panel.NOISE
    )
    feature_weights: WeightsPath = option(None, "Weights of --feature-model.", Panel.NOISE)

    def model_post_init(self, _: Any) -> None:
        if self.feature_weights is not None and self.feature_model is None:
            raise SpecError("`feature-weights` must come with --feature-model, got it alone.")


class DataOptions(Options):
    """The data and how much of them."""

    data: str = option(
        "digits",
        "digits, or a path: CIFAR-10/100 or Tiny ImageNet (folder or archive), parquet, image folder,"
        " idx files, .npz; or hf:NAME.",
    )
    inputs: int | None = option(
        None,
        "Evaluate at most this many inputs: stratified by class, before misclassified ones are set"
        " aside.",
    )
    split: str | None = option(
        None, "Named split of the data to evaluate. Default: its test split.", Panel.ADVANCED
    )
    resize: int | None = option(None, "Resize images to this many pixels per side.", Panel.ADVANCED)
    fit_inputs: int | None = option(None, "As --inputs, for the fit split.", Panel.SEARCH)
    select_inputs: int | None = option(None, "As --inputs, for the select split.", Panel.SEARCH)


class BudgetOptions(Options):
    """The budget."""

    norm: str = option("linf", f"Norm of the budget: {' or '.join(NORMS)}.")
    eps: str | None = option(
        None, "Radius of the budget, such as 8/255 or 0.03. Default for digits: 0.1 (linf)."
    )

    def model_post_init(self, _: Any) -> None:
        one_of("norm", self.norm, NORMS)
        if self.eps is None and self.norm != "linf":
            raise BudgetError(f"`eps` must be given with --norm {self.norm}. Example: --eps 0.5")
        if self.eps is not None:
            parse_radius(self.eps)

    def budget(self) -> Budget | None:
        """The budget, or None where it was not stated."""
        return None if self.eps is None else Budget.parse(self.norm, self.eps)


def _sources_help() -> str:
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name, kind in SOURCES.items():
        names = [each.replace("_", "-") for each in option_defaults(kind)]
        kinds.setdefault(tuple(names), []).append(name)
    listed = [f"{', '.join(names)}: {', '.join(options)}." for options, names in kinds.items()]
    presets = [name for kind in SOURCES.values() for name in kind.presets]
    return " ".join(
        [
            "Sources separated by commas, their options by colons.",
            *listed,
            f"{', '.join(presets)} are presets. all: every one of them.",
            "nppr: the worst noise found by a search, see the panels Noise and Search.",
            f"Default: {default_sources()}.",
        ]
    )


def check_sources(text: str | None) -> None:
    """Raise `SpecError` where a list of sources names what does not exist."""
    if text:
        _, others = split_search(text)
        if others:
            parse_sources(others, Budget.linf(0.1))


class SourcesOptions(Options):
    """What is measured."""

    sources: str | None = option(None, _sources_help())

    def model_post_init(self, _: Any) -> None:
        check_sources(self.sources)


class DistributionOptions(Options):
    """Noise that was learned before."""

    distribution: Path | None = option(
        None,
        "Noise written by nppr fit, one file or a folder of them, instead of a search.",
        Panel.NOISE,
    )


class FamilyOptions(Options):
    """Settings of learned noise that the command line and study files share."""

    preset: str = option(
        "nppr",
        "nppr, or paper: the paper's recipe like for like, nothing selected after it.",
        Panel.SEARCH,
    )
    kappa: float = option(Recipe.kappa, "Margin of the loss.", Panel.SEARCH)
    latent_dim: int | None = option(None, "Latent dimension of --upsampler trainable.", Panel.NOISE)
    grid: int | None = option(
        None,
        "Side of the coarse grid of bicubic and trainable. Default: 4, or 7 for images of more than 32"
        " pixels.",
        Panel.NOISE,
    )
    hidden_dim: int | None = option(
        None,
        "Width of the network that sees the features. Default: 128; 256 in --preset paper.",
        Panel.SEARCH,
    )
    label_dim: int = option(Family.label_dim, "Size of the label embedding.", Panel.SEARCH)
    min_std: float = option(
        Family.min_std, "Least latent standard deviation, before the squashing.", Panel.NOISE
    )

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, value: str) -> str:
        return one_of("preset", value, PRESETS)

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
        return Family(
            dependency=dependency,
            components=components,
            covariance=covariance or ("full" if paper else "diag"),
            upsampler=upsampler or ("bicubic" if paper else "none"),
            latent_dim=self.latent_dim,
            grid=self.grid,
            hidden_dim=(256 if paper else 128) if self.hidden_dim is None else self.hidden_dim,
            label_dim=self.label_dim,
            min_std=self.min_std,
            floor=floor,
        )


class SearchOptions(FamilyOptions):
    """The admissible set and how it is searched."""

    dependency: str = option(
        Family.dependency.value,
        "The most the noise may depend on: independent, label, input or joint (input and true label)."
        " The search walks up to it.",
        Panel.NOISE,
    )
    floor: Numbers = option(
        None,
        "Least randomness rho from 0 to 1, one or several: that share of every perturbation is Uniform"
        " noise. 0 is the paper's set. One row each. Default: 0,0.5; 0 in --preset paper.",
        Panel.NOISE,
    )
    components: int = option(
        Family.components, "Components of the mixture, K in the paper.", Panel.NOISE
    )
    covariance: str | None = option(
        None,
        "diag, lowrank:R or full (of each component). Default: diag; full in --preset paper.",
        Panel.NOISE,
    )
    upsampler: str | None = option(
        None,
        "Resolution of the noise: none (every pixel), bicubic or trainable (a coarse grid), multiscale"
        " (grids of all sizes). Default: none; bicubic in --preset paper.",
        Panel.NOISE,
    )
    loss: str = option(Recipe.loss, f"{' or '.join(LOSSES)}.", Panel.SEARCH)
    fit_calls: int | None = option(
        None,
        "Budget of a search: forward and backward passes of one image, for the whole walk."
        f" Default: {SearchSettings.calls}; 50 epochs in --preset paper.",
        Panel.SEARCH,
    )
    fit_draws: int | None = option(
        None, "Draws per input in one step. Default: 1; 32 in --preset paper.", Panel.SEARCH
    )
    fit_seeds: int = option(
        SearchSettings.seeds,
        "Repeat the search; all are reported, the lowest is named nppr.",
        Panel.SEARCH,
    )

    def model_post_init(self, _: Any) -> None:
        self.settings(1)  # whatever is wrong with them is reported now

    def settings(self, inputs: int, floors: tuple[float, ...] | None = None) -> SearchSettings:
        """The settings of a search on a fit split of this many inputs; `floors` are the default."""
        one_of("dependency", self.dependency, [each.value for each in Dependency])
        family = self.family(
            Dependency(self.dependency), self.components, self.covariance, self.upsampler
        )
        recipe: dict[str, Any] = {"kappa": self.kappa, "loss": self.loss}
        if self.fit_draws is not None:
            recipe["draws"] = self.fit_draws
        default = floors or ((0.0,) if self.is_paper else SearchSettings.floors)
        chosen = default if self.floor is None else self.floor
        if self.is_paper:
            return paper_settings(
                family, inputs=inputs, floors=chosen, calls=self.fit_calls, seeds=self.fit_seeds,
                **recipe,
            )  # fmt: skip
        return default_settings(
            family, floors=chosen, calls=self.fit_calls, seeds=self.fit_seeds, **recipe
        )


class MeasureOptions(Options):
    """How much is measured."""

    draws: int | None = option(
        None,
        f"Perturbations drawn per input. Default: {DRAWS}; with --precision {PRECISION_DRAWS}, to begin"
        " with.",
    )
    confidence: float = option(
        RunSettings.confidence, "Confidence of the intervals.", Panel.STATISTICS
    )
    precision: float | None = option(
        None,
        "Add inputs, then draws, until the interval of every PR and NPPR has at most this half-width:"
        " 0.01 is one percentage point. --inputs is then the most to take.",
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
        f"Images that --rare may classify in all. Default: {RARE_CALLS:,}.",
        Panel.STATISTICS,
    )
    radii: str | None = option(
        None,
        "Measure the sources at these radii too: 2/255,4/255,16/255. Learned noise is scaled, not"
        " learned again.",
        Panel.STATISTICS,
    )

    def model_post_init(self, _: Any) -> None:
        if self.rare_calls is not None and not self.rare:
            raise SpecError("`rare-calls` must come with --rare, got it alone.")


class OnlyMergedOptions(Options):
    """Whether attacks are reported one by one."""

    only_merged: bool = option(
        False,
        "Report AR over all sources together and not for each attack: broken inputs are not attacked"
        " again.",
        Panel.STATISTICS,
    )


class PageOptions(Options):
    """What is rendered from the report."""

    page: bool = option(True, "Write report.html, the page for readers.", Panel.OUTPUT)
    figures: str | None = option(
        None, "Write the figures as files too: svg, png, pdf.", Panel.OUTPUT
    )

    def model_post_init(self, _: Any) -> None:
        self.formats()

    def formats(self) -> tuple[str, ...]:
        """The formats of figures, each once."""
        listed = self.figures.split(",") if self.figures is not None else []
        wanted = tuple(dict.fromkeys(each.strip().lower() for each in listed))
        for each in wanted:
            if each not in FIGURE_FORMATS:
                raise SpecError(
                    "`figures` must be svg, png or pdf, or some of them with commas between, got"
                    f" {each!r}. Example: --figures svg,pdf"
                )
        return wanted


class RunOptions(Options):
    """How it runs and what it writes."""

    seed: int = option(0, "Seed of subsets, draws and resampling.")
    device: str | None = option(
        None, "Such as cpu or cuda:0. Default: the accelerator, if there is one."
    )
    out: Path | None = option(None, "Run folder. Default: one under runs/ for these settings.")
    resume: bool = option(False, "Continue an interrupted run of the same settings.")
    overwrite: bool = option(False, "Replace the run that the folder holds.")
    quiet: bool = option(False, "Print nothing but the path of the result.")
    quantise: bool = option(False, "Round perturbed inputs to 8 bits.", Panel.ADVANCED)
    batch_size: int | None = option(
        None, "Micro-batch. Default: found by a short search.", Panel.ADVANCED
    )


class TrainOptions(Options):
    """A training; what is left out is the network's default (docs/training.md)."""

    method: str = option("standard", "standard, or pgd: adversarial training by PGD.")
    epochs: int | None = option(None, "Passes over the training images.")
    batch_size: int | None = option(None, "Images per step.")
    optimiser: str | None = option(None, "sgd, or adam (with decoupled weight decay, AdamW).")
    learning_rate: float | None = option(None, "Largest learning rate.")
    weight_decay: float | None = option(None, "Weight decay.")
    momentum: float | None = option(None, "Momentum of sgd.")
    warm_up: float | None = option(
        None, "Share of the steps in which the learning rate rises; a cosine follows."
    )
    label_smoothing: float | None = option(
        None, "Weight spread over all classes instead of the label."
    )
    crop: int | None = option(None, "Shift images by up to this many pixels, border repeated.")
    flip: bool | None = option(
        None, "Mirror images at random. Default: colour images only.", flag="flip/--no-flip"
    )
    norm: str | None = option(None, "Norm of the budget of pgd: linf (default) or l2.")
    eps: float | str | None = option(None, "Radius of the budget of pgd, such as 8/255.")
    attack_steps: int | None = option(None, "Steps of the attack. Default: 10.")
    attack_step: float | None = option(
        None, "Size of a step relative to the radius. Default: 0.25."
    )
    seed: int = option(0, "Seed of subsets, first weights, order, crops, flips, attacks.")

    def model_post_init(self, _: Any) -> None:
        one_of("method", self.method, ("standard", "pgd"))
        if self.optimiser is not None:
            one_of("optimiser", self.optimiser, ("adam", "sgd"))
        attack = ("norm", "eps", "attack_steps", "attack_step")
        for name in attack if self.method == "standard" else ():
            if getattr(self, name) is not None:
                raise SpecError(
                    f"`{name.replace('_', '-')}` must be left out with --method standard, got"
                    f" {getattr(self, name)!r}. Add --method pgd to train against attacks."
                )
        if self.method == "pgd":
            if self.eps is None:
                raise BudgetError("`eps` must be given with --method pgd. Example: --eps 8/255")
            Budget.parse(self.norm or "linf", self.eps)


class JsonOptions(Options):
    """What is printed."""

    as_json: bool = option(False, "Print the result as JSON instead of a table.", flag="json")


def run_settings(
    data: DataOptions,
    run: RunOptions,
    measured: MeasureOptions | None = None,
    *,
    only_merged: bool = False,
) -> RunSettings:
    """The settings of a run; a mistake in them is reported here."""
    measured = measured or MeasureOptions()
    calls = RARE_CALLS if measured.rare_calls is None else measured.rare_calls
    radii = measured.radii.split(",") if measured.radii else ()
    return RunSettings(
        draws=measured.draws,
        inputs=data.inputs,
        fit_inputs=data.fit_inputs,
        select_inputs=data.select_inputs,
        confidence=measured.confidence,
        seed=run.seed,
        quantise=run.quantise,
        only_merged=only_merged,
        precision=measured.precision,
        rare_calls=calls if measured.rare else None,
        radii=tuple(text.strip() for text in radii),
    )
