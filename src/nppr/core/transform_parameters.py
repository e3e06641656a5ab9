"""The parameters of natural perturbations by name. Nothing here imports PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

REFLECT = "reflect"
EDGES = {REFLECT: "reflection", "nearest": "border", "zeros": "zeros"}
"""PyTorch's name for each way to make pixels outside the image."""


@dataclass(frozen=True)
class Parameter:
    """One parameter: its unit, the value that changes nothing, and its allowed values.

    `NAME=a` is the range from identity - a to identity + a; if it is `rising`, from identity on.
    """

    unit: str
    identity: float
    least: float
    most: float
    rising: bool = False
    shrinks: bool = True
    """Whether a smaller box shrinks its range; False for a direction."""

    def of(self, amount: float) -> tuple[float, float]:
        """Return the range that a single number denotes."""
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
"""Parameters in the order in which they are applied."""

GROUPS = {"shift": ("shift-x", "shift-y")}
"""Names that denote several parameters."""
