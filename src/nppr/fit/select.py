"""Scoring, sharpening and choosing, on inputs that were not fitted on.

PR is linear in the distribution: with r_k(x) the share of right draws of component k on input x, a
mixture has `sum_k pi_k(x) r_k(x)`. So one table of r_k scores the mixture and all sharpened variants of
it. What is chosen by the table is scored by cross-fitting: chosen on one half of the inputs, scored on
the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nppr.budget import Budget
from nppr.classifiers import Prepared
from nppr.distributions import Context, Distribution, Rule
from nppr.fit.inputs import Found
from nppr.measure import measure
from nppr.sources import Learned
from nppr.types import FloatArray, IntArray, PerturbationSource, Select

__all__ = ["Candidate", "Judge", "best", "candidates"]

MARGIN = 1.0
"""Standard errors of the paired difference by which a child must be better than its parent."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A distribution that may be chosen, with its share of right draws on every select input."""

    name: str
    distribution: Distribution
    rates: FloatArray

    @property
    def value(self) -> float:
        """Mean over the inputs."""
        return float(self.rates.mean())


@dataclass(eq=False)
class Judge:
    """Measures on the select part, and counts what that costs."""

    classifier: Prepared
    inputs: Found[Select]
    budget: Budget
    draws: int
    seed: int
    quantise: bool = False
    calls: int = 0

    def rates(self, source: PerturbationSource) -> FloatArray:
        """Share of right draws of every input."""
        part = self.inputs.part
        tally = measure(
            source,
            self.classifier,
            part,
            draws=self.draws,
            seed=self.seed,
            clean_correct=np.ones(len(part), bool),
            quantise=self.quantise,
        )
        self.calls += tally.calls
        return tally.rates

    def of(self, distribution: Distribution) -> FloatArray:
        """Share of right draws under a distribution as it is."""
        return self.rates(Learned(self.budget, distribution, known=self.inputs.known()))

    def table(self, distribution: Distribution) -> FloatArray:
        """Share of right draws of every input under every component, `(N, K)`."""
        columns = [
            self.of(distribution.sharpened(Rule.CHOSEN, torch.tensor(k)))
            for k in range(distribution.family.components)
        ]
        return np.stack(columns, axis=1)

    def weights(self, distribution: Distribution) -> FloatArray:
        """The weights of the components for every input, `(N, K)`."""
        everything = np.arange(len(self.inputs))
        place = self.classifier.device
        labels = torch.from_numpy(self.inputs.part.labels).to(place)
        with torch.inference_mode():
            given = distribution.mixture(Context(labels, self.inputs.seen(everything, place)))
            weights = given.log_weights.exp().expand(len(labels), -1)
        known: FloatArray = weights.double().cpu().numpy()
        return known


def candidates(name: str, distribution: Distribution, judge: Judge) -> list[Candidate]:
    """A fitted mixture and its sharpened variants, scored on select."""
    table, weights = judge.table(distribution), judge.weights(distribution)
    labels = judge.inputs.part.labels
    found = [Candidate(name, distribution, (weights * table).sum(1))]
    if distribution.family.components == 1:
        return found
    largest = np.take_along_axis(table, weights.argmax(1)[:, None], 1)[:, 0]
    found.append(
        Candidate(f"{name}, largest weight", distribution.sharpened(Rule.LARGEST), largest)
    )
    rules: dict[str, Callable[[FloatArray, IntArray], IntArray]] = {
        "best component": lambda rates, _: np.full(distribution.classes, rates.mean(0).argmin())
    }
    if distribution.family.dependency.sees_label:
        rules["best per class"] = lambda rates, known: _per_class(
            rates, known, distribution.classes
        )
    for rule, choose in rules.items():
        chosen = torch.from_numpy(choose(table, labels))
        sharp = distribution.sharpened(Rule.CHOSEN, chosen)
        found.append(Candidate(f"{name}, {rule}", sharp, _crossed(table, labels, choose)))
    return found


def best(own: Sequence[Candidate], parents: Sequence[Candidate]) -> Candidate:
    """The lowest candidate; a parent stays unless a child is better beyond chance."""
    child = min(own, key=lambda candidate: candidate.value)
    if not parents:
        return child
    parent = min(parents, key=lambda candidate: candidate.value)
    difference = child.rates - parent.rates
    error = float(difference.std(ddof=1) / np.sqrt(len(difference))) if len(difference) > 1 else 0.0
    return child if float(difference.mean()) < -MARGIN * error else parent


def _per_class(rates: FloatArray, labels: IntArray, classes: int) -> IntArray:
    """The component with the fewest right draws in each class; that of all where a class is absent."""
    chosen = np.full(classes, rates.mean(0).argmin())
    for label in np.unique(labels):
        chosen[label] = rates[labels == label].mean(0).argmin()
    return chosen


def _crossed(
    table: FloatArray,
    labels: IntArray,
    choose: Callable[[FloatArray, IntArray], IntArray],
) -> FloatArray:
    """Rates of a chosen component, chosen on the other half of the inputs."""
    half = np.zeros(len(labels), bool)
    for label in np.unique(labels):  # halves of every class
        half[np.flatnonzero(labels == label)[::2]] = True
    rates = np.empty(len(labels))
    for part in (half, ~half):
        if not part.any():
            continue
        others = ~part if (~part).any() else part
        chosen = choose(table[others], labels[others])
        rates[part] = table[part, chosen[labels[part]]]
    return rates
