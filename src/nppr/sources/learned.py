"""A learned distribution as a source: its tally is read as NPPR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import FrozenModel, IntArray, Metric, SplitKind
from nppr.data import Split
from nppr.errors import SpecError
from nppr.models import Classifier, frozen
from nppr.noise.admissible_set import NPPR
from nppr.noise.distribution import Distribution
from nppr.noise.rungs import Dependency
from nppr.sources.base import Guidance, LastFound, Source


@dataclass(frozen=True, eq=False)
class Learned(Source):
    """A fitted distribution in a budget.

    The budget may have another radius than the one it was fitted for. Noise that depends on the input
    sees features of the classifier it is measured on, or of `feature_model`; `known` holds those of
    inputs that were seen before, by dataset index. `dependency` and `structure` name the
    admissible set it was searched in, by default that of its family; `fit_seed` is the number of a
    repeated search that was not chosen.
    """

    kind = NPPR
    metric = Metric.NPPR
    guidance = Guidance.MORE

    budget: Budget
    distribution: Distribution
    feature_model: Classifier | None = None
    dependency: Dependency | None = None
    fit_seed: int | None = None
    known: Mapping[int, Tensor] | None = field(default=None, repr=False)
    structure: str = ""
    _seen: LastFound[Tensor] = field(default_factory=LastFound, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.dependency is None:
            object.__setattr__(self, "dependency", self.distribution.family.dependency)
        if not self.structure:
            object.__setattr__(self, "structure", self.distribution.family.structure)

    @property
    def floor(self) -> float:  # type: ignore[override]
        """Rho."""
        return self.distribution.family.floor

    @property
    def name(self) -> str:
        assert self.admissible is not None
        return self.admissible.name_noise(self.fit_seed)

    @property
    def row_source(self) -> str:
        return NPPR

    @property
    def moved_by_splitting(self) -> Source:
        return self

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """Perturbations `(B, S, C, H, W)`."""
        self._require_shape(x)
        with torch.inference_mode():
            context = self.distribution.sees(y, self._features(model, x, draws))
            return self.distribution.to(x.device).exact(context, draws, self.budget)

    def centre(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """The latent mean of the component that one draw of each input comes from, `(B, D)`."""
        with torch.inference_mode():
            context = self.distribution.sees(y, self._features(model, x, draws))
            found = self.distribution.to(x.device).centre(context, draws)
        return found.clone()

    def sample(
        self,
        x: Tensor,
        y: Tensor,
        draws: int,
        *,
        model: Classifier | None = None,
        seed: int = 0,
    ) -> Tensor:
        """Draw perturbations `(B, draws, C, H, W)` of images `(B, C, H, W)` with labels `(B,)`.

        `model` gives the features where the noise depends on the input.
        """
        if type(draws) is not int or draws < 1:
            raise SpecError(f"`draws` must be a whole number >= 1, got {draws!r}.")
        self._require_shape(x)
        if len(y) != len(x) or not bool(((y >= 0) & (y < self.distribution.classes)).all()):
            raise SpecError(
                f"`y` must hold {len(x)} labels in 0..{self.distribution.classes - 1}, got {y}."
            )
        block = DrawBlock(seed, "sample", tuple(range(len(x))), 0, draws, x.device, draws)
        source = model or self.feature_model
        if source is None:
            if self.distribution.features:
                raise SpecError(
                    "`model` must be given: this noise sees features of a classifier."
                    " Example: source.sample(x, y, 10, model=classifier)"
                )
            return self.distribution.exact(self.distribution.sees(y), block, self.budget).detach()
        with frozen(source) as seen:
            return self.perturb(seen, x, y, block).clone()

    def with_features(
        self, model: FrozenModel, split: Split[SplitKind], places: IntArray, batch: int
    ) -> tuple[Learned, IntArray]:
        calls = np.zeros(len(places), dtype=np.int64)
        if not self.distribution.features:
            return self, calls
        known = dict(self.known or {})
        todo = [row for row, i in enumerate(split.indices[places].tolist()) if i not in known]
        calls[todo] = 1
        device = next(self.distribution.parameters()).device
        for start in range(0, len(todo), batch):
            chosen = places[todo[start : start + batch]]
            features = self._found(model, split.batch(chosen)[0].to(device))
            known.update(zip(split.indices[chosen].tolist(), features.unbind(), strict=True))
        return replace(self, known=known), calls

    def _features(self, model: FrozenModel, x: Tensor, draws: DrawBlock) -> Tensor | None:
        if not self.distribution.features:
            return None
        if self.known is not None and all(index in self.known for index in draws.indices):
            return torch.stack([self.known[index] for index in draws.indices]).to(x.device)
        return self._seen.get(model, draws, lambda: self._found(model, x))

    def _found(self, model: FrozenModel, x: Tensor) -> Tensor:
        if self.feature_model is None:
            found = model.features(x)
        else:
            with frozen(self.feature_model) as other:
                found = other.features(x)
        if found.shape[1] != self.distribution.features:
            raise SpecError(
                f"`distribution` sees {self.distribution.features} features, got"
                f" {found.shape[1]} from this classifier. Give the classifier it was fitted with"
                " as --feature-model."
            )
        return found

    def _require_shape(self, x: Tensor) -> None:
        wanted = self.budget.domain(tuple(x.shape[1:]))
        if wanted != tuple(self.distribution.shape):
            raise SpecError(
                f"`distribution` perturbs {self.budget.nouns.perturbed} of shape"
                f" {self.distribution.shape}, got {wanted}."
            )
