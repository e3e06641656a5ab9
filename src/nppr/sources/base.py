"""The base class of sources, and the registry of all sources that have a name.

A source perturbs inputs: noise, an attack, a corruption, a learned distribution. It declares in its
class everything the rest of the program needs to know: its name and options, what its tally is read as
and how, what it needs, and what can be done with it. A class with a `kind` is in the registry and on
the command line:

    @dataclass(frozen=True)
    class Uniform(Noise, kind="uniform"): ...

`nppr.source_names` repeats what a command line needs to know of our own, without PyTorch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast

import numpy as np

from nppr import source_names
from nppr.core.tally import Estimate, Evaluate, Metric, Progress, Tally
from nppr.errors import SpecError
from nppr.noise.admissible_set import NPPR, AdmissibleSet
from nppr.noise.rungs import Dependency
from nppr.noise.structures import ANY
from nppr.source_names import ALL, RESERVED, Option, SourceEntry, read_source, split_names
from nppr.statistics.noise_sets import NoiseSet
from nppr.system.registry import Registry

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from nppr.core.budget import Budget
    from nppr.core.random_draws import DrawBlock
    from nppr.core.tally import Fit, FrozenModel, IntArray, SplitKind
    from nppr.data import Split
    from nppr.models import Classifier
    from nppr.statistics.frame_statistics import FrameStatistics

PASSES_PER_CALL = 3
"""Forward passes that take as long as a call: a forward and a backward pass."""

SOURCES: Registry[type[Source]] = source_names.SOURCES


T = TypeVar("T")


class LastFound(Generic[T]):
    """The finding of a source on the inputs of its last call, shared by all their draw blocks.

    A run that is resumed after their first block finds it again; the calls were counted with that one.
    """

    def __init__(self) -> None:
        self._last: tuple[FrozenModel, object, T] | None = None

    def __getstate__(self) -> dict[str, None]:
        """Return an empty state for another process, in which nothing was found yet."""
        return {"_last": None}

    def get(self, model: FrozenModel, draws: DrawBlock, find: Callable[[], T]) -> T:
        """Return what was found on these inputs, or find it now."""
        inputs = (draws.seed, draws.split, draws.indices)
        if self._last is None or self._last[0] is not model or self._last[1] != inputs:
            before = model.calls
            self._last = (model, inputs, find())
            if draws.block:
                model.calls = before
        return self._last[2]


class Guidance(StrEnum):
    """What leads a source to failures: it decides what it means if it breaks more than an attack."""

    NOTHING = "nothing"
    GRADIENTS = "gradients"
    MORE = "gradients and more"


class Source(ABC):
    """Noise unless a subclass declares otherwise: any number of draws, one pass each, read as PR."""

    kind: ClassVar[str] = ""
    """Its name on a command line."""
    default: ClassVar[bool] = False
    """Whether it is measured when no sources are asked for."""
    presets: ClassVar[dict[str, str]] = {}
    """Further names for it with options, and the text that each abbreviates."""
    guidance: ClassVar[Guidance] = Guidance.NOTHING
    sees: ClassVar[Dependency] = Dependency.PER_INPUT
    """What its perturbations depend on at most: which rungs of the ladder contain it."""
    is_fixed_noise: ClassVar[bool] = False
    """Whether it is noise that sees neither the input nor the classifier."""
    is_reference: ClassVar[bool] = False
    """Whether learned noise is compared with it at its default options."""
    has_budget: ClassVar[bool] = True
    """Whether it is made from a budget; a corruption is not."""
    adds: ClassVar[bool] = True
    """Whether its perturbations may be added to an image."""
    transforms: ClassVar[bool] = True
    """Whether its budget may be the box of a transformation instead of a ball of added noise."""
    needs_fit_split: ClassVar[bool] = False
    """Whether it must be fitted on inputs of the fit split before it is measured."""
    needs_classes: ClassVar[bool] = False
    """Whether it works on the logits of classes, and on no other task."""
    is_thorough: ClassVar[bool] = False
    """Whether it is several attacks, or tries everything, so that AR needs no second attack."""
    can_be_redrawn: ClassVar[bool] = True
    """Whether it may be asked again for the perturbations of single inputs."""
    folds_uniform: ClassVar[bool] = False
    """Whether splitting maps its uniform numbers so that the noise grows with the latent number."""

    metric: Metric = Metric.PR
    budget: Budget | None
    """The ball its perturbations stay in, or None."""
    fixed_draws: int | None = None
    """Draws per input whatever is asked for: 1 for an attack."""
    inputs_at_once: int | None = None
    """How many inputs it gets together whatever the micro-batch; None where that does not matter."""
    dependency: Dependency | None = None
    structure: str = ANY
    floor: float | None = None
    fit_seed: int | None = None
    noise_sets: tuple[NoiseSet, ...] = ()
    """The sets of noise around it that its tally is read as bounds for."""
    samples: FrameStatistics | None = None
    """The measured noise that it draws from."""
    keeps_outcomes: bool = False
    """Whether its tally keeps whether each single draw was classified correctly."""
    superset: str = ""
    """The name of another bound of the run, of sets that contain those of this one."""

    def __init_subclass__(cls, kind: str = "", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if kind:
            cls.kind = kind
            SOURCES.add(kind, cls)

    @abstractmethod
    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """Perturbations of B inputs, `(B, S, C, H, W)`; the caller adds, clips and checks them."""

    @property
    def name(self) -> str:
        """The source as it is written on a command line, such as `uniform:scale=0.5`."""
        parts = [self.kind]
        for name, default in option_defaults(type(self)).items():
            value = getattr(self, name)
            if value != default:
                parts.append(f"{name.replace('_', '-')}={str(value).removesuffix('.0').lower()}")
        return ":".join(parts)

    @property
    def row_source(self) -> str:
        """`Result.source` of its rows: its name without what is a field, such as the floor."""
        return self.name

    @property
    def cost(self) -> float:
        """Forward passes per draw, at most; a backward pass counts as two."""
        return 1.0

    def fit_passes(self, inputs: int) -> float:
        """Forward passes of fitting it on this many inputs."""
        return 0.0

    def search_passes(self, inputs: int) -> float:
        """Forward passes of what it searches for on this many inputs, beside those of its draws."""
        return 0.0

    def options(self, shape: Sequence[int]) -> dict[str, Option]:
        """Every option with its value for images of this shape, defaults too."""
        return {name: getattr(self, name) for name in option_defaults(type(self))}

    def fitted_on(
        self,
        classifier: Classifier,
        split: Split[Fit],
        *,
        seed: int = 0,
        device: torch.device | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Source:
        """The source ready to be measured on a classifier; itself where nothing has to be fitted."""
        return self

    def at(self, budget: Budget) -> Self:
        """The same source in a budget of another radius."""
        return cast("Self", replace(cast("Any", self), budget=budget))

    @property
    def moved_by_splitting(self) -> Source | None:
        """The noise whose numbers multilevel splitting can move, or None."""
        return None

    def with_features(
        self, model: FrozenModel, split: Split[SplitKind], places: IntArray, batch: int
    ) -> tuple[Source, IntArray]:
        """The source that knows the features it sees of inputs at these places, and calls per input.

        Splitting perturbs the same inputs again and again, so features are computed once.
        """
        return self, np.zeros(len(places), dtype=np.int64)

    def missing_parts(self, classes: int) -> tuple[str, ...]:
        """Parts that do not run on a classifier of this many classes."""
        return ()

    @property
    def admissible(self) -> AdmissibleSet | None:
        """The admissible set of learned noise; None for other sources."""
        if self.dependency is None:
            return None
        return AdmissibleSet(self.dependency, self.structure, self.floor or 0.0)

    @property
    def carries_over(self) -> bool:
        """Whether it is one law for all inputs, and not searched for on each that is measured."""
        return self.dependency is None or self.dependency.is_fitted

    @property
    def may_be_screened(self) -> bool:
        """Whether only the mean over many draws is read, which a few wrong decisions hardly move."""
        counted = self.metric.is_drawn and self.fixed_draws is None
        return counted and self.cost <= 1 and not (self.observes or self.keeps_outcomes)

    @property
    def observes(self) -> bool:
        """Whether it reads more off logits than which is the largest."""
        return type(self).observe is not Source.observe

    def observe(self, logits: Tensor, y: Tensor) -> Tensor | None:
        """Logarithms to add up per input over its draws, `(B, S, classes), (B,) -> (B, M)`, or None."""
        return None

    def read(
        self, tally: Tally[Evaluate], clean: Tally[Evaluate], confidence: float, seed: int
    ) -> list[Estimate]:
        """Every number that is read off its tally; `clean` is the tally of the clean inputs."""
        from nppr.statistics import estimates  # not before PyTorch is needed

        if self.metric is Metric.AR:
            headline = [estimates.estimate_adversarial(tally, confidence)]
        elif self.metric is Metric.CORRUPTION:
            headline = [estimates.estimate_corrupted(tally, confidence)]
        else:
            headline = estimates.estimate_probabilistic(tally, confidence, self.metric, seed)
        rows = [*headline, estimates.estimate_normalised(tally, confidence, self.metric, seed)]
        if self.metric.is_drawn:
            rows += estimates.estimate_prob_acc(tally, confidence, self.metric)
        return rows


def option_defaults(kind: type[Source]) -> dict[str, Option]:
    """Return the options of a source with their defaults: its fields except the budget."""
    if not is_dataclass(cast("type[Any]", kind)):
        return {}
    known = fields(cast("Any", kind))
    return {each.name: each.default for each in known if isinstance(each.default, Option)}


def entry_of(kind: type[Source]) -> SourceEntry:
    """Return what a command line needs to know of a source."""
    return SourceEntry(
        option_defaults(kind), kind.presets, kind.default, kind.is_reference, kind.adds,
        kind.transforms,
    )  # fmt: skip


def references(budget: Budget) -> tuple[Source, ...]:
    """The noises that learned noise is compared with while it is chosen."""
    kinds = [kind for kind in SOURCES.own().values() if kind.is_reference and fits(kind, budget)]
    return tuple(kind(budget) for kind in kinds)  # type: ignore[call-arg]


def fits(kind: type[Source], budget: Budget | None) -> bool:
    """Whether a source can be given this budget, or one of added noise if there is none."""
    return entry_of(kind).fits(budget is not None and budget.transform is not None)


def sources_in(budget: Budget | None = None) -> list[str]:
    """The names of all sources that a budget can be given to; those of added noise without one."""
    return [name for name, kind in SOURCES.items() if fits(kind, budget)]


def default_sources(budget: Budget | None = None) -> str:
    """Return what is measured if no sources are asked for; installed packages do not change it."""
    known = SOURCES.own().items()
    return ",".join([NPPR, *(name for name, kind in known if kind.default and fits(kind, budget))])


def split_search(text: str, budget: Budget | None = None) -> tuple[bool, str]:
    """Whether a list of sources names `nppr`, and the list of the others, with `all` written out."""
    names_all = ALL in text.replace(" ", "").split(",")
    wanted, others = split_names(text, sources_in(budget) if names_all else ())
    return wanted, ",".join(others)


def parse_sources(text: str, budget: Budget) -> list[Source]:
    """The sources of a comma-separated list, each with its options behind colons.

    >>> from nppr.core.budget import Budget
    >>> [source.name for source in parse_sources("uniform:scale=0.5,pgd:steps=10", Budget.linf(0.1))]
    ['uniform:scale=0.5', 'pgd']
    """
    parts = [part.strip() for part in text.split(",")]
    for name in {part.partition(":")[0] for part in parts} & {*SOURCES.names()}:
        _ = SOURCES[name]  # a package that fails is an error here, and a warning if it is not named
    sources = [_parse_source(part, budget) for part in parts]
    check_unique(sources)
    return sources


def check_unique(sources: Sequence[Source]) -> None:
    """Raise `SpecError` unless there is at least one source and all names differ."""
    if not sources:
        raise SpecError("`sources` must name at least one source, got none.")
    names = [source.name for source in sources]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SpecError(f"`sources` must be different, got {twice[0]!r} twice.")
    taken = sorted(set(names) & set(RESERVED))
    if taken:
        raise SpecError(f"`sources` must not be named {taken[0]!r}: that name is reserved.")


def _parse_source(text: str, budget: Budget) -> Source:
    known = {name: entry_of(kind) for name, kind in SOURCES.items()}
    name, values = read_source(text, known, boxed=budget.transform is not None)
    make = cast("Callable[..., Source]", SOURCES[name])
    return make(budget, **values) if SOURCES[name].has_budget else make(**values)


def parse_number_list(
    argument: str, text: str, *, each: str, most: float, example: str
) -> tuple[float, ...]:
    """Different numbers from 1 to `most`, written with `+` between them; `each` is one of them.

    >>> parse_number_list("`q`", "1+10", each="order", most=1e6, example="q=1+10")
    (1.0, 10.0)
    """
    try:
        values = tuple(float(part) for part in str(text).split("+"))
    except ValueError:
        values = ()
    if not values or not all(1 <= value <= most for value in values):
        raise SpecError(
            f"{argument} must hold numbers from 1 to {most:g}, got {text!r}. Example: {example}"
        )
    if len(set(values)) < len(values):
        raise SpecError(f"{argument} must name every {each} once, got {text!r}.")
    return values
