"""The parameters of natural perturbations by name. Nothing here imports PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

REFLECT = "reflect"
EDGES = {REFLECT: "reflection", "nearest": "border", "zeros": "zeros"}
"""How pixels outside the image are made, by PyTorch's name for it."""


@dataclass(frozen=True)
class Parameter:
    """One parameter: its unit, the value that changes nothing, and the values it may have at all.

    `NAME=a` is the range from identity - a to identity + a; it begins at identity where it is `rising`.
    """

    unit: str
    identity: float
    least: float
    most: float
    rising: bool = False
    shrinks: bool = True
    """Whether a smaller box has a smaller range of it: not of a direction."""

    def of(self, amount: float) -> tuple[float, float]:
        """The range that a single number stands for."""
        return self.identity - (0.0 if self.rising else amount), self.identity + amount


PARAMETERS = {
    "rotate": Parameter("deg", 0, -180, 180),
    "scale": Parameter("", 1, 0.1, 10),
    "shift-x": Parameter("", 0, -1, 1),
    "shift-y": Parameter("", 0, -1, 1),
    "blur": Parameter("px", 0, 0, 50, rising=True),
    "motion-blur": Parameter("px", 0, 0, 100, rising=True),
    "motion-angle": Parameter("deg", 0, -90, 90, shrinks=False),
    "haze": Parameter("", 0, 0, 1, rising=True),
    "exposure": Parameter("stops", 0, -10, 10),
    "contrast": Parameter("", 1, 0, 10),
    "saturation": Parameter("", 1, 0, 10),
    "brightness": Parameter("", 0, -1, 1),
}
"""In the order in which they are applied."""

GROUPS = {"shift": ("shift-x", "shift-y")}
"""Names that stand for several parameters."""
