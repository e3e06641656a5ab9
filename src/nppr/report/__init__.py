"""The report: its records, its files, and what is rendered from them."""

from nppr.report.model import ReportRecord
from nppr.report.number import Number
from nppr.report.per_input import PerInput, per_input_of
from nppr.report.results_table import table_of
from nppr.report.run_files import (
    Report,
    RunFiles,
    read_report,
    read_run,
    schema_text,
    write_rendered,
)
from nppr.report.tables import FORMATS, Table

__all__ = [
    "FORMATS", "Number", "PerInput", "Report", "ReportRecord", "RunFiles", "Table", "per_input_of",
    "read_report", "read_run", "schema_text", "table_of", "write_rendered",
]  # fmt: skip
