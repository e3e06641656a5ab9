"""The inputs a search works on, and choosing on those that were not fitted on.

A search works on clean-correct inputs only: those classified correctly without noise.

PR is linear in the distribution: with r_k(x) the fraction of draws of component k classified correctly
on input x, a mixture has `sum_k pi_k(x) r_k(x)`. So one table of r_k scores the mixture and all
sharpened variants of it. Choices by the table are scored by cross-fitting: chosen on one half of the
inputs, scored on the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from nppr.core.budget import Budget
from nppr.core.random_draws import DRAWS_PER_BLOCK, DrawBlock
from nppr.core.tally import FloatArray, IntArray, Select, SplitKind
from nppr.data import Split, stratified_order
from nppr.errors import DataError
from nppr.measuring.measurement import measure
from nppr.models import Classifier, FrozenClassifier, PreparedClassifier, frozen
from nppr.noise.distribution import Distribution
from nppr.noise.family import Rule
from nppr.noise.mixture import Context
from nppr.search.search_record import Diagnostics
from nppr.sources import Source
from nppr.sources.learned import Learned

IN_MEMORY = 2**29
"""Bytes of images that are kept in memory; more are read from the data at every step."""

BETTER_BY = 2.0
"""Standard errors of the paired difference by which a child must be better than its parent."""

DIAGNOSED = 32
"""Inputs whose draws are looked at for diagnostics."""

EDGE = 0.99
"""A pixel (linf) or a draw (l2) is at the edge from this fraction of the radius on."""

S = TypeVar("S", bound=SplitKind)


@dataclass(frozen=True, eq=False)
class CleanInputs(Generic[S]):
    """The clean-correct inputs of a split.

    `features` `(N, F)` are empty where the noise sees none; `images` are None where they are too many
    to be kept in memory; `calls` counts the forward passes it took to find them.
    """

    split: Split[S]
    features: Tensor
    images: Tensor | None
    calls: int

    def __len__(self) -> int:
        return len(self.split)

    def batch(self, positions: IntArray, device: torch.device) -> tuple[Tensor, Tensor]:
        """Images `(B, C, H, W)` and labels `(B,)`."""
        if self.images is None:
            x, y = self.split.batch(positions)
        else:
            x = self.images[torch.from_numpy(positions)]
            y = self.split.answers(positions)
        return x.to(device), y.to(device)

    def features_at(self, positions: IntArray, device: torch.device) -> Tensor | None:
        """Features `(B, F)`, or None where there are none."""
        if not self.features.shape[1]:
            return None
        return self.features[torch.from_numpy(positions)].to(device)

    def features_by_index(self) -> dict[int, Tensor] | None:
        """Features by dataset index, or None where there are none."""
        if not self.features.shape[1]:
            return None
        return dict(zip(self.split.indices.tolist(), self.features, strict=True))

    def limit(self, inputs: int, seed: int) -> CleanInputs[S]:
        """A seeded subset, stratified by class; a smaller one lies inside a larger one."""
        order = stratified_order(self.split.labels, self.split.indices, seed)
        keep = np.sort(order[:inputs])
        rows = torch.from_numpy(keep)
        images = None if self.images is None else self.images[rows]
        return CleanInputs(_rows(self.split, keep), self.features[rows], images, self.calls)


def find_clean_inputs(
    classifier: PreparedClassifier,
    split: Split[S],
    *,
    features: bool,
    feature_model: Classifier | None = None,
    keep_images: bool = False,
) -> CleanInputs[S]:
    """Run every input once: which are clean-correct, and what their features are."""
    size, everything = classifier.micro_batch, np.arange(len(split))
    batches = np.split(everything, everything[size::size])
    images: list[Tensor] = []
    found: list[tuple[Tensor, Tensor]] = []
    with classifier.frozen() as models, torch.inference_mode():
        for positions in batches:
            x, y = split.batch(positions)
            if keep_images:
                images.append(x)
                keep_images = sum(each.nbytes for each in images) <= IN_MEMORY
                if not keep_images:
                    images.clear()
            x, y = x.to(classifier.device), y.to(classifier.device)
            found.append(_look(models.fast, x, y, features, feature_model))
        calls = models.fast.calls
        if features and feature_model is not None:
            calls += sum(len(known) for known, _ in found)
    correct, seen = (torch.cat([each[i] for each in found]) for i in (0, 1))
    keep = np.flatnonzero(correct.cpu().numpy())
    if not len(keep):
        raise DataError(
            f"the {split.kind.name} split must hold at least one clean-correct input, got none."
            " Check the classifier, its normalisation and the labels."
        )
    kept = torch.cat(images)[torch.from_numpy(keep)] if keep_images else None
    return CleanInputs(_rows(split, keep), seen.cpu(), kept, calls)


def _rows(split: Split[S], keep: IntArray) -> Split[S]:
    return replace(split, indices=split.indices[keep], labels=split.labels[keep])


def _look(
    model: FrozenClassifier, x: Tensor, y: Tensor, features: bool, feature_model: Classifier | None
) -> tuple[Tensor, Tensor]:
    """Return which inputs are classified correctly, `(B,)`, and the features of those that are."""
    seen, logits = model.features_and_logits(x, wanted=features and feature_model is None)
    if features and feature_model is not None:
        with frozen(feature_model) as other:
            seen = other.features(x)
    logits, y = model.to_classes(logits, y)
    correct = logits.argmax(1) == y
    return correct, seen[correct]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A distribution that may be chosen, with its PR on every select input."""

    name: str
    distribution: Distribution
    rates: FloatArray

    @property
    def value(self) -> float:
        """Mean over the inputs."""
        return float(self.rates.mean())


