"""Classifiers and data whose robustness is known exactly."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Evaluate, FrozenModel
from nppr.data import Data, Split, StoredImages, from_arrays
from nppr.models import ModelSpec
from nppr.noise.distribution import Distribution
from nppr.noise.rungs import LADDER
from nppr.report.number import Number, StatedInterval
from nppr.run.assessment_run import AssessmentRun
from nppr.run.resolve import resolve
from nppr.search.learned_noise import LearnedNoise, law_of
from nppr.search.search_record import (
    FAMILY,
    BudgetRecord,
    ClassifierRecord,
    Diagnostics,
    LearnedNoiseRecord,
    ReferenceChoice,
    SearchConditions,
    SearchRecord,
    StageRecord,
)
from nppr.search.search_settings import SearchSettings, default_settings
from nppr.settings import Group, Measure, Run, Search, flags_of
from nppr.sources import Source
from nppr.sources.learned import Learned


def open_run(
    model: ModelSpec,
    data: Data,
    budget: Budget,
    settings: Measure,
    *,
    search: SearchSettings | None = None,
    feature_model: ModelSpec | None = None,
    **run: Any,
) -> AssessmentRun:
    """A run of a model on data as they are."""
    resolved = resolve(model, data, Measure(), feature_model=feature_model)
    return AssessmentRun.open(resolved, budget, settings, search=search, run=Run(**run))


FAMILIES = tuple(rung for rung in LADDER if rung.is_fitted)
"""The dependencies of families of mixtures: all but per-input."""


class Hung(BaseException):
    """Something has not ended in time; no handler of errors catches this."""


@contextmanager
def ends_within(seconds: float) -> Iterator[None]:
    """Raise `Hung` when the block takes longer, also if it waits for a file."""

    def stop(*_: object) -> NoReturn:
        raise Hung(f"it has not ended within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Linear(nn.Module):
    """Two classes: class 0 where `w . x + b > 0`."""

    def __init__(self, w: Tensor, b: float) -> None:
        super().__init__()
        self.w = nn.Parameter(w.float())
        self.b = nn.Parameter(torch.tensor(float(b)))

    def forward(self, x: Tensor) -> Tensor:
        margin = x.flatten(1) @ self.w.flatten() + self.b
        return torch.stack([margin, torch.zeros_like(margin)], dim=1)


class GradientCounter(nn.Module):
    """Counts the images whose gradient is wanted."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.seen = model, 0

    def __deepcopy__(self, memory: object) -> GradientCounter:
        return self  # one counter for all forms

    def forward(self, x: Tensor) -> Tensor:
        """Return what the model returns."""
        if x.requires_grad:
            self.seen += len(x)
        logits: Tensor = self.model(x)
        return logits


class Stray(Source):
    """A source that adds `delta` to every pixel, allowed or not."""

    def __init__(self, budget: Budget | None, delta: float, name: str = "stray") -> None:
        self.budget = budget
        self.delta = delta
        self.label = name

    @property
    def name(self) -> str:
        return self.label

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        return torch.full((len(x), draws.size, *x.shape[1:]), self.delta)


class Broken(Stray):
    """A source that raises."""

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        raise ValueError("this source\nis broken")


def evaluate_part(images: Tensor, labels: list[int] | Tensor) -> Split[Evaluate]:
    """All of these inputs as an evaluate split."""
    known = np.asarray(labels, dtype=np.int64)
    return Split(Evaluate, StoredImages(images.float().numpy()), np.arange(len(known)), known)


def two_class_data(inputs: int = 40, side: int = 4, seed: int = 0) -> Data:
    """Random images whose class is whether their left half is brighter."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(inputs, 1, side, side, generator=generator)
    half = side // 2
    brighter = images[..., :half].sum((1, 2, 3)) > images[..., half:].sum((1, 2, 3))
    return from_arrays(images, (~brighter).long(), shares=(0.0, 0.0), name="halves")


def half_classifier(side: int = 4) -> Linear:
    """The classifier that is always correct on `two_class_data`."""
    w = torch.ones(1, side, side)
    w[..., side // 2 :] = -1
    return Linear(w, 0.0)


class Interrupting:
    """A classifier during whose n-th call Ctrl-C is pressed."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, x: Tensor) -> Tensor:
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)
        return half_classifier().forward(x)


DIAGNOSTICS = Diagnostics.model_validate(
    {name: 0.25 for name in Diagnostics.model_fields if name != "parameters"}
)


def learned_noise(
    distribution: Distribution, budget: Budget, name: str = "nppr", winner: str | None = None
) -> LearnedNoise:
    """A distribution as if a search had found it; `winner` is a reference noise that was worse."""
    family = distribution.family
    stage = StageRecord(
        stage="joint",
        rung=family.dependency,
        selected="joint, best per class",
        dependency=family.dependency,
        components=family.components,
        floor=family.floor,
        select_values={"joint": 0.5, "label": 2 / 3},
        fit_calls=100,
        forward_calls=10,
        loss=(0.5, 0.25),
        running_pr=(1.0, 0.75),
    )
    values = {FAMILY: 0.5, "uniform": 0.9} | ({winner: 0.4} if winner else {})
    search = SearchRecord(
        selected=stage.selected,
        select_value=0.5,
        references=ReferenceChoice(winner=winner, select_values=values),
        stages=(stage,),
        fit_calls=100,
        forward_calls=10,
        settings=default_settings(family, floors=(0, 1), kappa=2),
        conditions=SearchConditions(
            fit_inputs=10, select_inputs=5, seed=1, quantise=False, fingerprint="abc"
        ),
    )
    record = LearnedNoiseRecord(
        name=name,
        fit_seed=None,
        budget=BudgetRecord(norm=budget.norm.name, radius=budget.radius, text=budget.radius_text),
        search=search,
        diagnostics=DIAGNOSTICS,
        nppr_version="0.1.0",
        class_names=tuple(f"class {number}" for number in range(distribution.classes)),
        classifier=ClassifierRecord(
            name="small", weights=None, mean=(0.5,), std=(0.25,), fingerprint="abc", features=None
        ),
        data="made up",
        seed=1,
        **dict(law_of(distribution)),
    )
    return LearnedNoise(Learned(budget, distribution), record)


def grouped(**given: Any) -> dict[str, Any]:
    """Arguments of `assess`, of which those of groups are given by the names of their flags."""
    found: dict[str, Any] = {}
    kinds: dict[str, type[Group]] = {"search": Search, "measure": Measure, "run": Run}
    for argument, kind in kinds.items():
        flags = {name: flag.replace("-", "_") for name, flag in flags_of(kind).items()}
        own = {
            name: given.pop(flag)
            for name, flag in flags.items()
            if flag != "search" and flag in given
        }
        if own:
            found[argument] = kind(**own)
    return {**given, **found}


def stated(number: Number | None) -> StatedInterval:
    """The interval that a table prints beside a number, which there must be."""
    assert number is not None
    assert number.own is not None
    return number.own
