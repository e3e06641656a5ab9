"""Learning the worst admissible noise of a classifier: from what the caller gives to files on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor

from nppr.budget import Budget
from nppr.classifiers import Classifier, Prepared
from nppr.data import Data
from nppr.distributed import first
from nppr.distributions import Saved, load_distribution, save_distribution, sealed
from nppr.errors import DistributionError
from nppr.fit import FAMILY, FitProgress, FitSettings, Outcome, Search
from nppr.sources import Gaussian, Laplace, Learned, Uniform, learned_name
from nppr.types import PerturbationSource

__all__ = ["Fitted", "Learner", "load_fitted", "references", "save_fitted"]

FitCallback = Callable[[FitProgress], None]


@dataclass(frozen=True, eq=False)
class Fitted:
    """A learned source with the record of how it was found."""

    source: Learned
    saved: Saved

    def described(self) -> dict[str, Any]:
        """Its entry in the report: all but what the report says elsewhere."""
        record = self.saved.model_dump(mode="json")
        kept = ("budget", "family", "rule", "features", "fit", "diagnostics")
        return {"source": self.source.name, **{name: record[name] for name in kept}}

    def with_known(self, features: Mapping[int, Tensor] | None) -> Fitted:
        """The same with features of inputs that were looked at before, by dataset index."""
        return replace(self, source=replace(self.source, known=features))

    def compared(self, fingerprint: str) -> bool:
        """Whether it was compared with reference noises on this classifier and in this budget."""
        return (
            bool(self.saved.fit.get("with_references"))
            and self.saved.stated_budget() == self.source.budget
            and self.saved.classifier.get("fingerprint") == fingerprint
        )

    @property
    def winner(self) -> str | None:
        """The reference noise that was worse than the family on select, or None."""
        found = self.saved.fit.get("with_references", {}).get("winner")
        return None if found in (None, FAMILY) else str(found)


@dataclass(frozen=True, eq=False)
class Learner:
    """A search that is about to run, on a classifier and data that are ready."""

    settings: FitSettings
    classifier: Prepared
    data: Data
    budget: Budget
    described: dict[str, Any]
    seed: int = 0
    feature_model: Classifier | None = None
    quantise: bool = False
    folder: Path | None = None
    identity: str = ""
    progress: FitCallback | None = None

    def run(self) -> list[Fitted]:
        """Fit all floors of all seeds; the one lowest on select bears the plain name."""
        search = Search(
            settings=self.settings,
            classifier=self.classifier,
            data=self.data,
            budget=self.budget,
            seed=self.seed,
            feature_model=self.feature_model,
            quantise=self.quantise,
            folder=self.folder,
            identity=self.identity,
            progress=self.progress,
            references=references(self.budget),
        )
        found = search.run()
        fitted: list[Fitted] = []
        for floor in self.settings.floors:
            same = sorted(
                (outcome for outcome in found if outcome.floor == floor),
                key=lambda outcome: (outcome.select_value or 0.0, outcome.number),
            )
            fitted += [self._fitted(outcome, rank) for rank, outcome in enumerate(same)]
        return fitted

    def _fitted(self, outcome: Outcome, rank: int) -> Fitted:
        name = learned_name(outcome.floor)
        if rank:
            name = f"{name}:fit-seed={outcome.number}"
        source = Learned(self.budget, outcome.distribution, self.feature_model, label=name)
        made = outcome.distribution
        saved = Saved(
            nppr_version=version("nppr"),
            budget={"norm": self.budget.norm.name, "radius": self.budget.radius},
            family=made.family.as_dict(),
            rule=made.rule,
            shape=made.shape,
            classes=made.classes,
            class_names=self.data.class_names,
            features=made.features,
            classifier=self.described,
            data={"name": self.data.name, "seed": self.seed},
            fit={**outcome.fit, "settings": self.settings.as_dict()},
            diagnostics=outcome.diagnostics,
        )
        return Fitted(source, sealed(saved, made))


def references(budget: Budget) -> tuple[PerturbationSource, ...]:
    """The noises that NPPR is also compared with while it is chosen."""
    return (Gaussian(budget), Uniform(budget), Laplace(budget))


def save_fitted(folder: Path, fitted: Sequence[Fitted]) -> list[Path]:
    """Write each distribution as a pair of files under its name; of several ranks the first does."""
    return first(lambda: _save_fitted(folder, fitted))


def _save_fitted(folder: Path, fitted: Sequence[Fitted]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for each in fitted:
        path = folder / each.source.name.replace(":", "_")
        save_distribution(path, each.source.distribution, each.saved)
        paths.append(path)
    return paths


def load_fitted(
    path: str | Path, budget: Budget | None = None, feature_model: Classifier | None = None
) -> list[Fitted]:
    """The distribution at a path, or all in a folder, for a budget (by default their own)."""
    place = Path(path)
    if place.is_dir():
        inner = place / "distributions"
        stems = sorted({found.with_suffix("") for found in place.glob("nppr*.json")})
        stems = stems or sorted({found.with_suffix("") for found in inner.glob("nppr*.json")})
        if not stems:
            raise DistributionError(
                f"`distribution` must be a folder with distributions, got {str(path)!r} with none."
                " Example: --distribution runs/fit"
            )
    else:
        stems = [place]
    fitted = []
    for stem in stems:
        distribution, saved = load_distribution(stem)
        own = budget or saved.stated_budget()
        label = stem.name.removesuffix(".json").removesuffix(".safetensors")
        name = label.replace("_", ":") if label.startswith("nppr") else None
        fitted.append(Fitted(Learned(own, distribution, feature_model, label=name), saved))
    return fitted
