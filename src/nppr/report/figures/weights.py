"""How the mixture shares its draws among components: on the whole, and by class where it differs."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from nppr.report.evidence import Draws
from nppr.report.figures.drawn import Drawn
from nppr.report.figures.style import look_of, named, new_figure, percent_axis, thinned
from nppr.report.figures.subject import Subject, percent
from nppr.types import FloatArray

__all__ = ["weights"]

SOURCES = 4
NAMES = 25
EQUAL = 1e-4


def weights(subject: Subject) -> Drawn | None:
    """Bars of mean weights, a group a component; a heat map by class of the first that depends."""
    chosen = [subject.draws[number] for number in thinned(len(subject.draws), SOURCES)]
    components = max((each.weights.shape[1] for each in chosen), default=0)
    if not components:
        return None
    varied = next((each for each in chosen if _varies(each)), None)
    height = 2.6
    if varied is not None:
        height = min(5.5, max(2.8, 1.2 + 0.17 * len(varied.labels.unique())))
    figure = new_figure(height)
    parts = figure.subplots(1, 2, squeeze=False)[0] if varied else [figure.subplots()]
    _bars(parts[0], chosen, components)
    if varied is not None:
        _by_class(parts[1], subject, varied)
    means = [each.weights.mean(0) for each in chosen]
    said = [
        f"{each.source}: component {int(mean.argmax()) + 1} has the largest mean weight,"
        f" {percent(float(mean.max()))}, and component {int(mean.argmin()) + 1} the smallest,"
        f" {percent(float(mean.min()))}"
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


def _varies(draws: Draws) -> bool:
    """Whether inputs have weights of their own."""
    spread = draws.weights.amax(0) - draws.weights.amin(0)
    return len(draws.labels.unique()) > 1 and float(spread.max()) > EQUAL


def _bars(axes: Axes, chosen: list[Draws], components: int) -> None:
    width = 0.8 / len(chosen)
    for number, each in enumerate(chosen):
        look = look_of(each.source)
        mean = each.weights.mean(0).numpy()
        places = np.arange(1, len(mean) + 1) + (number - (len(chosen) - 1) / 2) * width
        axes.bar(places, mean, width=0.92 * width, color=look.colour, hatch=look.hatch,
                 edgecolor="white", linewidth=0, label=named(each.source))  # fmt: skip
    axes.set_xticks([tick + 1 for tick in thinned(components, 16)])
    axes.set_xlabel("component")
    axes.set_ylabel("mean weight")
    axes.set_ylim(0, None)
    percent_axis(axes)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)


def _by_class(axes: Axes, subject: Subject, draws: Draws) -> None:
    classes = draws.labels.unique(sorted=True)
    table: FloatArray = np.stack(
        [draws.weights[draws.labels == label].mean(0).double().numpy() for label in classes]
    )
    shown = axes.imshow(table, aspect="auto", cmap="cividis", vmin=0, vmax=1)
    ticks = thinned(len(classes), NAMES)
    axes.set_yticks(ticks, [subject.class_name(int(classes[tick])) for tick in ticks])
    columns = thinned(table.shape[1], 16)
    axes.set_xticks(columns, [str(column + 1) for column in columns])
    axes.set_xlabel("component")
    axes.set_ylabel("class")
    axes.set_title(named(draws.source))
    bar = axes.figure.colorbar(shown, ax=axes, pad=0.02, fraction=0.06)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    bar.outline.set_visible(False)
