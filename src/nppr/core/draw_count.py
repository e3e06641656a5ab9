"""How many perturbations are drawn per input."""

from __future__ import annotations

DEFAULT_DRAWS = 100
"""Draws per input unless something else is asked for."""

FEWEST_DRAWS = 16
"""Least default: one block. A run with a wanted precision begins with it."""


def default_draws(inputs: int, share: float = 1.0) -> int:
    """Return the draws per input, or this share of them; the more inputs, the fewer draws each needs.

    >>> default_draws(500), default_draws(2_000), default_draws(10_000)
    (100, 50, 16)
    """
    draws = min(DEFAULT_DRAWS, max(FEWEST_DRAWS, -(-1_000 * DEFAULT_DRAWS // max(1, inputs))))
    return max(FEWEST_DRAWS, round(share * draws))
