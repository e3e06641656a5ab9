"""The report with what renders it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import PrivateAttr

from nppr.errors import RunFolderError, SpecError
from nppr.report.evidence import Evidence
from nppr.report.model import ReportRecord
from nppr.report.per_input import PerInput
from nppr.report.results_table import as_text, summary_of, table_of

if TYPE_CHECKING:
    from pandas import DataFrame


class Report(ReportRecord):
    """Everything one assessment found, and how; fields: `docs/report.md`."""

    _per_input: PerInput | None = PrivateAttr(None)
    _evidence: Evidence | None = PrivateAttr(None)

    def with_inputs(self, per_input: PerInput | None, evidence: Evidence | None) -> Report:
        """The same report with the other files of its run folder."""
        report = self.model_copy()
        report._per_input, report._evidence = per_input, evidence
        return report

    @property
    def per_input(self) -> PerInput:
        """One line per input and source; a report that was read alone has none."""
        if self._per_input is None:
            raise RunFolderError(
                "`per_input` must be read with the report, this one was read without its folder."
                " Example: nppr.read_run(FOLDER).report"
            )
        return self._per_input

    def __repr__(self) -> str:
        return f"<Report: {summary_of(self)}>"

    def __str__(self) -> str:
        return self.table()

    def table(self, width: int = 110) -> str:
        """The results as plain text."""
        return as_text(self, width)

    def to_html(self) -> str:
        """The page for readers: one HTML file that needs no network."""
        from nppr.report.page import page_of  # most runs show no page

        return page_of(self, self._per_input, self._evidence)

    def to_pandas(self) -> DataFrame:
        """Return the table of results as a pandas DataFrame: one row per source and radius.

        CSV and JSON have the same columns. Fractions are numbers from 0 to 1.
        `direction` states how to read `value`, `low` and `high`: "at most" (only `high` applies to the
        worst noise), "at least" or "estimate".
        """
        try:
            from pandas import DataFrame  # an extra: most runs need none
        except ImportError as error:
            raise SpecError(
                "`to_pandas` needs the package pandas, which cannot be imported."
                " Install it: pip install 'nppr[pandas]'"
            ) from error
        return DataFrame(table_of(self, other_radii=True).records())

    def _repr_html_(self) -> str:
        from nppr.report.page import fragment_of

        return fragment_of(self)
