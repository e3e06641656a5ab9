"""Options that belong together, and commands that take such groups.

`@grouped` shows the command line the fields of every group a command takes as options of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from nppr.cli import options
from nppr.errors import SpecError, unknown

if TYPE_CHECKING:  # PyTorch is loaded when a command runs
    from nppr.budget import Budget
    from nppr.classifiers import Classifier
    from nppr.data import Data
    from nppr.search import SearchSettings

__all__ = [
    "BudgetOptions",
    "DataOptions",
    "FitOptions",
    "MeasureOptions",
    "ModelOptions",
    "PageOptions",
    "RunOptions",
    "grouped",
    "run_folder",
]

DEPENDENCIES = ("independent", "label", "input", "joint")
PRESETS = ("nppr", "paper")
RARE_CALLS = 1_000_000


@dataclass(frozen=True)
class ModelOptions:
    """The classifier, and the model that gives features."""

    model: options.Model = "digits-cnn"
    weights: options.Weights = None
    mean: options.Mean = None
    std: options.Std = None
    classes: options.Classes = None
    stem: options.Stem = None
    features: options.Features = None
    feature_model: options.FeatureModel = None
    feature_weights: options.FeatureWeights = None

    def load(self, data: Data) -> tuple[Classifier, Classifier | None]:
        """The classifier, and the other model for features if there is one."""
        from nppr.classifiers import load_classifier

        if self.feature_weights is not None and self.feature_model is None:
            raise SpecError("`feature-weights` must come with --feature-model, got it alone.")
        classifier = load_classifier(
            self.model,
            weights=self.weights,
            mean=options.numbers("mean", self.mean),
            std=options.numbers("std", self.std),
            classes=self.classes,
            stem=self.stem,
            features=None if self.feature_model else self.features,
            data=data,
        )
        if self.feature_model is None:
            return classifier, None
        return classifier, load_classifier(
            self.feature_model, weights=self.feature_weights, features=self.features, data=data
        )


@dataclass(frozen=True)
class DataOptions:
    """The data and how much of them."""

    data: options.Data = "digits"
    split: options.Split = None
    resize: options.Resize = None
    inputs: options.Inputs = None
    fit_inputs: options.FitInputs = None
    select_inputs: options.SelectInputs = None

    def load(self, classes: int | None) -> Data:
        """The data, whole."""
        from nppr.data import load_data

        loaded = load_data(self.data, split=self.split, resize=self.resize)
        return loaded if classes is None else loaded.with_classes(classes)


@dataclass(frozen=True)
class BudgetOptions:
    """The budget."""

    norm: options.Norm = "linf"
    eps: options.Eps = None

    def parse(self) -> Budget | None:
        """The budget, or None where it was not stated."""
        from nppr.budget import Budget

        text = options.budget_text(self.norm, self.eps)
        return Budget.parse(*text) if text else None


@dataclass(frozen=True)
class FitOptions:
    """The admissible set and how it is searched."""

    dependency: options.Dependency = "joint"
    components: options.Components = 7
    covariance: options.Covariance = None
    upsampler: options.Upsampler = None
    latent_dim: options.LatentDim = None
    grid: options.Grid = None
    hidden_dim: options.HiddenDim = None
    label_dim: options.LabelDim = 64
    min_std: options.MinStd = 0.05
    floor: options.Floor = None
    kappa: options.Kappa = 1.0
    loss: options.LossName = "margin"
    fit_calls: options.FitCalls = None
    fit_draws: options.FitDraws = None
    fit_seeds: options.FitSeeds = 1
    preset: options.Preset = "nppr"

    def settings(self, inputs: int, floors: str | None = None) -> SearchSettings:
        """The settings of a fit on a fit part of this many inputs."""
        if self.dependency not in DEPENDENCIES:
            raise unknown("dependency", self.dependency, DEPENDENCIES)
        if self.preset not in PRESETS:
            raise unknown("preset", self.preset, PRESETS)
        from nppr.noise import Dependency, Family
        from nppr.search import default_settings, paper_settings

        paper = self.preset == "paper"
        family = Family(
            dependency=Dependency(self.dependency),
            components=self.components,
            covariance=self.covariance or ("full" if paper else "diag"),
            upsampler=self.upsampler or ("bicubic" if paper else "none"),
            latent_dim=self.latent_dim,
            grid=self.grid,
            hidden_dim=(256 if paper else 128) if self.hidden_dim is None else self.hidden_dim,
            label_dim=self.label_dim,
            min_std=self.min_std,
        )
        recipe: dict[str, Any] = {"kappa": self.kappa, "loss": self.loss}
        if self.fit_draws is not None:
            recipe["draws"] = self.fit_draws
        text = self.floor or floors or ("0" if paper else "0,0.5")
        rho = options.numbers("floor", text) or ()
        how: dict[str, Any] = {"floors": rho, "calls": self.fit_calls, "seeds": self.fit_seeds}
        if paper:
            return paper_settings(family, inputs=inputs, **how, **recipe)
        return default_settings(family, **how, **recipe)


@dataclass(frozen=True)
class MeasureOptions:
    """How much is measured."""

    draws: options.Draws = None
    confidence: options.Confidence = 0.95
    precision: options.Precision = None
    rare: options.Rare = False
    rare_calls: options.RareCalls = None
    radii: options.Radii = None

    def settings(self) -> dict[str, Any]:
        """The arguments of `nppr.assess` that these are."""
        if self.rare_calls is not None and not self.rare:
            raise SpecError("`rare-calls` must come with --rare, got it alone.")
        calls = RARE_CALLS if self.rare_calls is None else self.rare_calls
        return {
            "draws": self.draws,
            "confidence": self.confidence,
            "precision": self.precision,
            "rare_calls": calls if self.rare else None,
            "radii": [text.strip() for text in self.radii.split(",")] if self.radii else (),
        }


@dataclass(frozen=True)
class PageOptions:
    """What is rendered from the report."""

    page: options.Page = True
    figures: options.Figures = None

    def kinds(self) -> tuple[str, ...]:
        """The formats of figures; what is not one is an error before anything runs."""
        if self.figures is None:
            return ()
        from nppr.report.figures import check_formats

        return check_formats(self.figures)

    def write(self, folder: Path) -> list[Path]:
        """Render what was asked for into the run's folder."""
        if not self.page and self.figures is None:
            return []
        from nppr.report.folder import read_run
        from nppr.report.page import write_rendered

        return write_rendered(read_run(folder), page=self.page, figures=self.kinds())


