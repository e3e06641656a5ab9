"""Each corruption against its definition, written once more without torch, and what all keep."""

import colorsys
import io
import math
import re

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torch import Tensor

from helpers import Linear, evaluate_part
from nppr.core.budget import perturbed
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Metric
from nppr.errors import DataError, SpecError
from nppr.measuring.measurement import measure
from nppr.models import Classifier
from nppr.sources import Source
from nppr.sources.corruptions import JPEG, Brightness, Corruption, MotionBlur, SaltAndPepper

KINDS: list[type[Corruption]] = [SaltAndPepper, MotionBlur, Brightness, JPEG]
RANDOM = (SaltAndPepper, MotionBlur)

SHARES = {
    "imagenet-c": [0.03, 0.06, 0.09, 0.17, 0.27],
    "cifar-c": [0.01, 0.02, 0.03, 0.05, 0.07],
}
BLURS: dict[str, list[tuple[int, float]]] = {
    "imagenet-c": [(10, 3), (15, 5), (15, 8), (15, 12), (20, 15)],
    "cifar-c": [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)],
}
SHIFTS = {"imagenet-c": [0.1, 0.2, 0.3, 0.4, 0.5], "cifar-c": [0.05, 0.1, 0.15, 0.2, 0.3]}
QUALITIES = {"imagenet-c": [25, 18, 15, 10, 7], "cifar-c": [80, 65, 58, 50, 40]}

all_kinds = pytest.mark.parametrize("kind", KINDS)
all_severities = pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
both_sets = pytest.mark.parametrize("constants", ["imagenet-c", "cifar-c"])


def block(indices: list[int], seed: int = 0) -> DrawBlock:
    return DrawBlock(seed, "evaluate", tuple(indices), 0, 1, torch.device("cpu"), capacity=1)


def images(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def corrupted(source: Source, x: Tensor, indices: list[int] | None = None, seed: int = 0) -> Tensor:
    """What the classifier is given, through the perturbation as in a measurement."""
    draws = block(list(range(len(x))) if indices is None else indices, seed)
    delta = source.perturb(None, x, x, draws)  # type: ignore[arg-type]
    assert delta.shape == (len(x), 1, *x.shape[1:])
    return perturbed(x[:, None], delta)[:, 0]


@both_sets
@all_severities
def test_salt_and_pepper_replaces_its_share(severity: int, constants: str) -> None:
    share = SHARES[constants][severity - 1]
    x = torch.full((40, 3, 40, 50), 0.5)
    found = corrupted(SaltAndPepper(severity, constants), x)
    white, black = found == 1, found == 0
    changed = white | black
    assert bool((changed | (found == 0.5)).all())
    assert stats.binomtest(int(changed.sum()), x.numel(), share).pvalue > 1e-4
    assert stats.binomtest(int(white.sum()), int(changed.sum()), 0.5).pvalue > 1e-4
    # Channels are independent, and so are neighbours: both of a pair with the square of the share.
    for both in (changed[:, 0] & changed[:, 1], changed[..., 1:] & changed[..., :-1]):
        expected = share**2 * both.numel()
        assert abs(int(both.sum()) - expected) < 6 * math.sqrt(expected)


def line(radius: int, sigma: float, angle: float) -> list[tuple[int, int, float]]:
    """Rows down, columns right and weight of every point of the blur."""
    weights = [math.exp(-(i**2) / (2 * sigma**2)) for i in range(2 * radius + 1)]
    return [
        (
            math.ceil(i * math.sin(angle) - 0.5),
            math.ceil(i * math.cos(angle) - 0.5),
            weight / sum(weights),
        )
        for i, weight in enumerate(weights)
    ]


def angles(inputs: int) -> list[float]:
    turns = block(list(range(inputs))).uniform("motion-blur", ())[:, 0]
    return [math.radians(90 * turn - 45) for turn in turns.tolist()]


@both_sets
@all_severities
def test_motion_blur_of_a_point_is_the_line(severity: int, constants: str) -> None:
    radius, sigma = BLURS[constants][severity - 1]
    x = torch.zeros(6, 1, 81, 61)
    x[:, :, 40, 50] = 1.0
    expected = torch.zeros_like(x)
    for row, angle in enumerate(angles(6)):
        for down, right, weight in line(radius, sigma, angle):
            expected[row, 0, 40 - down, 50 - right] += weight
    found = corrupted(MotionBlur(severity, constants), x)
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.allclose(found.sum((1, 2, 3)), torch.ones(6), atol=1e-5)


@both_sets
@all_severities
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 5, 13), (3, 1, 1), (2, 30, 4)])
def test_motion_blur_continues_the_image_by_its_edge(
    shape: tuple[int, int, int], severity: int, constants: str
) -> None:
    radius, sigma = BLURS[constants][severity - 1]
    x = images(3, *shape)
    expected = np.zeros(x.shape)
    for row, angle in enumerate(angles(3)):
        image = x[row].double().numpy()
        for down, right, weight in line(radius, sigma, angle):
            rows = np.clip(np.arange(shape[1]) + down, 0, shape[1] - 1)
            columns = np.clip(np.arange(shape[2]) + right, 0, shape[2] - 1)
            expected[row] += weight * image[:, rows][:, :, columns]
    found = corrupted(MotionBlur(severity, constants), x)
    assert np.abs(found.numpy() - expected).max() < 1e-6


