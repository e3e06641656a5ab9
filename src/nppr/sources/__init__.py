"""Perturbation sources: noise, attacks, corruptions. A source and a classifier give a tally."""

from nppr.sources.attacks import CW, PGD
from nppr.sources.autoattack import AutoAttack
from nppr.sources.bound import Bound
from nppr.sources.corruptions import JPEG, Brightness, MotionBlur, SaltAndPepper
from nppr.sources.custom import CustomAttack, CustomNoise
from nppr.sources.learned import Learned, learned_name
from nppr.sources.noise import Clean, Gaussian, Laplace, Uniform
from nppr.sources.spec import CORRUPTIONS, DEFAULT_SOURCES, PRESETS, SOURCES, parse_sources
from nppr.sources.stress import Stress
from nppr.sources.universal import Universal
from nppr.sources.weak import WeakAdversary

__all__ = [
    "CORRUPTIONS",
    "CW",
    "DEFAULT_SOURCES",
    "JPEG",
    "PGD",
    "PRESETS",
    "SOURCES",
    "AutoAttack",
    "Bound",
    "Brightness",
    "Clean",
    "CustomAttack",
    "CustomNoise",
    "Gaussian",
    "Laplace",
    "Learned",
    "MotionBlur",
    "SaltAndPepper",
    "Stress",
    "Uniform",
    "Universal",
    "WeakAdversary",
    "learned_name",
    "parse_sources",
]
