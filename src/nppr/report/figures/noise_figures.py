"""Figures of the learned noise for papers, drawn from its draws: `nppr study --figures`.

contours     where the perturbations of each learned source lie, along two principal components
tsne         which classes get different perturbations
inputs       how the noise differs from input to input
bands        noise that sees the label: for each class, where its draws lie
means, covariances, weights   the components of the mixture

N draws of P pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from scipy.stats import gaussian_kde
from sklearn.manifold import TSNE

from nppr.core.tally import FloatArray, IntArray
from nppr.report.evidence import NoiseDraws
from nppr.report.figures.figure_style import (
    INK,
    LINES,
    MARKERS,
    PALETTE,
    Drawn,
    RowLook,
    Subject,
    flat,
    named,
    new_axes,
    new_figure,
    panel_grid,
    percent_axis,
    print_percent,
    thinned,
)

TINY = 1e-9
BLUR = 0.02
"""Least width of a kernel, as a share of the axis: one fixed pattern is shown as a narrow peak."""


@dataclass(frozen=True, eq=False)
class Plane:
    """The two directions `(2, P)` in which draws vary most around `centre`, and their shares."""

    centre: FloatArray
    directions: FloatArray
    shares: tuple[float, float]

    @property
    def labels(self) -> tuple[str, str]:
        """The titles of both axes."""
        first, second = map(print_percent, self.shares)
        return f"first component ({first} of the variance)", f"second component ({second})"

    @property
    def held(self) -> str:
        """The shares of the variance in words."""
        return " and ".join(map(print_percent, self.shares))

    def of(self, draws: FloatArray) -> FloatArray:
        """Coordinates of draws `(N, P)` in root mean squares of a pixel, `(N, 2)`.

        With P pixels all at the edge of the budget a draw has the length 1.
        """
        found: FloatArray = (draws - self.centre) @ self.directions.T / np.sqrt(draws.shape[1])
        return found


def plane_of(draws: FloatArray) -> Plane | None:
    """The plane of the first two principal components, None where draws do not vary."""
    centre = draws.mean(0)
    centred = draws - centre
    if len(draws) < 3 or float(np.abs(centred).max()) < TINY:
        return None
    few = len(centred) < centred.shape[1]
    values, vectors = np.linalg.eigh(centred @ centred.T if few else centred.T @ centred)
    rows = vectors[:, :-3:-1].T @ centred if few else vectors[:, :-3:-1].T
    values = np.maximum(values[::-1], 0)
    if len(rows) < 2:
        rows = np.vstack([rows, np.zeros_like(rows[:1])])
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), TINY)
    largest = np.take_along_axis(rows, np.abs(rows).argmax(1)[:, None], 1)
    total = float(values.sum())
    shares = tuple(float(value) / total for value in [*values[:2], 0.0][:2])
    return Plane(centre, np.where(largest < 0, -rows, rows), (shares[0], shares[1]))


def curve(values: FloatArray, grid: FloatArray) -> FloatArray:
    """A smooth density of values `(N,)` on a grid `(G,)`; its width is that of Scott's rule."""
    width = max(float(values.std() * len(values) ** -0.2), BLUR * float(np.ptp(grid)))
    gaps = (grid[:, None] - values[None, :]) / width
    found: FloatArray = np.exp(-0.5 * gaps**2).sum(1) / (len(values) * width * np.sqrt(2 * np.pi))
    return found


