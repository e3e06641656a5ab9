"""Natural perturbations: transformations `T(x, theta)` with parameters theta in a box.

    rotate                 degrees, counter-clockwise, about the centre
    scale                  factor, about the centre
    shift-x, shift-y       fraction of the width (right) and height (down); `shift` sets both
    blur                   standard deviation of a Gaussian, pixels
    motion-blur            length of a straight path, pixels; motion-angle: its direction, degrees
    haze                   fraction by which every pixel value moves towards white
    exposure               gain of pixel values in stops: 1 doubles them
    contrast, saturation   factors
    brightness             amount added to every pixel value in [0, 1]

They are applied in this order to float images `(N, C, H, W)`, which are clipped to [0, 1] at the
end. Each is batched and differentiable in theta. To add one, write a function here and a line in
`transform_parameters.PARAMETERS`. Pixels outside the image are mirrored at its edge
(`edges=reflect`: d c b a | a b c d | d c b a), copied from the nearest pixel (`nearest`), or black
(`zeros`).
"""

from __future__ import annotations

import hashlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from nppr.core.transform_parameters import EDGES, GROUPS, PARAMETERS, REFLECT
from nppr.errors import BudgetError, DataError, GradientError, unknown
from nppr.system.user_code import contain_exits

if TYPE_CHECKING:
    from torch import Tensor

Values = Mapping[str, "Tensor"]
"""Parameters by name, each `(N,)`."""

LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in the brightness that the eye sees (ITU-R BT.601)."""

BLUR_REACH = 4.0
"""Standard deviations after which a Gaussian kernel is cut off."""

PATH_STEP = 0.5
"""Largest distance in pixels between points on the path of a motion blur."""

RANGE_TOLERANCE = 1e-4
"""Tolerated excess over [0, 1] of a user's function."""

_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([A-Za-z%°]*)")


class Transform(ABC):
    """A transformation and its box: the lower and upper end of every parameter."""

    box: tuple[tuple[str, float, float], ...]
    """Name, lower and upper end of every parameter."""

    @property
    @abstractmethod
    def identity(self) -> tuple[float, ...]:
        """The values that change nothing; a smaller box shrinks towards them."""

    @property
    @abstractmethod
    def units(self) -> tuple[str, ...]:
        """The unit of every parameter, or an empty string."""

    @property
    @abstractmethod
    def spec(self) -> str:
        """The text from which it can be made again; for a function, only its name."""

    @abstractmethod
    def images(self, x: Tensor, theta: Tensor) -> Tensor:
        """Transform `(N, C, H, W)` by parameters `(N, P)`; the result is not clipped."""

    def require_shape(self, shape: tuple[int, ...]) -> None:  # noqa: B027
        """Raise `BudgetError` if images of this shape (C, H, W) cannot be transformed."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the P parameters."""
        return tuple(name for name, _, _ in self.box)

    def parameters(self, u: Tensor, radius: float) -> Tensor:
        """Return parameters `(..., P)` of u in [-radius, radius]^P, in the box shrunk by `radius`."""
        low, high = u.new_tensor(self.ranges_at(radius)).T
        theta: Tensor = (low + high) / 2 + (high - low) / (2 * radius) * u
        return theta

    def ranges_at(self, radius: float = 1.0) -> list[tuple[float, float]]:
        """Return both ends of every parameter in the box shrunk by `radius` towards the identity."""
        return [
            (i + radius * (low - i), i + radius * (high - i)) if self.shrinks(name) else (low, high)
            for (name, low, high), i in zip(self.box, self.identity, strict=True)
        ]

    def shrinks(self, name: str) -> bool:
        """Whether a smaller box shrinks the range of a parameter."""
        return True

    @property
    def shrinkable(self) -> bool:
        """Whether smaller boxes lie inside this one, as its ranges contain the identity."""
        known = zip(self.box, self.identity, strict=True)
        return all(low <= i <= high or not self.shrinks(name) for (name, low, high), i in known)

    def fingerprint(self, shape: tuple[int, ...]) -> str | None:
        """Return a hash of a function, or None if the text suffices; raise if it cannot be used."""
        return None

    def text_at(self, radius: float = 1.0) -> str:
        """Return the box shrunk by `radius`, for readers."""
        known = zip(self.names, self.ranges_at(radius), self.units, strict=True)
        return ", ".join(range_text(name, *ends, unit) for name, ends, unit in known)


