"""Perturbation sources: everything that perturbs an input. A source and a classifier give a tally.

The modules below register their sources when they are imported. `learned` and `custom` hold sources
that have no name on a command line; they are imported where they are needed.
"""

from nppr.noise.admissible_set import NPPR
from nppr.source_names import ALL
from nppr.sources.base import (
    SOURCES,
    Guidance,
    Source,
    check_unique,
    default_sources,
    option_defaults,
    parse_sources,
    references,
    sources_in,
    split_search,
)
from nppr.sources.fixed import Clean, Gaussian, Laplace, Uniform  # isort: split

from nppr.sources.attacks import CW, PGD, ClassicPGD, WeakAdversary
from nppr.sources.autoattack import AutoAttack
from nppr.sources.scan import Scan
from nppr.sources.universal import Universal  # isort: split

from nppr.sources.worst_pattern import Patterns  # isort: split

from nppr.sources.noise_bound import Bound, share_error  # isort: split

from nppr.sources.corruptions import JPEG, Brightness, MotionBlur, SaltAndPepper
from nppr.sources.stress import Stress

__all__ = [
    "ALL", "CW", "JPEG", "NPPR", "PGD", "SOURCES", "AutoAttack", "Bound", "Brightness", "ClassicPGD",
    "Clean",
    "Gaussian", "Guidance", "Laplace", "MotionBlur", "Patterns", "SaltAndPepper", "Scan", "Source",
    "Stress", "Uniform", "Universal", "WeakAdversary", "check_unique", "default_sources",
    "option_defaults", "parse_sources", "references", "share_error", "sources_in", "split_search",
]  # fmt: skip
