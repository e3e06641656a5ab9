"""The results as a table for the console."""

from __future__ import annotations

import io

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nppr.distributions.dependency import Dependency
from nppr.fit import FAMILY
from nppr.report.quoting import bounds_of, guaranteed, not_split, reference_of
from nppr.report.rows import SPLITTING
from nppr.report.schema import WITH_REFERENCES, Report, Result
from nppr.statistics.estimates import APPROXIMATE, UNRESOLVED
from nppr.types import Direction, Metric

__all__ = [
    "RELATIVE",
    "as_text",
    "console_table",
    "legend_of",
    "notes",
    "table_rows",
]

ORDER = (
    Metric.ACCURACY,
    Metric.AR,
    Metric.NPPR,
    Metric.PR,
    Metric.CORRUPTION,
    Metric.BOUND,
    Metric.STRESS,
)
RELATIVE = (Metric.AR, Metric.NPPR, Metric.PR, Metric.CORRUPTION)
"""Metrics over the inputs that are right without noise."""

BAR = 20
LEGEND = {
    Metric.PR: "share of right draws, mean over the inputs that are right without noise",
    Metric.NPPR: "PR under the worst noise found in the admissible set: an upper bound",
    Metric.AR: "share of those inputs that no perturbation broke: an upper bound",
    Metric.CORRUPTION: "share of those inputs that are right under the corruption; no budget",
    Metric.BOUND: "at least, under all noise of density up to c times {reference}, this test set",
    Metric.STRESS: "(E loss^q)^(1/q) under Uniform noise: a loss; / clean: by the standard loss",
}
SHORT = {Metric.CORRUPTION: "corrupted"}
"""Names that would not leave room for the others on a line of 80 letters."""

WIDE = 104
"""Console width from which there is room for the bars."""


