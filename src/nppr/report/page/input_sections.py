"""What single inputs show: robustness by class, and pictures of the worst inputs."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from PIL import Image

from nppr.report.evidence import LEVELS, Evidence, NoiseLook, Worst
from nppr.report.findings import headline_of, measured_source, table_rows
from nppr.report.ladder_tables import name_place
from nppr.report.model import ReportRecord
from nppr.report.page.shell import rendered
from nppr.report.per_input import PerInput
from nppr.report.printed_numbers import percent
from nppr.statistics.betting import betting

if TYPE_CHECKING:
    from torch import Tensor

_SHOWN_CLASSES = 20
"""Bars on the page; the other classes are in a table that is folded away."""

_SHOWN_CASES = 6
_MOST_CASES = 12
_MOST_SOURCES = 3

LARGEST_PICTURE = 128
"""Pixels per side to which larger images are reduced."""


@dataclass(frozen=True)
class ClassBar:
    """One class: its clean-correct inputs and the mean fraction of their draws that are correct."""

    label: int
    name: str
    inputs: int
    rate: float
    low: float
    high: float


def by_class(report: ReportRecord, per_input: PerInput | None) -> Markup:
    """The section's body."""
    row = headline_of(report)
    source = measured_source(report, per_input, row) if per_input is not None and row else None
    bars = classes_of(report, per_input, source) if per_input is not None and source else []
    counted = {bar.label for bar in bars}
    return rendered(
        "classes.html.j2",
        held=per_input is not None,
        source=source,
        bars=bars,
        shown=bars[:_SHOWN_CLASSES],
        rest=bars[_SHOWN_CLASSES:],
        alike=len(bars) > 1 and bars[0].rate == bars[-1].rate,
        colour=row.metric.value.lower() if row else "other",
        searched=row is not None and row.is_upper_bound,
        together=bool(report.slices),
        missing=[report.data.class_name(c) for c in range(report.data.classes) if c not in counted],
        confidence=report.settings.measure.confidence,
    )


def classes_of(report: ReportRecord, per_input: PerInput, source: str) -> list[ClassBar]:
    """All classes with a clean-correct input, the worst first.

    The intervals are guaranteed (betting), each for one class and for the population.
    """
    lines = per_input.of(source)
    correct = lines["clean_correct"] == 1
    bars = []
    for label in np.unique(lines["label"][correct]).tolist():
        rates = lines["rate"][correct & (lines["label"] == label)].astype(np.float64)
        allowed = report.allowance(source)
        interval = betting(rates, allowed.confidence, report.seed)
        interval = interval.widened(allowed.of_mean(len(rates)))
        name, mean = report.data.class_name(label), float(rates.mean())
        bars.append(ClassBar(label, name, len(rates), mean, interval.low, interval.high))
    return sorted(bars, key=lambda bar: (bar.rate, bar.high, bar.label))


@dataclass(frozen=True)
class Case:
    """One input as it is shown; `factor` is by how much its perturbation is amplified.

    An image is shown as three; a signal as `lines`, the points of a channel before and after; a row of
    a table as the `features` that moved most: their number, and their value before and after.
    """

    index: int
    label: str
    taken_for: str
    broken: bool
    rate: float
    factor: str
    width: int
    height: int
    clean: Markup | None = None
    delta: Markup | None = None
    perturbed: Markup | None = None
    parameters: str = ""
    lines: tuple[tuple[str, str], ...] = ()
    features: tuple[tuple[int, str, str], ...] = ()


def worst_inputs(
    report: ReportRecord, evidence: Evidence | None, per_input: PerInput | None = None
) -> Markup:
    """The section's body: first the source that the answer and the classes are about."""
    row = headline_of(report)
    known = measured_source(report, per_input, row) if row and per_input is not None else None
    first = known or (row.tally if row else None)
    worst = sorted(evidence.worst if evidence else (), key=lambda each: each.source != first)
    shown = [each for each in worst[:_MOST_SOURCES] if len(each.indices)]
    groups = [(each.source, cases_of(report, each)) for each in shown]
    return rendered(
        "worst.html.j2",
        kind=report.data.kind,
        task=report.data.task,
        box_width=LINE_WIDTH,
        box_height=LINE_HEIGHT,
        nouns=report.budget.nouns,
        strips=strips_of(report, evidence),
        groups=groups,
        open=_SHOWN_CASES,
        held=evidence is not None,
        unbroken=bool(groups) and all(case.rate == 1 for case in groups[0][1]),
    )


