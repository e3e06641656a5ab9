"""The report: its schema, and what is rendered from it."""

from nppr.report.folder import RunFiles, read_run
from nppr.report.per_input import PerInput
from nppr.report.schema import Flag, Report, Result, read_report

__all__ = ["Flag", "PerInput", "Report", "Result", "RunFiles", "read_report", "read_run"]
