"""Fitting: the search for the worst admissible distribution of noise."""

from nppr.fit.loop import FitProgress
from nppr.fit.search import FAMILY, Outcome, Search
from nppr.fit.settings import PRESETS, FitSettings, Recipe, default_settings, paper_settings

__all__ = [
    "FAMILY",
    "PRESETS",
    "FitProgress",
    "FitSettings",
    "Outcome",
    "Recipe",
    "Search",
    "default_settings",
    "paper_settings",
]
