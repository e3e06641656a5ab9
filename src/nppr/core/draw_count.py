"""Default number of perturbations per input."""

from __future__ import annotations

DEFAULT_DRAWS = 100
"""Default draws per input for small data sets."""

FEWEST_DRAWS = 16
"""Smallest default: one block. A run with a requested precision starts with it."""


def default_draws(inputs: int, share: float = 1.0) -> int:
    """Return the default draws per input times `share`; more inputs need fewer draws each.

    >>> default_draws(500), default_draws(2_000), default_draws(10_000)
    (100, 50, 16)
    """
    draws = min(DEFAULT_DRAWS, max(FEWEST_DRAWS, -(-1_000 * DEFAULT_DRAWS // max(1, inputs))))
    return max(FEWEST_DRAWS, round(share * draws))
