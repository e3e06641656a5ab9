"""Statistics of measured noise against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from nppr.statistics.frame_statistics import FrameStatistics, describe_frames


def described(frames: NDArray[np.float64]) -> FrameStatistics:
    x = frames.astype(np.float32)
    mean = x.mean(0)
    return describe_frames(x - mean, mean=mean, at_ends=0.0, sha256="", confidence=0.95)


def white(seed: int, frames: int = 30, channels: int = 1, side: int = 24) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(0, 0.03, size=(frames, channels, side, side))


def smoothed(frames: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """The frames under a moving average along the rows."""
    windows = np.lib.stride_tricks.sliding_window_view(frames, length, 3)
    return np.asarray(windows.mean(-1))


def test_white_frames_are_white() -> None:
    found = described(white(0))
    assert found.length == 1
    assert found.is_stationary
    assert found.std == pytest.approx((0.03,), rel=0.02)
    assert found.unseen < 0.12
    assert abs(found.consecutive) < 0.03
    assert found.pattern_std < 0.002


@pytest.mark.parametrize("length", [2, 3, 5])
@pytest.mark.parametrize("axis", [2, 3])
def test_the_length_of_a_known_kernel_is_found(length: int, axis: int) -> None:
    frames = smoothed(white(1, frames=60, side=32), length)
    found = described(frames if axis == 3 else frames.swapaxes(2, 3))
    assert found.length == length
    assert found.is_stationary
    name = "along rows" if axis == 3 else "along columns"
    for each in found.autocorrelation:
        true = max(0.0, 1 - each.lag / length) if each.between == name else 0.0
        assert each.low <= true <= each.high


@pytest.mark.parametrize(("step", "name"), [(1, "down to the right"), (-1, "down to the left")])
def test_noise_along_a_diagonal_is_not_white(step: int, name: str) -> None:
    z = white(2, side=25)
    found = described(
        z[:, :, 1:, 1:] + z[:, :, :-1, :-1] if step > 0 else z[:, :, 1:, :-1] + z[:, :, :-1, 1:]
    )
    assert found.length == 2
    seen = [each for each in found.autocorrelation if not each.is_negligible]
    assert [(each.between, each.lag) for each in seen] == [(name, 1)]
    assert seen[0].value == pytest.approx(0.5, abs=0.05)


def test_the_channels_of_grey_noise_are_correlated() -> None:
    grey = white(3)
    pair = np.concatenate([grey, grey + white(4)], axis=1)
    (found,) = described(pair).channels
    assert found.between == "channels 0 and 1"
    assert found.low < 0.5**0.5 < found.high
    assert described(pair).std == pytest.approx((0.03, 0.03 * 2**0.5), rel=0.02)


def test_a_pattern_of_all_frames_is_removed_and_stated() -> None:
    pattern = np.random.default_rng(5).normal(0, 0.1, size=(1, 24, 24))
    found = described(white(0) + pattern)
    assert found.pattern_std == pytest.approx(float(pattern.std()), rel=0.02)
    plain = described(white(0))
    assert found.length == plain.length
    assert found.std == pytest.approx(plain.std, rel=1e-4)


def slope(side: int = 24) -> NDArray[np.float64]:
    return np.linspace(0.7, 1.3, side)[:, None].repeat(side, axis=1)


def hot_pixels(side: int = 24) -> NDArray[np.float64]:
    return np.where(np.random.default_rng(6).random((side, side)) < 0.05, 3.0, 1.0)


def odd_columns(side: int = 24) -> NDArray[np.float64]:
    return np.where(np.arange(side) % 2, 1.3, 1.0)[None].repeat(side, axis=0)


@pytest.mark.parametrize(
    "scale", [slope(), hot_pixels(), odd_columns()], ids=["slope", "hot", "odd"]
)
def test_a_variance_that_differs_between_positions_is_found(scale: NDArray[np.float64]) -> None:
    assert not described(white(7, frames=20) * scale).is_stationary


def test_the_block_ratio_is_that_of_the_variances() -> None:
    halves = np.where(np.arange(24) < 12, 1.0, 2.0)[None].repeat(24, axis=0)
    found = described(white(8, frames=200) * halves)
    assert found.block_ratio == pytest.approx(4, rel=0.15)


def test_the_test_of_stationarity_keeps_its_level() -> None:
    rng = np.random.default_rng(9)
    refused = 0
    for _ in range(300):
        spikes = rng.normal(size=(16, 1, 8, 8)) * np.where(rng.random((16, 1, 8, 8)) < 0.05, 10, 1)
        refused += not described(spikes).is_stationary
    assert refused / 300 < 0.08


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("frames", [10, 30])
def test_all_intervals_hold_together(length: int, frames: int) -> None:
    held = 0
    for seed in range(300):
        x = smoothed(white(seed, frames=frames, side=16), length)
        held += all(
            each.low
            <= (max(0.0, 1 - each.lag / length) if each.between == "along rows" else 0.0)
            <= each.high
            for each in described(x).autocorrelation
        )
    assert held / 300 > 0.91


def test_consecutive_frames_that_share_noise_are_noticed() -> None:
    z = white(10, frames=31)
    assert described(z[1:] + z[:-1]).consecutive == pytest.approx(0.5, abs=0.05)


def test_a_correlation_without_an_end_has_no_length() -> None:
    flicker = white(11) + white(12, side=1)
    assert described(flicker).length is None


def test_quantiles_and_the_share_inside() -> None:
    found = described(white(13, frames=100))
    quantiles = dict(found.quantiles)
    assert quantiles[0.5] == pytest.approx(0, abs=1e-3)
    assert quantiles[0.99] == pytest.approx(2.326 * 0.03, rel=0.02)
    assert found.inside == pytest.approx(3.29 * 0.03, rel=0.03)
    assert found.beyond == found.values - int(np.ceil(0.999 * found.values))
    assert found.largest > found.inside


def test_a_signal_has_one_direction() -> None:
    signal = white(14, side=40)[:, :, :1]
    found = described(signal)
    assert {each.between for each in found.autocorrelation} == {"along rows"}
    assert found.length == 1