@dataclass(eq=False)
class Judge:
    """Measures on the select split, and counts what that costs."""

    classifier: PreparedClassifier
    inputs: CleanInputs[Select]
    budget: Budget
    draws: int
    seed: int
    calls: int = 0

    def rates(self, source: Source) -> FloatArray:
        """PR of every input: the fraction of its draws classified correctly."""
        tally = measure(
            source,
            self.classifier,
            self.inputs.split,
            draws=self.draws,
            seed=self.seed,
            clean_correct=np.ones(len(self.inputs), bool),
        )
        self.calls += tally.calls
        return tally.rates

    def of(self, distribution: Distribution) -> FloatArray:
        """PR of every input under a distribution as it is."""
        return self.rates(Learned(self.budget, distribution, known=self.inputs.features_by_index()))

    def table(self, distribution: Distribution) -> FloatArray:
        """PR of every input under every component, `(N, K)`."""
        columns = [
            self.of(distribution.sharpened(Rule.CHOSEN, torch.tensor(k)))
            for k in range(distribution.family.components)
        ]
        return np.stack(columns, axis=1)

    def weights(self, distribution: Distribution) -> FloatArray:
        """The weights of the components for every input, `(N, K)`."""
        device = self.classifier.device
        labels = torch.from_numpy(self.inputs.split.labels).to(device)
        features = self.inputs.features_at(np.arange(len(self.inputs)), device)
        with torch.inference_mode():
            given = distribution.mixture(Context(labels, features))
            weights = given.log_weights.exp().expand(len(labels), -1)
        known: FloatArray = weights.double().cpu().numpy()
        return known


def candidates(name: str, distribution: Distribution, judge: Judge) -> list[Candidate]:
    """A fitted mixture and its sharpened variants, scored on select.

    Noise with a latent vector per position has none: PR is not linear in the law of a position.
    """
    if not distribution.is_pattern:
        return [Candidate(name, distribution, judge.of(distribution))]
    table, weights = judge.table(distribution), judge.weights(distribution)
    labels = judge.inputs.split.labels
    found = [Candidate(name, distribution, (weights * table).sum(1))]
    if distribution.family.components == 1:
        return found
    largest = np.take_along_axis(table, weights.argmax(1)[:, None], 1)[:, 0]
    sharp = distribution.sharpened(Rule.LARGEST)
    found.append(Candidate(f"{name}, largest weight", sharp, largest))
    rules = {"best component": _best_overall}
    if distribution.family.dependency.sees_label:
        rules["best per class"] = _best_per_class
    for rule, choose in rules.items():
        chosen = choose(table, labels, distribution.classes)
        sharp = distribution.sharpened(Rule.CHOSEN, torch.from_numpy(chosen))
        rates = _cross_fitted(table, labels, distribution.classes, choose)
        found.append(Candidate(f"{name}, {rule}", sharp, rates))
    return found


