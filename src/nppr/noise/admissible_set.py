"""The admissible set of learned noise: what it knows, what it is made of, how random it must be.

It names learned noise in files, tables and policies. Nothing here imports PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass

from nppr.core.nouns import NOISE, Nouns
from nppr.errors import SpecError, unknown
from nppr.noise.rungs import Dependency
from nppr.noise.structures import ANY, STRUCTURES

NPPR = "nppr"
"""The source of learned noise."""


@dataclass(frozen=True)
class AdmissibleSet:
    """One cell of the ladder at one floor.

    >>> AdmissibleSet(Dependency.JOINT, floor=0.5).name_noise()
    'nppr:joint:floor=0.5'
    """

    rung: Dependency
    structure: str = ANY
    floor: float = 0.0

    @classmethod
    def parse(cls, text: str, floor: float = 0.0) -> AdmissibleSet:
        """Return the set of a label, such as `joint`, at a floor.

        >>> AdmissibleSet.parse("joint").rung
        <Dependency.JOINT: 'joint'>
        """
        rung, _, structure = text.partition(":")
        rungs = [each.value for each in Dependency]
        if rung not in rungs:
            raise unknown("rung of NPPR", rung, rungs)
        if structure and structure not in STRUCTURES:
            raise unknown("structure of NPPR", structure, list(STRUCTURES))
        if Dependency(rung) not in STRUCTURES[structure or ANY].rungs:
            known = ", ".join(f"{each}:{structure}" for each in STRUCTURES[structure].rungs)
            raise SpecError(f"NPPR has no cell {text!r}. It has {known}, and {rung}.")
        return cls(Dependency(rung), structure or ANY, floor)

    def contains(self, other: AdmissibleSet) -> bool:
        """Return whether all noise of the other set, at the same floor, is in this one."""
        structure = STRUCTURES[self.structure]
        return self.rung.contains(other.rung) and structure.contains(other.structure)

    @property
    def place(self) -> tuple[float, int, int]:
        """The place in tables: by floor, then by structure, then down the ladder."""
        return self.floor, len(STRUCTURES[self.structure].path), self.rung.depth

    @property
    def label(self) -> str:
        """The rung, and the structure if it is restricted, for tables."""
        return f"{self.rung}" + ("" if self.structure == ANY else f":{self.structure}")

    def name_noise(self, fit_seed: int | None = None) -> str:
        """Return the name of noise learned in this set, for readers and files.

        >>> AdmissibleSet(Dependency.LABEL).name_noise(fit_seed=1)
        'nppr:label:fit-seed=1'
        """
        parts = [NPPR, self.label]
        parts += [f"floor={self.floor:g}"] if self.floor else []
        return ":".join(parts + ([] if fit_seed is None else [f"fit-seed={fit_seed}"]))

    def describe(self, nouns: Nouns = NOISE) -> str:
        """Return what the noise knows and is made of, as a clause; laws have no structure."""
        made = f" and is {STRUCTURES[self.structure].meaning}" if nouns.kind == NOISE.kind else ""
        return self.rung.describe(nouns) + made

    def sentence(self, nouns: Nouns = NOISE) -> str:
        """Return an everyday example of such noise and what it knows."""
        text = f"{STRUCTURES[self.structure].example}; {self.rung.describe(nouns)}."
        return text[0].upper() + text[1:]
