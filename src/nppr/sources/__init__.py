"""Perturbation sources: noise and attacks. A source and a classifier give a tally."""

from nppr.sources.attacks import PGD
from nppr.sources.learned import Learned, learned_name
from nppr.sources.noise import Clean, Gaussian, Laplace, Uniform
from nppr.sources.spec import DEFAULT_SOURCES, SOURCES, parse_sources

__all__ = [
    "DEFAULT_SOURCES",
    "PGD",
    "SOURCES",
    "Clean",
    "Gaussian",
    "Laplace",
    "Learned",
    "Uniform",
    "learned_name",
    "parse_sources",
]