def cases_of(report: ReportRecord, worst: Worst) -> list[Case]:
    """The first inputs of a source, the worst first."""
    cases = []
    for i in range(min(_MOST_CASES, len(worst.indices))):
        shown, scale = amplified(worst.delta[i], report.budget.norm)
        label, taken = int(worst.labels[i]), int(worst.taken_for[i])
        height, width = worst.clean.shape[-2:]
        parameters = parameter_text(report, worst.parameters[i]) if len(worst.parameters) else ""
        cases.append(
            Case(
                index=int(worst.indices[i]),
                label=report.data.class_name(label) if report.data.classes > 1 else "",
                taken_for=answer_name(report, label, taken),
                broken=label != taken,
                rate=float(worst.rates[i]),
                factor=f"{scale / report.budget.pixel_unit:.3g}",
                width=width,
                height=height,
                **_drawn(report, worst, i, shown),
                parameters=parameters,
            )
        )
    return cases


def answer_name(report: ReportRecord, label: int, taken: int) -> str:
    """The class of an answer, or whether it is right in a task that is not a classification."""
    if report.data.task is None:
        return report.data.class_name(taken)
    return "right" if label == taken else "wrong"


DECADES = 2
"""Powers of ten above and below the mean power that the picture of a spectrum shows."""


@dataclass(frozen=True)
class ShownLook:
    """One kind of noise as it is shown: an image as pictures, a signal as the points of lines."""

    source: str
    made_of: str
    words: str
    kept: str
    """The name of noise in a smaller set that the search kept, or empty."""
    left: str
    answer: str
    broken: bool
    pictures: tuple[tuple[str, Markup], ...]
    """Caption and image, or caption and points."""
    bars: tuple[float, ...]
    """Heights of the histogram, the largest is 1."""


def noise_looks(report: ReportRecord, evidence: Evidence | None) -> Markup:
    """The section's body; empty if the run kept no such pictures."""
    looks = evidence.looks if evidence else ()
    if not looks:
        return Markup("")
    first = looks[0]
    return rendered(
        "looks.html.j2",
        looks=[_shown_look(report, each) for each in looks],
        kind=report.data.kind,
        index=int(first.index),
        label=report.data.class_name(int(first.label)) if report.data.classes > 1 else "",
        task=report.data.task,
        radius=report.budget.text,
        norm=report.budget.norm,
        box_width=LINE_WIDTH,
        box_height=LINE_HEIGHT,
    )


def _shown_look(report: ReportRecord, look: NoiseLook) -> ShownLook:
    rows = [row for row in table_rows(report) if row.name == look.source and row.value is not None]
    row = next(iter(rows), None)
    admissible = row.learned.admissible if row and row.learned else None
    made = report.distribution(look.source)
    kept = made.family.admissible if made else None
    label, taken = int(look.label), int(look.taken_for)
    bars = look.histogram / look.histogram.max().clamp_min(1e-12)
    return ShownLook(
        source=look.source,
        made_of=name_place((admissible.floor, admissible.structure)) if admissible else "known",
        words=admissible.sentence(report.budget.nouns) if admissible else "",
        kept=kept.name_noise() if kept and kept != admissible else "",
        left=f"{percent(row.value)} %" if row and row.value is not None else "",
        answer=answer_name(report, label, taken),
        broken=label != taken,
        pictures=_look_pictures(report, look),
        bars=tuple(bars.tolist()),
    )


def _look_pictures(report: ReportRecord, look: NoiseLook) -> tuple[tuple[str, Markup], ...]:
    """The sample at true scale and amplified, the perturbed input, and the spectrum."""
    large, scale = amplified(look.sample, report.budget.norm)
    power = ((look.spectrum / DECADES).clamp(-1, 1) + 1) / 2
    factor = f"x {scale / report.budget.pixel_unit:.3g}"
    names = ("true scale", factor, "on an input", "spectrum")
    if report.data.kind == "image":
        true = (look.sample.float() * report.budget.radius + 0.5).clamp(0, 1).mul(255).round()
        images = (true.byte(), large, look.perturbed, power[None].mul(255).round().byte())
        return tuple(zip(names, map(png, images), strict=True))
    true = (look.sample.float() * report.budget.radius + 0.5).clamp(0, 1)
    lines = (true * LEVELS, large.float() / 255 * LEVELS, look.perturbed, power[None] * LEVELS)
    points = (Markup(_points(each[0, 0])) for each in lines)
    return tuple(zip(names, points, strict=True))


