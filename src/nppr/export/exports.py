"""Write a run as documents that an assessor files, from its report.json alone."""

from __future__ import annotations

from pathlib import Path

from nppr.errors import SpecError, unknown, without_controls
from nppr.export import cyclonedx_card, safety_case, technical_documentation  # noqa: F401
from nppr.export.claims import read_filed
from nppr.export.documents import EXPORTS
from nppr.report.findings import lines_of, shares_of
from nppr.report.per_input import PER_INPUT, read_per_input
from nppr.report.run_files import report_path
from nppr.system.manifest import Manifest
from nppr.system.records import write_whole
