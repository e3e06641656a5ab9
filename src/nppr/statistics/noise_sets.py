"""Sets of noise around a reference noise, and the worst failure probability in each of them.

Let an input fail with probability p under the reference P. Over all noise Q of a set it fails with
probability at most `h(p)`, and some noise of the set attains that.

Why it suffices to know p: let A be the perturbations that fail. A divergence D(Q, P) does not grow
if only "in A or not" is observed (data processing), so `q = Q(A)` satisfies D(Bernoulli(q),
Bernoulli(p)) <= e. The noise with density q/p on A and (1 - q)/(1 - p) elsewhere has exactly this
divergence, so every such q is attained. Why h is concave: D is convex in (q, p) together, so the
pairs (p, q) of a set are convex and h is their upper edge. By Jensen, the mean over inputs of
`h(p_i)` is at most h of the mean of p_i, even if the noise depends on the input.

Noise that does *not* see the input is one law Q for all inputs. With F(noise) the fraction of
inputs that a perturbation breaks, its failure probability is E_Q F, and E_Q F is at most
`shared_worst(E_P score(F, t), t)` for every tuning value t: a dual problem whose score lies in [0,
1].
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from nppr.core.tally import BoolArray, FloatArray
from nppr.errors import SpecError, unknown

RATIO, CONTAMINATED, TV = "ratio", "contaminated", "tv"
_C = "density-ratio"

LARGEST_SIZE = 1e9
"""Upper limit of sizes that are not bounded by their definition."""

_HALVINGS = 60


class NoiseSet(ABC):
    """A set of noise with a size; a larger size gives a larger set."""

    kind: str
    size: float

    @abstractmethod
    def h(self, p: FloatArray) -> FloatArray:
        """Return the worst failure probability if that of the reference is p, `(N,) -> (N,)`.

        Concave and non-decreasing, with `p <= h(p) <= 1` and `h(1) = 1`.
        """

    @abstractmethod
    def slope(self, p: FloatArray) -> FloatArray:
        """Return the derivative of h for 0 < p < 1; it is 0 if h has reached 1."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The size as part of a row's name, such as `c=10`."""

    @abstractmethod
    def words(self, reference: str = "the reference noise") -> str:
        """Return the set in plain words that follow "noise"."""

    @abstractmethod
    def tunings(self, failures: FloatArray) -> FloatArray:
        """Return values of t worth trying, from the fractions F of some perturbations."""

    @abstractmethod
    def score(self, failures: FloatArray, t: float) -> FloatArray:
        """Return the scores in [0, 1] of perturbations that break these fractions of the inputs."""

    @abstractmethod
    def shared_worst(self, mean: float, t: float) -> float:
        """Return an upper bound of E_Q F for all Q of the set; it increases with the `mean` score."""

    @property
    def facts(self) -> dict[str, Any]:
        """Fields of the set in a result, from which `make_set` makes it again."""
        return {"noise_set": self.kind, "density_ratio": None, "size": self.size}

    def contains(self, other: NoiseSet) -> bool:
        """Whether it is known to contain another set around the same reference."""
        return self.kind == other.kind and self.size >= other.size

    def largest_p(self, least: float) -> float | None:
        """Return the largest p for which `1 - h(p) >= least`, or None if even p = 0 is too large."""
        zero = np.zeros(())
        if 1 - float(self.h(zero)) < least:
            return None
        return float(bisect_largest(lambda p: 1 - self.h(p) >= least, zero))

    def tangents(self, p: FloatArray) -> FloatArray:
        """Return the lines `c p + d` that touch h, `(N,) -> (2, N)`; none lies below the concave h."""
        c = self.slope(p)
        return np.stack([c, self.h(p) - p * c])