@dataclass(frozen=True)
class RunOptions:
    """How it runs and what it writes."""

    seed: options.Seed = 0
    quantise: options.Quantise = False
    batch_size: options.BatchSize = None
    device: options.Device = None
    out: options.Out = None
    resume: options.Resume = False
    overwrite: options.Overwrite = False
    quiet: options.Quiet = False


def run_folder(run: RunOptions, model: ModelOptions, data: DataOptions, *work: object) -> Path:
    """The folder asked for, or one under runs/ that belongs to these settings alone."""
    settings = (model, data, run.seed, run.quantise, *work)
    return run.out or options.default_folder(model.model, data.data, settings)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes the fields of its groups one by one, for the command line."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if isinstance(kind, type) and is_dataclass(kind):
            groups[name] = kind
            own = get_type_hints(kind, include_extras=True)
            parameters += [
                _option(field.name, own[field.name], field.default) for field in fields(kind)
            ]
        else:
            parameters.append(_option(name, kind, parameter.default))

    @wraps(command)
    def flat(**given: Any) -> None:
        arguments = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**arguments, **given)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {each.name: each.annotation for each in parameters}
    return flat


def _option(name: str, kind: Any, default: Any) -> inspect.Parameter:
    assert default is not MISSING, "every option has a default"
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
