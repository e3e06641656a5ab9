"""The rungs of the ladder: what noise may know of the input that it perturbs.

A rung is declared once, here. The order of the ladder, which sets are nested, which stages a search
goes through, and the words of tables and pages are read off the declarations. Nothing here imports
PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from nppr.core.nouns import NOISE, Nouns


class Known(StrEnum):
    """A piece of knowledge; `mixture.py` has a head for the label and one for the features."""

    LABEL = "label"
    FEATURES = "features"
    INPUT = "input"
    """The input itself: every input has a separate law."""


@dataclass(frozen=True)
class RungDeclaration:
    """The declaration of a rung: its knowledge, its search and its words."""

    knows: frozenset[Known]
    knowledge: str
    """The knowledge in a word or two."""
    dependence: str
    """The predicate that follows "the noise" or "the law of the parameters"."""
    epithet: str
    """The words that follow "the worst noise found"."""
    threats: Mapping[str, str]
    """Examples of such noise in practice, by `Nouns.kind`."""
    starts_from: str | None = None
    """The rung whose noise its search starts from."""
    presets: tuple[str, ...] = ("nppr", "paper")
    """The presets that a search may ask for it in."""
    default_of: tuple[str, ...] = ()
    """The presets whose searches go down to it unless another rung is asked for."""


_RULE = "by a rule that carries over to new inputs"


class Dependency(StrEnum):
    """A rung of the ladder: what the noise may depend on.

    The first four are the structures of a fitted mixture in the paper:

    dependency    weights see                components see
    independent   nothing                    nothing
    label         label embedding            nothing
    input         features                   features
    joint         label embedding, features  features

    `per-input` is not a family of mixtures but the worst law of every input on its own.
    """

    _value_: str
    declared: RungDeclaration

    def __new__(cls, name: str, *declared: RungDeclaration) -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        (member.declared,) = declared  # without it a name looks a member up
        return member

    INDEPENDENT = (
        "independent",
        RungDeclaration(
            knows=frozenset(),
            knowledge="nothing",
            dependence="depends on nothing",
            epithet="that knows nothing of the input",
            threats={
                "noise": "the noise knows nothing of the input, like noise of a sensor or a line",
                "law": (
                    "conditions that know nothing of the input: mounting, optics, lighting of the site"
                ),
            },
        ),
    )
    LABEL = (
        "label",
        RungDeclaration(
            knows=frozenset({Known.LABEL}),
            knowledge="the class",
            dependence="may depend on the true label",
            epithet="that knows the class",
            threats={
                "noise": "the noise knows the class, like effects that come with what is shown",
                "law": (
                    "conditions that come with the class: some things are seen mostly at night, or"
                    " from one side"
                ),
            },
            starts_from="independent",
        ),
    )
    INPUT = (
        "input",
        RungDeclaration(
            knows=frozenset({Known.FEATURES}),
            knowledge="features",
            dependence="may depend on the input",
            epithet="that follows the input by a rule",
            threats={
                "noise": (
                    "the noise follows the classifier's features of the input by a rule, like"
                    " systematic effects of the scene"
                ),
                "law": f"conditions that follow the scene {_RULE}",
            },
            starts_from="independent",
        ),
    )
    JOINT = (
        "joint",
        RungDeclaration(
            knows=frozenset({Known.LABEL, Known.FEATURES}),
            knowledge="class and features",
            dependence="may depend on the input and its true label",
            epithet="that follows the input and its class by a rule",
            threats={
                "noise": (
                    "the noise follows the class and the classifier's features of the input by a rule,"
                    " like systematic effects of scene and class"
                ),
                "law": f"conditions that follow scene and class {_RULE}",
            },
            starts_from="label",
            default_of=("paper",),
        ),
    )
    PER_INPUT = (
        "per-input",
        RungDeclaration(
            knows=frozenset(Known),
            knowledge="the input",
            dependence="may be the worst for every input on its own",
            epithet="for each input on its own",
            threats={
                "noise": "the noise is the worst for each input on its own, nearly an attack",
                "law": (
                    "the worst conditions for each input: nearly an attack where no randomness is"
                    " required"
                ),
            },
            starts_from="joint",
            presets=("nppr",),
            default_of=("nppr",),
        ),
    )

    @property
    def knows(self) -> frozenset[Known]:
        """The knowledge of the noise."""
        return self.declared.knows

    @property
    def sees_label(self) -> bool:
        """Whether the noise may depend on the true label."""
        return Known.LABEL in self.knows

    @property
    def sees_input(self) -> bool:
        """Whether the noise may depend on the classifier's features of the input."""
        return Known.FEATURES in self.knows

    @property
    def is_fitted(self) -> bool:
        """Whether one law is fitted for all inputs, and not one for each of them."""
        return Known.INPUT not in self.knows

    @property
    def knowledge(self) -> str:
        """The knowledge with the name of the rung, for a table.

        >>> Dependency.LABEL.knowledge
        'the class (label)'
        """
        return f"{self.declared.knowledge} ({self.value})"

    @property
    def epithet(self) -> str:
        """The words that follow "the worst noise found"."""
        return self.declared.epithet

    def contains(self, other: Dependency, *, label_only: bool = False) -> bool:
        """Return whether every distribution of the other rung is one of this.

        With `label_only` (the paper's preset) features are hidden from the weights of noise that sees
        the label, so it does not contain noise that sees features alone.

        >>> Dependency.JOINT.contains(Dependency.LABEL), Dependency.INPUT.contains(Dependency.LABEL)
        (True, False)
        """
        hidden = label_only and self.sees_label and other.sees_input and not other.sees_label
        return self.knows >= other.knows and not hidden

    @property
    def depth(self) -> int:
        """The place on the ladder, counted from the top: what contains another rung is below it."""
        return LADDER.index(self)

    @property
    def path(self) -> tuple[Dependency, ...]:
        """The rungs that a search goes through on its way here, itself included.

        >>> [rung.value for rung in Dependency.JOINT.path]
        ['independent', 'label', 'joint']
        """
        start = self.declared.starts_from
        return (*(Dependency(start).path if start else ()), self)

    @property
    def fitted(self) -> Dependency:
        """The last rung on the way here that is fitted."""
        return next(rung for rung in reversed(self.path) if rung.is_fitted)

    def without(self, known: Known) -> Dependency:
        """Return the largest rung of fitted noise inside this one that does not know this.

        >>> Dependency.JOINT.without(Known.FEATURES), Dependency.JOINT.without(Known.LABEL)
        (<Dependency.LABEL: 'label'>, <Dependency.INPUT: 'input'>)
        """
        if known not in self.knows:
            return self
        left = self.knows - {known}
        return next(rung for rung in reversed(LADDER) if rung.is_fitted and rung.knows <= left)

    def describe(self, nouns: Nouns = NOISE) -> str:
        """Return what the noise depends on, as a clause."""
        return f"{nouns.subject} {self.declared.dependence}"

    def threat_of(self, nouns: Nouns = NOISE) -> str:
        """Return examples of such noise in practice, in the nouns of a budget."""
        return self.declared.threats[nouns.kind]


LADDER = tuple(sorted(Dependency, key=lambda rung: sum(map(rung.contains, Dependency))))
"""All rungs from the top to the bottom."""


def rungs_of(preset: str) -> tuple[Dependency, ...]:
    """Return the rungs that a search with a preset may ask for, from the top to the bottom."""
    return tuple(rung for rung in LADDER if preset in rung.declared.presets)


def choose_rung(preset: str) -> Dependency:
    """Return the rung that a search with a preset goes down to unless another is asked for.

    >>> choose_rung("paper")
    <Dependency.JOINT: 'joint'>
    """
    return next(rung for rung in LADDER if preset in rung.declared.default_of)
