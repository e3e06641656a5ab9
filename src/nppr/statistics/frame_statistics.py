"""The structure of measured noise: how white and how stationary frames of one constant scene are.

Frames are the sampling unit, taken as independent. With a_f(h) the mean of e(x) e(x + h) in frame f,
channels scaled to variance 1, the autocorrelation is `rho(h) = mean_f a_f(h) / mean_f a_f(0)`. Its
standard error comes from `a_f(h) - rho(h) a_f(0)` over the N frames, at least that of white noise.
Intervals are Student's t, N - 1 degrees of freedom, Bonferroni over lags, directions and channels.

Stationarity: with d_k the differences of disjoint pairs of frames and `s_k = d_k^2 - mean(d_k^2)`,
`sum_{k < l} <s_k, s_l>` is 0 on average if all positions have the same variance. Random signs of
s_k give its null distribution (wild bootstrap). Maps count at full resolution, which finds single
pixels, and averaged over blocks, which finds slow changes. docs/noise.md states what it holds for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy
from numpy.typing import NDArray

from nppr.core.tally import FloatArray

MOST_LAGS = 16
NEGLIGIBLE = 0.05
"""An autocorrelation whose interval lies within this distance of 0 is negligible."""

LEVEL = 0.05
"""Level of the test of stationarity."""

FEWEST_TESTED = 12
"""Frames that the test of stationarity needs: 5 pairs have too few patterns of signs for its level."""

BLOCKS, SIGNS = 4, 1999
INSIDE = 0.999
"""Fraction of the noise values that the suggested radius contains."""

QUANTILES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
DIRECTIONS = {
    "along rows": (0, 1),
    "along columns": (1, 0),
    "down to the right": (1, 1),
    "down to the left": (1, -1),
}


@dataclass(frozen=True)
class Correlation:
    """A correlation between values of the noise, and its interval."""

    between: str
    """A direction, or a pair of channels."""
    lag: int
    value: float
    low: float
    high: float

    @property
    def is_negligible(self) -> bool:
        """Whether the interval contains 0, or lies close to it."""
        return self.low <= 0 <= self.high or max(-self.low, self.high) < NEGLIGIBLE


@dataclass(frozen=True)
class FrameStatistics:
    """Properties of the noise in some frames, in the range of the data."""

    frames: int
    shape: tuple[int, ...]
    sha256: str
    std: tuple[float, ...]
    """Standard deviation of each channel."""
    pattern_std: float
    """Standard deviation over the positions of what all frames share, which is removed."""
    at_ends: float
    """Fraction of the values of the frames at an end of the range, where noise is cut off."""
    largest: float
    inside: float
    """The INSIDE quantile of the absolute values."""
    beyond: int
    values: int
    quantiles: tuple[tuple[float, float], ...]
    longest: float
    """The largest root mean square of a frame."""
    autocorrelation: tuple[Correlation, ...]
    channels: tuple[Correlation, ...]
    """Between channels at the same position."""
    confidence: float
    """Confidence of all intervals together."""
    block_ratio: float
    """Largest over smallest variance of the blocks of a frame."""
    position_p: float
    """P-value of the test of stationarity."""
    consecutive: float
    """Correlation of consecutive frames."""

    @property
    def is_stationary(self) -> bool:
        """Whether the test does not show that the variance differs between positions."""
        return self.position_p >= LEVEL

    @property
    def length(self) -> int | None:
        """The smallest lag from which on all correlations are negligible; None if there is none."""
        found = max(
            (each.lag for each in self.autocorrelation if not each.is_negligible), default=0
        )
        last = max((each.lag for each in self.autocorrelation), default=0)
        return None if found and found == last else found + 1

    @property
    def unseen(self) -> float:
        """The largest correlation that the intervals from the correlation length on still contain."""
        kept = [each for each in self.autocorrelation if each.lag >= (self.length or math.inf)]
        return max((max(-each.low, each.high) for each in kept), default=0.0)


def describe_frames(
    noise: NDArray[np.float32],
    *,
    mean: NDArray[np.float32],
    at_ends: float,
    sha256: str,
    confidence: float,
) -> FrameStatistics:
    """Describe noise `(N, C, H, W)` whose `mean` `(C, H, W)` over the frames was removed."""
    frames, channels = noise.shape[:2]
    std = np.sqrt(np.square(noise, dtype=np.float64).mean((0, 2, 3)))
    std = std * math.sqrt(frames / (frames - 1))
    scaled = noise / np.where(std > 0, std, 1).astype(np.float32)[:, None, None]
    pairs = [(a, b) for a in range(channels) for b in range(a + 1, channels)]
    lags = list(_list_lags(noise.shape[2:]))
    error = (1 - confidence) / (len(lags) + len(pairs) or 1)
    power = np.array([np.mean(_multiply(each, 0, 0), dtype=np.float64) for each in scaled])
    size = np.abs(noise).ravel()
    rank = math.ceil(INSIDE * size.size) - 1
    inside = float(np.partition(size, rank)[rank])
    shared = mean.astype(np.float64).var((1, 2)) - np.square(std) / frames
    return FrameStatistics(
        frames=frames,
        shape=tuple(noise.shape[1:]),
        sha256=sha256,
        std=tuple(std.tolist()),
        pattern_std=math.sqrt(max(0.0, float(shared.mean()))),
        at_ends=at_ends,
        largest=float(size.max()),
        inside=inside,
        beyond=int((size > inside).sum()),
        values=size.size,
        quantiles=tuple(zip(QUANTILES, np.quantile(noise, QUANTILES).tolist(), strict=True)),
        longest=float(np.sqrt(np.square(noise).mean((1, 2, 3)).max())),
        autocorrelation=tuple(
            _correlate(name, lag, (_multiply(each, *step) for each in scaled), power, error)
            for name, lag, step in lags
        ),
        channels=tuple(
            _correlate(
                f"channels {a} and {b}",
                0,
                (each[a] * each[b] for each in scaled),
                np.square(scaled[:, [a, b]]).mean((1, 2, 3)),
                error,
            )
            for a, b in pairs
        ),
        confidence=confidence,
        **_compare_positions(scaled),
        consecutive=float(
            np.mean([(a * b).mean() for a, b in pairwise(scaled)]) / power.mean() + 1 / (frames - 1)
        ),
    )


def _list_lags(sides: tuple[int, ...]) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Yield the directions with their lags, and the steps down and to the right."""
    for name, (down, right) in DIRECTIONS.items():
        shorter = min(side for side, used in zip(sides, (down, right), strict=True) if used)
        for lag in range(1, min(MOST_LAGS, shorter // 2) + 1):
            yield name, lag, (lag * down, lag * right)


def _multiply(frame: NDArray[np.float32], down: int, right: int) -> NDArray[np.float32]:
    """Return the products of a frame `(C, H, W)` and itself, shifted, where both are known."""
    height, width = frame.shape[1:]
    left = max(0, -right)
    first = frame[:, : height - down, left : width - max(0, right)]
    second = frame[:, down:, left + right : width + min(0, right)]
    return np.asarray(first * second)


def _correlate(
    between: str,
    lag: int,
    products: Iterable[NDArray[np.float32]],
    power: FloatArray,
    error: float,
) -> Correlation:
    """Return the correlation of N frames from their products and their mean squares."""
    known = [(float(np.mean(each, dtype=np.float64)), each.size) for each in products]
    means, frames, size = np.array([mean for mean, _ in known]), len(known), known[0][1]
    value = float(means.mean() / power.mean())
    scatter = float(np.std(means - value * power, ddof=1) / power.mean())
    # The mean that all frames share makes them alike: the scatter is low by half of 1 / N.
    standard_error = max(scatter / math.sqrt(frames - 1), 1 / math.sqrt(frames * size))
    margin = float(scipy.special.stdtrit(frames - 1, 1 - error / 2)) * standard_error
    return Correlation(between, lag, value, max(-1.0, value - margin), min(1.0, value + margin))


def _compare_positions(scaled: NDArray[np.float32]) -> dict[str, float]:
    """Test whether all positions have the same variance, and compare the blocks of a frame."""
    pairs = len(scaled) // 2
    maps = np.square(scaled[0 : 2 * pairs : 2] - scaled[1 : 2 * pairs : 2])
    maps -= maps.mean((2, 3), keepdims=True)
    gram = sum((_inner_products(each) for each in (maps, _average(maps))), np.zeros((pairs, pairs)))
    random = np.random.default_rng(0)
    signs = random.choice([-1.0, 1.0], size=(SIGNS, pairs))
    drawn = np.einsum("sk,kl,sl->s", signs, gram, signs)
    above = int((drawn >= gram.sum() - 1e-9).sum())
    blocks = _average(np.square(scaled)).mean((0, 1))
    return {
        "block_ratio": float(blocks.max() / max(float(blocks.min()), 1e-12)),
        "position_p": (1 + above) / (1 + SIGNS),
    }


def _inner_products(maps: NDArray[np.float32]) -> FloatArray:
    """Return the products of different maps, of total size 1, `(M, C, H, W) -> (M, M)`."""
    flat = maps.reshape(len(maps), -1).astype(np.float64)
    gram: FloatArray = flat @ flat.T
    np.fill_diagonal(gram, 0.0)
    return gram / max(float(np.linalg.norm(gram)), 1e-300)


def _average(maps: NDArray[np.float32]) -> NDArray[np.float32]:
    """Average maps over at most BLOCKS x BLOCKS blocks."""
    for axis in (2, 3):
        parts = np.array_split(maps, min(BLOCKS, maps.shape[axis]), axis=axis)
        maps = np.concatenate([each.mean(axis, keepdims=True) for each in parts], axis=axis)
    return maps
