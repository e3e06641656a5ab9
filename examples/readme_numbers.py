"""Write the numbers of a run into README.md: `python examples/readme_numbers.py RUN README.md`."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from nppr.noise.family import Dependency
from nppr.report import Report, read_report
from nppr.report.at_least_line import stated_bound
from nppr.report.findings import attacked, interval_of
from nppr.report.ladder_tables import steps_of
from nppr.report.model import Result
from nppr.report.numbers import percent
from nppr.tally import Metric

START, END = "<!-- demo: written by make pictures -->", "<!-- /demo -->"


def reading(report: Report) -> str:
    """How to read the ladder of a run, in four sentences."""
    known = next(step for step in steps_of(report) if step.name.startswith(Metric.PR.value))
    (fixed,) = known.results.values()
    rungs = {step.name: step.results for step in steps_of(report)}
    joint, own = rungs[Dependency.JOINT.value], rungs[Dependency.PER_INPUT.value]
    attack, bound = attacked(report), stated_bound(report)
    assert attack is not None
    assert bound is not None
    assert fixed.value is not None
    sentences = [
        f"- The top row is **an estimate**: under the worst of the known noises {percent(fixed.value)} %"
        " of the answers stay correct.",
        "- Every number with ≤ is **at most**, with 95 % confidence, since a search may have missed worse"
        f" noise: noise that follows the input and its class by a rule (joint) leaves at most"
        f" {most(report, joint[0.0])} %, the worst noise for each input on its own"
        f" {most(report, own[0.0])} %, and an attack {most(report, attack)} %.",
        f"- *Without a search* is **at least**: {percent(bound.value or 0.0, 'at-least')} % stay correct"
        f" under all noise whose density is at most {bound.density_ratio:g} times that of uniform noise;"
        " noise outside that set may be worse.",
        f"- Under rho 0.5, half of every perturbation must be random, which leaves at most"
        f" {most(report, joint[0.5])} and {most(report, own[0.5])} %; which row is the threat is yours to say, and the"
        " grade, A to D, says how far the numbers can be trusted.",
    ]
    return "\n".join(
        textwrap.fill(sentence, 100, subsequent_indent="  ", break_on_hyphens=False)
        for sentence in sentences
    )


def most(report: Report, row: Result) -> str:
    """The upper end of a result for readers."""
    high = interval_of(report, row).high
    assert high is not None
    return percent(high, "at-most")


def main(run: Path, readme: Path) -> None:
    """Replace what stands between the marks."""
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(START)
    _, after = rest.split(END)
    words = reading(read_report(run / "report.json"))
    readme.write_text(f"{before}{START}\n{words}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
