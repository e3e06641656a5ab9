"""Draw the ladder of a run as an SVG picture: `python examples/console_picture.py RUN OUT.svg`."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from nppr.report import read_report
from nppr.report.results_table import terminal_tables

WIDTH = 108


def main(run: Path, out: Path) -> None:
    """Render the ladder of `run/report.json`."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False, emoji=False)
    console.print(f"$ nppr assess --out {run}", markup=False)
    report = read_report(run / "report.json")
    for table in terminal_tables(report)[
        :3
    ]:  # the ladder, its rungs, how well they were searched for
        console.print(table.to_rich(WIDTH))
    picture = console.export_svg(title="nppr")
    # No fonts from the network: the viewer's own monospace font will do.
    out.write_text(re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
