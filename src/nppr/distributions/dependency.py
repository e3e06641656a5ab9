"""What the noise may depend on: the four dependency structures of the paper, and how they nest."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Dependency"]


class Dependency(StrEnum):
    """What weights and components of the mixture see.

    dependency    weights see                components see
    independent   nothing                    nothing
    label         label embedding            nothing
    input         features                   features
    joint         label embedding, features  features

    So independent lies inside label and input, and both lie inside joint. In the paper's preset the
    weights of joint see the label only.
    """

    INDEPENDENT = "independent"
    LABEL = "label"
    INPUT = "input"
    JOINT = "joint"

    @property
    def sees_label(self) -> bool:
        """Whether the noise is told the true label."""
        return self in (Dependency.LABEL, Dependency.JOINT)

    @property
    def sees_input(self) -> bool:
        """Whether the noise is told the classifier's features of the input."""
        return self in (Dependency.INPUT, Dependency.JOINT)

    def contains(self, other: Dependency) -> bool:
        """Whether every distribution of the other dependency is one of this.

        >>> Dependency.JOINT.contains(Dependency.LABEL), Dependency.INPUT.contains(Dependency.LABEL)
        (True, False)
        """
        return self.sees_label >= other.sees_label and self.sees_input >= other.sees_input

    @property
    def words(self) -> str:
        """The dependency in words, for a reader of the report."""
        return {
            Dependency.INDEPENDENT: "the noise depends on nothing",
            Dependency.LABEL: "the noise may depend on the true label",
            Dependency.INPUT: "the noise may depend on the input",
            Dependency.JOINT: "the noise may depend on the input and its true label",
        }[self]