def paired_gain(before: Candidate, after: Candidate) -> float:
    """Return by how much the value fell on the same select inputs."""
    return float((before.rates - after.rates).mean())


def best(own: Sequence[Candidate], parents: Sequence[Candidate]) -> Candidate:
    """The lowest candidate; a parent stays unless a child is better beyond chance."""
    child = min(own, key=lambda candidate: candidate.value)
    if not parents:
        return child
    parent = min(parents, key=lambda candidate: candidate.value)
    difference = child.rates - parent.rates
    error = float(difference.std(ddof=1) / np.sqrt(len(difference))) if len(difference) > 1 else 0.0
    return child if float(difference.mean()) < -BETTER_BY * error else parent


def _best_overall(rates: FloatArray, labels: IntArray, classes: int) -> IntArray:  # noqa: ARG001
    """The component with the lowest PR, for every class."""
    return np.full(classes, rates.mean(0).argmin())


def _best_per_class(rates: FloatArray, labels: IntArray, classes: int) -> IntArray:
    """The component with the lowest PR in each class; that of all where a class is absent."""
    chosen = _best_overall(rates, labels, classes)
    for label in np.unique(labels):
        chosen[label] = rates[labels == label].mean(0).argmin()
    return chosen


def _cross_fitted(
    table: FloatArray,
    labels: IntArray,
    classes: int,
    choose: Callable[[FloatArray, IntArray, int], IntArray],
) -> FloatArray:
    """Rates of a component that is chosen on the other half of the inputs."""
    half = np.zeros(len(labels), bool)
    for label in np.unique(labels):  # halves of every class
        half[np.flatnonzero(labels == label)[::2]] = True
    rates = np.empty(len(labels))
    for own in (half, ~half):
        others = ~own if (~own).any() else own
        chosen = choose(table[others], labels[others], classes)
        rates[own] = table[own, chosen[labels[own]]]
    return rates


def diagnose(fitted: Distribution, selected: Distribution, judge: Judge) -> Diagnostics:
    """The weights of a fitted mixture, and how random the noise is that was selected from it."""
    budget, classifier = judge.budget, judge.classifier
    some = judge.inputs.limit(DIAGNOSED, judge.seed)
    x, y = some.batch(np.arange(len(some)), classifier.device)
    draws = DrawBlock(
        seed=judge.seed,
        split=some.split.kind.name,
        indices=tuple(some.split.indices.tolist()),
        block=0,
        size=DRAWS_PER_BLOCK,
        device=classifier.device,
    )
    source = Learned(budget, selected, known=some.features_by_index())
    with classifier.frozen() as models, torch.inference_mode():
        delta = source.perturb(models.fast, x, y, draws)
    pixel_radius = budget.norm.noise_scale(budget.radius, math.prod(delta.shape[-3:]))
    sizes = budget.size(delta) if budget.norm.name == "l2" else delta.abs()
    return Diagnostics(
        **weight_diagnostics(judge.weights(fitted)),
        realised_std=float(delta.var(1).mean().sqrt() / pixel_radius),
        share_at_edge=float((sizes >= EDGE * budget.radius).float().mean()),
        scale=float(selected.scale.detach()),
        floor=selected.family.floor,
        parameters=_medians(budget, delta),
    )


def _medians(budget: Budget, delta: Tensor) -> dict[str, float]:
    """The median parameters of perturbations `(B, S, P, 1, 1)` of a transformation."""
    if budget.transform is None:
        return {}
    medians = budget.parameters(delta).flatten(0, -2).median(0).values
    return dict(zip(budget.transform.names, medians.tolist(), strict=True))


def weight_diagnostics(weights: FloatArray) -> dict[str, float]:
    """Entropy ratio, largest, smallest, spread and effective number of weights `(N, K)`."""
    components = weights.shape[1]
    entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum(1)
    ratio = entropy / math.log(components) if components > 1 else np.ones(len(weights))
    return {
        "entropy_ratio": float(ratio.mean()),
        "max_weight": float(weights.max(1).mean()),
        "min_weight": float(weights.min(1).mean()),
        "std_weight": float(weights.std(1).mean()),
        "effective_components": float(np.exp(entropy).mean()),
    }