LINE_WIDTH, LINE_HEIGHT = 320, 96
MOST_LINES = 3
MOST_FEATURES = 6


def _drawn(report: ReportRecord, worst: Worst, i: int, delta: Tensor) -> dict[str, Any]:
    """The i-th input as its kind of data is shown."""
    clean, perturbed = worst.clean[i], worst.perturbed[i]
    if report.data.kind == "image":
        return {"clean": png(clean), "delta": png(delta), "perturbed": png(perturbed)}
    if report.data.kind == "signal":
        pairs = zip(clean[:MOST_LINES, 0], perturbed[:MOST_LINES, 0], strict=True)
        return {"lines": tuple((_points(before), _points(after)) for before, after in pairs)}
    before, after = clean.flatten(), perturbed.flatten()
    order = (after - before).abs().argsort(descending=True, stable=True)[:MOST_FEATURES]
    moved = [int(feature) for feature in order if int(before[feature]) != int(after[feature])]
    values = [[_value(report, at, int(each[at])) for each in (before, after)] for at in moved]
    return {"features": tuple((at, *pair) for at, pair in zip(moved, values, strict=True))}


def _points(signal: Tensor) -> str:
    """A channel `(L,)` as the points of a line."""
    step = LINE_WIDTH / max(1, len(signal) - 1)
    heights = (LINE_HEIGHT - 2) * (1 - signal.double() / LEVELS) + 1
    return " ".join(f"{step * at:.1f},{height:.1f}" for at, height in enumerate(heights.tolist()))


def _value(report: ReportRecord, feature: int, level: int) -> str:
    """The value of a feature in the unit of its data."""
    layout = report.data.layout
    assert layout is not None
    low, high = (ends[feature if len(ends) > 1 else 0] for ends in (layout.low, layout.high))
    return f"{low + (high - low) * level / LEVELS:.4g}"


@dataclass(frozen=True)
class ShownImage:
    """One image of a strip, and what it was classified as."""

    name: str
    parameters: str
    taken_for: str
    broken: bool
    image: Markup


def strips_of(
    report: ReportRecord, evidence: Evidence | None
) -> list[tuple[str, list[ShownImage]]]:
    """Inputs of different classes at the worst, median and best parameters tried, by class name."""
    found = []
    for strip in evidence.strips if evidence else ():
        for i, label in enumerate(strip.labels.tolist()):
            images = [
                ShownImage(
                    name=name,
                    parameters=parameter_text(report, strip.parameters[i, at]),
                    taken_for=answer_name(report, label, int(strip.taken_for[i, at])),
                    broken=int(strip.taken_for[i, at]) != label,
                    image=png(strip.images[i, at]),
                )
                for at, name in enumerate(("worst", "median", "best"))
            ]
            found.append((report.data.class_name(label), images))
    return found


def parameter_text(report: ReportRecord, values: Tensor) -> str:
    """Parameters for readers: `rotate -12.3 deg, exposure 0.5 stops`."""
    known = zip(report.budget.parameters, values.tolist(), strict=False)
    return ", ".join(f"{each.name} {value:.3g} {each.unit}".strip() for each, value in known)


def png(image: Tensor) -> Markup:
    """A data URI of an image `(C, H, W)` of bytes; gray where it has one channel."""
    pixels = image.numpy()
    # More than three channels are not colours: their mean is shown.
    if pixels.shape[0] not in (1, 3):
        pixels = pixels.mean(axis=0, keepdims=True).round()
    pixels = np.moveaxis(pixels.astype(np.uint8), 0, -1)
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    picture.thumbnail((LARGEST_PICTURE, LARGEST_PICTURE))  # smaller ones keep their size
    file = io.BytesIO()
    picture.save(file, format="PNG", optimize=True)
    text = base64.b64encode(file.getvalue()).decode()
    return Markup("data:image/png;base64,{}").format(text)


def amplified(delta: Tensor, norm: str) -> tuple[Tensor, float]:
    """A perturbation `(C, H, W)`, in radii, as an image around middle gray, and what 1 radius became.

    linf: the radius is the full range. l2: the largest change is, since single pixels take little of
    the radius.
    """
    shares = delta.float()
    most = 1.0 if norm == "linf" else max(float(shares.abs().max()), 1e-12)
    image = ((shares / most).clamp(-1, 1) * 127.5 + 127.5).round()
    return image.byte(), 0.5 / most
