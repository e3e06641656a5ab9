"""Radii in their usual form, such as 8/255, and the names of the norms. Does not import PyTorch."""

from __future__ import annotations

import math

from nppr.errors import BudgetError

NORM_NAMES = ("linf", "l2")

SMALLEST_RADIUS, LARGEST_RADIUS = 1e-9, 1e6
"""Limits of radii that single precision distinguishes from 0 and from infinity."""


def parse_radius(radius: float | str) -> float:
    """Return a radius from a number or from text such as `8/255`.

    >>> parse_radius("8/255") == 8 / 255
    True
    """
    try:
        above, slash, below = radius.partition("/") if isinstance(radius, str) else (radius, "", 1)
        value = float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError, TypeError):
        value = math.nan
    if not 0 < value < math.inf:
        raise BudgetError(f"`radius` must be a number > 0, got {radius!r}. Example: 8/255")
    if not SMALLEST_RADIUS <= value <= LARGEST_RADIUS:
        raise BudgetError(
            f"`radius` must lie between {SMALLEST_RADIUS:g} and {LARGEST_RADIUS:g}, got {radius!r}."
            " Example: 8/255"
        )
    return value