@dataclass(frozen=True)
class Contaminated(NoiseSet):
    """Density at most c times the reference's, except for a fraction d of the mass.

    Q = A + B: A has mass 1 - d and density at most c; B has mass d and is arbitrary. The failures
    get at most min(c p, 1 - d) of A and all of B: `h(p) = min(1, c p + d)`. d = 0 bounds the
    density ratio; c = 1 is total variation: the part that Q and P share has density at most 1 and
    mass 1 - TV(Q, P).

    Shared: `E_Q F <= (1 - d) t + int (F - t) dA + d <= (1 - d) t + c E_P (F - t)+ + d` for t in [0,
    1]; for d = 0 this is CVaR (Rockafellar and Uryasev, 2000).
    """

    c: float = 1.0
    d: float = 0.0
    kind: str = field(default=CONTAMINATED, compare=False)

    def __post_init__(self) -> None:
        _require(_C, self.c, 1, LARGEST_SIZE, "10")
        _require(f"size of {self.kind}", self.d, 0, 1, "0.05")

    @property
    def size(self) -> float:  # type: ignore[override]
        """The number that defines the size: c for a ratio, d for the others."""
        return self.c if self.kind == RATIO else self.d

    @property
    def label(self) -> str:
        if self.kind == TV:
            return f"tv={self.d:.15g}"
        return f"c={self.c:.15g}" + ("" if self.kind == RATIO else f":d={self.d:.15g}")

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "noise_set": self.kind,
            "density_ratio": None if self.kind == TV else self.c,
            "size": None if self.kind == RATIO else self.d,
        }

    def h(self, p: FloatArray) -> FloatArray:
        return np.minimum(1.0, self.c * p + self.d)

    def slope(self, p: FloatArray) -> FloatArray:
        return np.where(self.c * p + self.d < 1, self.c, 0.0)

    def words(self, reference: str = "the reference noise") -> str:
        share = f"{100 * self.d:.12g} %"
        if self.kind == TV:
            return f"that differs from {reference} in at most {share} of its probability"
        density = f"at most {self.c:.15g} times that of {reference}"
        if self.kind == RATIO:
            return f"whose density is {density}"
        return f"that is anything {share} of the time and otherwise has a density of {density}"

    def contains(self, other: NoiseSet) -> bool:
        same = isinstance(other, Contaminated)
        return same and self.c >= other.c and self.d >= other.d  # type: ignore[attr-defined]

    def tunings(self, failures: FloatArray) -> FloatArray:
        return np.unique(np.append(np.quantile(failures, np.linspace(0, 1, 65)), 0.0))

    def score(self, failures: FloatArray, t: float) -> FloatArray:
        return np.maximum(0.0, failures - t) / max(1 - t, 1e-12)

    def shared_worst(self, mean: float, t: float) -> float:
        return min(1.0, (1 - self.d) * t + self.c * mean * (1 - t) + self.d)


_DIVERGENCES: dict[str, type[DivergenceBall]] = {}
"""All subclasses of `DivergenceBall` by kind."""


@dataclass(frozen=True)
class DivergenceBall(NoiseSet):
    """All noise whose divergence from the reference is at most e.

    A subclass is registered under its `kind`. With `sizes`, it is one of the sets of `nppr bound`.
    """

    name: ClassVar[str]
    most: ClassVar[float] = LARGEST_SIZE
    sizes: ClassVar[str] = ""
    """Default sizes, separated by `+`."""

    size: float

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _DIVERGENCES[cls.kind] = cls

    def __post_init__(self) -> None:
        _require(f"size of {self.kind}", self.size, 0, self.most, "0.1")

    @property
    def label(self) -> str:
        return f"{self.kind}={self.size:.15g}"

    def words(self, reference: str = "the reference noise") -> str:
        return f"whose {self.name} from {reference} is at most {self.size:.15g}"


