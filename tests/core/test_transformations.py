"""Each transformation against SciPy, Pillow or its formula, its gradients, and the box around it."""

import math
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageEnhance
from scipy import ndimage, stats
from torch import Tensor

from helpers import Linear
from nppr.core.budget import Budget, perturbed
from nppr.core.random_draws import DrawBlock
from nppr.core.transform_parameters import EDGES, PARAMETERS
from nppr.core.transformations import (
    CustomTransform,
    parse_transform,
    spread_points,
)
from nppr.errors import BudgetError, DataError, GradientError, NpprError
from nppr.models import Classifier
from nppr.models.classifier import frozen

Floats = NDArray[np.float64]

SCIPY: dict[str, Literal["reflect", "nearest", "grid-constant"]] = {
    "reflect": "reflect", "nearest": "nearest", "zeros": "grid-constant"
}  # fmt: skip
"""The same edges by SciPy's name for them."""

MOVE = "rotate=180,scale=0.4:2.5,shift=0.6"
LIGHT = [
    "blur=2", "motion-blur=4", "haze=0.5", "exposure=1", "contrast=0.5", "saturation=0.5",
    "brightness=0.2",
]  # fmt: skip
SINGLE = ["rotate=30", "scale=0.7:1.4", "shift-x=0.2,shift-y=0.3", *LIGHT]
ALL = ",".join(SINGLE)

all_edges = pytest.mark.parametrize("edges", EDGES)
every_one = pytest.mark.parametrize("text", [*SINGLE, ALL])
shifts = st.floats(-0.6, 0.6)