@dataclass(frozen=True)
class NaturalTransform(Transform):
    """Parameters of `PARAMETERS` with their ranges, in the order in which they are applied.

    >>> made = parse_transform("shift=0.05,rotate=15")
    >>> made.spec
    'rotate=-15:15,shift-x=-0.05:0.05,shift-y=-0.05:0.05'
    >>> made.text_at(0.5)
    'rotate ±7.5 deg, shift-x ±0.025, shift-y ±0.025'
    """

    box: tuple[tuple[str, float, float], ...]
    edges: str = REFLECT

    @property
    def identity(self) -> tuple[float, ...]:
        return tuple(float(PARAMETERS[name].identity) for name in self.names)

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(PARAMETERS[name].unit for name in self.names)

    def text_at(self, radius: float = 1.0) -> str:
        return super().text_at(radius) + ("" if self.edges == REFLECT else f", edges {self.edges}")

    @property
    def spec(self) -> str:
        parts = [f"{name}={low:.12g}:{high:.12g}" for name, low, high in self.box]
        return ",".join(parts + ([] if self.edges == REFLECT else [f"edges={self.edges}"]))

    def require_shape(self, shape: tuple[int, ...]) -> None:
        if "saturation" in self.names and shape[0] != 3:
            raise BudgetError(
                f"`saturation` must be left out for images of {shape[0]} channel"
                f"{'' if shape[0] == 1 else 's'}: it needs red, green and blue."
            )

    def shrinks(self, name: str) -> bool:
        return PARAMETERS[name].shrinks

    def images(self, x: Tensor, theta: Tensor) -> Tensor:
        values = dict(zip(self.names, theta.unbind(-1), strict=True))
        for names, step in STEPS.items():
            if any(name in values for name in names):
                x = step(self, x, values)
        return x

    def most(self, name: str) -> float:
        """Return the upper end of a parameter."""
        return {each: high for each, _, high in self.box}[name]


def move(box: NaturalTransform, x: Tensor, values: Values) -> Tensor:
    """Rotate and scale about the centre, then shift, with one bilinear interpolation.

    The pixel at p in the result is the pixel of x at `R(-a) (p - t) / s`: p is measured from the
    centre, a is the angle (degrees), s the scale (factor) and t the shift (fractions of width and
    height).
    """
    height, width = x.shape[-2:]
    zero = x.new_zeros(len(x))
    angle = torch.deg2rad(values.get("rotate", zero))
    scale = values.get("scale", zero + 1)
    cos, sin = torch.cos(angle) / scale, torch.sin(angle) / scale
    # PyTorch's grid runs from -1 to 1 along both sides, so each side has length 2.
    shift_x, shift_y = 2 * values.get("shift-x", zero), 2 * values.get("shift-y", zero)
    along_x, along_y = sin * (height / width), sin * (width / height)
    rows = [cos, -along_x, along_x * shift_y - cos * shift_x]
    rows += [along_y, cos, -along_y * shift_x - cos * shift_y]
    return _sampled(box, x, torch.stack(rows, 1).view(-1, 2, 3))


def blur(box: NaturalTransform, x: Tensor, values: Values) -> Tensor:
    """Convolve with a Gaussian of standard deviation sigma (pixels): `w_k ~ exp(-k^2 / 2 sigma^2)`.

    Rows and columns are multiplied by a matrix, whose rows sum to 1 unless edges are black.
    """
    reach = math.ceil(BLUR_REACH * box.most("blur"))
    steps = torch.arange(-reach, reach + 1, device=x.device)
    sigma = values["blur"].clamp_min(1e-2)[:, None]
    weights = torch.softmax(-0.5 * (steps / sigma) ** 2, 1)
    rows, columns = (_spread(weights, steps, side, box.edges) for side in x.shape[-2:])
    return rows.unsqueeze(1) @ x @ columns.mT.unsqueeze(1)


def motion_blur(box: NaturalTransform, x: Tensor, values: Values) -> Tensor:
    """Average x along a centred straight path of this length (pixels) at this angle (degrees).

    0 degrees is horizontal and angles grow counter-clockwise. Points on the path are at most half a
    pixel apart and interpolated bilinearly.
    """
    height, width = x.shape[-2:]
    length = values["motion-blur"]
    angle = torch.deg2rad(values.get("motion-angle", torch.zeros_like(length)))
    points = 2 * math.ceil(box.most("motion-blur") / PATH_STEP / 2) + 1
    total = torch.zeros_like(x)
    one, zero = torch.ones_like(length), torch.zeros_like(length)
    for place in torch.linspace(-1, 1, points).tolist():
        right = place * length * torch.cos(angle) / width
        down = -place * length * torch.sin(angle) / height
        rows = torch.stack([one, zero, right, zero, one, down], 1)
        total = total + _sampled(box, x, rows.view(-1, 2, 3))
    return total / points


