"""A fragment of a safety argument in goal structuring notation, after AMLAS stage 5 (verification).

The nodes G5.1, S5.1, G5.2, G5.3 and J5.1 come from the argument pattern for ML verification, the
requirements from the policy of a gate. A goal is a claim, a strategy divides a goal, and context states
what a claim applies to. Every solution is one number of report.json or one verdict of the gate, with
its hash. Upper bounds never support robustness; they are stated as its limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nppr.core.tally import Direction
from nppr.export.claims import FiledGate, FiledReport, NumberClaim, claims_of, missing_of
from nppr.export.documents import Document, as_json
from nppr.report.model import ReportRecord
from nppr.report.results_table import describe_subject
from nppr.statistics.sequential import Verdict

_GOALS = {
    Direction.ESTIMATE: (
        "Accuracy and robustness under the stated perturbations were estimated as follows, each number"
        " at its own confidence"
    ),
    Direction.LOWER_BOUND: (
        "Robustness is at least as stated under every distribution of perturbations in the stated"
        " sets, each number at its own confidence"
    ),
    Direction.UPPER_BOUND: (
        "Limits: under the worst perturbations that a search found, robustness is at most as"
        " stated, each number at its own confidence, and worse ones may exist"
    ),
}
_VERDICTS = {
    Verdict.HOLDS: "{} satisfies the requirements of the policy {}",
    Verdict.VIOLATED: "Not satisfied: {} violates the policy {}",
    Verdict.UNDECIDED: "Not shown: it is undecided whether {} satisfies the policy {}",
}
_NO_POLICY = (
    "Open: no requirement is given that {} must satisfy. Decide a policy with nppr gate --json and pass"
    " its file as --gate"
)
_INDEPENDENCE = (
    "The verification was independent of the development of the model: to be shown from the"
    " verification log"
)
_METHODS = (
    "Verification by statistical tests. Estimates and lower bounds state what was shown, upper bounds"
    " from searches state its limits. No formal proof is part of it."
)
_SHAPES = {
    "goal": ("[", "]"),
    "strategy": ("[/", "/]"),
    "context": ("([", "])"),
    "justification": ("(", ")"),
    "solution": ("((", "))"),
    "finding": ("{{", "}}"),
}
_LONGEST = 480
"""Characters of a label: enough to show a number with its confidence."""


def safety_case(filed: FiledReport) -> dict[str, Any]:
    """Return the fragment."""
    report, claims, gate = filed.report, claims_of(filed), filed.gate
    name, grade = report.classifier.name, f"grade {report.grade.letter}: {report.grade.reason}"
    doubts = [each for each in claims if not each.is_evidence]
    context = [
        _make_node("C1", "context", f"{describe_subject(report)}; measured on {filed.date} (UTC)"),
        _make_node("C2", "context", grade),
        *(_make_leaf(report, f"F{at}", each) for at, each in enumerate(doubts, 1)),
        *(
            _make_node(f"M{at}", "finding", f"not measured: {words}")
            for at, words in enumerate(missing_of(report), 1)
        ),
    ]
    goal = _NO_POLICY.format(name)
    if gate:
        goal = _VERDICTS[gate.record.verdict].format(name, gate.record.policy)
    tested = _list_requirements(gate) if gate else []
    split = gate.record.split if gate else ""
    activities = "Argument over the verification activities"
    nodes = [
        _make_node("G5.1", "goal", goal, ["S5.1", "G5.2"], [each["id"] for each in context]),
        _make_node("S5.1", "strategy", activities, ["G5.3", "G1"] if tested else ["G1"], ["J5.1"]),
        _make_node("J5.1", "justification", f"{_METHODS} {split}".strip()),
        {**_make_node("G5.2", "goal", _INDEPENDENCE), "undeveloped": True},
        *tested,
        *_list_measurements(report, claims, grade),
        *context,
    ]
    return {
        "notation": "goal structuring notation",
        "pattern": "AMLAS stage 5, model verification",
        "nppr_version": report.nppr_version,
        "date": filed.date,
        "report_sha256": filed.sha256,
        "classifier": report.classifier.model_dump(mode="json"),
        "data_fingerprint": report.data.fingerprint,
        "seed": report.seed,
        "nodes": nodes,
    }


def _list_measurements(
    report: ReportRecord, claims: Sequence[NumberClaim], grade: str
) -> list[dict[str, Any]]:
    """Return the nodes of the numbers that no flag makes unreliable, by direction."""
    measured = (
        f"The robustness of {report.classifier.name} to perturbations of the budget {report.budget} has"
        " been measured as follows"
    )
    if not any(each.is_evidence for each in claims):
        measured = f"Not supported: {measured}. No number may be relied on, {grade}"
    strategy = _make_node(
        "S1",
        "strategy",
        "Argument over estimates, lower bounds and limits; each number holds at its own confidence,"
        " not all of them together",
    )
    nodes = [_make_node("G1", "goal", measured, ["S1"]), strategy]
    for number, (direction, words) in enumerate(_GOALS.items(), 2):
        own = [each for each in claims if each.is_evidence and each.direction is direction]
        if own:
            leaves = [
                _make_leaf(report, f"Sn{number}.{at}", each) for at, each in enumerate(own, 1)
            ]
            strategy["supported_by"].append(f"G{number}")
            nodes += [
                _make_node(f"G{number}", "goal", words, [each["id"] for each in leaves]),
                *leaves,
            ]
    return nodes


def _list_requirements(gate: FiledGate) -> list[dict[str, Any]]:
    """Return the requirements of the policy: a solution for each that holds, else a finding."""
    record = gate.record
    leaves = [
        {
            **_make_node(
                f"R{at}",
                "solution" if each.verdict is Verdict.HOLDS else "finding",
                f"{each.requirement}: {each.status}. {each.sentence}",
            ),
            "evidence": {
                "file": gate.file,
                "pointer": f"/decisions/{at - 1}",
                "sha256": gate.sha256,
                "verdict": each.verdict.value,
                "requirement": each.requirement,
                "seed": record.seed,
            },
        }
        for at, each in enumerate(record.decisions, 1)
    ]
    words = (
        f"The requirements of the policy {record.policy}, tested on {record.data}"
        f" ({record.data_fingerprint}), budget {record.budget}: {record.verdict.value}"
    )
    held = [each["id"] for each in leaves if each["kind"] == "solution"]
    others = [each["id"] for each in leaves if each["kind"] == "finding"]
    return [_make_node("G5.3", "goal", words, held, others), *leaves]


def safety_case_mermaid(filed: FiledReport) -> str:
    """Return the fragment as a Mermaid diagram."""
    nodes = safety_case(filed)["nodes"]
    lines = ["flowchart TD"]
    for node in nodes:
        before, after = _SHAPES[node["kind"]]
        hashed = f"<br/>sha256 {node['evidence']['sha256'][:12]}" if "evidence" in node else ""
        lines.append(f'  {_id(node["id"])}{before}"{_label(node)}{hashed}"{after}')
    for node in nodes:
        lines += [f"  {_id(node['id'])} --> {_id(other)}" for other in node["supported_by"]]
        context = node.get("in_context_of", ())
        lines += [f"  {_id(node['id'])} -.- {_id(other)}" for other in context]
    return "\n".join(lines) + "\n"


def _make_node(
    name: str, kind: str, text: str, supported_by: Sequence[str] = (), context: Sequence[str] = ()
) -> dict[str, Any]:
    node = {"id": name, "kind": kind, "text": text, "supported_by": list(supported_by)}
    return {**node, "in_context_of": list(context)} if context else node


def _make_leaf(report: ReportRecord, name: str, each: NumberClaim) -> dict[str, Any]:
    """Return the node of a number: a solution, or a finding if flags make it unreliable."""
    kind = "solution" if each.is_evidence else "finding"
    flags = {"flags": list(each.because), "remarks": list(each.remarks)}
    evidence = {"file": "report.json", **each.facts, "seed": report.seed, **flags}
    return {**_make_node(name, kind, each.text), "evidence": evidence}


def _id(name: str) -> str:
    return name.replace(".", "_")


def _label(node: dict[str, Any]) -> str:
    """Return the text of a node, shortened, without characters that Mermaid or HTML interpret."""
    text = " ".join(f"{node['id']}: {node['text']}".split())
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
    marks = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;"}
    return "".join(marks.get(letter, letter) for letter in text)


SAFETY_CASE = Document(
    {".json": as_json(safety_case), ".mmd": safety_case_mermaid}, takes_gate=True
)