@dataclass(frozen=True)
class ChiSquare(DivergenceBall):
    """`E_P (w - 1)^2 <= e` with w = dQ/dP.

    For two outcomes it is `(q - p)^2 / (p (1 - p))`, so `h(p) = p + sqrt(e p (1 - p))`, which reaches 1
    at p = 1 / (1 + e) and stays there.

    Shared, for any t: `E_Q F = t + E_P w (F - t) <= t + E_P w (F - t)+ <= t + sqrt(1 + e)
    sqrt(E_P (F - t)+^2)`, by Cauchy-Schwarz and E_P w^2 <= 1 + e (Duchi and Namkoong, 2021).
    """

    kind = "chi2"
    name = "chi-square divergence"
    sizes = "0.1+1+10"

    def h(self, p: FloatArray) -> FloatArray:
        p = np.asarray(p, dtype=np.float64)
        q = p + np.sqrt(self.size * p * (1 - p))
        return np.where(p * (1 + self.size) >= 1, 1.0, np.minimum(1.0, q))

    def slope(self, p: FloatArray) -> FloatArray:
        rise = 1 + math.sqrt(self.size) * (1 - 2 * p) / (2 * np.sqrt(p * (1 - p)))
        return np.where(p * (1 + self.size) >= 1, 0.0, rise)

    def tunings(self, failures: FloatArray) -> FloatArray:
        below = -np.geomspace(1e-3, 1e3, 49)
        return np.concatenate([below, np.unique(np.quantile(failures, np.linspace(0, 1, 33)))])

    def score(self, failures: FloatArray, t: float) -> FloatArray:
        return np.square(np.maximum(0.0, failures - t) / max(1 - t, 1e-12))

    def shared_worst(self, mean: float, t: float) -> float:
        return min(1.0, t + (1 - t) * math.sqrt((1 + self.size) * mean))


@dataclass(frozen=True)
class KullbackLeibler(DivergenceBall):
    """`E_Q log(dQ/dP) <= e`: h(p) is the largest q with `kl(q, p) <= e`; it is 1 from exp(-e) on.

    Shared, for any t > 0: `E_Q F <= t e + t log E_P exp(F / t)` (Donsker and Varadhan, 1975).
    """

    kind = "kl"
    name = "Kullback-Leibler divergence"
    sizes = "0.1+0.5+1"

    def h(self, p: FloatArray) -> FloatArray:
        p = np.asarray(p, dtype=np.float64)
        return np.where(p > 0, bisect_largest(lambda q: kl(q, p) <= self.size, p), 0.0)

    def slope(self, p: FloatArray) -> FloatArray:
        q = np.minimum(self.h(p), 1 - 1e-15)
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(q) + np.log1p(-p) - np.log(p) - np.log1p(-q)
            rise = np.where(q - p < 1e-9, 1.0, (q - p) / (p * (1 - p) * log))
        return np.where(p >= math.exp(-self.size), 0.0, rise)

    def tunings(self, failures: FloatArray) -> FloatArray:
        return np.geomspace(2e-3, 1e3, 96)

    def score(self, failures: FloatArray, t: float) -> FloatArray:
        found: FloatArray = np.exp((failures - 1) / t) * np.expm1(-failures / t) / np.expm1(-1 / t)
        return found

    def shared_worst(self, mean: float, t: float) -> float:
        return min(1.0, t * self.size + t * math.log1p(mean * math.expm1(1 / t)))


@dataclass(frozen=True)
class Hellinger(DivergenceBall):
    """`1 - E_P sqrt(dQ/dP) <= e`, the squared Hellinger distance; Q may have mass where P has none.

    For two outcomes `sqrt(p q) + sqrt((1 - p)(1 - q))` is the cosine of asin sqrt q - asin sqrt p, so
    `h(p) = sin^2(asin sqrt p + acos(1 - e))`, and 1 once the angle reaches a right one.

    Shared, with b = 1 - e, G = 1 - F, s = sqrt(dQ/dP) and any t > 0: `b^2 <= (E_P s)^2 <=
    E_P s^2 (G + t) E_P 1 / (G + t) <= (E_Q G + t) E_P 1 / (G + t)` by Cauchy-Schwarz, so
    `E_Q F <= 1 + t - b^2 / E_P (1 / (G + t))`. Mass where P has none counts as failing.
    """

    kind = "hellinger"
    name = "squared Hellinger distance"
    sizes = "0.01+0.05+0.1"
    most = 1.0

    def h(self, p: FloatArray) -> FloatArray:
        return np.square(np.sin(np.minimum(math.pi / 2, self._angle(p))))

    def slope(self, p: FloatArray) -> FloatArray:
        angle = self._angle(p)
        rise = np.sin(2 * angle) / (2 * np.sqrt(p * (1 - p)))
        return np.where(angle >= math.pi / 2, 0.0, rise)

    def _angle(self, p: FloatArray) -> FloatArray:
        found: FloatArray = np.arcsin(np.sqrt(p)) + math.acos(1 - self.size)
        return found

    def tunings(self, failures: FloatArray) -> FloatArray:
        return np.geomspace(1e-3, 1e3, 97)

    def score(self, failures: FloatArray, t: float) -> FloatArray:
        return failures * t / (1 - failures + t)

    def shared_worst(self, mean: float, t: float) -> float:
        inverse = mean / t / (1 + t) + 1 / (1 + t)
        return min(1.0, 1 + t - (1 - self.size) ** 2 / inverse)


