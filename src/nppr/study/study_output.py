"""Files of a study: tables in all formats, one page, study.json, and figures of the learned noise."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from markupsafe import Markup

from nppr.errors import mark_controls
from nppr.report import read_run
from nppr.report.evidence import Evidence
from nppr.report.page.shell import page_shell
from nppr.report.tables import FORMATS, Cell, Column, Table, md_text
from nppr.run.collect_evidence import collect_draws
from nppr.study.graph import Graph, MeasureNode
from nppr.study.node_work import NodeCache, open_measurement
from nppr.study.study_file import Study
from nppr.study.study_records import Orders
from nppr.study.table_layout import StudyTable
from nppr.system.manifest import Manifest
from nppr.system.records import write_whole

ENDINGS = {"md": "md", "csv": "csv", "latex": "tex", "json": "json"}
"""Formats of every table, with the endings of their files."""

NOTE = (
    "Ours: mean ± standard deviation over evaluation seeds of the first fit; in brackets the lowest"
    " and highest over fit seeds, if there are several; in parentheses the interval over inputs, of"
    " the first seed (95 % unless the study states another confidence). Learned noise and attacks give"
    " upper bounds: ≤ is the upper end of the interval, which may be claimed of the worst noise of the"
    " family, and the value observed under the noise found is in parentheses."
)


def write_study(
    study: Study,
    study_tables: Sequence[StudyTable],
    orders: Orders,
    failures: Sequence[str],
    out: Path,
) -> None:
    """Write all files; the page and study.json last."""
    tables = {table.entry.name: table.as_table() for table in study_tables}
    if orders.pairs:
        tables["orders"] = orders_table(orders)
    texts = {
        f"{name}.{ending}": FORMATS[kind](table)
        for name, table in tables.items()
        for kind, ending in ENDINGS.items()
    }
    machine = _describe_machine()
    content = {
        "name": study.name,
        "title": study.title,
        "note": NOTE,
        "spec": study.model_dump(mode="json", exclude={"paths", "tables"}),
        "tables": [table.as_dict() for table in study_tables],
        "orders": orders.as_dict(),
        "failures": list(failures),
        "machine": machine,
    }
    title = study.title or study.name
    listed = ", ".join(f"{name} {value}" for name, value in machine.items())
    texts["study.md"] = _markdown(title, tables, orders, failures, listed)
    texts["study.html"] = _page(title, tables, orders, failures, listed)
    texts["study.json"] = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    Manifest(out, "study").replace(*(out / name for name in texts))
    for name, text in texts.items():
        write_whole(out / name, mark_controls(text))


def orders_table(orders: Orders) -> Table:
    """Return a table with a row for every nested pair."""
    columns = (
        Column("kind", "differ in"),
        Column("where", "where"),
        Column("smaller", "smaller family"),
        Column("larger", "larger family"),
        Column("points", "larger - smaller, points", number=True),
        Column("p_value", "p-value", number=True),
        Column("wrong", "wrong order"),
    )
    rows = []
    for pair in orders.pairs:
        place = pair.place
        where = [place["classifier"], f"{place['norm']} {place['fit_radius']}", place["upsampler"]]
        where += [f"{axis} {place[axis]}" for axis in ("epochs", "fit_seed") if place[axis]]
        wrong = "tied" if pair.tied else "yes" if pair.wrong else "no"
        texts = (pair.kind, ", ".join(map(str, where)), pair.small, pair.large)
        points = Cell(pair.points, f"{pair.points:.2f}")
        p_value = Cell(pair.p_value, f"{pair.p_value:.3g}")
        last = Cell(pair.wrong, wrong, strong=pair.wrong)
        rows.append((*map(Cell.of, texts), points, p_value, last))
    return Table("Nested pairs", columns, tuple(rows))


def _markdown(
    title: str, tables: dict[str, Table], orders: Orders, failures: Sequence[str], machine: str
) -> str:
    lines = [f"# {md_text(title)}", "", NOTE, ""]
    for table in tables.values():
        lines += [f"**{md_text(table.caption)}**", "", table.to_md()]
    lines += [f"Orders: {orders.summary()}.", ""]
    if failures:
        lines += ["Failed:", "", *(f"- {md_text(each)}" for each in failures), ""]
    return "\n".join([*lines, f"Machine: {md_text(machine)}.", ""])


def _page(
    title: str, tables: dict[str, Table], orders: Orders, failures: Sequence[str], machine: str
) -> str:
    section = Markup("<section><h2>{}</h2>{}</section>")
    body = [Markup('<main id="main"><h1>{}</h1><p>{}</p>').format(title, NOTE)]
    body += [section.format(each.caption, each.to_html(each.caption)) for each in tables.values()]
    body.append(Markup("<h2>Orders</h2><p>{}.</p>").format(orders.summary()))
    if failures:
        listed = Markup("").join(Markup("<li>{}</li>").format(each) for each in failures)
        body.append(Markup("<h2>Failed</h2><ul>{}</ul>").format(listed))
    body.append(Markup("<p>Machine: {}.</p></main>").format(machine))
    return page_shell(title, Markup("").join(body))


def _describe_machine() -> dict[str, str]:
    processor = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        processor = f"{len(names)} x {names[0]}" if names else platform.machine()
    return {
        "nppr": version("nppr"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": processor,
    }


def write_noise_figures(
    graph: Graph, cache: NodeCache, finished: Collection[str], out: Path, formats: Sequence[str]
) -> list[Path]:
    """Draw the learned noise of every finished measurement into a separate folder in `figures`."""
    # Matplotlib and scikit-learn take seconds to import.
    from nppr.report.figures import Subject, draw, save
    from nppr.report.figures.noise_figures import NOISE_FIGURES

    written = []
    for key in dict.fromkeys(cell.measure for cell in graph.cells if cell.measure in finished):
        node = graph.nodes[key]
        if not isinstance(node, MeasureNode) or node.fit is None:
            continue
        if node.per_input_calls:
            continue  # every input has a different law
        files = read_run(cache.folder(key) / "run")
        lines = files.report.per_input
        correct = np.unique(lines["index"][lines["clean_correct"] == 1])
        run, _, learned = open_measurement(node, cache)
        with run:
            positions = np.flatnonzero(np.isin(run.data.evaluate.indices, correct))
            drawn = collect_draws(run, [each.source for each in learned], positions)
        subject = Subject(files.report, files.per_input, Evidence((), drawn))
        place = out / "figures" / f"{re.sub(r'[^A-Za-z0-9.=-]+', '-', node.label)}-{key[:8]}"
        shown = draw(NOISE_FIGURES, subject)
        Manifest(out, "study").add(
            *(place / f"{each.id}.{form}" for each in shown for form in formats)
        )
        written += save(shown, place, formats)
    return written
