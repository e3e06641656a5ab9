"""The search for the worst admissible distribution of noise.

Only what needs no PyTorch is exported here; `nppr.search.search`, `nppr.search.learned_noise` and the
others are imported by their own names.
"""

from nppr.search.search_settings import (
    LOSSES,
    PRESETS,
    Recipe,
    SearchSettings,
    default_settings,
    paper_settings,
)

__all__ = [
    "LOSSES",
    "PRESETS",
    "Recipe",
    "SearchSettings",
    "default_settings",
    "paper_settings",
]
