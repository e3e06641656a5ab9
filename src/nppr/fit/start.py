"""Where a stage starts: at random, or exactly at its best parent's solution."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from nppr.distributions import (
    Dependency,
    Distribution,
    Rule,
    grown,
    only_component,
    route_by_features,
    route_by_label,
)
from nppr.draws import key
from nppr.fit.inputs import Found
from nppr.fit.stages import Finished
from nppr.fit.walk import Stage
from nppr.types import Fit

__all__ = ["start"]


def start(
    stage: Stage,
    parents: Sequence[Finished],
    inputs: Found[Fit],
    shape: tuple[int, ...],
    classes: int,
    seed: int,
) -> Distribution:
    """A distribution of the stage's family; of several parents the lowest on select is taken.

    Noise that depends on nothing is at its worst with one component. Its children start with copies of
    that one, and classes are sent to different copies, which leaves the law as it is.
    """
    features = inputs.features.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(seed, f"fit/start/{stage.name}", 0, 0))
        if not parents:
            channels, height, width = shape
            made = Distribution(stage.family, (channels, height, width), classes, features)
            _standardise(made, inputs)
            return made
        parent = _basis(min(parents, key=lambda each: each.value or 0.0))
        parent = parent.with_floor(stage.family.floor)
        made = grown(parent, stage.family, classes, features)
    if not parent.features:
        _standardise(made, inputs)
    if only_component(parent) is not None:
        _route(made, inputs)
    return made


def _basis(parent: Finished) -> Distribution:
    """What a child copies: the fitted mixture, or the one component of noise that sees nothing."""
    if parent.fitted.family.dependency is not Dependency.INDEPENDENT:
        return parent.fitted
    if only_component(parent.selected) is not None:
        return parent.selected
    return parent.fitted.sharpened(Rule.LARGEST)


def _standardise(made: Distribution, inputs: Found[Fit]) -> None:
    if made.features:
        made.mixture.standardise(inputs.features)


def _route(made: Distribution, inputs: Found[Fit]) -> None:
    if made.family.dependency.sees_label:
        route_by_label(made)
    elif made.features and made.family.components > 1:
        route_by_features(made, inputs.features, torch.from_numpy(inputs.part.labels))
