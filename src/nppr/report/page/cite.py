"""How to cite: the paper, and the facts of this run."""

from __future__ import annotations

from markupsafe import Markup

from nppr.report.page.headline import headline_of
from nppr.report.page.numbers import percent
from nppr.report.page.shell import rendered
from nppr.report.quoting import interval_of
from nppr.report.schema import Report
from nppr.types import Direction

__all__ = ["BIBTEX", "how_to_cite", "run_text"]

BIBTEX = """\
@inproceedings{wang2026nppr,
  title     = {Non-Parametric Probabilistic Robustness: A Conservative Risk Estimator
               under Unknown Perturbation Distributions},
  author    = {Wang, Zheng and Zhang, Yi and Khastgir, Siddartha and Maple, Carsten
               and Zhao, Xingyu},
  booktitle = {International Conference on Machine Learning},
  year      = {2026}
}"""


def how_to_cite(report: Report) -> Markup:
    """The section's body."""
    return rendered("cite.html.j2", bibtex=BIBTEX, run=run_text(report))


def run_text(report: Report) -> str:
    """What somebody needs to quote this run, as plain text."""
    what = (
        f"{report.classifier['name']} on {report.data['name']}"
        f" ({report.data['inputs']['evaluate']:,} inputs), budget {report.budget['norm']}"
        f" {report.budget['text']}, seed {report.seed}, nppr {report.nppr_version}"
    )
    lines = [
        what,
        *_quoted(report),
        f"classifier {report.classifier['fingerprint']}",
        f"data {report.data['fingerprint']}",
    ]
    return "\n".join(lines)


def _quoted(report: Report) -> list[str]:
    row = headline_of(report).row
    used = interval_of(report, row) if row else None
    if row is None or used is None or row.value is None or used.low is None or used.high is None:
        return []
    signs = {Direction.UPPER_BOUND: "<= ", Direction.LOWER_BOUND: ">= "}
    sign = signs.get(row.direction or Direction.ESTIMATE, "")
    ends = f" ({percent(used.low)}-{percent(used.high)} %)"
    claim = f", {row.claim.value}" if row.claim else ""
    number = f"{sign}{percent(row.value)} %{'' if sign == '>= ' else ends}"
    how = f"{100 * row.confidence:g} % confidence ({used.method}{claim})"
    size = f"{row.inputs:,} inputs x {row.draws:,} draws"
    return [f"{row.metric.value} {row.source}: {number}, {how}, {size}"]
