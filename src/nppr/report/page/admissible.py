"""The admissible set in words: which noise was allowed at all."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from nppr.noise import Dependency
from nppr.report.page.numbers import Numbers
from nppr.report.page.shell import rendered
from nppr.report.schema import Report
from nppr.search.search_record import FAMILY

__all__ = ["admissible_set", "family_of"]

UPSAMPLERS = {
    "none": "every number of the image has its own coordinate, so the noise may be as fine as the"
    " pixels",
    "bicubic": "a coarse grid is interpolated, so the noise is smooth",
    "trainable": "a learned linear map of few coordinates and an interpolation, so the noise is smooth",
    "multiscale": "coarse and fine grids are added, each with a learned scale, so the noise may be"
    " smooth, fine or both",
}
COVARIANCES = {
    "diag": "coordinates of a component vary independently of each other",
    "full": "coordinates of a component may vary together in any way",
    "lowrank": "coordinates of a component vary together along a few directions",
}


def admissible_set(report: Report, numbers: Numbers) -> Markup:
    """The section's body."""
    family = family_of(report)
    asked = Dependency(family["dependency"]) if family else None
    return rendered(
        "admissible.html.j2",
        n=numbers,
        report=report,
        family=family,
        dependency=asked,
        upsampler=UPSAMPLERS.get(str(family["upsampler"]), "") if family else "",
        covariance=COVARIANCES.get(str(family["covariance"]).partition(":")[0], "")
        if family
        else "",
        compared=any("with_references" in made["fit"] for made in report.distributions),
        winners={
            made["source"]: made["fit"]["with_references"]["winner"]
            for made in report.distributions
            if made["fit"].get("with_references", {}).get("winner", FAMILY) != FAMILY
        },
    )


def family_of(report: Report) -> dict[str, Any] | None:
    """The family that was searched, or None where no noise was learned."""
    for settings in (report.settings.get("fit"), *_kept(report)):
        if settings:
            family: dict[str, Any] = settings["family"]
            return family
    return None


def _kept(report: Report) -> list[dict[str, Any]]:
    return [made["fit"].get("settings", {}) for made in report.distributions]