def images(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def smooth(channels: int, height: int, width: int) -> Tensor:
    """Waves of at least half the image, between 0.2 and 0.8."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    y, x = 2 * math.pi * rows.double() / height, 2 * math.pi * columns.double() / width
    waves = [torch.sin(x + k) + torch.cos(2 * y - k) + torch.sin(x - y) for k in range(channels)]
    return 0.5 + 0.1 * torch.stack(waves)[None]


def made(text: str, x: Tensor, *values: float) -> Tensor:
    """All images under the same parameters, in the order of `PARAMETERS`."""
    return parse_transform(text).images(x, x.new_tensor(values).expand(len(x), -1))


def inside(text: str, count: int) -> Tensor:
    """Different parameters in the box of a transformation, none of them an end."""
    transform = parse_transform(text)
    u = spread_points(count + 1, len(transform.box))[1:].double()
    return transform.parameters(u * 0.83 + 0.0137, 1)


def affine(x: Floats, angle: float, scale: float, shift: Floats, edges: str) -> Floats:
    """Rotation (degrees), scale and shift (pixels down and right) of one plane."""
    a = math.radians(angle)
    back = np.array([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]) / scale
    middle = (np.array(x.shape) - 1) / 2
    offset = middle - back @ (middle + shift)
    return ndimage.affine_transform(x, back, offset, order=1, mode=SCIPY[edges])


@all_edges
@pytest.mark.parametrize("shape", [(7, 7), (6, 13), (20, 4)])
@given(angle=st.floats(-180, 180), scale=st.floats(0.4, 2.5), right=shifts, down=shifts)
def test_moves_are_scipys_affine_transform(
    edges: str, shape: tuple[int, int], angle: float, scale: float, right: float, down: float
) -> None:
    x = images(1, 2, *shape)
    found = made(f"{MOVE},edges={edges}", x, angle, scale, right, down)[0].numpy()
    for plane, result in zip(x[0].numpy(), found, strict=True):
        expected = affine(plane, angle, scale, np.array([down, right]) * shape, edges)
        assert np.abs(result - expected).max() < 1e-9


@all_edges
def test_each_move_alone_is_the_same(edges: str) -> None:
    x, values = images(2, 3, 9, 14), {"rotate": -37.0, "scale": 1.7, "shift-x": 0.3, "shift-y": 0.2}
    for name, value in values.items():
        both = [value if each == name else PARAMETERS[each].identity for each in values]
        alone = made(f"{name}=0.5,edges={edges}", x, value)
        assert torch.allclose(alone, made(f"{MOVE},edges={edges}", x, *both), atol=1e-12)


@pytest.mark.parametrize("shape", [(24, 24), (21, 32)])
@pytest.mark.parametrize("angle", [-120.0, -20.0, 10.0, 45.0, 90.0])
def test_rotation_is_pillows(shape: tuple[int, int], angle: float) -> None:
    x = images(*shape)
    pillow = Image.fromarray(x.numpy().astype(np.float32)).rotate(angle, Image.Resampling.BILINEAR)
    found = made("rotate=180", x[None, None], angle)[0, 0].numpy()
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    middle = np.hypot(rows - (shape[0] - 1) / 2, columns - (shape[1] - 1) / 2) < min(shape) / 2 - 1
    assert np.abs(found - np.asarray(pillow))[middle].max() < 1e-5


@pytest.mark.parametrize(
    ("text", "values", "place"),
    [("rotate=90", [90], (1, 2)), ("scale=1:2", [2], (2, 4)), ("shift=0.5", [0.2, 0.4], (4, 4))],
)
def test_moves_go_where_words_say(text: str, values: list[float], place: tuple[int, int]) -> None:
    x = torch.zeros(1, 1, 5, 5)
    x[..., 2, 3] = 1  # right of the centre
    assert float(made(text, x, *values)[0, 0][place]) == pytest.approx(1, abs=1e-5)


@all_edges
@pytest.mark.parametrize("most", [0.5, 1.3, 4.0])
@pytest.mark.parametrize("share", [1.0, 0.6])
def test_blur_is_scipys_gaussian_filter(edges: str, most: float, share: float) -> None:
    x, sigma, reach, mode = images(2, 3, 5, 17), share * most, math.ceil(4 * most), SCIPY[edges]
    found = made(f"blur={most},edges={edges}", x, sigma).numpy()
    known = ndimage.gaussian_filter(x.numpy(), sigma, mode=mode, axes=(-2, -1), radius=reach)
    assert np.abs(found - known).max() < 1e-12


@all_edges
@pytest.mark.parametrize("length", [1.0, 2.5, 6.0])
@given(angle=st.floats(-90, 90))
def test_motion_blur_is_a_mean_of_shifts(edges: str, length: float, angle: float) -> None:
    x = images(1, 1, 8, 11)
    found = made(f"motion-blur={length},edges={edges}", x, length, angle)[0, 0].numpy()
    along = np.array([-math.sin(math.radians(angle)), math.cos(math.radians(angle))])
    places = np.linspace(-length / 2, length / 2, 2 * math.ceil(length) + 1)
    plane, mode = x[0, 0].numpy(), SCIPY[edges]
    moved = [ndimage.shift(plane, place * along, order=1, mode=mode) for place in places]
    assert np.abs(found - np.mean(moved, axis=0)).max() < 1e-6


@pytest.mark.parametrize("enhance", [ImageEnhance.Contrast, ImageEnhance.Color])
@given(factor=st.floats(0, 3))
def test_contrast_and_saturation_are_pillows(
    enhance: type[ImageEnhance.Contrast | ImageEnhance.Color], factor: float
) -> None:
    levels = (images(9, 12, 3) * 255).round()
    pillow = enhance(Image.fromarray(levels.numpy().astype(np.uint8))).enhance(factor)
    name = "contrast" if enhance is ImageEnhance.Contrast else "saturation"
    x = levels.permute(2, 0, 1)[None] / 255
    found = made(f"{name}=0:3", x, factor).clamp(0, 1)[0].permute(1, 2, 0) * 255
    # Pillow rounds the grey values and their mean to whole levels, and the result down.
    assert np.abs(found.numpy() - np.asarray(pillow)).max() <= 1 + abs(1 - factor) + 1e-3


@given(
    h=st.floats(0, 1), e=st.floats(-3, 3), c=st.floats(0, 3), b=st.floats(-1, 1),
    channels=st.integers(1, 2),
)  # fmt: skip
def test_light_has_its_formulas(h: float, e: float, c: float, b: float, channels: int) -> None:
    x = images(2, channels, 4, 5)
    assert torch.allclose(made("haze=1", x, h), x + h * (1 - x))
    assert torch.allclose(made("exposure=3", x, e), x * 2**e)
    mean = x.mean((1, 2, 3), keepdim=True)
    assert torch.allclose(made("contrast=0:3", x, c), c * x + (1 - c) * mean)
    assert torch.allclose(made("brightness=1", x, b), x + b)


def test_steps_follow_each_other_in_the_stated_order() -> None:
    x, whole = images(1, 3, 9, 8), parse_transform(ALL)
    (theta,) = inside(ALL, 1)
    expected, left = x, theta.tolist()
    for text in [",".join(SINGLE[:3]), *LIGHT]:
        count = len(parse_transform(text).box)
        expected, left = made(text, expected, *left[:count]), left[count:]
    assert whole.names == tuple(PARAMETERS)
    assert torch.allclose(whole.images(x, theta[None]), expected)


@every_one
@all_edges
def test_gradients_are_those_of_finite_differences(text: str, edges: str) -> None:
    """Relative 1e-4: differences of 1e-6 round by 1e-10, and no sample lies at a pixel's centre."""
    transform, x = parse_transform(f"{text},edges={edges}"), smooth(3, 4, 6)
    for theta in inside(text, 2).split(1):
        theta.requires_grad_()
        assert torch.autograd.gradcheck(
            lambda values: transform.images(x, values), theta, eps=1e-6, atol=1e-6, rtol=1e-4
        )


@every_one
@all_edges
def test_identity_changes_nothing_and_has_gradients(text: str, edges: str) -> None:
    transform, x = parse_transform(f"{text},edges={edges}"), images(2, 3, 9, 14).float()
    theta = torch.tensor(transform.identity).expand(2, -1).clone().requires_grad_()
    found = transform.images(x, theta)
    assert torch.allclose(found, x, atol=2e-6)
    found.square().sum().backward()
    assert theta.grad is not None
    assert bool(torch.isfinite(theta.grad).all())


@every_one
def test_an_image_does_not_depend_on_its_batch(text: str) -> None:
    transform, x, theta = parse_transform(text), images(3, 3, 7, 10), inside(text, 3)
    together = transform.images(x, theta)
    others = x.clone()
    others[[0, 2]] = math.nan
    assert torch.allclose(transform.images(others, theta)[1], together[1], atol=1e-12)
    for row in range(3):
        alone = transform.images(x[row : row + 1], theta[row : row + 1])[0]
        assert torch.allclose(alone, together[row], atol=1e-12)
    assert not torch.allclose(together, x, atol=1e-3)


def box_of(text: str) -> dict[str, tuple[float, float]]:
    return {name: (low, high) for name, low, high in parse_transform(text).box}


def test_ranges_are_read() -> None:
    assert box_of("rotate=15") == box_of("rotate=15deg") == {"rotate": (-15, 15)}
    assert box_of("rotate=-5:.5e1") == box_of(" rotate = -5deg:5deg ") == {"rotate": (-5, 5)}
    assert box_of("scale=0.2") == {"scale": (0.8, 1.2)}
    assert box_of("blur=2px") == {"blur": (0, 2)}
    both = (-0.1, 0.1)
    assert box_of("shift=0.1,haze=1") == {"shift-x": both, "shift-y": both, "haze": (0, 1)}
    assert box_of("motion-blur=3") == {"motion-blur": (0, 3), "motion-angle": (-90, 90)}
    assert box_of("motion-angle=0:45,motion-blur=3")["motion-angle"] == (0, 45)
    assert parse_transform("edges=zeros,rotate=1").edges == "zeros"
    assert parse_transform("rotate=1,scale=0.1") == parse_transform("scale=0.1,rotate=1")


BAD = {
    ("transform", "must be one of"): ["colour=1"],
    ("transform", "Did you mean 'rotate'"): ["rotat=15", "Rotate=15"],
    ("transform", "must name parameters"): ["edges=zeros", "", "rotate=15,"],
    ("edges", "must be one of nearest, reflect, zeros"): ["rotate=5,edges=zero", "rotate=5,edges"],
    ("rotate", "must have a range"): ["rotate", "scale=0.1,rotate"],
    ("rotate", "must be a number or LOW:HIGH"): ["rotate=", "rotate=x", "rotate=1\n2", "rotate=nan:1"],
    ("rotate", "must be LOW:HIGH"): ["rotate=1:2:3"],
    ("rotate", "must be in degrees"): ["rotate=0.2rad", "rotate=0:15px"],
    ("blur", "must be in pixels"): ["blur=1deg"],
    ("shift-x", "without a unit"): ["shift=5%"],
    ("rotate", "must be a number > 0"): ["rotate=0", "rotate=-15"],
    ("rotate", "Example: rotate=-5:5"): ["rotate=5:-5"],
    ("rotate", "smaller to a larger"): ["rotate=5:5", "rotate=1e400"],
    ("scale", "smaller to a larger"): ["scale=1e-14"],
    ("rotate", "must lie within -180 to 180"): ["rotate=181", "rotate=0:181", "rotate=-1e9:0"],
    ("scale", "must lie within 0.1 to 10"): ["scale=1", "scale=0:1"],
    ("blur", "must lie within 0 to 50"): ["blur=-1:2", "blur=51"],
    ("rotate", "must have one range"): ["rotate=5,rotate=6"],
    ("shift-y", "must have one range"): ["shift=0.1,shift-y=0.2", "shift-y=0.2,shift=0.1"],
    ("motion-angle", "must be given with motion-blur"): ["motion-angle=20", "blur=1,motion-angle=0:9"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "named", "words"), [(text, *known) for known, texts in BAD.items() for text in texts]
)
def test_bad_texts_are_named_in_one_line(text: str, named: str, words: str) -> None:
    with pytest.raises(NpprError) as caught:
        parse_transform(text)
    message = str(caught.value)
    assert message.startswith(f"`{named}` ")
    assert words in message
    assert "\n" not in message


@st.composite
def texts(draw: st.DrawFn) -> str:
    names = draw(st.lists(st.sampled_from(list(PARAMETERS)), min_size=1, unique=True))
    names += ["motion-blur"] * ("motion-angle" in names and "motion-blur" not in names)
    parts = []
    for name in names:
        values = st.floats(PARAMETERS[name].least, PARAMETERS[name].most)
        low, high = sorted((draw(values), draw(values)))
        assume(high - low > 1e-6)
        parts.append(f"{name}={low!r}:{high!r}")
    return ",".join([*parts, *draw(st.sampled_from([[], *([f"edges={each}"] for each in EDGES)]))])


@given(text=texts(), radius=st.floats(0.01, 1))
def test_spec_makes_the_same_again(text: str, radius: float) -> None:
    radius = radius if parse_transform(text).shrinkable else 1.0
    budget = Budget.box(text, radius)
    again = Budget.parse(budget.spec, radius)
    assert again == budget
    assert hash(again) == hash(budget)
    assert str(again) == str(budget)


@given(amount=st.floats(1e-3, 0.9))
def test_spec_of_an_amount_makes_the_same_again(amount: float) -> None:
    transform = parse_transform(f"scale={amount!r},blur={amount!r}")
    assert parse_transform(transform.spec) == transform


@given(text=texts(), radius=st.floats(0.01, 1), seed=st.integers(0, 99))
def test_parameters_stay_in_the_shrunk_ranges(text: str, radius: float, seed: int) -> None:
    transform = parse_transform(text)
    radius = radius if transform.shrinkable else 1.0
    budget = Budget.box(text, radius)
    shape = budget.domain((3, 8, 8))
    assert shape == (len(transform.box), 1, 1)
    u = 2 * torch.rand(50, *shape, generator=torch.Generator().manual_seed(seed)) - 1
    u[0], u[1] = -1, 1
    theta = budget.parameters(radius * u).double()
    for row, (name, low, high) in enumerate(transform.box):
        identity = PARAMETERS[name].identity
        factor = radius if PARAMETERS[name].shrinks else 1.0
        ends = [identity + factor * (end - identity) for end in (low, high)]
        slack = 1e-6 * max(abs(low), abs(high), 1)
        assert theta[:2, row].tolist() == pytest.approx(ends, abs=slack)
        assert float(theta[:, row].min()) >= ends[0] - slack
        assert float(theta[:, row].max()) <= ends[1] + slack


def test_budget_refuses_what_is_no_box() -> None:
    with pytest.raises(BudgetError, match="must be at most 1"):
        Budget.box("rotate=15", 1.5)
    with pytest.raises(BudgetError, match="must be at most 1"):
        Budget.box("rotate=15").at(2)
    for channels in (1, 4):
        with pytest.raises(BudgetError, match=f"`saturation` .* {channels} channel"):
            Budget.box("saturation=0.5").domain((channels, 8, 8))
    with pytest.raises(BudgetError, match="`transform` must be text"):
        Budget.box({"rotate": (0, 1)})  # type: ignore[arg-type]


def test_apply_broadcasts_inputs_and_draws() -> None:
    budget, x = Budget.box(ALL, 0.5), images(2, 3, 6, 7)
    delta = images(2, 4, *budget.domain((3, 6, 7))) - 0.5
    found = perturbed(x.unsqueeze(1), delta, budget)
    assert found.shape == (2, 4, 3, 6, 7)
    assert torch.allclose(found[1, 2], perturbed(x[1], delta[1, 2], budget), atol=1e-12)
    assert bool(((found >= 0) & (found <= 1)).all())


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_normal_in_a_box_is_truncated(scale: float) -> None:
    r = 0.6
    draws = DrawBlock(0, "evaluate", tuple(range(40)), 0, 250, torch.device("cpu"), 250)
    norm = Budget.box("rotate=15,scale=0.1", r).norm
    drawn = norm.normal(draws, "normal", (2, 1, 1), r, scale).flatten().double().numpy()
    assert np.abs(drawn).max() <= np.float32(r)
    law = stats.truncnorm(-2 / scale, 2 / scale, scale=scale * r / 2)
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-3
    shares = [0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99]
    assert np.quantile(drawn, shares) == pytest.approx(law.ppf(shares), abs=0.05 * scale * r)


def test_gradient_in_a_box_is_that_of_the_loss() -> None:
    budget = Budget.box("rotate=20,blur=0:1.5,exposure=0.3,contrast=0.2", 0.8)
    x = smooth(1, 8, 7).expand(2, -1, -1, -1)
    weights = torch.randn(x[0].shape, generator=torch.Generator().manual_seed(0))
    delta = 0.8 * (images(2, 4, 1, 1) - 0.5)
    with frozen(Classifier(Linear(weights, 0.1).double())) as model:

        def loss(at: Tensor) -> float:
            with torch.no_grad():
                return float(model.logits(perturbed(x, at, budget))[:, 0].square().sum())

        found, logits = budget.gradient(model, lambda z: z[:, 0].square(), x, delta)
        assert torch.equal(logits, model.logits(perturbed(x, delta, budget)))
        for place in torch.eye(delta.numel(), dtype=delta.dtype).view(-1, *delta.shape):
            slope = (loss(delta + 1e-5 * place) - loss(delta - 1e-5 * place)) / 2e-5
            assert float((found * place).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-7)


def gamma(x: Tensor, p: Tensor) -> Tensor:
    return x ** p[:, :, None, None]


RANGE = {"gamma": (0.5, 2)}


def test_a_function_of_the_users() -> None:
    own = CustomTransform(RANGE, gamma, label="gamma", neutral=(1.0,))
    budget, x = Budget.box(own), images(2, 3, 5, 6).float()
    assert budget.domain((3, 5, 6)) == (1, 1, 1)
    assert own.ranges_at(0.5) == [(0.75, 1.5)]
    assert (own.spec, own.units, own.names) == ("gamma(gamma=0.5:2)", ("",), ("gamma",))
    assert hash(own) == hash(CustomTransform(dict(RANGE), gamma, "gamma", (1.0,)))
    assert CustomTransform(RANGE, gamma).identity == (0.5,)
    assert CustomTransform({"a": (-1, 2), "b": (-3, -2)}, gamma).identity == (0, -2)
    delta = torch.tensor([-1.0, 1.0]).view(2, 1, 1, 1)
    found = perturbed(x, delta, budget)
    assert torch.allclose(found, torch.stack([x[0] ** 0.5, x[1] ** 2]), atol=1e-6)
    with frozen(Classifier(Linear(torch.ones(90), 0.0))) as model:
        slope, _ = budget.gradient(model, lambda z: z[:, 0], x, 0.5 * delta)
    theta = torch.tensor([0.875, 1.625]).view(2, 1, 1, 1)
    expected = 0.75 * (x.log() * x**theta).sum((1, 2, 3))
    assert torch.allclose(slope.flatten(), expected, rtol=1e-4)


def test_a_function_may_work_in_place_and_in_other_types() -> None:
    x, theta = images(2, 3, 5, 6).float(), torch.tensor([[0.5], [0.9]])
    before = x.clone()
    found = CustomTransform(RANGE, lambda x, p: x.pow_(p[:, :, None, None])).images(x, theta)
    assert torch.equal(x, before)
    assert torch.equal(found, gamma(x, theta))
    wide = CustomTransform(RANGE, lambda x, p: gamma(x.double(), p)).images(x, theta)
    assert wide.dtype == x.dtype


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x, _: x[..., 1:], r"a tensor of shape \(2, 3, 5, 6\), got \(2, 3, 5, 5\)"),
        (lambda x, _: x.numpy(), "a tensor of shape .*, got ndarray"),
        (lambda *_: None, "a tensor of shape .*, got NoneType"),
        (lambda x, _: x + 1, r"in \[0, 1\], got values from 1.* End it with"),
        (lambda x, _: x - 0.5, r"in \[0, 1\], got values from -0\."),
        (lambda x, _: x * math.nan, "finite numbers, got NaN"),
    ],
)
def test_bad_results_are_named(function: object, words: str) -> None:
    own = CustomTransform(RANGE, function, label="own")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=f"`own` must return (images )?{words}") as caught:
        perturbed(images(2, 3, 5, 6), torch.zeros(2, 1, 1, 1), Budget.box(own))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, p: torch.from_numpy(x.numpy() ** p.detach().numpy()[:, :, None, None]),
        lambda x, p: torch.from_numpy(x.numpy() ** p.numpy()[:, :, None, None]),
        lambda x, _: x,
    ],
    ids=["detached", "numpy", "constant"],
)
def test_a_search_needs_gradients(function: object) -> None:
    x, delta = images(2, 3, 5, 6).float(), torch.zeros(2, 1, 1, 1)
    budget = Budget.box(CustomTransform(RANGE, function))  # type: ignore[arg-type]
    assert perturbed(x, delta, budget).shape == x.shape
    wanted = pytest.raises(GradientError, match=r"differentiable .* PyTorch operations")
    with frozen(Classifier(Linear(torch.ones(90), 0.0))) as model, wanted:
        budget.gradient(model, lambda z: z[:, 0], x, delta)