@dataclass(frozen=True)
class Offset(DivergenceBall):
    """N(0, sigma^2) noise plus any offset of l2 length at most R; `size` is R / sigma.

    By Neyman and Pearson, the perturbations that gain most from an offset form a half-space, so
    `h(p) = Phi(Phi^-1(p) + R / sigma)` (Cohen, Rosenfeld and Kolter, 2019): the power of a test of
    size p, which is concave. Later processing of the noise, such as clipping, does not change this.

    Shared: F is a randomised test, for which the lemma holds too, so `E_Q F <= h(E_P F)`.
    """

    kind = "offset"
    name = "offset in standard deviations"

    def words(self, reference: str = "Gaussian noise") -> str:
        many = f"{self.size:.6g} standard deviation{'' if self.size == 1 else 's'}"
        return f"that is {reference} plus any offset of l2 length up to {many}"

    def h(self, p: FloatArray) -> FloatArray:
        from scipy import special  # deferred until PyTorch is needed

        found: FloatArray = special.ndtr(special.ndtri(p) + self.size)
        return found

    def slope(self, p: FloatArray) -> FloatArray:
        from scipy import special

        rise: FloatArray = np.exp(-self.size * (special.ndtri(p) + self.size / 2))
        return rise

    def tunings(self, failures: FloatArray) -> FloatArray:
        return np.zeros(1)

    def score(self, failures: FloatArray, t: float) -> FloatArray:
        return failures

    def shared_worst(self, mean: float, t: float) -> float:
        return float(self.h(np.array(mean)))


