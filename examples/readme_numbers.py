"""Write the numbers of a run into README.md: `python examples/readme_numbers.py RUN README.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from nppr.core.tally import Metric
from nppr.noise.rungs import Dependency
from nppr.noise.structures import ANY, STATIONARY, WHITE
from nppr.report import Number, Report, read_report
from nppr.report.findings import find_attacked
from nppr.report.ladder_tables import steps_of
from nppr.report.printed_numbers import percent
from nppr.report.quotes import stated_bound

START, END = "<!-- demo: written by make pictures -->", "<!-- /demo -->"


READING = """
All numbers are of the inputs that are correct without noise. Rows state what the noise knows, columns
what it is made of. The true values can only fall downwards and to the right.

- The top row is **an estimate**: under the worst of three known noises {known} % of the answers stay
  correct (probabilistic robustness, PR). It says nothing about other noise.
- Numbers with ≤ are **at most**, with 95 % confidence, since a search may have missed worse noise. If
  the noise knows nothing of the input, the worst white noise leaves at most {white} %, the worst
  stationary noise at most {stationary} %, and the worst noise of any structure at most {fixed} %.
- Noise that follows the input and its class by a rule (joint) leaves at most {joint} %, the worst noise
  for each input on its own at most {own} %. Everything tried on an input together, attacks and all
  noise, leaves at most {attack} % (adversarial robustness, AR).
- The line below is **at least**: {least} % stay correct under all noise whose density is at most
  {ratio:g} times that of uniform noise. That set is small; noise outside it may be worse.
- You decide which cell matches your threat. The grade rates the measurement, not the classifier.
- These numbers are from one machine with one thread. Yours may differ, see
  [below](#what-you-can-rely-on).
"""
"""How to read the ladder."""


def reading(report: Report) -> str:
    """The sentences with the numbers of a run."""
    steps = steps_of(report)
    known = next(row for row in steps[0].numbers.values() if row.metric is Metric.PR)
    cells = {(step.rung, place[1]): row for step in steps for place, row in step.numbers.items()}
    blind = Dependency.INDEPENDENT
    attack, bound = find_attacked(report), stated_bound(report)
    assert attack is not None
    assert bound is not None
    assert bound.bound is not None
    return READING.strip().format(
        known=percent(known.value or 0.0),
        white=most(cells[blind, WHITE]),
        stationary=most(cells[blind, STATIONARY]),
        fixed=most(cells[blind, ANY]),
        joint=most(cells[Dependency.JOINT, ANY]),
        own=most(cells[Dependency.PER_INPUT, ANY]),
        attack=most(attack),
        least=percent(bound.value or 0.0, "at-least"),
        ratio=bound.bound.density_ratio,
    )


def most(row: Number) -> str:
    """Return the upper end of a number for readers."""
    assert row.shown is not None
    return percent(row.shown.high, "at-most")


def main(run: Path, readme: Path) -> None:
    """Replace what stands between the marks."""
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(START)
    _, after = rest.split(END)
    words = reading(read_report(run / "report.json"))
    readme.write_text(f"{before}{START}\n{words}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