def surface(points: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """A smooth density of points `(N, 2)` on the grid of x `(G,)` and y `(H,)`, `(H, G)`.

    The kernel is that of scipy, with a least width along both axes.
    """
    least = np.array([BLUR * np.ptp(x), BLUR * np.ptp(y)])
    inner = np.cov(points.T) if len(points) > 1 else np.zeros((2, 2))
    # Noise of the least width: a kernel of a degenerate cloud would have no inverse.
    rng = np.random.default_rng(0)
    narrow = np.sqrt(np.linalg.eigvalsh(inner)[0].clip(0)) < least.min()
    if narrow or len(points) < 3:
        points = np.repeat(points, max(1, 60 // len(points)), 0)
        points = points + rng.normal(size=points.shape) * least
    columns, rows = np.meshgrid(x, y)
    found = gaussian_kde(points.T)(np.vstack([columns.ravel(), rows.ravel()]))
    shaped: FloatArray = found.reshape(columns.shape)
    return shaped


CONTOUR_PANELS = 6
CONTOUR_GRID = 60
SHARES = (0.95, 0.75, 0.5, 0.25)
"""Fractions of the draws that lie within the contours, from the outermost in."""


def contours(subject: Subject) -> Drawn | None:
    """One panel per source, all in the plane of the principal components of all draws together."""
    chosen = [subject.draws[number] for number in thinned(len(subject.draws), CONTOUR_PANELS)]
    rows = [flat(each.many) for each in chosen]
    plane = plane_of(np.concatenate(rows)) if rows else None
    if plane is None:
        return None
    points = [plane.of(each) for each in rows]
    x, y = frame(np.concatenate(points))
    figure, axes = panel_grid(len(chosen), 3, 2.5, 0.4, min(7.2, 0.7 + 2.7 * len(chosen)), "xy")
    for each, found, place in zip(chosen, points, axes, strict=False):
        _panel(place, each.source, subject.look(each.source), found, x, y)
    figure.supxlabel(plane.labels[0], fontsize=9)
    figure.supylabel(plane.labels[1], fontsize=9)
    parts = [
        f"{each.source}: {len(found)} draws around ({found[:, 0].mean():.2f},"
        f" {found[:, 1].mean():.2f}) with standard deviations {found[:, 0].std():.2f} and"
        f" {found[:, 1].std():.2f}"
        for each, found in zip(chosen, points, strict=True)
    ]
    return Drawn(
        id="contours",
        title="Perturbations along their two principal components",
        alt=f"Density contours of perturbations along two principal components, which hold"
        f" {plane.held} of the variance. {'; '.join(parts)}.",
        caption="Contours hold 25, 50, 75 and 95 % of the draws. Coordinates are fractions of the"
        " radius (root mean square over pixels); all panels share one plane.",
        figure=figure,
    )


def frame(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The grid `(G,)`, `(G,)` around points `(N, 2)`, as wide as high and with room for contours."""
    low, high = points.min(0), points.max(0)
    half = max(float((high - low).max()) * 0.68, 1e-3)
    middle = (low + high) / 2
    x, y = (np.linspace(centre - half, centre + half, CONTOUR_GRID) for centre in middle)
    return x, y


def levels_of(density: FloatArray) -> list[float]:
    """The heights at which contours hold `SHARES` of a density, increasing."""
    ordered = np.sort(density.ravel())[::-1]
    held = np.cumsum(ordered) / ordered.sum()
    places = np.minimum(np.searchsorted(held, SHARES), len(held) - 1)
    return sorted(set(ordered[places].tolist()))


def _panel(
    axes: Axes, source: str, look: RowLook, points: FloatArray, x: FloatArray, y: FloatArray
) -> None:
    density = surface(points, x, y)
    levels = levels_of(density)
    shades = [to_rgba(look.colour, 0.15 + 0.18 * step) for step in range(len(levels))]
    axes.contourf(x, y, density, levels=[*levels, float(density.max()) * 1.01], colors=shades)
    axes.contour(
        x, y, density, levels=levels, colors=look.colour, linewidths=1, linestyles=look.line
    )
    axes.set_title(named(source))
    axes.set_box_aspect(1)
    axes.grid()


TSNE_POINTS = 600
TSNE_FEWEST = 10
COMPONENTS = 30
ITERATIONS = 500
CLASSES = 20
"""Classes that have a colour; all others are grey."""


def tsne(subject: Subject) -> Drawn | None:
    """Draws close in the plane are close as images."""
    if not subject.draws or subject.report.data.classes == 1:
        return None
    draws = subject.draws[0]
    each = max(1, min(draws.many.shape[1], TSNE_POINTS // len(draws.many)))
    rows = flat(draws.many[:, :each])
    labels: IntArray = np.repeat(draws.labels.numpy(), each)
    if len(rows) < TSNE_FEWEST or float(np.ptp(rows, axis=0).max()) == 0:
        return None
    points = _embedded(rows)
    owners = np.repeat(np.arange(len(draws.many)), each)
    share = _neighbours(points, labels, owners)
    classes, counts = np.unique(labels, return_counts=True)
    chance = float(np.square(counts / counts.sum()).sum())
    figure, axes = new_axes(4.2, width=6.2)
    shown = classes[np.argsort(-counts, kind="stable")[:CLASSES]]
    _scatter(axes, subject, points, labels, np.sort(shown))
    figure.legend(loc="outside right center", title="class", handletextpad=0.2, markerscale=1.4)
    return Drawn(
        id="tsne",
        title=f"Perturbations of {draws.source} by class (t-SNE)",
        alt=f"t-SNE of {len(points)} perturbations of {draws.source} for {len(draws.many)} inputs"
        f" of {len(classes)} classes: the nearest other input's draw has the same class for"
        f" {100 * share:.0f} % of the draws; by chance it would be {100 * chance:.0f} %.",
        caption="Each mark is a draw, with the colour and shape of its input's class. Separate groups"
        " mean that each class gets different noise; distances between groups mean nothing.",
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


def _scatter(
    axes: Axes, subject: Subject, points: FloatArray, labels: IntArray, shown: IntArray
) -> None:
    rest = ~np.isin(labels, shown)
    if rest.any():
        x, y = points[rest].T
        axes.scatter(x, y, s=8, color=INK, alpha=0.25, linewidths=0, label="other")
    for number, label in enumerate(shown.tolist()):
        colour = PALETTE[number % len(PALETTE)]
        marker = MARKERS[(number + number // len(PALETTE)) % len(MARKERS)]
        x, y = points[labels == label].T
        axes.scatter(x, y, s=16, color=colour, marker=marker, alpha=0.8,
                     linewidths=0, label=subject.class_name(label))  # fmt: skip
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def inputs(subject: Subject) -> Drawn | None:
    """Contours of the draws of each input, in the plane of all of them."""
    if not subject.draws or subject.draws[0].few.shape[1] < 3:
        return None
    draws = subject.draws[0]
    plane = plane_of(flat(draws.few))
    if plane is None:
        return None
    points = [plane.of(flat(each)) for each in draws.few]
    x, y = frame(np.concatenate(points))
    figure, axes = new_axes(3.8, width=6.2)
    handles, parts = [], []
    for number, found in enumerate(points):
        colour, line = PALETTE[number % len(PALETTE)], LINES[number % len(LINES)]
        marker = MARKERS[number % len(MARKERS)]
        density = surface(found, x, y)
        axes.contour(x, y, density, levels=levels_of(density), colors=colour, linestyles=line,
                     linewidths=1.2)  # fmt: skip
        middle = found.mean(0)
        axes.plot(*middle, marker=marker, color=colour)
        name = subject.class_name(int(draws.labels[number]))
        label = f"input {int(draws.indices[number])} ({name})"
        handles.append(Line2D([], [], color=colour, linestyle=line, marker=marker, label=label))
        parts.append(f"{label} around ({middle[0]:.2f}, {middle[1]:.2f})")
    axes.set_box_aspect(1)
    axes.grid()
    axes.set_xlabel(plane.labels[0])
    axes.set_ylabel(plane.labels[1])
    figure.legend(handles=handles, loc="outside right center")
    return Drawn(
        id="inputs",
        title=f"Perturbations of single inputs under {draws.source}",
        alt=f"Densities of {draws.few.shape[1]} perturbations of each of {len(points)} inputs along"
        f" two principal components, which hold {plane.held} of the variance: {'; '.join(parts)}.",
        caption="Contours hold 25, 50, 75 and 95 % of an input's draws and marks are their means, in"
        " fractions of the radius. Contours that lie apart mean noise that depends on the input.",
        figure=figure,
    )


BAND_GRID = 160
CLASS_NAMES = 30
"""Classes that a heat map names."""


def bands(subject: Subject) -> Drawn | None:
    """A heat map with one row per class, of the first source whose noise sees the label."""
    rungs = {each.name: each.family.dependency for each in subject.report.distributions}
    seeing = [name for name, rung in rungs.items() if rung.sees_label]
    draws = next((each for each in subject.draws if each.source in seeing), None)
    if draws is None:
        return None
    rows = flat(draws.many)
    plane = plane_of(rows)
    if plane is None:
        return None
    values = plane.of(rows)[:, 0]
    labels: IntArray = np.repeat(draws.labels.numpy(), draws.many.shape[1])
    classes = np.unique(labels)
    margin = 0.08 * float(np.ptp(values))
    grid = np.linspace(values.min() - margin, values.max() + margin, BAND_GRID)
    density = np.stack([curve(values[labels == label], grid) for label in classes])
    figure, axes = new_axes(min(7.0, max(2.2, 1.2 + 0.2 * len(classes))), width=6.2)
    extent = (float(grid[0]), float(grid[-1]), len(classes) - 0.5, -0.5)
    bar = _class_map(axes, subject, density / density.max(1, keepdims=True), classes, extent)
    bar.set_ticks([0, 1], labels=["0", "max"])
    bar.set_label("density")
    axes.set_xlabel(plane.labels[0])
    centres = [float(values[labels == label].mean()) for label in classes]
    low, high = int(np.argmin(centres)), int(np.argmax(centres))
    return Drawn(
        id="bands",
        title=f"Perturbations of {draws.source} along the first component, by class",
        alt=f"Heat map of the density of the first principal coordinate, which holds"
        f" {print_percent(plane.shares[0])} of the variance, for {len(classes)} classes. Means run from"
        f" {centres[low]:.2f} (class {subject.class_name(int(classes[low]))}) to"
        f" {centres[high]:.2f} (class {subject.class_name(int(classes[high]))}).",
        caption="Each row is a class: bright where its draws lie, each row scaled to its own maximum."
        " Rows that differ mean noise that depends on the class.",
        figure=figure,
    )


def _class_map(
    axes: Axes,
    subject: Subject,
    table: FloatArray,
    classes: IntArray,
    extent: tuple[float, float, float, float] | None = None,
) -> Colorbar:
    """A heat map from 0 to 1 with a row per class, and its colour bar."""
    shown = axes.imshow(table, aspect="auto", cmap="cividis", vmin=0, vmax=1, extent=extent)
    ticks = thinned(len(classes), CLASS_NAMES)
    axes.set_yticks(ticks, [subject.class_name(int(classes[tick])) for tick in ticks])
    axes.set_ylabel("class")
    bar = axes.figure.colorbar(shown, ax=axes, pad=0.02, fraction=0.05)
    bar.outline.set_visible(False)
    return bar


COMPONENT_PANELS = 8


def means(subject: Subject) -> Drawn | None:
    """Bars of the means of the components, along the directions in which they differ."""
    draws = _described(subject)
    if draws is None or len(draws.projected) < 2:
        return None
    chosen = _heaviest(draws)
    values = draws.projected.numpy()[chosen, : len(draws.projected) - 1]
    figure = new_figure(2.4)
    axes = figure.subplots(1, len(chosen), sharey=True, sharex=True, squeeze=False)[0]
    places = np.arange(1, values.shape[1] + 1)
    look = subject.look(draws.source)
    for place, component, row in zip(axes, chosen.tolist(), values, strict=True):
        place.barh(places, row, color=look.colour, height=0.75)
        place.axvline(0, color=INK, linewidth=0.6)
        place.set_title(f"{component + 1} ({_weight(draws, component)})")
        place.locator_params(axis="x", nbins=3)
        place.grid(axis="x")
    axes[0].set_ylim(values.shape[1] + 0.6, 0.4)
    axes[0].set_yticks([tick + 1 for tick in thinned(values.shape[1], 8)])
    axes[0].set_ylabel("direction")
    figure.supxlabel("mean along the direction (latent units)", fontsize=9)
    lengths = np.linalg.norm(values, axis=1)
    parts = [
        f"component {number + 1} (weight {_weight(draws, number)}) at distance {length:.2f}"
        for number, length in zip(chosen.tolist(), lengths, strict=True)
    ]
    return Drawn(
        id="means",
        title=f"Means of the components of {draws.source}",
        alt=f"Bar plots of component means along {values.shape[1]} principal directions, of the"
        f" mixture for input {int(draws.indices[0])}. From the mean of all means: {'; '.join(parts)}.",
        caption=f"One panel per component with its weight, for input {int(draws.indices[0])}."
        " Directions are those in which the means differ; the mean of all means is 0.",
        figure=figure,
    )


def covariances(subject: Subject) -> Drawn | None:
    """Heat maps of the covariances of the components along the same directions."""
    draws = _described(subject)
    if draws is None:
        return None
    chosen = _heaviest(draws)
    values = draws.covariances.numpy()[chosen]
    deviations = np.sqrt(np.maximum(np.diagonal(values, axis1=1, axis2=2), 0))
    off_diagonal = float((np.abs(values) * (1 - np.eye(values.shape[-1]))).max())
    figure, axes = panel_grid(len(chosen), 4, 1.85, 0.5, width=1.2 + 1.5 * min(4, len(chosen)))
    for place, component, matrix in zip(axes, chosen.tolist(), values, strict=False):
        scaled = matrix / max(float(np.abs(matrix).max()), 1e-12)
        shown = place.imshow(scaled, cmap="RdBu_r", vmin=-1, vmax=1)
        largest = float(np.sqrt(np.diagonal(matrix).max().clip(0)))
        place.set_title(f"{component + 1} ({_weight(draws, component)})\nstd up to {largest:.2g}")
        _ticks(place, matrix.shape[0])
    figure.supxlabel("direction", fontsize=9)
    bar = figure.colorbar(shown, ax=axes, pad=0.02, fraction=0.04, ticks=[-1, 0, 1])
    bar.set_ticklabels(["-max", "0", "max"])
    bar.set_label("covariance")
    bar.outline.set_visible(False)
    return Drawn(
        id="covariances",
        title=f"Covariances of the components of {draws.source}",
        alt=f"Heat maps of {len(chosen)} covariance matrices along {values.shape[1]} directions, of"
        f" the mixture for input {int(draws.indices[0])}. Standard deviations run from"
        f" {deviations.min():.3f} to {deviations.max():.3f}; the largest entry off a diagonal is"
        f" {off_diagonal:.3g}.",
        caption="One panel per component with its weight, scaled to its own largest entry. The first"
        " directions are those in which the means differ, then come those of the largest variance."
        " Colour beside the diagonal means that directions vary together.",
        figure=figure,
    )


def _described(subject: Subject) -> NoiseDraws | None:
    """The first source whose mixture can be shown."""
    found = (each for each in subject.draws if each.projected.numel())
    return next((each for each in found if len(each.projected) == len(each.covariances)), None)


def _heaviest(draws: NoiseDraws) -> IntArray:
    """The components of the largest weights for the first input, in their own order."""
    weights = draws.weights[0].numpy()
    found: IntArray = np.sort(np.argsort(-weights, kind="stable")[:COMPONENT_PANELS])
    return found


def _weight(draws: NoiseDraws, component: int) -> str:
    return f"{100 * float(draws.weights[0, component]):.0f} %"


def _ticks(axes: Axes, size: int) -> None:
    places = sorted({place for place in (0, size // 2 - 1, size - 1) if place >= 0})
    names = [str(place + 1) for place in places]
    axes.set_xticks(places, names)
    axes.set_yticks(places, names)
    axes.spines[:].set_visible(False)


WEIGHT_SOURCES = 4
EQUAL = 1e-4


def weights(subject: Subject) -> Drawn | None:
    """Bars of mean weights, a group per component; a heat map by class of the first that depends."""
    chosen = [subject.draws[number] for number in thinned(len(subject.draws), WEIGHT_SOURCES)]
    components = max((each.weights.shape[1] for each in chosen), default=0)
    if not components:
        return None
    varied = next((each for each in chosen if _varies(each)), None)
    height = 2.6
    if varied is not None:
        height = min(5.5, max(2.8, 1.2 + 0.17 * len(varied.labels.unique())))
    figure = new_figure(height)
    parts = figure.subplots(1, 2, squeeze=False)[0] if varied else [figure.subplots()]
    _bars(parts[0], subject, chosen, components)
    if varied is not None:
        _by_class(parts[1], subject, varied)
    means = [each.weights.mean(0) for each in chosen]
    said = [
        f"{each.source}: component {int(mean.argmax()) + 1} has the largest mean weight,"
        f" {print_percent(float(mean.max()))}, and component {int(mean.argmin()) + 1} the smallest,"
        f" {print_percent(float(mean.min()))}"
        for each, mean in zip(chosen, means, strict=True)
    ]
    return Drawn(
        id="weights",
        title="Weights of the mixture's components",
        alt=f"Bar plot of the weights of {components} components, means over"
        f" {len(chosen[0].weights)} inputs. {'; '.join(said)}.",
        caption="Weights as they were fitted, before one component is chosen."
        + (" On the right, the mean weight of each component by class." if varied else ""),
        figure=figure,
    )


def _varies(draws: NoiseDraws) -> bool:
    """Whether the weights differ between inputs."""
    spread = draws.weights.amax(0) - draws.weights.amin(0)
    return len(draws.labels.unique()) > 1 and float(spread.max()) > EQUAL


def _bars(axes: Axes, subject: Subject, chosen: list[NoiseDraws], components: int) -> None:
    width = 0.8 / len(chosen)
    for number, each in enumerate(chosen):
        look = subject.look(each.source)
        mean = each.weights.mean(0).numpy()
        places = np.arange(1, len(mean) + 1) + (number - (len(chosen) - 1) / 2) * width
        axes.bar(places, mean, width=0.92 * width, color=look.colour, hatch=look.hatch,
                 edgecolor="white", linewidth=0, label=named(each.source))  # fmt: skip
    axes.set_xticks([tick + 1 for tick in thinned(components, 16)])
    axes.set_xlabel("component")
    axes.set_ylim(0, None)
    percent_axis(axes, "mean weight")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)


def _by_class(axes: Axes, subject: Subject, draws: NoiseDraws) -> None:
    classes = draws.labels.unique(sorted=True)
    table: FloatArray = np.stack(
        [draws.weights[draws.labels == label].mean(0).double().numpy() for label in classes]
    )
    bar = _class_map(axes, subject, table, classes.numpy())
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    columns = thinned(table.shape[1], 16)
    axes.set_xticks(columns, [str(column + 1) for column in columns])
    axes.set_xlabel("component")
    axes.set_title(named(draws.source))


NOISE_FIGURES: tuple[Callable[[Subject], Drawn | None], ...] = (
    contours, tsne, inputs, bands, means, covariances, weights,
)  # fmt: skip
"""The figures of a paper about learned noise, in the order of the paper."""