def kl(q: FloatArray, p: FloatArray) -> FloatArray:
    """Return the Kullback-Leibler divergence of Bernoulli(q) from Bernoulli(p)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ones = np.where(q > 0, q * (np.log(q) - np.log(p)), 0.0)
        zeros = np.where(q < 1, (1 - q) * (np.log1p(-q) - np.log1p(-p)), 0.0)
    return np.where(q == p, 0.0, ones + zeros)


def bisect_largest(holds: Callable[[FloatArray], BoolArray], low: FloatArray) -> FloatArray:
    """Return the largest number in [low, 1] for which `holds`, if it holds from `low` up to there."""
    low = np.asarray(low, dtype=np.float64)
    high = np.ones_like(low)
    ends = holds(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        good = holds(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return np.where(ends, 1.0, low)


_BALLS = {kind: ball for kind, ball in _DIVERGENCES.items() if ball.sizes}

DEFAULT_SIZES = {
    RATIO: "1+2+5+10",
    CONTAMINATED: "0.01",
    TV: "0.01+0.05+0.1",
    **{kind: ball.sizes for kind, ball in _BALLS.items()},
}
"""Default sizes of every set of `nppr bound`."""

MEANINGS = {
    RATIO: "density at most c times the reference's",
    CONTAMINATED: "the same, except for a fraction d of its mass",
    TV: "total variation distance",
    **{kind: ball.name for kind, ball in _BALLS.items()},
}
"""Short definition of each set of `nppr bound`, for help texts."""


def make_set(kind: str, size: float | None = None, density_ratio: float | None = None) -> NoiseSet:
    """Return a set: `density_ratio` is c of `ratio` and `contaminated`, `size` is d or e."""
    if kind in _DIVERGENCES:
        return _DIVERGENCES[kind](size or 0.0)
    if kind not in DEFAULT_SIZES:
        raise unknown("set", kind, DEFAULT_SIZES)
    return Contaminated(density_ratio or 1.0, size or 0.0, kind)


def parse_sets(
    kind: str, sizes: str | None = None, ratios: str | None = None
) -> tuple[NoiseSet, ...]:
    """Return the sets of a kind for sizes separated by `+`; `ratios` are the values of c.

    >>> [each.label for each in parse_sets("contaminated", "0.01", "1+2")]
    ['c=1:d=0.01', 'c=2:d=0.01']
    """
    if kind not in DEFAULT_SIZES:
        raise unknown("set", kind, DEFAULT_SIZES)
    if kind == RATIO and sizes is not None:
        raise SpecError(f"`size` must not be given with the set {RATIO}, whose size is c.")
    if ratios is None:
        ratios = "2" if kind == CONTAMINATED else DEFAULT_SIZES[RATIO]
    if kind == RATIO:
        return tuple(make_set(kind, None, c) for c in _parse(_C, ratios))
    cs = _parse(_C, ratios) if kind == CONTAMINATED else [None]
    listed = _parse(f"size of {kind}", DEFAULT_SIZES[kind] if sizes is None else sizes)
    return tuple(make_set(kind, size, c) for c in cs for size in listed)


def split_spec(text: str) -> tuple[str, str | None]:
    """Return the kind and the sizes of `KIND` or `KIND:SIZE,SIZE`, the sizes separated by `+`."""
    kind, colon, sizes = text.replace(" ", "").partition(":")
    return kind, sizes.replace(",", "+") if colon else None


def parse_spec(text: str, ratios: str | None = None) -> tuple[NoiseSet, ...]:
    """Return the sets of `KIND` or `KIND:SIZE,SIZE`; the sizes of `ratio` are values of c.

    >>> [each.label for each in parse_spec("tv:0.01,0.05")]
    ['tv=0.01', 'tv=0.05']
    """
    kind, sizes = split_spec(text)
    return (
        parse_sets(kind, None, sizes or ratios)
        if kind == RATIO
        else parse_sets(kind, sizes, ratios)
    )


def growing_sets(kind: str, density_ratio: float | None = None) -> list[NoiseSet]:
    """Return the sets of a kind, smallest first, with two-digit sizes; `contaminated` uses one c."""
    if kind == RATIO:
        return [make_set(kind, None, c) for c in _two_digits(0, 9)]
    below_1 = kind in (CONTAMINATED, TV) or _DIVERGENCES[kind].most == 1
    most = 0 if below_1 else 3
    return [make_set(kind, size, density_ratio) for size in [0.0, *_two_digits(-3, most)]]


def _two_digits(first: int, last: int) -> list[float]:
    """Return 1.0, 1.1, ... 9.9, 10, 11, ... from 10^first on, all below 10^last."""
    return [
        float(f"{number}e{power - 1}") for power in range(first, last) for number in range(10, 100)
    ]


def _parse(argument: str, text: str) -> list[float]:
    """Return the numbers separated by `+`; they must differ."""
    try:
        values = [float(part) for part in text.split("+")]
    except ValueError:
        raise SpecError(
            f"`{argument}` must be one or more numbers, got {text!r}. Example: --density-ratio 1,2,5"
            " or --set tv:0.01,0.05 (in --sources: bound:ratio=1+2+5 or bound:set=tv:size=0.01+0.05)"
        ) from None
    if len(set(values)) < len(values):
        raise SpecError(f"`{argument}` must name every number once, got {text!r}.")
    return values


def _require(argument: str, value: float, least: float, most: float, example: str) -> None:
    """Raise `SpecError` unless a size is valid; a size limited to 1 must be below 1."""
    if not (least <= value <= most and not value == 1 == most):
        valid = "a number >= 0 and < 1" if most == 1 else f"a number from {least:g} to {most:g}"
        raise SpecError(f"`{argument}` must be {valid}, got {value:g}. Example: {example}")


STATED_SETS = (
    Contaminated(2.0, kind=RATIO),
    Contaminated(10.0, kind=RATIO),
    Contaminated(2.0, 0.01),
    Contaminated(1.0, 0.05, TV),
)
"""Sets for which every tally of fixed noise gets bounds."""

STATED_SETS_IN_BOX = (STATED_SETS[0], Contaminated(5.0, kind=RATIO), *STATED_SETS[1:])
"""The same for the few parameters of a transformation, where a density ratio covers more."""