def console_table(report: Report, width: int) -> Table:
    """One row a source: clean accuracy first, then from AR up to PR, smallest first."""
    level = f"{100 * report.settings['confidence']:g} %"
    table = Table(
        box=box.SIMPLE_HEAD,
        title=_title(report),
        title_justify="left",
        title_style="",
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("metric", no_wrap=True)
    table.add_column("source", overflow="fold")
    for name in ("value %", f"{level} interval", "guaranteed", "/ clean", "draws"):
        table.add_column(name, justify="right", no_wrap=True)
    bars = width >= WIDE
    if bars:
        table.add_column("0" + "100".rjust(BAR - 1), no_wrap=True, width=BAR)
    rows = table_rows(report)
    for row, following in zip(rows, [*rows[1:], None], strict=False):
        cells = _cells(report, row)
        last = following is not None and following.metric is not row.metric
        table.add_row(*(cells if bars else cells[:-1]), end_section=last)
    return table


def as_text(report: Report, width: int) -> str:
    """The table as plain text."""
    text = io.StringIO()
    console = Console(file=text, width=width, no_color=True, highlight=False)
    console.print(console_table(report, width))
    console.print(notes(report), markup=False)
    return text.getvalue()


def notes(report: Report) -> str:
    """What the rows and marks of the table mean."""
    flags = {flag.id: flag.message for flag in report.flags if flag.id != UNRESOLVED}
    marks = {APPROXIMATE: "*"}
    legend = legend_of(report)
    legend["/ clean"] = "accuracy under the source over all inputs / clean accuracy, in %"
    width = max(len(name) for name in legend)
    return "\n".join(
        [
            *(f"{name:{width}}  {words}" for name, words in legend.items()),
            *_learned(report),
            *_rare(report),
            *_precision(report),
            *(f"{marks.get(name, '!')} {name}: {message}" for name, message in flags.items()),
            f"grade {report.grade['letter']}: {report.grade['reason']}",
        ]
    )


def legend_of(report: Report) -> dict[str, str]:
    """What the metrics of a report mean, by their names in a table."""
    present = {row.metric for row in report.results}
    noises = dict.fromkeys(reference_of(report, row) for row in bounds_of(report))
    named = " or ".join(noise for noise in noises if noise)
    reference = f"that of {named} noise" if named else "the reference's"
    return {
        _label(metric): words.format(reference=reference)
        for metric, words in LEGEND.items()
        if metric in present
    }


def _learned(report: Report) -> list[str]:
    """A line for every learned source: what it may depend on and how random it is."""
    lines = []
    for made in report.distributions:
        asked = (report.settings.get("fit") or made["fit"]["settings"])["family"]["dependency"]
        lines.append(
            f"{made['source']}: {Dependency(asked).words}; rho {made['family']['floor']:g}, realised"
            f" std {made['diagnostics']['realised_std']:.3f} of the radius; found as"
            f" {made['fit']['selected']!r}"
        )
        seeds = made["fit_seeds"]
        if seeds and "fit-seed" not in made["source"]:
            lines.append(
                f"{made['source']}: {len(seeds['values'])} fits, the lowest"
                f" {_percent(seeds['minimum'])} %, the highest {_percent(seeds['spread'])} points above"
            )
        winner = made["fit"].get("with_references", {}).get("winner", FAMILY)
        if winner != FAMILY and report.headline(made["source"] + WITH_REFERENCES, Metric.NPPR):
            lines.append(
                f"{made['source']}{WITH_REFERENCES}: {winner} noise was worse than what the family"
                " gave on the select part"
            )
    return lines


def _rare(report: Report) -> list[str]:
    """A line for every source under which splitting looked for rare failures."""
    lines = []
    for entry in report.rare:
        name, status = entry["source"], entry["status"]
        line = (
            f"{name}: splitting followed {entry['looked_at']:,} of {entry['unbroken']:,} inputs without"
            f" a failure: {status['found']:,} found to fail, {status['below']:,} too rarely to be"
            f" found, {status['out of calls']:,} out of calls"
        )
        if entry["unbroken"] > entry["looked_at"]:
            line += f"; the other {entry['unbroken'] - entry['looked_at']:,} count as never failing"
        if entry["largest"] is not None:
            line += f"; no failure probability above {entry['largest']:.1e}"
        for row in report.results:
            if row.method == SPLITTING and row.source == name and row.value is not None:
                bound = "at most " if row.direction is Direction.UPPER_BOUND else ""
                line += (
                    f"; with them {row.metric.value} {bound}{100 * row.value:.3f} %, {row.claim}"
                )
        lines.append(line)
    if unfollowed := not_split(report):
        lines.append(f"splitting did not follow: {', '.join(unfollowed)}")
    return lines


def _precision(report: Report) -> list[str]:
    """What was measured to reach a wanted precision."""
    found = report.precision
    if not found or not found["reached"]:
        return []
    widest = max(width["half_width"] for width in found["widths"].values())
    inputs, draws = found["rounds"][-1]
    line = (
        f"precision: all PR and NPPR are known to +-{100 * widest:.2f} points or better, with"
        f" {inputs:,} of {found['available_inputs']:,} inputs and {draws} draws each"
    )
    return [line]


def _repeated(report: Report) -> set[str]:
    """Rows of a family with the reference noises where the family itself was worst."""
    return {
        made["source"] + WITH_REFERENCES
        for made in report.distributions
        if made["fit"].get("with_references", {}).get("winner") == FAMILY
    }


def _title(report: Report) -> Text:
    name, data = report.classifier["name"], report.data["name"]
    inputs = report.data["inputs"]["evaluate"]
    budget = f"{report.budget['norm']} {report.budget['text']}"
    right = [row.inputs for row in report.results if row.metric in RELATIVE]
    counted = (
        f"{inputs:,} inputs of its evaluate part, {max(right, default=0):,} right without noise"
    )
    what = f"{name} on {data}, budget {budget}, seed {report.seed}"
    return Text.assemble((what, "bold"), "\n", counted)


def table_rows(report: Report) -> list[Result]:
    """The first result of every source, in the order of the theory: AR <= NPPR <= PR."""
    firsts: dict[tuple[str, Metric], Result] = {}
    repeated = _repeated(report)
    for row in report.results:
        if row.metric in ORDER and row.source not in repeated:
            firsts.setdefault((row.source, row.metric), row)
    return sorted(
        firsts.values(),
        key=lambda row: (ORDER.index(row.metric), 2.0 if row.value is None else row.value),
    )


def _cells(report: Report, row: Result) -> list[Text]:
    if row.value is None or row.low is None or row.high is None:
        outcome = Text("skipped" if row.flags else "failed", style="red")
        return [Text(_label(row.metric)), Text(row.source), outcome, *[Text("-")] * 5]
    if row.metric is Metric.STRESS:
        return [Text(cell) for cell in _stress_cells(report, row, row.value, row.low, row.high)]
    ratio = report.headline(row.source, Metric.NORMALISED_ACCURACY)
    signs = {Direction.UPPER_BOUND: "<= ", Direction.LOWER_BOUND: ">= "}
    at_most = signs.get(row.direction or Direction.ESTIMATE, "")
    cells = [
        _label(row.metric),
        row.source,
        at_most + _percent(row.value),
        _range(row.low, row.high) + ("*" if row.flags else " "),
        _guaranteed(report, row),
        _percent(ratio.value) if ratio is not None and ratio.value is not None else "",
        f"{row.draws:,}",
        _bar(row.value, row.low, row.high),
    ]
    return [Text(cell) for cell in cells]


def _stress_cells(report: Report, row: Result, value: float, low: float, high: float) -> list[str]:
    """A loss is no share: it has no axis, and its ratio is to the loss without noise."""
    ratio = report.headline(row.source, Metric.NORMALISED_STRESS)
    by_clean = "" if ratio is None or ratio.value is None else f"x {ratio.value:.3g}"
    interval = f"{low:.3g}-{high:.3g} "
    return [
        row.metric.value,
        row.source,
        f"{value:.3g}",
        interval,
        "",
        by_clean,
        f"{row.draws:,}",
        "",
    ]


def _guaranteed(report: Report, row: Result) -> str:
    """The interval of this number that holds at any size of sample.

    Under a search for bad noise only the upper end says something about the truth.
    """
    found = guaranteed(report, row)
    if found is None or found.low is None or found.high is None:
        return ""
    bound = row.direction is Direction.UPPER_BOUND
    return f"<= {_percent(found.high)}" if bound else _range(found.low, found.high)


def _label(metric: Metric) -> str:
    return SHORT.get(metric, metric.value)


def _range(low: float, high: float) -> str:
    return f"{_percent(low)}-{_percent(high)}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _bar(value: float, low: float, high: float) -> str:
    """The value as a bar and its interval as a band, on an axis from 0 to 100 %."""
    end, first, last = (round(min(1.0, share) * BAR) for share in (value, low, high))
    band = range(min(first, BAR - 1), max(first + 1, last))
    return "".join("▒" if i in band else "█" if i < end else " " for i in range(BAR))
