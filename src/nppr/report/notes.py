"""What stands below a table: what its rows and marks mean, and what else was found."""

from __future__ import annotations

from nppr.noise import Dependency
from nppr.report.quoting import bounds_of, not_split, reference_of
from nppr.report.rows import SPLITTING
from nppr.report.schema import WITH_REFERENCES, Report
from nppr.search.search_record import FAMILY
from nppr.statistics.estimates import APPROXIMATE, UNRESOLVED
from nppr.types import Direction, Metric

__all__ = ["SHORT", "label_of", "legend_of", "notes", "percent"]

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
            *_radii(report),
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
        label_of(metric): words.format(reference=reference)
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
                f" {percent(seeds['minimum'])} %, the highest {percent(seeds['spread'])} points above"
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


def _radii(report: Report) -> list[str]:
    """A line for every other radius: the first number of each source and metric."""
    lines = []
    for at in report.radii:
        firsts: dict[tuple[str, Metric], str] = {}
        for row in at.results:
            value = "failed" if row.value is None else f"{percent(row.value)} %"
            firsts.setdefault((row.source, row.metric), f"{row.source} {value}")
        lines.append(f"at radius {at.text}: {', '.join(firsts.values())}")
    if report.radii and report.distributions:
        lines.append("learned noise is scaled to these radii, not fitted again")
    return lines


def label_of(metric: Metric) -> str:
    """The name of a metric in a table."""
    return SHORT.get(metric, metric.value)


def percent(value: float) -> str:
    """A share in %."""
    return f"{100 * value:.1f}"
