"""The structures of noise: what it is made of, beside what it knows (`rungs.py`).

A structure is declared once, here; its `sampler` turns latent draws into perturbations. Names of
learned noise, settings, policies, saved distributions and reports carry the structure, and searches go
through the structures inside the one asked for. Nothing here imports PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nppr.errors import SpecError
from nppr.noise.rungs import LADDER, Dependency

ANY, WHITE, STATIONARY = "any", "white", "stationary"
"""The structures: not restricted, independent at every position, alike at every position."""

DEFAULT_LENGTH = 9
"""Correlation length in pixels, unless a third of the shorter side is less."""

MOST_CORNERS = 16
"""Components of white noise, at most: corners of the cube of the channels."""


def choose_length(shape: tuple[int, ...], length: int | None) -> int:
    """Return the correlation length of stationary noise on images of `shape` (C, H, W).

    >>> choose_length((3, 32, 32), None), choose_length((1, 8, 8), None), choose_length((1, 1, 99), 5)
    (9, 2, 5)
    """
    shorter = min(side for side in shape[1:] if side > 1)
    if length is None:
        return max(1, min(DEFAULT_LENGTH, shorter // 3))
    if length > shorter:
        raise SpecError(
            f"`correlation-length` must be at most the shorter side, {shorter} pixels, got {length}."
            f" Example: {max(1, shorter // 3)}"
        )
    return length


def has_positions(shape: tuple[int, ...]) -> bool:
    """Return whether perturbations of `shape` have positions: those of tables and boxes do not."""
    return math.prod(shape[1:]) > 1


def _count_corners(shape: tuple[int, ...]) -> int:
    return min(MOST_CORNERS, 1 << min(shape[0], 10))


@dataclass(frozen=True)
class Structure:
    """One structure: its words, what contains it, and how its noise is sampled and searched."""

    name: str
    meaning: str
    """The words that follow "the noise is"."""
    example: str
    """A sentence with an everyday example."""
    epithet: str
    """Names the worst noise found that knows nothing of the input."""
    sampler: str
    """`module:function` that makes an `Upsampler` of a family and a shape (C, H, W)."""
    inside: tuple[str, ...] = ()
    """The names of the larger structures that contain it."""
    rungs: tuple[Dependency, ...] = LADDER
    """The rungs that it is searched on."""
    needs_positions: bool = False
    """Whether only images and signals can have it: tables and transformations have no positions."""
    components: Callable[[tuple[int, ...]], int] | None = None
    """Components of its mixture for a shape (C, H, W); None: as many as the settings say."""
    share: int = 12
    """Calls of its stages, relative to those of others."""
    scored_rate: float = 0.0
    """Step of a search without gradients, for structures with a recipe."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """Changes of the recipe of its searches, by the fields of `Recipe`."""

    def contains(self, other: str) -> bool:
        """Return whether all noise of the other structure has this one."""
        return other == self.name or self.name in STRUCTURES[other].inside

    @property
    def path(self) -> tuple[Structure, ...]:
        """The structures that a search goes through on its way here, the smallest first."""
        known = [each for each in STRUCTURES.values() if self.contains(each.name)]
        return tuple(sorted(known, key=lambda each: sum(map(each.contains, STRUCTURES))))


_SMOOTH = {"inputs": 64, "momentum": None, "bound": None, "clip": None}
"""Recipe of structures whose few parameters all positions share: Adam, and nothing held back."""

STRUCTURES = {
    each.name: each
    for each in (
        Structure(
            name=WHITE,
            meaning="independent at every pixel, with one law for all pixels",
            example="every pixel varies on its own, like sensor noise",
            epithet="worst white noise",
            sampler="nppr.noise.upsample:White",
            inside=(STATIONARY, ANY),
            rungs=(Dependency.INDEPENDENT, Dependency.LABEL),
            needs_positions=True,
            components=_count_corners,
            share=6,
            scored_rate=0.1,
            recipe={**_SMOOTH, "rate": 5e-2, "head_rate": 5e-2},
        ),
        Structure(
            name=STATIONARY,
            meaning="alike at every position, and independent beyond the correlation length",
            example="a texture without a fixed place, like interference or compression",
            epithet="worst stationary noise",
            sampler="nppr.noise.upsample:Stationary",
            inside=(ANY,),
            rungs=(Dependency.INDEPENDENT, Dependency.LABEL),
            needs_positions=True,
            share=10,
            scored_rate=0.02,
            recipe={**_SMOOTH, "rate": 1e-2, "head_rate": 1e-2},
        ),
        Structure(
            name=ANY,
            meaning="of any structure, even one fixed pattern",
            example="one fixed pattern is allowed, like dirt on the lens",
            epithet="worst noise of any structure",
            sampler="nppr.noise.upsample:make_free",
        ),
    )
}

WITHOUT_INPUT = (
    "White and stationary noise that knows more than the class has no cells, because knowing the input"
    " gained nothing in the searches tried. On resnet20, one 1x1 filter for all inputs left 58.2 %, and"
    " one for each input 58.4 %. With 3x3 filters, 37.1 % and 37.7 % were left."
)
"""Explains the empty cells of a ladder."""
