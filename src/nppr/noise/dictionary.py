"""A dictionary of fixed patterns: signs of waves of all frequencies, phases and colours.

    wave          sign cos(2 pi (f_y y / H + f_x x / W) + phase)
    checkerboard  sign cos(2 pi f_y y / H + phase) sign cos(2 pi f_x x / W + phase)

Each is multiplied by the signs of a colour: channels change together (grey) or against each other.
Signals have frequencies along their one axis.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

PHASES = 4
"""Phases of a wave; that of half a turn is the opposite sign."""

FINE_SIDES = 7
"""Steps between the lowest frequencies, all of which are taken, and half of the side."""

LOWEST = 5
OFF_ZERO = 0.05
"""Turns that keep a wave away from zero at the pixels, where it would have no sign."""


@dataclass(frozen=True)
class Pattern:
    """A pattern of the dictionary; `phase` is in turns."""

    rows: int
    columns: int
    colour: tuple[int, ...]
    product: bool = False
    phase: float = 0.0

    def draw(self, shape: tuple[int, ...]) -> Tensor:
        """Return its values -1 and 1, `(C, H, W)`."""
        _, height, width = shape
        y = torch.arange(height)[:, None] * (self.rows / height)
        x = torch.arange(width) * (self.columns / width)
        phase = self.phase + OFF_ZERO
        turns = [y + phase, x + phase] if self.product else [y + x + phase]
        values = math.prod(torch.cos(2 * math.pi * each).sign() for each in turns)
        assert isinstance(values, Tensor)
        colour = torch.tensor(self.colour, dtype=values.dtype)[:, None, None]
        return colour * values.expand(height, width)

    @property
    def phases(self) -> list[Pattern]:
        """The same pattern at every phase."""
        return [replace(self, phase=number / PHASES) for number in range(PHASES)]


def list_patterns(shape: tuple[int, ...]) -> list[Pattern]:
    """Return the dictionary for images of `shape` (C, H, W), each wave at one phase.

    >>> len(list_patterns((1, 8, 8))), len(list_patterns((1, 1, 64)))
    (50, 13)
    """
    channels, height, width = shape
    rows, columns = _frequencies(height), _frequencies(width)
    pairs = {(0, 0)}
    for fy, fx in itertools.product(rows, columns):
        pairs |= {(fy, fx)} if not fy or not fx else {(fy, fx), (fy, -fx)}
    made = [(fy, fx, False) for fy, fx in sorted(pairs)]
    both = itertools.product(rows, columns)
    made += [(fy, fx, True) for fy, fx in both if fy and fx and _is_power(fy) and _is_power(fx)]
    return [
        Pattern(fy, fx, colour, twice) for fy, fx, twice in made for colour in _colours(channels)
    ]


def _frequencies(side: int) -> list[int]:
    """Return waves per side: the lowest, then evenly up to half of the side."""
    highest = side // 2
    steps = {
        round(LOWEST + (highest - LOWEST) * part / FINE_SIDES) for part in range(FINE_SIDES + 1)
    }
    low = set(range(min(LOWEST, highest + 1)))
    return sorted(low | {each for each in steps if LOWEST <= each <= highest} | {highest})


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0


def _colours(channels: int) -> list[tuple[int, ...]]:
    """Return grey and colours whose channels oppose each other, up to their sign."""
    if channels <= 3:
        return [(1, *signs) for signs in itertools.product((1, -1), repeat=channels - 1)]
    every = range(channels)
    alternating = tuple(1 - 2 * (each % 2) for each in every)
    halves = tuple(1 if 2 * each < channels else -1 for each in every)
    return [(1,) * channels, alternating, halves]
