"""The report: its records, its files, and what is rendered from them."""

from nppr.report.model import Flag, ReportRecord, Result
from nppr.report.per_input import PerInput
from nppr.report.report import Report
from nppr.report.run_files import RunFiles, read_report, read_run

__all__ = [
    "Flag", "PerInput", "Report", "ReportRecord", "Result", "RunFiles", "read_report", "read_run",
]  # fmt: skip
