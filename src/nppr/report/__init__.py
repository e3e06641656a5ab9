"""The report: its records, its files, and what is rendered from them."""

from nppr.report.bounds_table import bounds_table
from nppr.report.evidence import Evidence, NoiseDraws, Worst, write_evidence
from nppr.report.findings import SHARES, Key, headlines, lines_of, shares_of
from nppr.report.model import Flag, ReportRecord
from nppr.report.number import Number, StatedInterval
from nppr.report.per_input import PerInput, per_input_of
from nppr.report.results_table import spectrum_table, table_of
from nppr.report.run_files import (
    Report,
    RunFiles,
    read_model,
    read_report,
    read_run,
    schema_text,
    write_rendered,
)
from nppr.report.tables import FORMATS, Cell, Column, Table, md_text
from nppr.system.records import write_whole

__all__ = [
    "FORMATS",
    "SHARES",
    "Cell",
    "Column",
    "Evidence",
    "Flag",
    "Key",
    "NoiseDraws",
    "Number",
    "PerInput",
    "Report",
    "ReportRecord",
    "RunFiles",
    "StatedInterval",
    "Table",
    "Worst",
    "bounds_table",
    "headlines",
    "lines_of",
    "md_text",
    "per_input_of",
    "read_model",
    "read_report",
    "read_run",
    "schema_text",
    "shares_of",
    "spectrum_table",
    "table_of",
    "write_evidence",
    "write_rendered",
    "write_whole",
]  # fmt: skip
