from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

from helpers import learned_noise
from nppr.budget import Budget
from nppr.classifiers import Classifier, Prepared, prepare
from nppr.collect import collect
from nppr.data import Data, from_arrays
from nppr.measure import measure, probe
from nppr.noise import Dependency, Family
from nppr.noise.distribution import Distribution
from nppr.report.evidence import Evidence
from nppr.search.learned_noise import LearnedNoise
from nppr.sources import Clean, learned_name
from nppr.tally import Evaluate, PerturbationSource, Tally

FEATURES = 6


@dataclass
class Case:
    """A small classifier that is right on most of its data, with sources measured on it."""

    data: Data
    classifier: Prepared
    budget: Budget
    draws: int = 20
    seed: int = 3

    def learned(
        self,
        dependency: Dependency,
        floor: float = 0.0,
        name: str | None = None,
        winner: str | None = None,
    ) -> LearnedNoise:
        torch.manual_seed(0)
        family = Family(dependency, components=3, hidden_dim=8, label_dim=4, floor=floor)
        made = Distribution(family, self.shape, self.data.classes, FEATURES)
        with torch.no_grad():
            for value in made.parameters():
                value.add_(0.5 * torch.randn_like(value))
        return learned_noise(made, self.budget, name or learned_name(floor), winner)

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self.data.shape
        return channels, height, width

    def clean(self) -> Tally[Evaluate]:
        everything = np.ones(len(self.data.evaluate), bool)
        return measure(Clean(), self.classifier, self.data.evaluate, clean_correct=everything)

    def tallies(self, sources: list[PerturbationSource]) -> dict[str, Tally[Evaluate]]:
        right = self.clean().correct == 1
        return {
            source.name: measure(
                source,
                self.classifier,
                self.data.evaluate,
                draws=self.draws,
                seed=self.seed,
                clean_correct=right,
            )
            for source in sources
        }

    def collected(
        self,
        sources: list[PerturbationSource],
        fitted: list[LearnedNoise],
        tallies: dict[str, Tally[Evaluate]] | None = None,
        micro_batch: int | None = None,
    ) -> Evidence:
        classifier = self.classifier
        if micro_batch:
            classifier = replace(classifier, micro_batch=micro_batch)
        everything = [*sources, *(each.source for each in fitted)]
        found = self.tallies(everything) if tallies is None else tallies
        return collect(
            classifier, self.data, found, self.clean(), sources, fitted,
            budget=self.budget, seed=self.seed,
        )  # fmt: skip


def made(
    inputs: int = 60,
    shape: tuple[int, int, int] = (1, 8, 8),
    classes: int = 3,
    budget: Budget | None = None,
) -> Case:
    """Random images with the labels that the classifier gives them, but for every tenth."""
    torch.manual_seed(1)
    first, last = nn.Linear(int(np.prod(shape)), FEATURES), nn.Linear(FEATURES, classes)
    network = nn.Sequential(nn.Flatten(), first, nn.Tanh(), last)
    model = Classifier(network)
    images = torch.rand(inputs, *shape)
    with torch.no_grad():
        first.weight.mul_(3)
        if inputs > 1:
            last.bias.sub_(network(images).mean(0))
    prepared = prepare(model, images[:8], classes=classes, micro_batch=32)
    with prepared.frozen() as models, torch.no_grad():
        labels = models.reference.logits(images).argmax(1)
    labels[9::10] = (labels[9::10] + 1) % classes
    named = tuple(f"class {number}" for number in range(classes))
    data = from_arrays(images, labels, shares=(0.0, 0.0), name="random", class_names=named)
    prepared = prepare(model, probe(data.evaluate), classes=classes, micro_batch=32)
    return Case(data, prepared, budget or Budget.linf(0.2))


@pytest.fixture(scope="session")
def make() -> Callable[..., Case]:
    return made


@pytest.fixture(scope="session")
def case() -> Case:
    return made()
