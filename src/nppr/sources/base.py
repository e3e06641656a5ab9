"""What sources share: how they are called, what they are read as, what a draw costs."""

from __future__ import annotations

from typing import ClassVar

from nppr.errors import SpecError
from nppr.sources.naming import spelled
from nppr.types import Metric

__all__ = ["Source", "listed"]


class Source:
    """Noise unless a subclass says otherwise: as many draws as asked for, one pass each, read as PR.

    `kind` is its name on a command line, that of the class in lower case unless given.
    """

    kind: ClassVar[str] = ""
    metric: Metric = Metric.PR
    fixed_draws: int | None = None

    @property
    def name(self) -> str:
        return spelled(self, self.kind or None)

    @property
    def cost(self) -> float:
        return 1.0


def listed(argument: str, text: str, *, each: str, most: float, example: str) -> tuple[float, ...]:
    """Different numbers from 1 to `most`, written with `+` between them; `each` is one of them.

    >>> listed("`q`", "1+10", each="order", most=1e6, example="q=1+10")
    (1.0, 10.0)
    """
    try:
        values = tuple(float(part) for part in str(text).split("+"))
    except ValueError:
        values = ()
    if not values or not all(1 <= value <= most for value in values):
        raise SpecError(
            f"{argument} must hold numbers from 1 to {most:g}, got {text!r}. Example: {example}"
        )
    if len(set(values)) < len(values):
        raise SpecError(f"{argument} must name every {each} once, got {text!r}.")
    return values
