"""The record of a gate: as a table, JUnit XML, Markdown for a pull request, and JSON."""

from __future__ import annotations

from xml.etree import ElementTree

from nppr.core.tally import Claim, Direction, Metric
from nppr.report.printed_numbers import percent
from nppr.report.tables import Cell, Column, Table, md_text
from nppr.search.search_record import BudgetRecord, ClassifierRecord, Record
from nppr.statistics.sequential import Verdict

SCHEMA_VERSION = 2

SPLIT = "With {level:g} % confidence no verdict based on draws is wrong (docs/gate.md)."
SEARCHED = (
    "NPPR and AR are upper bounds that a search found: 'violated' applies to the worst admissible"
    " perturbations too, 'holds' only to those found, and worse ones may exist."
)
COMPARED = "A comparison with a baseline under an attack applies to that attack only."


class Decision(Record):
    """The verdict on one requirement, or on one slice of it, with its evidence.

    `value` is what was observed, `low` and `high` its interval; a grade or a flag has none. For a
    `bound`, the interval is that of the worst noise of its set; for a baseline, that of the difference.
    A slice has its name as the requirement; the intervals of all slices hold together.
    """

    requirement: str
    verdict: Verdict
    statement: str = ""
    why: str = ""
    at_least: float | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    metric: Metric | None = None
    direction: Direction | None = None
    claim: Claim | None = None
    source: str | None = None
    inputs: int = 0
    draws: int = 0
    slices: tuple[Decision, ...] = ()

    @property
    def sentence(self) -> str:
        """The verdict, the numbers observed, and why drawing ended."""
        seen = ""
        if self.ends:
            observed = "" if self.value is None else f"{percent(self.value)} % observed, "
            seen = f" ({observed}{self.ends} %, {self.draws:,} draws)"
        return f"{self.statement}{seen}; {self.why}" if self.why else self.statement + seen

    @property
    def ends(self) -> str:
        """The interval without its unit; empty without one."""
        if self.low is None or self.high is None:
            return ""
        return f"{percent(self.low, 'at-least')} to {percent(self.high, 'at-most')}"

    @property
    def status(self) -> str:
        """The verdict; after a search, HOLDS applies only to what was found."""
        found = {Metric.NPPR: " for the noise found", Metric.AR: " for this attack"}
        only = found.get(self.metric, "") if self.metric and self.verdict is Verdict.HOLDS else ""
        return self.verdict.value + only


class GateRecord(Record):
    """All decisions of one policy; `calls` is the number of images classified for the tests."""

    schema_version: int = SCHEMA_VERSION
    nppr_version: str
    policy: str
    classifier: ClassifierRecord
    data: str
    data_fingerprint: str
    budget: BudgetRecord
    seed: int
    confidence: float
    tested: int
    calls: int
    decisions: tuple[Decision, ...]

    @property
    def verdict(self) -> Verdict:
        """VIOLATED if one requirement is, HOLDS if all do, else UNDECIDED."""
        found = {each.verdict for each in self.decisions}
        order = (Verdict.VIOLATED, Verdict.UNDECIDED, Verdict.HOLDS)
        return next(each for each in order if each in found)

    @property
    def headline(self) -> str:
        """The outcome in one line."""
        found = [each.verdict for each in self.decisions]
        return (
            f"{self.verdict.value}: of {len(found)} requirement{'' if len(found) == 1 else 's'},"
            f" {found.count(Verdict.HOLDS)} holding, {found.count(Verdict.VIOLATED)} violated,"
            f" {found.count(Verdict.UNDECIDED)} undecided; {self.classifier.name} on {self.data},"
            f" budget {self.budget}, seed {self.seed}"
        )

    @property
    def split(self) -> str:
        """State what the confidence means for all verdicts together; empty if draws decide none."""
        return SPLIT.format(level=100 * self.confidence) if self.tested else ""

    def table(self) -> Table:
        """Return a row for each requirement, in the order of the policy."""
        columns = (
            Column("requirement", "requirement"),
            Column("status", "status"),
            Column("value", "observed %", number=True),
            Column("", f"{100 * self.confidence:g} % interval", number=True, interval=True),
            Column("draws", "draws", number=True),
            Column("claim", "applies to", terminal=None),
            Column("statement", "statement", terminal=None, outside=("markdown",)),
            Column("why", "ended because", terminal=None, outside=("markdown",)),
        )
        return Table(self.headline, columns, tuple(map(_row, self.decisions)))

    def notes(self) -> list[str]:
        """Return a sentence for each requirement that does not hold, and what the verdicts mean."""
        open_ones = [each for each in self.decisions if each.verdict is not Verdict.HOLDS]
        searched = any(each.direction is Direction.UPPER_BOUND for each in self.decisions)
        attacked = [each.requirement for each in self.decisions if each.metric is Metric.AR]
        notes = [
            *(f"{each.requirement}: {each.sentence}" for each in open_ones),
            self.split,
            SEARCHED * searched,
            COMPARED * any("not worse than" in each for each in attacked),
        ]
        return [note for note in notes if note]

    def to_markdown(self) -> str:
        """Return a summary for a pull request."""
        notes = "".join(f"- {md_text(note)}\n" for note in self.notes())
        table = self.table().to_md()
        return f"### Robustness gate: {md_text(self.headline)}\n\n{table}\n{notes}"

    def to_junit(self) -> str:
        """Return a test case for each requirement: violated is a failure, undecided an error."""
        verdicts = [each.verdict for each in self.decisions]
        facts = {
            "tests": str(len(verdicts)),
            "failures": str(verdicts.count(Verdict.VIOLATED)),
            "errors": str(verdicts.count(Verdict.UNDECIDED)),
        }
        suites = ElementTree.Element("testsuites", facts)
        suite = ElementTree.SubElement(suites, "testsuite", {"name": "nppr gate", **facts})
        for each in self.decisions:
            named = {"classname": f"nppr.gate.{self.policy}", "name": each.requirement}
            case = ElementTree.SubElement(suite, "testcase", named)
            tag = {Verdict.VIOLATED: "failure", Verdict.UNDECIDED: "error"}.get(each.verdict)
            if tag:
                outcome = {"type": each.verdict.value, "message": each.statement}
                ElementTree.SubElement(case, tag, outcome).text = each.sentence
            ElementTree.SubElement(case, "system-out").text = each.sentence
        ElementTree.indent(suites)
        return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"

    def to_json(self) -> str:
        """Return the whole record as JSON."""
        return self.model_dump_json(indent=2) + "\n"


def _row(each: Decision) -> tuple[Cell, ...]:
    interval = None if each.low is None or each.high is None else (each.low, each.high)
    return (
        Cell.of(each.requirement),
        Cell(each.status, each.status, strong=each.verdict is not Verdict.HOLDS),
        Cell(each.value, "" if each.value is None else percent(each.value)),
        Cell(interval, each.ends),
        Cell(each.draws or None, f"{each.draws:,}" if each.draws else ""),
        Cell.of(each.claim and each.claim.value),
        Cell.of(each.statement),
        Cell.of(each.why),
    )