@pytest.mark.parametrize(
    "ranges", [{}, None, [("g", (0, 1))], {"g": 2}, {"g": (0, 1, 2)}, {"g": ("low", 1)}]
)
def test_ranges_that_are_none_are_refused(ranges: object) -> None:
    with pytest.raises(BudgetError, match=r"^`ranges` must be \(low, high\) by name, .*\)$"):
        CustomTransform(ranges, gamma)  # type: ignore[arg-type]


@pytest.mark.parametrize("ends", [(2, 1), (1, 1), (0, math.inf), (math.nan, 1)])
def test_ends_out_of_order_are_refused(ends: tuple[float, float]) -> None:
    with pytest.raises(BudgetError, match=r"^`g` must be a range from a smaller"):
        CustomTransform({"g": ends}, gamma)
    with pytest.raises(BudgetError, match=r"^`neutral` must be a tuple of 1 number"):
        CustomTransform(RANGE, gamma, neutral=ends)


@given(count=st.integers(2, 300), dimensions=st.integers(1, 12))
@example(count=7, dimensions=1)
@example(count=40, dimensions=3)
def test_spread_points_are_distinct_points_of_the_box(count: int, dimensions: int) -> None:
    points = spread_points(count, dimensions)
    assert points.shape == (count, dimensions)
    assert float(points.abs().max()) <= 1
    assert len(points.unique(dim=0)) == count
    if dimensions > 1 or count % 2:
        assert float(points[0].abs().max()) < 1e-6
    if dimensions == 1:
        grid = np.linspace(-1, 1, count)
        assert np.abs(np.sort(points[:, 0].numpy()) - grid).max() < 1e-6
    elif dimensions <= 5 and count >= 4 * 2**dimensions:
        assert int((points.abs() == 1).all(1).sum()) == 2**dimensions


def test_ranges_without_the_identity_cannot_be_shrunk() -> None:
    assert Budget.box("rotate=10:20").radius == 1
    with pytest.raises(BudgetError, match="cannot be shrunk"):
        Budget.box("rotate=10:20").at(0.5)
    assert Budget.box("motion-blur=4,motion-angle=10:20").at(0.5).radius == 0.5


def test_functions_of_one_name_are_told_apart() -> None:
    own = CustomTransform(RANGE, gamma).fingerprint((1, 4, 4))
    other = CustomTransform(RANGE, lambda x, p: x * p.clamp(0, 1)[:, :, None, None])
    assert own == CustomTransform(RANGE, gamma).fingerprint((1, 4, 4))
    assert own != other.fingerprint((1, 4, 4))
    with pytest.raises(BudgetError, match="`function` must be a function"):
        CustomTransform(RANGE, "gamma")  # type: ignore[arg-type]
