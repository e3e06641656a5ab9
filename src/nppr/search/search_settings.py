"""Settings of a search: the recipe of one stage, the whole search, and its stages.

The walk goes through the nested families up to the one the assessor admits: independent -> label ->
joint, or independent -> input, each child warm-started at its parent, and again at every further floor.
The calls are divided by the shares of the structures. Nothing here imports PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

from nppr.errors import SpecError, require_at_most, unknown
from nppr.noise.admissible_set import AdmissibleSet
from nppr.noise.family import TORCH_KERNEL, Family, Temperatures, require_count
from nppr.noise.rungs import Dependency, Known
from nppr.noise.structures import STRUCTURES

PRESETS = ("nppr", "paper")
PAPER_COMPONENTS = 7
PAPER_LATENT_DIM = 128
PAPER_HIDDEN_DIM = 256
PAPER_MIN_STD = 1e-4
LOSSES = ("margin", "cross-entropy")

FURTHER_FLOOR = 1 / 2
"""Calls of a further floor, relative to the first floor, whose noise it starts from."""

FEWEST_STEPS = 40
"""Steps of a stage below which a search is too short to say much: it is flagged."""

FEWEST_PER_INPUT = 5
"""Calls per input of the rung `per-input`: its starts and its choice take four of them."""

RESTARTS, ROUNDS = 2, 3
"""Restarts of a stage that take one round each, and rounds of the best of them."""

FIRST_STEP_INPUTS = 64
"""Inputs in a step of a first stage that sees nothing: one pattern gains more from further steps."""

MOST_CALLS, MOST_PER_INPUT = 10**10, 10**5
"""Calls of a search and of every input that nobody waits for: days on any machine."""

MOST_SEEDS = 1_000
MOST_MEAN_NUMBERS = 2**25
"""Numbers in the means of all components, at most."""


COARSE_BOUND = 4.0
"""Bound of the means on a coarse grid: tanh has slope 1e-3 there, and gradient signs still lead."""

AUTO, GRADIENTS, SCORES = METHODS = ("auto", "gradients", "scores")

SCORE_STD = 0.5
"""Distance of the two sides from a mean, in a search without gradients."""

SCORE_INPUTS, SCORE_RATE, SCORE_BOUND = 256, 0.1, 2.0
SCORE_CALLS = 368_640
"""Inputs of a step, its size, the bound of the means and the calls of such a search by default."""

BOX_RATE = 0.1
"""Step of the latent means in the box of a transformation."""

BOX_MIN_STD = 0.01
"""Least standard deviation there unless another is stated: few parameters leave little to average."""


@dataclass(frozen=True)
class Recipe:
    """The steps of one stage.

    A step takes `inputs` inputs and `draws` draws of each. Free means move by `rate` along the sign of
    their gradients' running mean of decay `momentum`; where that is None, and for all other parameters,
    Adam takes the step, with `head_rate` for layers that see a context. The rate rises over the first
    `warm_up` of the steps and falls as a cosine to `last_rate` of itself, or stays where `last_rate` is
    1. With `cycle` the cosine begins when the rise has ended, so that the full rate is reached.
    Temperatures go from their start to 1, and tau from `tau` to `last_tau`, geometrically. Gradients
    are clipped to the length `clip`. Free means stay within `bound`.
    """

    inputs: int = 256
    draws: int = 1
    rate: float = 0.6
    momentum: float | None = 0.9
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
    scores: bool = False
    """Without gradients of the classifier: two draws on either side of the mean of every input."""

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
    one image); `per_input_calls` that of each input on the rung `per-input`, 0 to leave it out. With
    `per_class`, noise that sees the label has at least one component per class. `walks` is False in
    the paper's preset: one fit from scratch, nothing chosen.
    """

    family: Family = field(default_factory=Family)
    floors: tuple[float, ...] = (0.0,)
    calls: int = 199_680
    seeds: int = 1
    recipe: Recipe = field(default_factory=Recipe)
    child_rate: float = 0.6
    walks: bool = True
    per_class: bool = True
    per_input_calls: int = 20
    preset: str = "nppr"
    has_positions: bool = True
    """Whether a perturbation has positions, as that of an image: otherwise it has no structure."""
    method: str = AUTO
    """By gradients of the classifier, by scores (its answers alone), or whichever it allows."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise unknown("search", self.method, METHODS)
        if self.method == SCORES and not self.walks:
            raise SpecError("`search` must be gradients with --preset paper, got 'scores'.")
        require_count("fit-calls", self.calls)
        require_count("fit-seeds", self.seeds)
        if self.calls > MOST_CALLS:
            raise SpecError(
                f"`fit-calls` must be at most {MOST_CALLS:,}, got {self.calls:,}. Example: 92160"
            )
        require_at_most("fit-seeds", self.seeds, MOST_SEEDS)
        each = self.per_input_calls
        if type(each) is not int or (each and not FEWEST_PER_INPUT <= each <= MOST_PER_INPUT):
            raise SpecError(
                f"`per-input-calls` must be 0 (off) or a whole number from {FEWEST_PER_INPUT} to"
                f" {MOST_PER_INPUT:,}, got {each!r}."
            )
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

    def by_scores(self, *, box: bool) -> SearchSettings:
        """Return settings that use the classifier's answers alone, without gradients.

        The noise may see the label at most, for what sees features has too many parameters. A call is
        then a forward pass.
        """
        family = self.family.with_(
            dependency=self.family.dependency.without(Known.FEATURES),
            upsampler="none" if box else self.family.upsampler,
        )
        rate = BOX_RATE if box else SCORE_RATE
        recipe = replace(
            self.recipe, scores=True, draws=2, inputs=SCORE_INPUTS, rate=rate, bound=SCORE_BOUND
        )
        calls = SCORE_CALLS if self.calls == SearchSettings.calls else self.calls
        least = recipe.inputs * recipe.draws
        return replace(self, family=family, recipe=recipe, child_rate=rate, calls=max(calls, least))

    def without(self, known: Known) -> SearchSettings:
        """Return the same for noise that must not know this."""
        return replace(
            self, family=self.family.with_(dependency=self.family.dependency.without(known))
        )

    def without_positions(self) -> SearchSettings:
        """Return settings for tables and transformations, whose noise has no structure."""
        structure = STRUCTURES[self.family.structure]
        if structure.needs_positions:
            raise SpecError(
                f"`structure` must be any for tables and transformations, got {structure.name!r}: they"
                " have no positions. Leave out --structure."
            )
        return replace(self, has_positions=False)

    def in_box(self) -> SearchSettings:
        """Return settings for a transformation: short steps from the best points of a scan."""
        if not self.walks:
            return self
        recipe = replace(self.recipe, rate=BOX_RATE)
        family = self.family
        if family.min_std == Family.min_std:
            family = family.with_(min_std=BOX_MIN_STD)
        return replace(self, family=family, recipe=recipe, child_rate=BOX_RATE)

    @property
    def step_calls(self) -> int:
        """Classifier calls of one step."""
        return self.recipe.inputs * self.recipe.draws

    @property
    def total_calls(self) -> int:
        """Calls of all floors of one seed."""
        further = FURTHER_FLOOR if self.walks else 1.0
        return round(self.calls * (1 + (len(self.floors) - 1) * further))

    @property
    def rungs(self) -> tuple[Dependency, ...]:
        """The rungs that have a row on the ladder, from the top to the bottom."""
        learned = self.family.dependency.path if self.walks else (self.family.dependency,)
        return (*learned, Dependency.PER_INPUT) if self.per_input_calls else learned

    @property
    def fitted_sets(self) -> tuple[AdmissibleSet, ...]:
        """The sets of fitted noise that a search goes through at every floor, in its order."""
        asked = STRUCTURES[self.family.structure]
        return tuple(
            AdmissibleSet(rung, structure.name)
            for structure in (asked.path if self.walks else (asked,))
            if self.has_positions or not structure.needs_positions
            for rung in self.rungs
            if rung.is_fitted and rung in structure.rungs
        )

    @property
    def sets(self) -> tuple[AdmissibleSet, ...]:
        """The sets that the search has a result for, floor by floor."""
        structure = STRUCTURES[self.family.structure]
        own = [
            AdmissibleSet(rung, structure.name)
            for rung in self.rungs
            if not rung.is_fitted and rung in structure.rungs
        ]
        return tuple(
            replace(each, floor=floor)
            for floor in self.floors
            for each in (*self.fitted_sets, *own)
        )

    @property
    def needed_calls(self) -> int:
        """Calls with which every stage of the first floor has enough steps."""
        inputs = [
            STRUCTURES[each.structure].recipe.get("inputs", self.recipe.inputs)
            for each in self.fitted_sets
        ]
        shares = [STRUCTURES[each.structure].share for each in self.fitted_sets]
        whole = max(number / share for number, share in zip(inputs, shares, strict=True))
        needed: float = whole * sum(shares) * FEWEST_STEPS * self.recipe.draws
        return math.ceil(needed)

    @property
    def is_short(self) -> bool:
        """Whether the search has too few calls to be conclusive."""
        return self.calls < self.needed_calls


def default_settings(
    family: Family | None = None,
    *,
    floors: tuple[float, ...] = (0.0,),
    calls: int | None = None,
    seeds: int = 1,
    **recipe: Any,
) -> SearchSettings:
    """The recipe of nppr: many inputs and few draws, and a walk through the nested families.

    On a coarse grid means may be larger, for between its points large ones make sharper edges, and
    steps are smaller, for there are few coordinates to find and many local minima. Without a bound tanh
    becomes flat, no gradient is left, and whatever starts there never leaves.
    """
    family = family or Family()
    if family.upsampler in ("bicubic", "trainable"):
        recipe = {"bound": COARSE_BOUND, "inputs": 64, **recipe}
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
    if not family.dependency.knows and family.upsampler != "trainable":
        rates = {"rate": 2e-2, "head_rate": 2e-2, "warm_up": 0.4, "last_rate": 1e-4, "cycle": True}
    heat = Temperatures(weights=3.0, means=3.0, stds=1.5, shared=1.5)
    own = {"inputs": 64, "draws": 32, "heat": heat, "clip": None, "bound": None, "momentum": None}
    made = Recipe(**{**own, **rates, **recipe})
    return SearchSettings(
        family=family,
        floors=floors,
        calls=50 * max(made.inputs, inputs) * made.draws if calls is None else calls,
        seeds=seeds,
        recipe=made,
        walks=False,
        per_class=False,
        per_input_calls=0,
        preset="paper",
    )


@dataclass(frozen=True)
class Stage:
    """One fit of the walk: a family, its parents, its recipe, steps and restarts.

    Noise of a parent is in the set of the stage, so it may be kept. The stage starts from a parent of
    the same structure.

    The restarts take a round of steps each, and the best of them takes further rounds until one gains
    little. `steps` counts all restarts and rounds.
    """

    name: str
    family: Family
    parents: tuple[int, ...]
    recipe: Recipe
    steps: int
    restarts: int = 1

    @property
    def calls(self) -> int:
        """Classifier calls of its steps, at most."""
        return self.steps * self.recipe.inputs * self.recipe.draws

    @property
    def rounds(self) -> tuple[int, ...]:
        """Steps of every round; each restart takes those of the first, and the last takes the rest.

        >>> Stage("", Family(), (), Recipe(), steps=102, restarts=2).rounds
        (25, 25, 27)
        """
        count = ROUNDS if self.restarts > 1 else 1
        each = self.steps // (count + self.restarts - 1)
        return (each,) * (count - 1) + (self.steps - each * (count + self.restarts - 2),)

    def calls_until(self, rounds: int) -> int:
        """Return the calls of all restarts and of this many rounds of the best."""
        steps = (self.restarts - 1) * self.rounds[0] + sum(self.rounds[:rounds])
        return steps * self.recipe.inputs * self.recipe.draws


def walk(
    settings: SearchSettings, classes: int = 1, shape: tuple[int, ...] = ()
) -> tuple[Stage, ...]:
    """The stages of a search, floor by floor.

    With `per_class`, noise that sees the label has a component for each of the classes.
    """
    family, order = settings.family, settings.fitted_sets
    if settings.per_class and settings.walks:
        patterns = max(1, min(classes, MOST_MEAN_NUMBERS // math.prod(shape)))
        family = family.with_(label_dim=max(family.label_dim, patterns))
    stages: list[Stage] = []
    places: dict[AdmissibleSet, int] = {}
    for number, floor in enumerate(settings.floors):
        share = (FURTHER_FLOOR if number else 1.0) if settings.walks else 1.0
        fewest = len(order) * (len(order) + 1) // 2 if number else len(order)
        steps = max(fewest, int(settings.calls * share) // settings.step_calls)
        shares = _shares(steps, order, growing=number > 0)
        for place, each in enumerate(order):
            own = family.with_(dependency=each.rung, structure=each.structure, floor=floor)
            structure = STRUCTURES[each.structure]
            if structure.components and settings.per_class and settings.walks and shape:
                own = own.with_(components=structure.components(shape))
            elif settings.per_class and settings.walks and each.rung.sees_label:
                own = own.with_(components=max(own.components, patterns))
            parents = []
            if settings.walks:
                smaller = [replace(each, rung=rung) for rung in each.rung.path[-2:-1]]
                inner = [replace(each, structure=one.name) for one in structure.path[-2:-1]]
                parents = [places[one] for one in (*inner, *smaller, each) if one in places]
            places[each] = len(stages)
            taken = shares[place]
            name = each.label + (f", floor {floor:g}" if floor else "")
            first = not any(order[at % len(order)].structure == each.structure for at in parents)
            stages.append(make_stage(settings, name, own, taken, tuple(parents), first=first))
    return tuple(stages)


def make_stage(
    settings: SearchSettings,
    name: str,
    family: Family,
    steps: int,
    parents: tuple[int, ...] = (),
    *,
    first: bool | None = None,
) -> Stage:
    """Return the stage that fits a family; `steps` are those of `settings.recipe`.

    The `first` stage of a search, by default one without parents, is tried more than once, and sees
    fewer inputs in each of more steps if its noise knows nothing. All others move by `child_rate`.
    """
    structure = STRUCTURES[family.structure]
    own = dict(structure.recipe)
    if settings.recipe.scores and own:
        rate = structure.scored_rate
        own |= {"inputs": settings.recipe.inputs, "rate": rate, "head_rate": rate}
    recipe = replace(settings.recipe, **own)
    steps = steps * settings.step_calls // (recipe.inputs * recipe.draws)
    if family.floor == 1:
        steps = 0  # rho = 1 is Uniform noise: nothing to fit
    if not settings.walks:
        return Stage(name, family, parents, recipe, steps)
    stage = Stage(name, family, parents, recipe, steps, restarts=restarts_of(steps))
    if not (not parents if first is None else first):
        return replace(stage, recipe=replace(recipe, **{"rate": settings.child_rate, **own}))
    inputs = recipe.inputs if family.dependency.knows else min(FIRST_STEP_INPUTS, recipe.inputs)
    if not (family.dependency.knows or own or recipe.scores) and settings.has_positions:
        recipe = replace(recipe, momentum=0.0)  # one pattern is found faster without
    return replace(
        stage,
        recipe=replace(recipe, inputs=inputs),
        steps=steps * recipe.inputs // inputs,
    )


def _shares(steps: int, order: Sequence[AdmissibleSet], *, growing: bool) -> list[int]:
    """Divide steps among the stages of a floor by the share of their structure.

    At a further floor later stages, which change more, have more.
    """
    weights = [
        STRUCTURES[each.structure].share * (place if growing else 1)
        for place, each in enumerate(order, 1)
    ]
    ends = [sum(weights[:end]) * steps // sum(weights) for end in range(len(order) + 1)]
    return [end - start for start, end in pairwise(ends)]


def restarts_of(steps: int) -> int:
    """Return how often a stage is tried: more than once if that leaves enough steps for each.

    >>> restarts_of(39), restarts_of(40)
    (1, 2)
    """
    return RESTARTS if steps >= FEWEST_STEPS else 1
