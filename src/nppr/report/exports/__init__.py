"""Tables of a report for papers and programs: Markdown, LaTeX, CSV and JSON."""

from nppr.report.exports.escaping import latex_text, md_text
from nppr.report.exports.files import formats_of
from nppr.report.exports.of_report import table_of
from nppr.report.exports.table import FORMATS, Cell, Column, Table
from nppr.report.writing import write_whole

__all__ = [
    "FORMATS",
    "Cell",
    "Column",
    "Table",
    "formats_of",
    "latex_text",
    "md_text",
    "table_of",
    "write_whole",
]