@both_sets
@all_severities
def test_motion_blur_leaves_a_constant_image(severity: int, constants: str) -> None:
    x = torch.tensor([0.0, 0.3, 1.0]).view(3, 1, 1, 1).expand(3, 3, 9, 12)
    found = MotionBlur(severity, constants).corrupt(x, block([0, 1, 2]))
    assert torch.allclose(found, x, atol=1e-6)


def test_motion_blur_takes_all_angles_alike() -> None:
    """The farthest point of the line, 40 pixels away, gives the angle up to a degree or so."""
    x = torch.zeros(400, 1, 61, 42)
    x[:, :, 30, 41] = 1.0
    found = corrupted(MotionBlur(5, "imagenet-c"), x)[:, 0] > 0
    rows, columns = torch.meshgrid(torch.arange(61) - 30, torch.arange(42) - 41, indexing="ij")
    distance = torch.hypot(rows.double(), columns.double())
    farthest = torch.where(found, distance, -1.0).flatten(1).argmax(1)
    seen = torch.rad2deg(torch.atan2(-rows.flatten().double(), -columns.flatten().double()))[
        farthest
    ]
    assert stats.kstest(seen.numpy(), stats.uniform(-45, 90).cdf).pvalue > 1e-3


def brighter(pixel: list[float], shift: float) -> tuple[float, float, float]:
    hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
    return colorsys.hsv_to_rgb(hue, saturation, min(value + shift, 1.0))


@both_sets
@all_severities
def test_brightness_moves_the_value(severity: int, constants: str) -> None:
    x = images(2, 3, 6, 7)
    special = [(0, 0, 0), (1, 1, 1), (1, 0, 0), (0, 0.3, 0), (0.4, 0.4, 0.4), (1e-40, 0, 0)]
    x[0, :, 0, : len(special)] = torch.tensor(special).T
    shift = SHIFTS[constants][severity - 1]
    found = corrupted(Brightness(severity, constants), x).movedim(1, -1).flatten(0, 2)
    pixels = x.movedim(1, -1).flatten(0, 2).tolist()
    expected = torch.tensor([brighter(pixel, shift) for pixel in pixels])
    expected[len(special) - 1] = shift  # as good as black
    assert torch.allclose(found, expected, atol=1e-6)


@both_sets
@all_severities
def test_brightness_of_gray_images_is_a_shift(severity: int, constants: str) -> None:
    x = images(2, 1, 8, 8)
    x[0, 0, 0, 0] = 0.0
    expected = (x + SHIFTS[constants][severity - 1]).clamp(max=1.0)
    assert torch.allclose(corrupted(Brightness(severity, constants), x), expected, atol=1e-6)


@both_sets
@all_severities
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 8), (1, 20, 41), (3, 41, 20)])
def test_jpeg_is_a_file_of_its_quality(
    shape: tuple[int, int, int], severity: int, constants: str
) -> None:
    x = images(3, *shape)
    found = corrupted(JPEG(severity, constants), x)
    for image, other in zip(x.numpy(), found, strict=True):
        levels = np.rint(image.astype(np.float64) * 255).astype(np.uint8)
        picture = Image.fromarray(levels[0] if shape[0] == 1 else levels.transpose(1, 2, 0))
        assert picture.mode == ("L" if shape[0] == 1 else "RGB")
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=QUALITIES[constants][severity - 1])
        loaded = np.array(Image.open(file)).reshape(*shape[1:], shape[0]).transpose(2, 0, 1)
        assert np.array_equal(np.rint(other.numpy() * 255), loaded)
        assert np.abs(other.numpy() * 255 - loaded).max() < 1e-4


@all_kinds
def test_an_input_does_not_see_its_batch(kind: type[Corruption]) -> None:
    x = images(6, 3, 12, 9)
    together = corrupted(kind(3), x)
    alone = corrupted(kind(3), x[4:5], [4])
    turned = corrupted(kind(3), x.flip(0), [5, 4, 3, 2, 1, 0])
    assert torch.equal(together[4], alone[0])
    assert torch.equal(together, turned.flip(0))