def haze(_box: NaturalTransform, x: Tensor, values: Values) -> Tensor:
    """Return `(1 - h) x + h`: white airlight at one distance (Koschmieder, 1924)."""
    h = _each(values["haze"])
    return (1 - h) * x + h


def expose(_box: NaturalTransform, x: Tensor, values: Values) -> Tensor:
    """Return `2^e x` for e stops."""
    return torch.exp2(_each(values["exposure"])) * x


def change_contrast(_box: NaturalTransform, x: Tensor, values: Values) -> Tensor:
    """Return `m + c (x - m)` for factor c; m is the mean brightness of the image."""
    mean = _grey(x).mean((-2, -1), keepdim=True)
    return mean + _each(values["contrast"]) * (x - mean)


def saturate(_box: NaturalTransform, x: Tensor, values: Values) -> Tensor:
    """Return `g + s (x - g)` for factor s; g is the grey image: 0 is grey, above 1 more colourful."""
    grey = _grey(x)
    return grey + _each(values["saturation"]) * (x - grey)


def brighten(_box: NaturalTransform, x: Tensor, values: Values) -> Tensor:
    """Return `x + b`; b is a fraction of the range of pixel values."""
    return x + _each(values["brightness"])


STEPS: dict[tuple[str, ...], Callable[[NaturalTransform, Tensor, Values], Tensor]] = {
    ("rotate", "scale", "shift-x", "shift-y"): move,
    ("blur",): blur,
    ("motion-blur",): motion_blur,
    ("haze",): haze,
    ("exposure",): expose,
    ("contrast",): change_contrast,
    ("saturation",): saturate,
    ("brightness",): brighten,
}
"""Functions by the parameters they take, in the order in which they are applied."""


@dataclass(frozen=True)
class CustomTransform(Transform):
    """A user's transformation, `function(images, parameters) -> images`, and its box.

    `ranges` are (low, high) by name. The function receives float images `(N, C, H, W)` in [0, 1]
    and parameters `(N, P)` in the order of the names, and returns images of the same shape in [0,
    1]. If it uses PyTorch operations only, attacks and searches follow gradients in the parameters;
    otherwise the search follows the classifier's answers alone. `neutral` are the values that
    change nothing, by default those nearest to 0; a smaller box shrinks towards them.

    >>> from nppr import Budget
    >>> gamma = CustomTransform({"gamma": (0.5, 2)}, lambda x, p: x ** p[:, :, None, None],
    ...                         neutral=(1,))
    >>> Budget.box(gamma)
    Budget(box, gamma 0.5 to 2)
    """

    ranges: Mapping[str, tuple[float, float]]
    function: Callable[[Tensor, Tensor], Tensor] = field(repr=False)
    label: str = "custom"
    neutral: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise BudgetError(
                f"`function` must be a function of images and parameters, got {self.function!r}."
            )
        try:
            box = self.box if self.ranges else ()
        except (AttributeError, TypeError, ValueError):
            box = ()
        if not box:
            raise BudgetError(
                f"`ranges` must be (low, high) by name, got {self.ranges!r}."
                " Example: CustomTransform({'gamma': (0.5, 2)}, function)"
            )
        for name, low, high in box:
            _require_range(name, low, high, -math.inf, math.inf)
        neutral = (0.0,) * len(self.ranges) if self.neutral is None else self.neutral
        if not isinstance(neutral, tuple) or len(neutral) != len(self.ranges):
            raise BudgetError(
                f"`neutral` must be a tuple of {len(self.ranges)} numbers, got {self.neutral!r}."
            )
        if not all(isinstance(each, int | float) and math.isfinite(each) for each in neutral):
            raise BudgetError(f"`neutral` must hold finite numbers, got {self.neutral!r}.")

    def __hash__(self) -> int:
        return hash((self.box, self.function, self.label, self.neutral))

    @property
    def box(self) -> tuple[tuple[str, float, float], ...]:  # type: ignore[override]
        """Name, lower and upper end of every parameter."""
        return tuple((name, float(low), float(high)) for name, (low, high) in self.ranges.items())

    @property
    def identity(self) -> tuple[float, ...]:
        return self.neutral or tuple(min(max(0.0, low), high) for _, low, high in self.box)

    @property
    def units(self) -> tuple[str, ...]:
        return ("",) * len(self.ranges)

    @property
    def spec(self) -> str:
        ends = [f"{name}={low:.12g}:{high:.12g}" for name, low, high in self.box]
        return f"{self.label}({','.join(ends)})"

    def fingerprint(self, shape: tuple[int, ...]) -> str:
        """Return a hash of its results for fixed images at the ends and the middle of its box."""
        x = torch.rand(1, *shape, generator=torch.Generator().manual_seed(0)).expand(3, *shape)
        low, high = (torch.tensor([float(each[end]) for each in self.box]) for end in (1, 2))
        with torch.no_grad():
            made = self.images(x, torch.stack([low, (low + high) / 2, high]))
        rounded = made.double().mul(1e4).round().to(torch.int64).contiguous().cpu().numpy()
        return hashlib.sha256(rounded.tobytes()).hexdigest()[:16]

    def images(self, x: Tensor, theta: Tensor) -> Tensor:
        try:
            with contain_exits():
                made = self.function(x.clone(), theta)
        except Exception as error:  # a user's function may fail in any way
            if not theta.requires_grad or "numpy()" not in str(error):
                raise DataError(
                    f"`{self.label}` must accept images of shape {tuple(x.shape)} and parameters of"
                    f" shape {tuple(theta.shape)}, but failed: {' '.join(str(error).split())[:200]}"
                ) from error
            raise GradientError(
                f"`{self.label}` must be differentiable in its parameters for attacks and searches by"
                " gradients, but turns them into NumPy arrays: use PyTorch operations, or"
                " --search scores."
            ) from error
        if not isinstance(made, torch.Tensor) or made.shape != x.shape:
            got = tuple(made.shape) if isinstance(made, torch.Tensor) else type(made).__name__
            raise DataError(
                f"`{self.label}` must return a tensor of shape {tuple(x.shape)}, got {got}."
            )
        if not bool(torch.isfinite(made.detach()).all()):
            raise DataError(f"`{self.label}` must return finite numbers, got NaN or infinite ones.")
        least, most = (float(each) for each in made.detach().aminmax())
        if not (least >= -RANGE_TOLERANCE and most <= 1 + RANGE_TOLERANCE):
            raise DataError(
                f"`{self.label}` must return images in [0, 1], got values from {least:.4g} to"
                f" {most:.4g}. End it with .clamp(0, 1)."
            )
        return made.to(x)


