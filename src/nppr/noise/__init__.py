"""Learned perturbation distributions: the mixture, up-samplers, the budget and the floor.

Only what needs no PyTorch is exported here; `nppr.noise.distribution` and the others are imported by
their own names.
"""

from nppr.noise.family import Family, Rule, Temperatures
from nppr.noise.rungs import Dependency

__all__ = ["Dependency", "Family", "Rule", "Temperatures"]
