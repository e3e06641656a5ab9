"""The structures of noise: what it is made of, beside what it knows (`rungs.py`).

A structure is declared once, here; its `sampler` turns latent draws into perturbations. Names of
learned noise, settings, policies, saved distributions and reports carry the structure, and searches go
through the structures inside the one asked for. Nothing here imports PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nppr.noise.rungs import LADDER, Dependency

ANY = "any"
"""The structure of noise that is not restricted."""


@dataclass(frozen=True)
class Structure:
    """One structure: its words, what contains it, and how its noise is sampled and searched."""

    name: str
    meaning: str
    """The words that follow "the noise is"."""
    threat: str
    """Examples of such noise in practice."""
    sampler: str
    """`module:function` that makes an `Upsampler` of a family and a shape (C, H, W)."""
    inside: tuple[str, ...] = ()
    """The names of the larger structures that contain it."""
    rungs: tuple[Dependency, ...] = LADDER
    """The rungs that it is searched on."""
    transforms: bool = True
    """Whether parameters of a transformation can have it; they have no positions."""
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


STRUCTURES = {
    each.name: each
    for each in (
        Structure(
            name=ANY,
            meaning="not restricted: one fixed pattern is allowed",
            threat="calibration errors, dirt on the lens, an attacker",
            sampler="nppr.noise.upsample:make_free",
        ),
    )
}
