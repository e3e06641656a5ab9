"""How a search is done: the recipe of one stage, the settings of the whole, and the walk it takes.

The walk goes through the nested families up to the one the assessor admits: independent -> label,
input -> joint, each child warm-started at its parent. Calls are divided among the stages by weight:
noise that sees the input has most to learn. Nothing here imports PyTorch.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from nppr.errors import SpecError, unknown
from nppr.noise.family import TORCH_KERNEL, Dependency, Family, Temperatures, require_count

PRESETS = ("nppr", "paper")
PAPER_COMPONENTS = 7
PAPER_LATENT_DIM = 128
PAPER_HIDDEN_DIM = 256
PAPER_MIN_STD = 1e-4
LOSSES = ("margin", "cross-entropy")

SHARES = {
    Dependency.INDEPENDENT: {Dependency.INDEPENDENT: 1.0},
    Dependency.LABEL: {Dependency.INDEPENDENT: 1 / 2, Dependency.LABEL: 1 / 2},
    Dependency.INPUT: {Dependency.INDEPENDENT: 1 / 2, Dependency.INPUT: 1 / 2},
    Dependency.JOINT: {
        Dependency.INDEPENDENT: 1 / 3,
        Dependency.LABEL: 1 / 12,
        Dependency.INPUT: 1 / 3,
        Dependency.JOINT: 1 / 4,
    },
}
"""Fractions of the calls of a walk up to each dependency."""

PARENTS: dict[Dependency, tuple[Dependency, ...]] = {
    Dependency.INDEPENDENT: (),
    Dependency.LABEL: (Dependency.INDEPENDENT,),
    Dependency.INPUT: (Dependency.INDEPENDENT,),
    Dependency.JOINT: (Dependency.LABEL, Dependency.INPUT),
}
"""The largest families of a walk inside each."""


@dataclass(frozen=True)
class Recipe:
    """How one stage goes from its start to its end.

    A step takes `inputs` inputs and `draws` draws of each. Adam's rate is `rate` for free parameters
    and `head_rate` for layers that see a context; it rises over the first `warm_up` of the steps and
    falls as a cosine to `last_rate` of itself, or stays where `last_rate` is 1. With `cycle` the cosine
    begins when the rise has ended, so that the full rate is reached. Temperatures go from
    their start to 1, and tau from `tau` to `last_tau`, geometrically. Gradients are clipped to the
    length `clip`. Free means stay within `bound`: beyond 2 tanh is flat, and a child could not move
    them any more.
    """

    inputs: int = 256
    draws: int = 1
    rate: float = 0.3
    head_rate: float = 2e-3
    warm_up: float = 0.05
    last_rate: float = 0.0
    cycle: bool = False
    tau: float = 1.0
    last_tau: float = 0.1
    heat: Temperatures = field(default_factory=Temperatures)
    clip: float | None = 1.0
    bound: float | None = 2.0
    loss: str = "margin"
    kappa: float = 1.0
    entropy: float = 0.0
    diversity: float = 0.0

    def __post_init__(self) -> None:
        require_count("step-inputs", self.inputs)
        require_count("fit-draws", self.draws)
        if not (isinstance(self.kappa, int | float) and math.isfinite(self.kappa)):
            raise SpecError(f"`kappa` must be a finite number, got {self.kappa!r}. Example: 1")
        if self.loss not in LOSSES:
            raise unknown("loss", self.loss, LOSSES)

    def rate_at(self, step: int, steps: int) -> float:
        """The fraction of the learning rate at a step, counted from 0."""
        rising = min(1.0, (step + 1) / max(1.0, self.warm_up * steps))
        if self.last_rate == 1:
            return rising
        risen = min(steps - 1.0, self.warm_up * steps) if self.cycle else 0.0
        turn = 0.5 * (1 + math.cos(math.pi * max(0.0, step - risen) / (steps - risen)))
        return rising * (self.last_rate + (1 - self.last_rate) * turn)

    def tau_at(self, step: int, steps: int) -> float:
        """The Gumbel temperature at a step."""
        return float(self.tau * (self.last_tau / self.tau) ** (step / max(1, steps - 1)))

    def heat_at(self, step: int, steps: int) -> Temperatures:
        """The paper's temperatures at a step: a straight line down to 1."""
        left = 1 - step / max(1, steps - 1)
        starts = asdict(self.heat)
        return Temperatures(**{name: 1 + (start - 1) * left for name, start in starts.items()})


@dataclass(frozen=True)
class SearchSettings:
    """The settings of a search.

    `family` is the largest admissible set; the search walks up to it. `floors` are the values of rho,
    one result each. `calls` is the budget of one walk in classifier calls (a forward and backward of
    one image). `walks` is False in the paper's preset: one fit from scratch, nothing chosen.
    """

    family: Family = field(default_factory=Family)
    floors: tuple[float, ...] = (0.0, 0.5)
    calls: int = 92_160
    seeds: int = 1
    recipe: Recipe = field(default_factory=Recipe)
    child_rate: float = 0.1
    walks: bool = True
    preset: str = "nppr"

    def __post_init__(self) -> None:
        require_count("fit-calls", self.calls)
        require_count("fit-seeds", self.seeds)
        if not self.floors:
            raise SpecError("`floor` must name at least one rho, got none. Example: 0,0.5")
        for floor in self.floors:
            self.family.with_(floor=floor)
        if len(set(self.floors)) < len(self.floors):
            raise SpecError(f"`floor` must name every rho once, got {list(self.floors)}.")
        if self.calls < self.step_calls:
            raise SpecError(
                f"`fit-calls` must be at least one step, {self.step_calls} calls, got {self.calls}."
            )

    @property
    def step_calls(self) -> int:
        """Classifier calls of one step."""
        return self.recipe.inputs * self.recipe.draws

    @property
    def total_calls(self) -> int:
        """Calls of all floors of one seed: a further floor takes as many as the walk's last stage."""
        last = SHARES[self.family.dependency][self.family.dependency] if self.walks else 1.0
        return round(self.calls * (1 + (len(self.floors) - 1) * last))


