"""A comparison in words and tables, as files and as a page; all of it from the comparison alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table as RichTable

from nppr.compare.comparison import Compared, Comparison, Difference, Standing
from nppr.errors import RunFolderError
from nppr.manifest import Manifest
from nppr.records import write_whole
from nppr.report.page.shell import page_shell, rendered
from nppr.report.tables import Cell, Column, Table, md_text
from nppr.tally import Direction, Metric

JSON = "compare.json"

WHAT = {
    Metric.ACCURACY: "clean inputs classified correctly",
    Metric.AR: "inputs that {source} did not break",
    Metric.NPPR: "draws classified correctly under the worst noise found ({source})",
    Metric.PR: "draws classified correctly under {source} noise",
    Metric.CORRUPTION: "inputs classified correctly under the corruption {source}",
}
WHERE = {
    Metric.ACCURACY: "Without noise",
    Metric.AR: "Under attack by {source}",
    Metric.NPPR: "Under the worst noise found ({source})",
    Metric.PR: "Under {source} noise",
    Metric.CORRUPTION: "Under the corruption {source}",
}
TOGETHER = "all sources of the budget together"
"""What the source `merged` is."""

ANSWERS = (Metric.NPPR, Metric.PR, Metric.AR, Metric.CORRUPTION, Metric.ACCURACY)
"""What the page opens with: the first that has a difference."""

METHODS = {
    "paired-normal": "paired",
    "joint-bootstrap": "joint bootstrap",
    "unpaired-normal": "unpaired",
}


def letter(position: int) -> str:
    """A short name of an entry: A to Z, then by number.

    >>> letter(1), letter(30)
    ('B', 'R31')
    """
    return chr(ord("A") + position) if position < 26 else f"R{position + 1}"


def titled(comparison: Comparison, position: int) -> str:
    """An entry with its short name."""
    return f"{letter(position)}: {comparison.entries[position].name}"


def percent(standing: Standing) -> str:
    """The value in %, with its spread over seeds and the sign of a bound."""
    assert standing.value is not None
    sign = "≤ " if standing.direction is Direction.UPPER_BOUND else ""
    spread = "" if standing.std is None else f" ± {100 * standing.std:.1f}"
    return f"{sign}{100 * standing.value:.1f}{spread}"


def share_range(low: float, high: float) -> str:
    """An interval of a share in %."""
    return f"{100 * low:.1f}-{100 * high:.1f}"


def signed(value: float) -> str:
    """A difference in percentage points, with its sign.

    >>> signed(-0.0123), signed(0.00001)
    ('-1.2', '0.0')
    """
    text = f"{100 * value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def points_range(low: float, high: float) -> str:
    """An interval of a difference."""
    return f"{signed(low)} to {signed(high)}"


def short_method(method: str) -> str:
    """How an interval was made, in a word or two."""
    return METHODS.get(method, method)


def legend(metric: Metric, source: str) -> str:
    """What is counted."""
    return WHAT[metric].format(source=_called(source))


def answer(comparison: Comparison) -> str:
    """The comparison in one sentence: NPPR if it was measured, and whether entries separate."""
    for metric in ANSWERS:
        for result in comparison.results:
            if result.metric is metric and result.differences:
                return _sentence(result)
    counted = f"{len(comparison.entries[0].runs)} seeds of {comparison.entries[0].name}"
    return f"{counted}: nothing to compare with."


def rule(comparison: Comparison) -> str:
    """How ranks are given."""
    level = f"{100 * comparison.confidence:g} %"
    return (
        "Rank = 1 + the number of runs that are separated and better. Two runs are separated if the"
        " interval of their difference lies on one side of 0 at a confidence at which all pairs of the"
        f" row hold together at {level} (Bonferroni: the error is divided by the number of pairs). Runs"
        " that are not separated share a rank. Where the approximate interval is outside its tested"
        " regime (marked *), the guaranteed one decides."
    )


def _sentence(result: Compared) -> str:
    where = WHERE[result.metric].format(source=_called(result.source))
    verb = "is correct" if result.metric is Metric.ACCURACY else "stays correct"
    ranked = [s for s in result.standings if s.rank is not None and s.value is not None]
    ordered = sorted(ranked, key=lambda s: (s.rank or 0, -(s.value or 0)))
    leaders = [letter(s.entry) for s in ordered if s.rank == 1]
    values = [f"{letter(s.entry)} on {_amount(s)}" for s in ordered]
    values[0] = values[0].replace(" on ", f" {verb} on ", 1)
    counted = "the inputs" if verb == "is correct" else "its clean-correct inputs"
    start = f"{where}, {_listed(values)} of {counted}."
    if len(ordered) > 2:
        if len(leaders) == len(ordered):
            return f"{start} Their differences do not separate them."
        if len(leaders) > 1:
            return f"{start} {_listed(leaders)} share the first rank."
        return f"{start} {leaders[0]} is ahead of all others."
    size = _size(result.differences[0])
    if len(leaders) > 1:
        return f"{start} The difference of {size} does not separate them."
    return f"{start} {leaders[0]} is ahead, by {size}."


def _size(found: Difference) -> str:
    """The difference without its sign; guaranteed ends where the approximate ones were not tested."""
    low, high, which = found.low, found.high, ""
    if found.flags and found.guaranteed_low is not None and found.guaranteed_high is not None:
        low, high, which = found.guaranteed_low, found.guaranteed_high, ", guaranteed"
    low, high = (low, high) if found.value > 0 else (-high, -low)
    ends = " to ".join(_unsigned(end) for end in (low, high))
    return f"{100 * abs(found.value):.1f} points ({ends}{which})"


def _unsigned(points: float) -> str:
    """A number of points, where a zero has no sign."""
    return signed(points).removeprefix("+")


def _amount(standing: Standing) -> str:
    bound = standing.direction is Direction.UPPER_BOUND
    return f"{'at most ' if bound else ''}{percent(standing).removeprefix('≤ ')}\u00a0%"


def _called(source: str) -> str:
    return TOGETHER if source == "merged" else source


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


LONG = (
    "kind", "metric", "source", "run", "against", "value", "low", "high", "method",
    "guaranteed_low", "guaranteed_high", "unpaired_low", "unpaired_high", "separated", "rank",
    "std", "seeds", "normalised", "normalised_std", "inputs", "draws", "flags", "error",
)  # fmt: skip


def values_table(comparison: Comparison, *, short: bool = False) -> Table:
    """One row per metric and source, one column per entry; bold where nothing is separated and better.

    Nothing is bold in a row in which no two entries separate. `short` heads are letters.
    """
    columns = [Column("metric", "metric"), Column("source", "source")]
    columns += [
        Column(entry.name, letter(at) if short else titled(comparison, at), number=True)
        for at, entry in enumerate(comparison.entries)
    ]
    rows = [
        (
            Cell.of(result.metric.value),
            Cell.of(result.source),
            *(_value_cell(result, standing) for standing in result.standings),
        )
        for result in comparison.results
    ]
    spread = any(s.std is not None for result in comparison.results for s in result.standings)
    caption = f"Values in % ({100 * comparison.confidence:g} % interval over inputs)"
    if spread:
        caption += ", ± standard deviation over seeds"
    caption += ". Bold: rank 1 where ranks differ."
    return Table(caption, tuple(columns), tuple(rows))


def paper_table(comparison: Comparison, *, normalised: bool = False) -> Table:
    """One row per entry, one column per metric and source: mean ± standard deviation over seeds."""
    shown = [
        result
        for result in comparison.results
        if not normalised or any(s.normalised is not None for s in result.standings)
    ]
    names = [f"{result.metric.value} {result.source}" for result in shown]
    heads = [Column("data", "data"), Column("run", "model")]
    columns = [*heads, *(Column(name, name, number=True) for name in names)]
    rows = [
        (
            Cell(entry.data, entry.data),
            Cell(entry.name, titled(comparison, at)),
            *(_paper_cell(r, r.standings[at], normalised=normalised) for r in shown),
        )
        for at, entry in enumerate(comparison.entries)
    ]
    what = "accuracy under the source over all inputs / clean accuracy" if normalised else "values"
    caption = f"{what[0].upper()}{what[1:]}, in %"
    seeds = max(len(entry.runs) for entry in comparison.entries)
    caption += f", mean ± standard deviation over up to {seeds} seeds" if seeds > 1 else ""
    budgets = ", ".join(dict.fromkeys(entry.budget for entry in comparison.entries))
    caption += f"; budget {budgets}. AR and NPPR are upper bounds."
    return Table(caption, tuple(columns), tuple(rows))


def differences_table(comparison: Comparison) -> Table:
    """One row per pair of entries and metric, in percentage points."""
    level = f"{100 * comparison.confidence:g} %"
    columns = (
        Column("metric", "metric"),
        Column("source", "source"),
        Column("pair", "pair"),
        Column("difference", "difference", number=True),
        Column("interval", f"{level} interval", number=True, interval=True),
        Column("guaranteed", "guaranteed", number=True, interval=True, terminal=None),
        Column("unpaired", "if unpaired", number=True, interval=True, terminal=None),
        Column("method", "method", terminal=None),
        Column("separated", "separated"),
    )
    rows = [
        _difference_row(result, difference)
        for result in comparison.results
        for difference in result.differences
    ]
    names = ", ".join(titled(comparison, at) for at in range(len(comparison.entries)))
    caption = (
        f"Differences in percentage points ({level} intervals over inputs) of {names}. Separated: 0 is"
        " outside the interval at the confidence of all pairs of a metric and source together."
    )
    return Table(caption, columns, tuple(rows))


def long_table(comparison: Comparison) -> Table:
    """One row per number, values and differences alike, for programs."""
    names = [entry.name for entry in comparison.entries]
    rows = []
    for result in comparison.results:
        common = {"metric": result.metric.value, "source": result.source}
        for standing in result.standings:
            facts = standing.model_dump(exclude={"entry", "flags", "direction", "confidence"})
            seeds = len(comparison.entries[standing.entry].runs)
            facts |= {"kind": "value", "run": names[standing.entry], "seeds": seeds}
            rows.append(facts | common | {"flags": " ".join(standing.flags)})
        for difference in result.differences:
            facts = difference.model_dump(
                exclude={"first", "second", "flags", "paired", "confidence"}
            )
            pair = {"run": names[difference.first], "against": names[difference.second]}
            facts |= {"kind": "difference", **pair}
            rows.append(facts | common | {"flags": " ".join(difference.flags)})
    columns = tuple(Column(name, name) for name in LONG)
    cells = tuple(tuple(Cell.of(row.get(name)) for name in LONG) for row in rows)
    return Table("Values and differences, as shares", columns, cells)


def _value_cell(result: Compared, standing: Standing) -> Cell:
    if standing.value is None:
        return Cell(None, short_error(standing))
    text = percent(standing)
    if standing.low is not None and standing.high is not None:
        mark = "*" if standing.flags else ""
        text += f" ({share_range(standing.low, standing.high)}){mark}"
    return Cell(standing.value, text, strong=_leads(result, standing))


def _paper_cell(result: Compared, standing: Standing, *, normalised: bool) -> Cell:
    value = standing.normalised if normalised else standing.value
    std = standing.normalised_std if normalised else standing.std
    if value is None:
        return Cell(None, "-")
    text = f"{100 * value:.2f}" + ("" if std is None else f" ± {100 * std:.2f}")
    return Cell(value, text, strong=not normalised and _leads(result, standing))


def _difference_row(result: Compared, difference: Difference) -> tuple[Cell, ...]:
    low, high = difference.guaranteed_low, difference.guaranteed_high
    sure = Cell(None, "")
    if low is not None and high is not None:
        sure = Cell((low, high), points_range(low, high))
    apart = (difference.unpaired_low, difference.unpaired_high)
    mark = "*" if difference.flags else ""
    return (
        Cell.of(result.metric.value),
        Cell.of(result.source),
        Cell.of(f"{letter(difference.first)} - {letter(difference.second)}"),
        Cell(difference.value, signed(difference.value), strong=difference.separated),
        Cell(
            (difference.low, difference.high),
            points_range(difference.low, difference.high) + mark,
        ),
        sure,
        Cell(apart, points_range(*apart) if difference.paired else ""),
        Cell(difference.method, short_method(difference.method)),
        Cell(difference.separated, "yes" if difference.separated else "no"),
    )


def _leads(result: Compared, standing: Standing) -> bool:
    ranks = {each.rank for each in result.standings if each.rank is not None}
    return standing.rank == 1 and len(ranks) > 1


def short_error(standing: Standing) -> str:
    """Why there is no number, in a word or two."""
    return "not measured" if "not measured" in (standing.error or "") else "failed"


def console_tables(comparison: Comparison) -> list[RichTable]:
    """The values, and the differences if there are any."""
    tables = [values_table(comparison)]
    if any(result.differences for result in comparison.results):
        tables.append(differences_table(comparison))
    return [table.to_rich() for table in tables]


def summary(comparison: Comparison) -> str:
    """The answer and the notes."""
    return "\n".join([answer(comparison), *comparison.notes])


def write_comparison(
    folder: str | Path,
    comparison: Comparison,
    formats: Sequence[str] = ("html", "md", "csv", "latex", "json"),
    *,
    overwrite: bool = False,
) -> list[Path]:
    """Write these formats, and always the JSON; a folder with another comparison is refused."""
    folder = Path(folder)
    manifest = Manifest(folder, "comparison")
    manifest.require_ours()
    held = [file for file, _ in FORMATS.values() if (folder / file).exists()]
    if held and not overwrite and not _same(folder / JSON, comparison):
        raise RunFolderError(
            f"`out` must be free or hold this comparison, {str(folder)!r} holds {held[0]} of another."
            " Choose another folder, or add --overwrite to replace it."
        )
    names = [name for name in FORMATS if name in formats or name == "json"]
    written = [folder / FORMATS[name][0] for name in names]
    manifest.replace(*written)
    for path, name in zip(written, names, strict=True):
        write_whole(path, FORMATS[name][1](comparison))
    return written


def to_md(comparison: Comparison) -> str:
    """Both tables with the notes, as Markdown."""
    parts = [
        "# " + md_text(" and ".join(entry.name for entry in comparison.entries)),
        md_text(answer(comparison)),
        values_table(comparison).to_md().rstrip(),
        md_text(values_table(comparison).caption),
    ]
    if any(result.differences for result in comparison.results):
        table = differences_table(comparison)
        parts += [table.to_md().rstrip(), md_text(table.caption), md_text(rule(comparison))]
    parts += [f"- {md_text(note)}" for note in comparison.notes]
    return "\n\n".join(parts) + "\n"


def to_latex(comparison: Comparison) -> str:
    """The tables of a paper: values, clean-normalised values, differences."""
    tables = [paper_table(comparison)]
    normalised = paper_table(comparison, normalised=True)
    if len(normalised.columns) > 1:
        tables.append(normalised)
    if any(result.differences for result in comparison.results):
        tables.append(differences_table(comparison))
    head = "% Needs \\usepackage{booktabs} and UTF-8.\n"
    return head + "\n".join(table.to_latex() for table in tables)


def _same(path: Path, comparison: Comparison) -> bool:
    try:
        return path.read_text(encoding="utf-8") == comparison.to_json()
    except (OSError, ValueError):
        return False


COLOURS = {Metric.AR: "c-ar", Metric.NPPR: "c-nppr", Metric.PR: "c-pr"}


def page_of(comparison: Comparison) -> str:
    """The text of `compare.html`; every name is escaped."""
    entries = comparison.entries
    title = f"Comparison of {len(entries)} classifiers or settings"
    if len(entries) == 1:
        title = f"{entries[0].name}, {len(entries[0].runs)} seeds"
    compared = any(result.differences for result in comparison.results)
    body = rendered(
        "compare.html.j2",
        package="nppr.compare",
        comparison=comparison,
        title=title,
        answer=answer(comparison),
        values=values_table(comparison, short=True),
        differences=differences_table(comparison) if compared else None,
        plots=[_plot(comparison, result) for result in comparison.results],
        rule=rule(comparison),
        data=", ".join(dict.fromkeys(entry.data for entry in entries)),
        budgets=", ".join(dict.fromkeys(entry.budget for entry in entries)),
        titles=[titled(comparison, at) for at in range(len(entries))],
        level=f"{100 * comparison.confidence:g} %",
    )
    return page_shell(title, body)


@dataclass(frozen=True)
class Line:
    """One entry in a figure; places are in % of the width."""

    letter: str
    error: str | None
    number: str = ""
    interval: str = ""
    mark: str = ""
    rank: str = ""
    said: str = ""
    at: str = ""
    low: str = ""
    width: str = ""


@dataclass(frozen=True)
class Plot:
    """The figure of one metric and source: a dot and a band for each entry on one axis."""

    metric: str
    source: str
    what: str
    colour: str
    lines: tuple[Line, ...]


def _plot(comparison: Comparison, result: Compared) -> Plot:
    what = legend(result.metric, result.source)
    ranks = [standing.rank for standing in result.standings]
    return Plot(
        metric=result.metric.value,
        source=result.source,
        what=what[0].upper() + what[1:],
        colour=COLOURS.get(result.metric, "c-other"),
        lines=tuple(
            _line(comparison, standing, tied=ranks.count(standing.rank) > 1)
            for standing in result.standings
        ),
    )


def _line(comparison: Comparison, standing: Standing, *, tied: bool) -> Line:
    if standing.value is None:
        return Line(letter(standing.entry), standing.error or "not measured")
    rank = f"rank {standing.rank}{', tied' if tied else ''}" if standing.rank else ""
    interval = low = width = ""
    if standing.low is not None and standing.high is not None:
        interval = share_range(standing.low, standing.high)
        low, width = _place(standing.low), _place(standing.high - standing.low)
    number = f"{percent(standing)} %"
    said = [f"{titled(comparison, standing.entry)}: {number}"]
    said += [f"interval {interval} %"] if interval else []
    return Line(
        letter=letter(standing.entry),
        error=None,
        number=number,
        interval=interval,
        mark="*" if standing.flags else "",
        rank=rank,
        said=", ".join([*said, *([rank] if rank else [])]),
        at=_place(standing.value),
        low=low,
        width=width,
    )


def _place(share: float) -> str:
    return f"{100 * min(1.0, max(0.0, share)):.3f}%"


FORMATS: Mapping[str, tuple[str, Callable[[Comparison], str]]] = {
    "json": (JSON, Comparison.to_json),
    "html": ("compare.html", page_of),
    "md": ("compare.md", to_md),
    "csv": ("compare.csv", lambda comparison: long_table(comparison).to_csv()),
    "latex": ("compare.tex", to_latex),
}
"""File and rendering of each format."""
