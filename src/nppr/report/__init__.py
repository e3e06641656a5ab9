"""The report: its schema, and what is rendered from it."""

from nppr.report.schema import Flag, Report, Result, read_report

__all__ = ["Flag", "Report", "Result", "read_report"]