def default_settings(
    family: Family | None = None,
    *,
    floors: tuple[float, ...] = (0.0, 0.5),
    calls: int | None = None,
    seeds: int = 1,
    **recipe: Any,
) -> SearchSettings:
    """Our recipe: many inputs and few draws, and a walk through the nested families.

    On a coarse grid means are not bounded, for between its points large ones make sharper edges, and
    steps are smaller, for there are few coordinates to find and many local minima.
    """
    family = family or Family()
    if family.upsampler in ("bicubic", "trainable"):
        recipe = {"bound": None, "inputs": 64, **recipe}
    made = SearchSettings(family=family, floors=floors, seeds=seeds, recipe=Recipe(**recipe))
    return made if calls is None else replace(made, calls=calls)


def paper_settings(
    family: Family | None = None,
    *,
    inputs: int,
    floors: tuple[float, ...] = (0.0,),
    calls: int | None = None,
    seeds: int = 1,
    **recipe: Any,
) -> SearchSettings:
    """The paper's recipe for a fit split of this many inputs: 50 epochs unless `calls` is given.

    Adam at 5e-4, except for noise that depends on nothing with a fixed up-sampler: 2e-2 after 20 of 50
    epochs of warm-up, then a cosine down to 2e-6. docs/noise.md lists what the paper leaves open.
    """
    family = family or Family(
        components=PAPER_COMPONENTS,
        covariance="full",
        upsampler="trainable",
        hidden_dim=PAPER_HIDDEN_DIM,
        min_std=PAPER_MIN_STD,
    )
    if family.upsampler == "trainable" and family.latent_dim is None:
        family = family.with_(latent_dim=PAPER_LATENT_DIM)
    family = family.with_(
        kernel=TORCH_KERNEL, label_only=True, scaled=False, wide_heads=True, random_start=True
    )
    rates = {"rate": 5e-4, "head_rate": 5e-4, "warm_up": 0.0, "last_rate": 1.0}
    if family.dependency is Dependency.INDEPENDENT and family.upsampler != "trainable":
        rates = {"rate": 2e-2, "head_rate": 2e-2, "warm_up": 0.4, "last_rate": 1e-4, "cycle": True}
    heat = Temperatures(weights=3.0, means=3.0, stds=1.5, shared=1.5)
    own = {"inputs": 64, "draws": 32, "heat": heat, "clip": None, "bound": None, **rates}
    made = Recipe(**{**own, **recipe})
    return SearchSettings(
        family=family,
        floors=floors,
        calls=50 * max(made.inputs, inputs) * made.draws if calls is None else calls,
        seeds=seeds,
        recipe=made,
        walks=False,
        preset="paper",
    )


@dataclass(frozen=True)
class Stage:
    """One fit of the walk: a family, the stages it starts from, its recipe and its steps.

    `last` stages give a result; it is compared with the reference noises.
    """

    name: str
    family: Family
    parents: tuple[int, ...]
    recipe: Recipe
    steps: int
    last: bool = True

    @property
    def calls(self) -> int:
        """Classifier calls of its steps."""
        return self.steps * self.recipe.inputs * self.recipe.draws


def walk(settings: SearchSettings) -> tuple[Stage, ...]:
    """The stages of a search at its first floor."""
    family = settings.family.with_(floor=settings.floors[0])
    if not settings.walks:
        steps = max(1, settings.calls // settings.step_calls)
        return (Stage(family.dependency.value, family, (), settings.recipe, steps),)
    shares = SHARES[family.dependency]
    steps = max(len(shares), settings.calls // settings.step_calls)
    steps *= family.floor < 1  # rho = 1 is Uniform noise: nothing to fit
    split = _split(steps, shares)
    stages: list[Stage] = []
    order = list(shares)
    for dependency in order:
        own = family.with_(dependency=dependency)
        parents = tuple(order.index(parent) for parent in PARENTS[dependency])
        recipe = replace(settings.recipe, rate=settings.child_rate) if parents else settings.recipe
        last = dependency is family.dependency
        stages.append(Stage(dependency.value, own, parents, recipe, split[dependency], last))
    return tuple(stages)


def _split(steps: int, shares: dict[Dependency, float]) -> dict[Dependency, int]:
    """Steps of every stage by its share, at least one where there are any; they add up."""
    least = min(1, steps)
    split = {each: max(least, int(steps * share)) for each, share in shares.items()}
    while sum(split.values()) != steps:
        missing = {each: steps * share - split[each] for each, share in shares.items()}
        up = sum(split.values()) < steps
        chosen = (max if up else min)(missing, key=lambda each: missing[each])
        split[chosen] += 1 if up else -1
    return split
