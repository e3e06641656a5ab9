"""How often do the intervals and the test on frames of measured noise hold what they state?

Simulates frames with known autocorrelation. Prints for each kind of noise, number of frames and side:
how often all correlations lie in their intervals (95 % is stated), how often the length is exact, and
how often stationary noise is called not stationary (5 % is stated). The last two columns show how often
noise is called so that is stronger in one half, or at 5 % of the pixels. Example:

    python benchmarks/noise_samples.py --runs 1000
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from nppr.statistics.frame_statistics import FrameStatistics, describe_frames

KINDS = {"white": 1, "spikes": 1, "blurred over 3": 3, "blurred over 7": 7}
"""Noise and its correlation length."""


def simulate_frames(
    kind: str, frames: int, side: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Return frames `(N, 1, side, side)`; the kernel of a blur is square and even."""
    length = KINDS[kind]
    wide = side + length - 1
    z = rng.normal(size=(frames, 1, wide, wide))
    if kind == "spikes":
        z = 0.3 * z + 5 * (rng.random(z.shape) < 0.02) * rng.normal(size=z.shape)
    for axis in (2, 3):
        windows = np.lib.stride_tricks.sliding_window_view(z, length, axis)
        z = windows.mean(-1)
    return z.astype(np.float32)


def describe(x: NDArray[np.float32]) -> FrameStatistics:
    """Describe frames from which the mean was not removed yet."""
    mean = x.mean(0)
    return describe_frames(x - mean, mean=mean, at_ends=0.0, sha256="", confidence=0.95)


def covers(found: FrameStatistics, length: int) -> bool:
    """Whether all intervals contain the true correlation of an even square kernel."""
    for each in found.autocorrelation:
        line = max(0.0, 1 - each.lag / length)
        true = line if each.between.startswith("along") else line**2
        if not each.low <= true <= each.high:
            return False
    return True


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    runs = parser.parse_args().runs
    print(
        "| noise | frames | side | coverage | exact length | called not stationary | half | pixels |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for kind, length in KINDS.items():
        for frames in (10, 12, 20, 64):
            for side in (8, 32):
                rng = np.random.default_rng(0)
                hits = np.zeros(5)
                for _ in range(runs):
                    x = simulate_frames(kind, frames, side, rng)
                    half, pixels = x.copy(), x.copy()
                    half[..., side // 2 :] *= 1.25
                    pixels *= 1 + 1.0 * (rng.random((1, 1, side, side)) < 0.05)
                    found = describe(x)
                    hits += [
                        covers(found, length),
                        found.length == length,
                        not found.is_stationary,
                        not describe(half).is_stationary,
                        not describe(pixels).is_stationary,
                    ]
                shares = " | ".join(f"{100 * each:.1f}" for each in hits / runs)
                print(f"| {kind} | {frames} | {side} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
