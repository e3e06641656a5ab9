"""A comparison in words and tables, as files and as a page; all of it from the comparison alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.table import Table as RichTable

from nppr.compare.compare_settings import letter
from nppr.compare.comparison import Compared, Comparison, Difference, Standing
from nppr.errors import RunFolderError
from nppr.manifest import Manifest
from nppr.records import write_whole
from nppr.report.model import MERGED
from nppr.report.numbers import claim_text
from nppr.report.page.shell import page_shell, rendered
from nppr.report.tables import Cell, Column, Table, md_text
from nppr.tally import Direction, Metric

JSON = "compare.json"

WHAT = {
    Metric.ACCURACY: "Clean inputs that are correct",
    Metric.AR: "Inputs that {source} did not break",
    Metric.NPPR: "Correct draws under the worst distribution found ({source})",
    Metric.PR: "Correct draws under {source}",
    Metric.CORRUPTION: "Correct inputs under the corruption {source}",
}
WHERE = {
    Metric.ACCURACY: "On clean inputs",
    Metric.AR: "Under attack by {source}",
    Metric.NPPR: "Under the worst distribution found ({source})",
    Metric.PR: "Under {source}",
    Metric.CORRUPTION: "Under the corruption {source}",
}
ANSWERS = (Metric.NPPR, Metric.PR, Metric.AR, Metric.CORRUPTION, Metric.ACCURACY)
"""What the page opens with: the first that has a difference."""

SEARCHED = (Metric.AR, Metric.NPPR)
FOUND = "This compares what the searches found; nothing is guaranteed about the worst case."

METHODS = {
    "paired-normal": "paired",
    "joint-bootstrap": "joint bootstrap",
    "unpaired-normal": "unpaired",
}


def titled(comparison: Comparison, position: int) -> str:
    """An entry with its short name."""
    return f"{letter(position)}: {comparison.entries[position].name}"


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


def signed(value: float) -> str:
    """A difference in percentage points, with its sign.

    >>> signed(-0.0123), signed(0.00001)
    ('-1.2', '0.0')
    """
    text = f"{100 * value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def answer(comparison: Comparison) -> str:
    """The comparison in one sentence: NPPR if it was measured, and whether entries separate.

    Where different searches found that number, the sentence on that instead.
    """
    for metric in ANSWERS:
        for result in comparison.results:
            if result.metric is metric and (result.differences or result.incomparable):
                return result.incomparable or _sentence(result)
    counted = f"{len(comparison.entries[0].runs)} seeds of {comparison.entries[0].name}"
    return f"{counted}: nothing to compare with."


def notes(comparison: Comparison) -> list[str]:
    """The notes below the answer, without the one that is the answer."""
    return [note for note in comparison.notes if note != answer(comparison)]


def rule(comparison: Comparison) -> str:
    """How ranks are given."""
    level = f"{100 * comparison.confidence:g} %"
    return (
        "Rank = 1 + the number of runs that are separated and better. Two runs are separated if the"
        " interval of their difference lies on one side of 0 at a confidence at which all pairs of the"
        f" row hold together at {level} (Bonferroni: the error is divided by the number of pairs). Runs"
        " that are not separated share a rank. Where the approximate interval is outside its tested"
        " regime (marked *), the guaranteed one decides. Of AR and NPPR, guaranteed is the difference"
        " between the noises found, not between the worst noises."
    )


def _sentence(result: Compared) -> str:
    where = _with_source(WHERE, result)
    verb = "is correct" if result.metric is Metric.ACCURACY else "stays correct"
    level = f"{100 * result.standings[0].confidence:g}\u00a0%"
    ranked = [s for s in result.standings if s.rank is not None and s.value is not None]
    ordered = sorted(ranked, key=lambda s: (s.rank or 0, -(s.value or 0)))
    leaders = [letter(s.entry) for s in ordered if s.rank == 1]
    values = [f"{letter(s.entry)} on {_amount(s)}" for s in ordered]
    values[0] = values[0].replace(" on ", f" {verb} on ", 1)
    counted = "the inputs" if verb == "is correct" else "its clean-correct inputs"
    start = f"{where}, {_listed(values)} of {counted}, each with {level} confidence."
    end = f" {FOUND}" if result.metric in SEARCHED else ""
    if len(ordered) > 2:
        if len(leaders) == len(ordered):
            return f"{start} Their differences do not separate them.{end}"
        if len(leaders) > 1:
            return f"{start} {_listed(leaders)} share the first rank.{end}"
        return f"{start} {leaders[0]} is ahead of all others.{end}"
    size = _size(result.differences[0])
    if len(leaders) > 1:
        return f"{start} The difference of {size} does not separate them.{end}"
    return f"{start} {leaders[0]} is ahead, by {size}.{end}"


def _size(found: Difference) -> str:
    """The difference without its sign; guaranteed ends where the approximate ones were not tested."""
    low, high, which = found.low, found.high, ""
    if found.flags and found.guaranteed_low is not None and found.guaranteed_high is not None:
        low, high, which = found.guaranteed_low, found.guaranteed_high, ", guaranteed"
    low, high = (low, high) if found.value > 0 else (-high, -low)
    ends = " to ".join(signed(end).removeprefix("+") for end in (low, high))
    return f"{100 * abs(found.value):.1f} percentage points ({ends}{which})"


def _amount(standing: Standing) -> str:
    return value_text(standing, cell=False).replace(" %", "\u00a0%")


def _with_source(words: Mapping[Metric, str], result: Compared) -> str:
    together = "all sources of the budget together"
    return words[result.metric].format(
        source=together if result.source == MERGED else result.source
    )


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


LONG = (
    "kind", "metric", "source", "run", "against", "value", "low", "high", "method",
    "direction", "guaranteed_low", "guaranteed_high", "unpaired_low", "unpaired_high", "separated",
    "rank", "std", "seeds", "normalised", "normalised_std", "inputs", "draws", "flags", "error",
)  # fmt: skip


def settings_table(comparison: Comparison) -> Table:
    """The settings in which the entries differ, one row each: what is read before any number."""
    entries = comparison.entries
    columns = [Column("setting", "setting")]
    columns += [Column(each.name, letter(at)) for at, each in enumerate(entries)]
    rows = [
        (Cell.of(name), *(Cell.of(entry.differs[name]) for entry in entries))
        for name in entries[0].differs
    ]
    return Table("Settings that differ", tuple(columns), tuple(rows))


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
    caption = (
        f"Values in % ({100 * comparison.confidence:g} % interval over inputs; of AR and NPPR what"
    )
    caption += " may be claimed of the worst noise, and what was observed under the noise found)"
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
    level = f"{100 * comparison.confidence:g} %"
    caption += (
        f"; budget {budgets}; {level} intervals over inputs. AR and NPPR are upper bounds: what may"
    )
    caption += " be claimed of the worst noise, and what was observed under the noise found."
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
        " outside the interval, or outside the guaranteed one where the interval is marked *, at the"
        " confidence of all pairs of a metric and source together."
    )
    shown = {result.metric for result in comparison.results if result.differences}
    if names := " and ".join(metric.value for metric in SEARCHED if metric in shown):
        caption += (
            f" Differences of {names}, also guaranteed ones, are between the noises found, not"
        )
        caption += " between the worst noises."
    return Table(caption, columns, tuple(rows))


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
            facts = difference.model_dump(
                exclude={"first", "second", "flags", "paired", "confidence"}
            )
            pair = {"run": names[difference.first], "against": names[difference.second]}
            facts |= {"kind": "difference", **pair}
            rows.append(facts | common | {"flags": " ".join(difference.flags)})
    columns = tuple(Column(name, name) for name in LONG)
    cells = tuple(tuple(Cell.of(row.get(name)) for name in LONG) for row in rows)
    return Table("Values and differences, as fractions", columns, cells)


def _value_cell(result: Compared, standing: Standing) -> Cell:
    if standing.value is None:
        missing = "not measured" in (standing.error or "")
        return Cell(None, "not measured" if missing else "failed")
    return Cell(standing.value, value_text(standing), strong=_leads(result, standing))


def _paper_cell(result: Compared, standing: Standing, *, normalised: bool) -> Cell:
    value = standing.normalised if normalised else standing.value
    if value is None:
        return Cell(None, "-")
    text = value_text(standing, digits=2, normalised=normalised)
    return Cell(value, text, strong=not normalised and _leads(result, standing))


def _difference_row(result: Compared, found: Difference) -> tuple[Cell, ...]:
    return (
        Cell.of(result.metric.value),
        Cell.of(result.source),
        Cell.of(f"{letter(found.first)} - {letter(found.second)}"),
        Cell(found.value, signed(found.value), strong=found.separated),
        _range_cell(found.low, found.high, "*" if found.flags else ""),
        _range_cell(found.guaranteed_low, found.guaranteed_high),
        _range_cell(found.unpaired_low, found.unpaired_high)
        if found.paired
        else Cell((found.unpaired_low, found.unpaired_high), ""),
        Cell(found.method, METHODS.get(found.method, found.method)),
        Cell(found.separated, "yes" if found.separated else "no"),
    )


def _range_cell(low: float | None, high: float | None, mark: str = "") -> Cell:
    if low is None or high is None:
        return Cell(None, "")
    return Cell((low, high), f"{signed(low)} to {signed(high)}{mark}")


def _leads(result: Compared, standing: Standing) -> bool:
    ranks = {each.rank for each in result.standings if each.rank is not None}
    return standing.rank == 1 and len(ranks) > 1


def console_tables(comparison: Comparison) -> list[RichTable]:
    """The settings that differ first, then the values, and the differences if there are any."""
    settings = settings_table(comparison)
    tables = [*([settings] if settings.rows else []), values_table(comparison)]
    if any(result.differences for result in comparison.results):
        tables.append(differences_table(comparison))
    return [table.to_rich() for table in tables]


def summary(comparison: Comparison) -> str:
    """The answer and the notes."""
    return "\n".join([answer(comparison), *notes(comparison)])


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
    """The tables with the notes, as Markdown."""
    settings = settings_table(comparison)
    parts = [
        "# " + md_text(" and ".join(entry.name for entry in comparison.entries)),
        *([md_text(settings.caption), settings.to_md().rstrip()] if settings.rows else []),
        md_text(answer(comparison)),
        values_table(comparison).to_md().rstrip(),
        md_text(values_table(comparison).caption),
    ]
    if any(result.differences for result in comparison.results):
        table = differences_table(comparison)
        parts += [table.to_md().rstrip(), md_text(table.caption), md_text(rule(comparison))]
    parts += [f"- {md_text(note)}" for note in notes(comparison)]
    return "\n\n".join(parts) + "\n"


def to_latex(comparison: Comparison) -> str:
    """The tables of a paper: settings that differ, values, clean-normalised values, differences."""
    settings = settings_table(comparison)
    tables = [*([settings] if settings.rows else []), paper_table(comparison)]
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
        settings=settings_table(comparison),
        values=values_table(comparison, short=True),
        differences=differences_table(comparison) if compared else None,
        notes=notes(comparison),
        letter=letter,
        colours=COLOURS,
        counted=lambda result: _with_source(WHAT, result),
        value_text=value_text,
        rank_text=_rank_text,
        spoken=lambda result, standing: _spoken(comparison, result, standing),
        rule=rule(comparison),
        data=", ".join(dict.fromkeys(entry.data for entry in entries)),
        budgets=", ".join(dict.fromkeys(entry.budget for entry in entries)),
        titles=[titled(comparison, at) for at in range(len(entries))],
        level=f"{100 * comparison.confidence:g} %",
    )
    return page_shell(title, body)


def _spoken(comparison: Comparison, result: Compared, standing: Standing) -> str:
    """A line of a figure in words."""
    parts = [f"{titled(comparison, standing.entry)}: {value_text(standing, cell=False)}"]
    return ", ".join([*parts, *filter(None, [_rank_text(result, standing)])])


def _rank_text(result: Compared, standing: Standing) -> str:
    if standing.rank is None:
        return ""
    tied = [each.rank for each in result.standings].count(standing.rank) > 1
    return f"rank {standing.rank}{', tied' if tied else ''}"


FORMATS: Mapping[str, tuple[str, Callable[[Comparison], str]]] = {
    "json": (JSON, Comparison.to_json),
    "html": ("compare.html", page_of),
    "md": ("compare.md", to_md),
    "csv": ("compare.csv", lambda comparison: long_table(comparison).to_csv()),
    "latex": ("compare.tex", to_latex),
}
"""File and rendering of each format."""
