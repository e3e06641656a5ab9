"""Which classes get perturbations of their own: t-SNE of draws of the first learned source."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from sklearn.manifold import TSNE

from nppr.report.figures.drawn import Drawn
from nppr.report.figures.projection import flat
from nppr.report.figures.style import INK, MARKERS, PALETTE, new_figure
from nppr.report.figures.subject import Subject
from nppr.types import FloatArray, IntArray

__all__ = ["tsne"]

POINTS = 600
FEWEST = 10
COMPONENTS = 30
ITERATIONS = 500
CLASSES = 20
"""Classes that are told apart; of more than these the rest is grey."""


def tsne(subject: Subject) -> Drawn | None:
    """Draws close in the plane are close as images."""
    if not subject.draws:
        return None
    draws = subject.draws[0]
    each = max(1, min(draws.many.shape[1], POINTS // len(draws.many)))
    rows = flat(draws.many[:, :each])
    labels: IntArray = np.repeat(draws.labels.numpy(), each)
    if len(rows) < FEWEST or float(np.ptp(rows, axis=0).max()) == 0:
        return None
    points = _embedded(rows)
    owners = np.repeat(np.arange(len(draws.many)), each)
    share = _neighbours(points, labels, owners)
    classes, counts = np.unique(labels, return_counts=True)
    figure = new_figure(4.2, width=6.2)
    axes = figure.subplots()
    shown = classes[np.argsort(-counts, kind="stable")[:CLASSES]]
    _scatter(axes, subject, points, labels, np.sort(shown))
    figure.legend(loc="outside right center", title="class", handletextpad=0.2, markerscale=1.4)
    return Drawn(
        id="tsne",
        title=f"Perturbations of {draws.source} by class (t-SNE)",
        alt=f"t-SNE of {len(points)} perturbations of {draws.source} for {len(draws.many)} inputs"
        f" of {len(classes)} classes: the nearest other input's draw has the same class for"
        f" {100 * share:.0f} % of the draws; by chance it would be {100 * _chance(labels):.0f} %.",
        caption="Each mark is a draw, with the colour and shape of its input's class. Separate groups"
        " mean that classes get noise of their own; distances between groups mean nothing.",
        figure=figure,
    )


def _embedded(rows: FloatArray) -> FloatArray:
    """Points `(N, 2)`: the first principal coordinates, then t-SNE with a fixed seed."""
    centred = rows - rows.mean(0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    kept = left[:, :COMPONENTS] * sizes[:COMPONENTS]
    model = TSNE(
        perplexity=min(30.0, (len(rows) - 1) / 3),
        init="pca" if kept.shape[1] >= 2 else "random",
        max_iter=ITERATIONS,
        random_state=0,
    )
    found: FloatArray = model.fit_transform(kept.astype(np.float32)).astype(np.float64)
    return found


def _neighbours(points: FloatArray, labels: IntArray, owners: IntArray) -> float:
    """Share of draws whose nearest draw of another input has the same class."""
    gaps = ((points[:, None] - points[None]) ** 2).sum(-1)
    gaps[owners[:, None] == owners[None]] = np.inf
    return float((labels[gaps.argmin(1)] == labels).mean())


def _chance(labels: IntArray) -> float:
    counts = np.unique(labels, return_counts=True)[1]
    return float(((counts / counts.sum()) ** 2).sum())


def _scatter(
    axes: Axes, subject: Subject, points: FloatArray, labels: IntArray, shown: IntArray
) -> None:
    rest = ~np.isin(labels, shown)
    if rest.any():
        axes.scatter(
            points[rest, 0],
            points[rest, 1],
            s=8,
            color=INK,
            alpha=0.25,
            linewidths=0,
            label="other",
        )
    for number, label in enumerate(shown.tolist()):
        axes.scatter(
            points[labels == label, 0],
            points[labels == label, 1],
            s=16,
            color=PALETTE[number % len(PALETTE)],
            marker=MARKERS[(number + number // len(PALETTE)) % len(MARKERS)],
            alpha=0.8,
            linewidths=0,
            label=subject.class_name(label),
        )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