@all_kinds
def test_the_seed_and_the_input_decide_where_there_is_chance(kind: type[Corruption]) -> None:
    x = images(1, 3, 12, 9).expand(5, -1, -1, -1)
    first = corrupted(kind(3), x)
    assert torch.equal(first, corrupted(kind(3), x))
    same_seed = torch.equal(first, corrupted(kind(3), x, seed=1))
    same_input = torch.equal(first[:1].expand_as(first), first)
    assert same_seed == same_input == (kind not in RANDOM)


@all_kinds
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 8), (1, 28, 28), (3, 17, 6), (3, 40, 70)])
def test_images_of_any_size_stay_images(
    kind: type[Corruption], shape: tuple[int, int, int]
) -> None:
    x = images(4, *shape)
    before = x.clone()
    found = kind(5).corrupt(x, block([0, 1, 2, 3]))
    assert found.shape == x.shape
    assert found.dtype == x.dtype
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
    assert bool((found != x).flatten(1).any(1).all())
    assert torch.equal(x, before)


@all_kinds
@pytest.mark.parametrize(
    ("shape", "constants"),
    [
        ((3, 32, 32), "cifar-c"),
        ((1, 8, 8), "cifar-c"),
        ((1, 20, 32), "cifar-c"),
        ((3, 33, 32), "imagenet-c"),
        ((3, 8, 33), "imagenet-c"),
    ],
)
def test_the_larger_side_chooses_the_constants(
    kind: type[Corruption], shape: tuple[int, int, int], constants: str
) -> None:
    x = images(2, *shape)
    assert kind().constants_for(shape) == kind().constants_for((100, *shape)) == constants
    chosen = {name: corrupted(kind(2, name), x) for name in ("auto", "imagenet-c", "cifar-c")}
    assert torch.equal(chosen["auto"], chosen[constants])
    assert not torch.equal(chosen["imagenet-c"], chosen["cifar-c"])
    for name in ("imagenet-c", "cifar-c"):
        assert kind(constants=name).constants_for(shape) == name


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (SaltAndPepper(), "salt-and-pepper"),
        (MotionBlur(severity=2), "motion-blur:severity=2"),
        (Brightness(constants="cifar-c"), "brightness:constants=cifar-c"),
        (JPEG(3, "imagenet-c"), "jpeg:severity=3:constants=imagenet-c"),
        (JPEG(1, "auto"), "jpeg"),
    ],
)
def test_it_says_what_it_is(source: Source, name: str) -> None:
    assert source.name == name
    assert source.metric is Metric.CORRUPTION
    assert source.budget is None
    assert source.fixed_draws == 1
    assert source.cost == 1.0


def test_the_measurement_takes_one_draw_of_it() -> None:
    """A threshold at 0.5 and a shift of 0.15: 0.3 stays below, 0.4 does not, 0.6 never was."""
    x = torch.tensor([0.3, 0.4, 0.6]).view(3, 1, 1, 1)
    classifier = Classifier(Linear(-torch.ones(1), 0.5))
    part = evaluate_part(x, [0, 0, 0])
    tally = measure(Brightness(3), classifier, part, classes=2, draws=50)
    assert tally.draws == 1
    assert tally.correct.tolist() == [1, 0, 0]
    assert tally.clean_correct.tolist() == [True, True, False]


@all_kinds
@pytest.mark.parametrize("severity", [0, 6, -1, 2.5, 2.0, math.nan, True, "3"])
def test_bad_severity_is_named(kind: type[Corruption], severity: int) -> None:
    message = (
        f"`severity` must be a whole number from 1 to 5, got {severity!r}. Example: severity=3"
    )
    with pytest.raises(SpecError, match=f"^{re.escape(message)}$"):
        kind(severity)


@all_kinds
def test_unknown_constants_are_named(kind: type[Corruption]) -> None:
    message = (
        "`constants` must be one of auto, cifar-c, imagenet-c, got 'imagenet'."
        " Did you mean 'imagenet-c'?"
    )
    with pytest.raises(SpecError, match=f"^{re.escape(message)}$"):
        kind(constants="imagenet")


@pytest.mark.parametrize("channels", [2, 4])
@pytest.mark.parametrize("kind", [Brightness, JPEG])
def test_other_channels_have_no_colour(kind: type[Corruption], channels: int) -> None:
    message = (
        f"`x` must have 1 or 3 channels for source {kind.kind!r}, got {channels}."
        " Leave the source out, or give grey or RGB images."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        corrupted(kind(), images(2, channels, 8, 8))


@pytest.mark.parametrize("kind", RANDOM)
def test_noise_and_blur_take_any_channels(kind: type[Corruption]) -> None:
    x = images(2, 5, 8, 8)
    assert not torch.equal(corrupted(kind(5), x), x)