def parse_transform(text: str) -> NaturalTransform:
    """Return the transformation for text such as `NAME=AMOUNT,NAME=LOW:HIGH`.

    >>> parse_transform("exposure=0.5,scale=0.9:1.2,edges=zeros").spec
    'scale=0.9:1.2,exposure=-0.5:0.5,edges=zeros'
    """
    ranges: dict[str, tuple[float, float]] = {}
    edges: str | None = None
    for part in text.replace(" ", "").split(","):
        name, equals, value = part.partition("=")
        if name == "edges":
            if value not in EDGES:
                raise unknown("edges", value, EDGES)
            if edges is not None:
                raise BudgetError(f"`edges` must be given once, got it twice in {text!r}.")
            edges = value
            continue
        if not name:
            raise _nothing_named(text)
        wanted = GROUPS.get(name, (name,))
        if wanted[0] not in PARAMETERS:
            raise unknown("transform", name, [*GROUPS, *PARAMETERS])
        if not equals:
            raise BudgetError(f"`{name}` must have a range. Example: {_example(wanted[0])}")
        for each in wanted:
            if each in ranges:
                raise BudgetError(f"`{each}` must have one range, got two in {text!r}.")
            ranges[each] = _parse_range(each, value)
    if not ranges:
        raise _nothing_named(text)
    if "motion-angle" in ranges and "motion-blur" not in ranges:
        raise BudgetError(
            "`motion-angle` must be given with motion-blur. Example: motion-blur=5,motion-angle=45"
        )
    if "motion-blur" in ranges:
        ranges.setdefault("motion-angle", (-90.0, 90.0))
    return NaturalTransform(
        tuple((name, *ranges[name]) for name in PARAMETERS if name in ranges), edges or REFLECT
    )


def _nothing_named(text: str) -> BudgetError:
    return BudgetError(
        f"`transform` must name parameters and their ranges, got {text!r}. Example: rotate=15,blur=2"
    )


def range_text(name: str, low: float, high: float, unit: str) -> str:
    """Return a range as text for readers.

    >>> range_text("rotate", -15, 15, "deg"), range_text("blur", 0, 2, "px")
    ('rotate ±15 deg', 'blur 0 to 2 px')
    """
    ends = f"±{high:g}" if low == -high else f"{low:g} to {high:g}"
    return f"{name} {ends}{' ' + unit if unit else ''}"


