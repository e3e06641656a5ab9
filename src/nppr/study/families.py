"""The families of one chain of fits: which there are, and which of them each is warm-started at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nppr.noise import Dependency

__all__ = ["Member", "closed", "inside", "nearest"]


@dataclass(frozen=True, order=True)
class Member:
    """A family of a chain, in which all but these is the same."""

    floor: float
    components: int
    dependency: Dependency


def inside(small: Member, large: Member) -> bool:
    """Whether every distribution of the first is one of the second, and they are not the same.

    >>> inside(Member(0, 3, Dependency.INPUT), Member(0, 7, Dependency.JOINT))
    True
    """
    return (
        small != large
        and small.floor == large.floor
        and small.components <= large.components
        and large.dependency.contains(small.dependency)
    )


def closed(wanted: Iterable[Member]) -> list[Member]:
    """The members asked for and those the search walks through, smaller families first.

    The walk starts at noise that depends on nothing and without a floor, and goes through label and
    input to joint.
    """
    found = set(wanted)
    found |= {Member(0.0, each.components, each.dependency) for each in found}
    for each in list(found):
        if each.floor == 0:
            found |= {
                Member(0.0, each.components, other)
                for other in Dependency
                if each.dependency.contains(other)
            }
    order = list(Dependency)
    return sorted(found, key=lambda x: (x.floor, x.components, order.index(x.dependency)))


def nearest(member: Member, members: Iterable[Member]) -> list[Member]:
    """The largest members that lie inside this one; with a floor, the one without."""
    if member.floor:
        return [Member(0.0, member.components, member.dependency)]
    within = [each for each in members if inside(each, member)]
    return [each for each in within if not any(inside(each, other) for other in within)]
