"""A study's results on disk: every table as Markdown, CSV, LaTeX and JSON, all of it as one page."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from nppr.report.exports import Cell, Column, Table, md_text, write_whole
from nppr.report.page.shell import page_shell
from nppr.study.orders import Orders
from nppr.study.spec import StudySpec
from nppr.study.tables import StudyTable

__all__ = ["Written", "orders_table", "write_study"]

NOTE = (
    "Ours: mean ± standard deviation over evaluation seeds of the first fit; in brackets the lowest"
    " and highest over fit seeds, where there are several. Learned noise gives an upper bound of the"
    " infimum over its family."
)

ENDS = ("md", "csv", "tex", "json")


@dataclass(frozen=True)
class Written:
    """What a study says in the end."""

    spec: StudySpec
    tables: tuple[StudyTable, ...]
    orders: Orders
    failures: tuple[str, ...]
    machine: dict[str, Any]


def write_study(out: Path, written: Written) -> None:
    """Write all files; the page and study.json last."""
    exports = {table.entry.name: table.exported() for table in written.tables}
    if written.orders.pairs:
        exports["orders"] = orders_table(written.orders)
    _remove_old(out, exports)
    for name, table in exports.items():
        write_whole(out / f"{name}.md", table.to_md())
        write_whole(out / f"{name}.csv", table.to_csv())
        write_whole(out / f"{name}.tex", table.to_latex())
        write_whole(out / f"{name}.json", table.to_json())
    write_whole(out / "study.md", _markdown(written, exports))
    write_whole(out / "study.html", _page(written, exports))
    write_whole(out / "study.json", _json(written))


def _remove_old(out: Path, exports: dict[str, Table]) -> None:
    """Remove the tables that an earlier run wrote here and this one does not have."""
    try:
        tables = json.loads((out / "study.json").read_text(encoding="utf-8"))["tables"]
        names = [*(str(table["name"]) for table in tables), "orders"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    for name in names:
        if name not in exports and Path(name).name == name:
            for end in ENDS:
                (out / f"{name}.{end}").unlink(missing_ok=True)


def orders_table(orders: Orders) -> Table:
    """One row for every nested pair."""
    columns = (
        Column("kind", "differ in"),
        Column("where", "where"),
        Column("smaller", "smaller family"),
        Column("larger", "larger family"),
        Column("points", "larger - smaller, points", number=True),
        Column("p_value", "p-value", number=True),
        Column("wrong", "wrong order"),
    )
    rows = tuple(
        (
            Cell.of(pair.kind),
            Cell.of(_where(pair.place)),
            Cell.of(pair.small),
            Cell.of(pair.large),
            Cell(pair.points, f"{pair.points:.2f}"),
            Cell(pair.p_value, f"{pair.p_value:.3g}"),
            Cell(pair.wrong, "yes" if pair.wrong else "no", strong=pair.wrong),
        )
        for pair in orders.pairs
    )
    return Table("Nested pairs", columns, rows)


def _where(place: dict[str, Any]) -> str:
    shown = [place["classifier"], f"{place['norm']} {place['fit_radius']}", place["upsampler"]]
    more = [f"{axis} {place[axis]}" for axis in ("epochs", "fit_seed") if place[axis]]
    return ", ".join(str(each) for each in [*shown, *more])


def _markdown(written: Written, exports: dict[str, Table]) -> str:
    lines = [f"# {md_text(_title(written.spec))}", "", NOTE, ""]
    for table in exports.values():
        lines += [f"**{md_text(table.caption)}**", "", table.to_md()]
    lines += [f"Orders: {written.orders.summary()}.", ""]
    if written.failures:
        lines += ["Failed:", "", *(f"- {md_text(each)}" for each in written.failures), ""]
    lines += [f"Machine: {md_text(_machine(written))}.", ""]
    return "\n".join(lines)


def _page(written: Written, exports: dict[str, Table]) -> str:
    title = _title(written.spec)
    body = [Markup('<main id="main"><h1>{}</h1><p>{}</p>').format(title, NOTE)]
    body += [_html(table.printed) for table in exports.values()]
    body.append(Markup("<h2>Orders</h2><p>{}.</p>").format(written.orders.summary()))
    if written.failures:
        listed = _joined(Markup("<li>{}</li>").format(each) for each in written.failures)
        body.append(Markup("<h2>Failed</h2><ul>{}</ul>").format(listed))
    body.append(Markup("<p>Machine: {}.</p></main>").format(_machine(written)))
    return page_shell(title, _joined(body))


def _machine(written: Written) -> str:
    return ", ".join(f"{name} {value}" for name, value in written.machine.items())


def _html(table: Table) -> Markup:
    head = _joined(
        Markup("<th{}>{}</th>").format(_class(column), column.heading) for column in table.columns
    )
    rows = _joined(
        Markup("<tr>{}</tr>").format(
            _joined(_cell(cell, column) for cell, column in zip(row, table.columns, strict=True))
        )
        for row in table.rows
    )
    return Markup(
        '<section><h2>{}</h2><table class="sortable"><thead><tr>{}</tr></thead>'
        "<tbody>{}</tbody></table></section>"
    ).format(table.caption, head, rows)


def _class(column: Column) -> Markup:
    return Markup(' class="n"') if column.number else Markup("")


def _cell(cell: Cell, column: Column) -> Markup:
    if isinstance(cell.value, float):
        place = Markup('{} data-sort="{}"').format(_class(column), cell.value)
        return Markup("<td{}>{}</td>").format(place, cell.text)
    return Markup("<td{}>{}</td>").format(_class(column), cell.text)


def _joined(parts: Any) -> Markup:
    return Markup("").join(parts)


def _json(written: Written) -> str:
    content = {
        "name": written.spec.name,
        "title": written.spec.title,
        "note": NOTE,
        "spec": written.spec.model_dump(mode="json", exclude={"paths", "tables"}),
        "tables": [table.as_dict() for table in written.tables],
        "orders": {
            "pairs": [asdict(pair) for pair in written.orders.pairs],
            "wrong": written.orders.wrong,
            "raw_above_0.1_point": written.orders.raw,
            "fitted_apart": written.orders.apart,
            "summary": written.orders.summary(),
        },
        "failures": list(written.failures),
        "machine": written.machine,
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _title(spec: StudySpec) -> str:
    return spec.title or spec.name
