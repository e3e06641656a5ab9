"""A comparison in words and tables, as files and as a page; all of it from the comparison alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rich.table import Table as RichTable

from nppr.compare.compare_answer import p_text
from nppr.compare.compare_settings import letter
from nppr.compare.comparison import (
    BETTING,
    SIGN_TEST,
    Compared,
    Comparison,
    Difference,
    Standing,
)
from nppr.core.tally import Direction, Metric
from nppr.errors import RunFolderError
from nppr.report.number import MERGED
from nppr.report.page.shell import page_shell, rendered
from nppr.report.printed_numbers import claim_text
from nppr.report.tables import Cell, Column, Table, md_text
from nppr.system.manifest import Manifest
from nppr.system.records import write_whole

JSON = "compare.json"

WHAT = {
    Metric.ACCURACY: "Clean inputs that are correct",
    Metric.AR: "Inputs that {source} did not break",
    Metric.NPPR: "Correct draws under the worst distribution found ({source})",
    Metric.PR: "Correct draws under {source}",
    Metric.CORRUPTION: "Correct inputs under the corruption {source}",
}
_OF_SEARCHES = (
    "of AR and NPPR what may be claimed of the worst noise, and what was observed under the noise"
    " found"
)
ALL_SOURCES = "all sources of the budget together"
METHODS = {SIGN_TEST: "sign test", BETTING: "betting"}


def titles_of(comparison: Comparison) -> list[str]:
    """The entries with their short names."""
    return [f"{letter(at)}: {entry.name}" for at, entry in enumerate(comparison.entries)]


def value_text(
    standing: Standing, *, cell: bool = True, digits: int = 1, normalised: bool = False
) -> str:
    """What may be claimed, in %, with the spread over seeds; a star: outside its tested regime."""
    fields = ["value", "std", "low", "high"]
    if normalised:
        fields = ["normalised", *(f"normalised_{name}" for name in fields[1:])]
    up = standing.direction is Direction.UPPER_BOUND
    found = [getattr(standing, name) for name in fields]
    value, std, low, high = (None if x is None else f"{100 * x:.{digits}f}" for x in found)
    if up and found[3] is not None:  # what holds at most is never rounded down
        high = f"{math.ceil(found[3] * 10 ** (digits + 2) - 1e-9) / 10**digits:.{digits}f}"
    shown = f"{value} ± {std}" if std else value
    mark = "*" if cell and standing.flags and not normalised else ""
    return claim_text(standing.direction, shown, low, high, cell=cell) + mark


def print_points(value: float) -> str:
    """Print a difference in percentage points, with its sign.

    >>> print_points(-0.0123), print_points(0.00001)
    ('-1.2', '0.0')
    """
    text = f"{100 * value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def explain_ranks(comparison: Comparison) -> str:
    """State how ranks are given."""
    level = f"{100 * comparison.confidence:g} %"
    return (
        "Rank = 1 + the number of runs that are separated and better; runs that are not separated share"
        " a rank. Two runs are compared on the inputs that both classify correctly without noise, in"
        " clean accuracy on all inputs. If each input has one outcome (attacks, corruptions, accuracy,"
        " one draw), the exact sign test decides (McNemar); otherwise a bet on the differences of the"
        f" rates does. Holm's method corrects for the number of differences: with {level} confidence no"
        " verdict on robustness is wrong, and with the same confidence none on clean accuracy."
        " Approximate intervals decide nothing."
    )


LONG = (
    "kind", "metric", "source", "run", "against", "value", "low", "high", "method", "direction",
    "guaranteed_low", "guaranteed_high", "approximate_low", "approximate_high", "first_better",
    "second_better", "p_value", "adjusted_p_value", "separated",
    "rank", "std", "seeds", "normalised", "normalised_std", "inputs", "draws", "flags", "error",
)  # fmt: skip


def settings_table(comparison: Comparison) -> Table:
    """The settings in which the entries differ, one row each."""
    entries = comparison.entries
    columns = [Column("setting", "setting")]
    columns += [Column(each.name, letter(at)) for at, each in enumerate(entries)]
    rows = [
        (Cell.of(name), *(Cell.of(entry.differs[name]) for entry in entries))
        for name in entries[0].differs
    ]
    return Table("Settings that differ", tuple(columns), tuple(rows))


def values_table(comparison: Comparison, *, short: bool = False) -> Table:
    """Return a row per metric and source and a column per entry; bold: nothing is separated and better.

    Nothing is bold in a row in which no two entries separate. `short` heads are letters.
    """
    heads = [
        Column(entry.name, letter(at) if short else title, number=True)
        for at, (entry, title) in enumerate(
            zip(comparison.entries, titles_of(comparison), strict=True)
        )
    ]
    rows = [
        (
            Cell.of(result.metric.value),
            Cell.of(result.source),
            *(_value_cell(result, standing) for standing in result.standings),
        )
        for result in comparison.results
    ]
    seeds = any(each.std is not None for row in comparison.results for each in row.standings)
    caption = (
        f"Values in % ({100 * comparison.confidence:g} % interval over inputs; {_OF_SEARCHES})"
        f"{', ± standard deviation over seeds' if seeds else ''}. Bold: rank 1 where ranks differ."
    )
    columns = (Column("metric", "metric"), Column("source", "source"), *heads)
    return Table(caption, columns, tuple(rows))


def paper_table(comparison: Comparison, *, normalised: bool = False) -> Table:
    """Return a row per entry and a column per metric and source, as papers print them."""
    shown = [
        result
        for result in comparison.results
        if not normalised or any(s.normalised is not None for s in result.standings)
    ]
    names = [f"{result.metric.value} {result.source}" for result in shown]
    rows = [
        (
            Cell(entry.data, entry.data),
            Cell(entry.name, title),
            *(_value_cell(r, r.standings[at], paper=True, normalised=normalised) for r in shown),
        )
        for at, (entry, title) in enumerate(
            zip(comparison.entries, titles_of(comparison), strict=True)
        )
    ]
    what = "Accuracy under the source over all inputs / clean accuracy" if normalised else "Values"
    seeds = max(len(entry.runs) for entry in comparison.entries)
    caption = (
        f"{what}, in %{f', mean ± standard deviation over up to {seeds} seeds' if seeds > 1 else ''};"
        f" budget {_listed(entry.budget for entry in comparison.entries)};"
        f" {100 * comparison.confidence:g} % intervals over inputs. AR and NPPR are upper bounds:"
        f" {_OF_SEARCHES.removeprefix('of AR and NPPR ')}."
    )
    columns = (
        Column("data", "data"),
        Column("run", "model"),
        *(Column(name, name, number=True) for name in names),
    )
    return Table(caption, columns, tuple(rows))


DIFFERENCE_COLUMNS = (
    Column("metric", "metric"),
    Column("source", "source"),
    Column("pair", "pair"),
    Column("verdict", "verdict"),
    Column("difference", "points", number=True),
    Column("guaranteed", "guaranteed", number=True, interval=True, terminal=None),
    Column("better", "inputs better", number=True),
    Column("p", "p", number=True, terminal=None),
    Column("adjusted", "p corrected", number=True),
    Column("method", "decided by", terminal=None),
    Column("inputs", "common inputs", number=True, terminal=None, outside=("page",)),
    Column("approximate", "approximate", number=True, interval=True, terminal=None),
)


def _difference_row(result: Compared, found: Difference) -> tuple[Cell, ...]:
    verdict = f"{letter(found.better)} better" if found.separated else "not shown"
    better = found.first_better, found.second_better
    return (
        Cell.of(result.metric.value),
        Cell.of(result.source),
        Cell.of(f"{letter(found.first)} - {letter(found.second)}"),
        Cell(found.separated, verdict, strong=found.separated),
        Cell(found.value, print_points(found.value)),
        _range_cell(found.guaranteed_low, found.guaranteed_high),
        Cell(better, f"{better[0]:,} : {better[1]:,}"),
        Cell(found.p_value, p_text(found.p_value, "")),
        Cell(found.adjusted_p_value, p_text(found.adjusted_p_value, "")),
        Cell(found.method, METHODS[found.method]),
        Cell.of(found.inputs),
        _range_cell(found.approximate_low, found.approximate_high),
    )


def differences_table(comparison: Comparison) -> Table:
    """Return a row per pair of entries and metric, in percentage points; two entries are one pair."""
    caption = (
        f"Differences in percentage points (first - second, {100 * comparison.confidence:g} %"
        f" intervals) of {', '.join(titles_of(comparison))}, on the inputs that both classify correctly"
        " without noise (accuracy: on all inputs). A verdict needs a corrected p of at most"
        f" {1 - comparison.confidence:.2g}: Holm's method for all differences in robustness, and"
        " separately in accuracy. The guaranteed interval is for one difference alone; it can be wider"
        " than an exact test needs."
    )
    several = len(comparison.entries) > 2
    shown = [at for at, each in enumerate(DIFFERENCE_COLUMNS) if several or each.name != "pair"]
    rows = (
        _difference_row(result, found)
        for result in comparison.results
        for found in result.differences
    )
    columns = tuple(DIFFERENCE_COLUMNS[at] for at in shown)
    return Table(caption, columns, tuple(tuple(row[at] for at in shown) for row in rows))


def runs_table(comparison: Comparison) -> Table:
    """Return a row per run: the entry it belongs to, its folder, its seed and its grade."""
    columns = tuple(Column(name, name) for name in ("name", "folder", "seed", "grade"))
    rows = tuple(
        (Cell.of(title), Cell.of(run.folder), Cell.of(run.seed), Cell.of(run.grade))
        for title, entry in zip(titles_of(comparison), comparison.entries, strict=True)
        for run in entry.runs
    )
    return Table("Runs", columns, rows)


def long_table(comparison: Comparison) -> Table:
    """One row per number, values and differences alike, for programs."""
    names = [entry.name for entry in comparison.entries]
    rows = []
    for result in comparison.results:
        common = {"metric": result.metric.value, "source": result.source}
        for standing in result.standings:
            facts = standing.model_dump(exclude={"entry", "flags", "confidence"})
            seeds = len(comparison.entries[standing.entry].runs)
            facts |= {"kind": "value", "run": names[standing.entry], "seeds": seeds}
            rows.append(facts | common | {"flags": " ".join(standing.flags)})
        for difference in result.differences:
            facts = difference.model_dump(exclude={"first", "second", "confidence"})
            pair = {"run": names[difference.first], "against": names[difference.second]}
            facts |= {"kind": "difference", **pair}
            rows.append(facts | common)
    columns = tuple(Column(name, name) for name in LONG)
    cells = tuple(tuple(Cell.of(row.get(name)) for name in LONG) for row in rows)
    return Table("Values and differences, as fractions", columns, cells)


def _value_cell(
    result: Compared, standing: Standing, *, paper: bool = False, normalised: bool = False
) -> Cell:
    value = standing.normalised if normalised else standing.value
    if value is None:
        missing = "not measured" in (standing.error or "")
        return Cell(None, "-" if paper else "not measured" if missing else "failed")
    text = value_text(standing, digits=2 if paper else 1, normalised=normalised)
    ranks = {each.rank for each in result.standings if each.rank is not None}
    leads = standing.rank == 1 and len(ranks) > 1
    return Cell(value, text, strong=leads and not normalised)


def _range_cell(low: float, high: float) -> Cell:
    """An interval of a difference, rounded outwards."""
    ends = math.floor(1000 * low + 1e-9) / 1000, math.ceil(1000 * high - 1e-9) / 1000
    return Cell((low, high), f"{print_points(ends[0])} to {print_points(ends[1])}")


def console_tables(comparison: Comparison) -> list[RichTable]:
    """The values, the differences if there are any, and then the settings that differ."""
    tables = [make(comparison) for make in (values_table, differences_table, settings_table)]
    return [table.to_rich() for table in tables if table.rows]


def summary(comparison: Comparison) -> str:
    """The answer, which entry is which, and the notes."""
    return "\n".join([comparison.answer, *titles_of(comparison), *comparison.notes])


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
    known = folder / JSON
    same = known.is_file() and known.read_bytes() == comparison.to_json().encode()
    if held and not overwrite and not same:
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
    """The answer, the notes and the tables, as Markdown."""
    values = values_table(comparison)
    parts = [
        f"**{md_text(comparison.answer)}**",
        "\n".join(f"- {md_text(text)}" for text in (*titles_of(comparison), *comparison.notes)),
        values.to_md().rstrip(),
        md_text(values.caption),
    ]
    differences = differences_table(comparison)
    if differences.rows:
        parts += [differences.to_md().rstrip(), md_text(differences.caption)]
        parts += [md_text(explain_ranks(comparison))]
    settings = settings_table(comparison)
    if settings.rows:
        parts += [md_text(settings.caption), settings.to_md().rstrip()]
    return "\n\n".join(parts) + "\n"


def to_latex(comparison: Comparison) -> str:
    """The tables of a paper: values, clean-normalised values, differences, settings that differ."""
    tables = [paper_table(comparison)]
    normalised = paper_table(comparison, normalised=True)
    if len(normalised.columns) > 1:
        tables.append(normalised)
    others = (differences_table(comparison), settings_table(comparison))
    tables += [table for table in others if table.rows]
    head = "% Needs \\usepackage{booktabs} and UTF-8.\n"
    return head + "\n".join(table.to_latex() for table in tables)


COLOURS = {Metric.AR: "c-ar", Metric.NPPR: "c-nppr", Metric.PR: "c-pr"}


def render_comparison(comparison: Comparison) -> str:
    """Return the text of `compare.html`; every name is escaped."""
    entries, titles = comparison.entries, titles_of(comparison)
    title = f"Comparison of {len(entries)} classifiers or settings"
    if len(entries) == 1:
        title = f"{entries[0].name}, {len(entries[0].runs)} seeds"
    tables = {
        "values": values_table(comparison, short=True),
        "differences": differences_table(comparison),
        "runs": runs_table(comparison),
        "settings": settings_table(comparison),
    }
    body = rendered(
        "compare.html.j2",
        package="nppr.compare",
        comparison=comparison,
        title=title,
        tables=tables,
        letter=letter,
        colours=COLOURS,
        counted=lambda result: WHAT[result.metric].format(
            source=ALL_SOURCES if result.source == MERGED else result.source
        ),
        value_text=value_text,
        rank_text=_rank_text,
        spoken=lambda result, standing: ", ".join(
            filter(
                None,
                (
                    f"{titles[standing.entry]}: {value_text(standing, cell=False)}",
                    _rank_text(result, standing),
                ),
            )
        ),
        rule=explain_ranks(comparison),
        data=_listed(entry.data for entry in entries),
        budgets=_listed(entry.budget for entry in entries),
        titles=titles,
        level=f"{100 * comparison.confidence:g} %",
    )
    return page_shell(title, body)


def _listed(names: Iterable[str]) -> str:
    """The names, each once."""
    return ", ".join(dict.fromkeys(names))


def _rank_text(result: Compared, standing: Standing) -> str:
    if standing.rank is None:
        return ""
    tied = [each.rank for each in result.standings].count(standing.rank) > 1
    return f"rank {standing.rank}{', tied' if tied else ''}"


FORMATS: Mapping[str, tuple[str, Callable[[Comparison], str]]] = {
    "json": (JSON, Comparison.to_json),
    "html": ("compare.html", render_comparison),
    "md": ("compare.md", to_md),
    "csv": ("compare.csv", lambda comparison: long_table(comparison).to_csv()),
    "latex": ("compare.tex", to_latex),
}
"""File and rendering of each format."""