def spread_points(count: int, dimensions: int) -> Tensor:
    """Return spread points of [-1, 1]^P, `(count, P)`: the middle, then corners, then inner points.

    In one dimension they are a grid with both ends; it contains the middle if `count` is odd.
    """
    if dimensions == 1:
        grid = torch.linspace(-1, 1, count)
        return grid[grid.abs().argsort(stable=True), None]
    corners = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * min(dimensions, 5))
    if dimensions > 5 or len(corners) > count // 4:
        corners = corners.new_zeros(0, dimensions)
    engine = torch.quasirandom.SobolEngine(dimensions)
    engine.fast_forward(2)  # the first points are a corner and the middle
    inside = 2 * engine.draw(max(0, count - 1 - len(corners))) - 1
    middle = torch.zeros(1, dimensions)
    return torch.cat([middle, corners, inside])[:count]


def _parse_range(name: str, text: str) -> tuple[float, float]:
    parameter = PARAMETERS[name]
    ends = []
    for part in text.split(":"):
        found = _NUMBER.fullmatch(part)
        if found is None:
            raise BudgetError(
                f"`{name}` must be a number or LOW:HIGH, got {text!r}. Example: {_example(name)}"
            )
        if found[2] not in ("", parameter.unit):
            raise BudgetError(
                f"`{name}` must be in {UNIT_WORDS[parameter.unit]}, got {part!r}."
                f" Example: {_example(name)}"
            )
        ends.append(float(found[1]))
    if len(ends) == 1:
        if not ends[0] > 0:
            raise BudgetError(
                f"`{name}` must be a number > 0, got {text!r}. Example: {_example(name)}"
            )
        ends = list(parameter.of(ends[0]))
    if len(ends) != 2:
        raise BudgetError(f"`{name}` must be LOW:HIGH, got {text!r}. Example: {_example(name)}")
    low, high = (float(f"{end:.12g}") for end in ends)  # as in `spec`
    _require_range(name, low, high, parameter.least, parameter.most)
    return low, high


UNIT_WORDS = {
    "deg": "degrees (deg)",
    "px": "pixels (px)",
    "stops": "stops",
    "": "plain numbers without a unit",
}


def _require_range(name: str, low: float, high: float, least: float, most: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        ends = (low, high) if math.isfinite(low) and math.isfinite(high) else (0.0, 1.0)
        raise BudgetError(
            f"`{name}` must be a range from a smaller to a larger number, got {low:g}:{high:g}."
            f" Example: {name}={min(ends):g}:{max(ends) + (low == high):g}"
        )
    if low < least or high > most:
        around = PARAMETERS[name].identity
        hint = f" {name}=a means {around:g} - a to {around:g} + a." if around else ""
        raise BudgetError(
            f"`{name}` must lie within {least:g} to {most:g}, got {low:g} to {high:g}.{hint}"
        )


def _example(name: str) -> str:
    low, high = PARAMETERS[name].of(0.5)
    return f"{name}=15" if PARAMETERS[name].unit == "deg" else f"{name}={low:g}:{high:g}"


def _each(values: Tensor) -> Tensor:
    return values[:, None, None, None]


def _grey(x: Tensor) -> Tensor:
    """Return the brightness of every pixel, `(N, 1, H, W)`: the mean if channels are not RGB."""
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    return (x * x.new_tensor(LUMA).view(1, 3, 1, 1)).sum(1, keepdim=True)


def _sampled(box: NaturalTransform, x: Tensor, rows: Tensor) -> Tensor:
    """Sample the image where affine maps `(N, 2, 3)` send the grid."""
    functional = torch.nn.functional
    grid = functional.affine_grid(rows, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, "bilinear", EDGES[box.edges], align_corners=False)


def _spread(weights: Tensor, steps: Tensor, side: int, edges: str) -> Tensor:
    """Return the matrix `(N, side, side)` of a convolution with weights `(N, K)` at these steps."""
    places = torch.arange(side, device=steps.device)[:, None] + steps
    inside = (places >= 0) & (places < side)
    if edges == REFLECT:
        places = places.remainder(2 * side)
        places = torch.where(places < side, places, 2 * side - 1 - places)
    values = weights.unsqueeze(1).expand(-1, side, -1)
    if edges == "zeros":
        values = values * inside
    places = places.clamp(0, side - 1).expand(len(weights), -1, -1)
    return weights.new_zeros(len(weights), side, side).scatter_add(2, places, values)
