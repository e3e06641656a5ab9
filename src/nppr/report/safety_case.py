"""A fragment of a safety argument in goal structuring notation, after AMLAS stage 5 (verification).

Goals are what is claimed, a strategy how a goal is divided, context what it is stated for, and every
solution is one number of report.json with its hash. Upper bounds never support robustness: they
are stated as its limits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nppr.report.claims import FiledReport, NumberClaim, claims_of, missing_of
from nppr.report.model import ReportRecord
from nppr.report.results_table import subject_of
from nppr.tally import Direction

_GOALS = {
    Direction.ESTIMATE: "Accuracy and robustness under the stated perturbations are as estimated",
    Direction.LOWER_BOUND: (
        "Robustness is at least as stated under every distribution of perturbations in the stated sets"
    ),
    Direction.UPPER_BOUND: (
        "Limits of robustness: under the worst perturbations that a search found it is at most as"
        " stated, and worse ones may exist"
    ),
}
_SHAPES = {
    "goal": ("[", "]"),
    "strategy": ("[/", "/]"),
    "context": ("([", "])"),
    "solution": ("((", "))"),
    "finding": ("{{", "}}"),
}
_LONGEST = 320
"""Letters of a label, so that a number and its confidence are not cut off."""


def safety_case(filed: FiledReport) -> dict[str, Any]:
    """The fragment."""
    report, claims = filed.report, claims_of(filed)
    name, grade = report.classifier.name, f"grade {report.grade.letter}: {report.grade.reason}"
    known = f"The robustness of {name} to perturbations of the budget {report.budget} is known as"
    goal = f"{known} measured; no acceptance criterion is part of this fragment"
    if not any(each.is_evidence for each in claims):
        goal = f"Not supported: {known} measured. No number may be relied on, {grade}"
    nodes: list[dict[str, Any]] = [
        _node("G1", "goal", goal, ["S1"]),
        _node(
            "S1",
            "strategy",
            "Argument over estimates, lower bounds and limits; each holds at its own confidence",
            [],
        ),
        _node("C1", "context", subject_of(report)),
        _node("C2", "context", grade),
    ]
    for number, (direction, words) in enumerate(_GOALS.items(), 2):
        own = [each for each in claims if each.is_evidence and each.direction is direction]
        if own:
            leaves = [_leaf(report, f"Sn{number}.{at}", each) for at, each in enumerate(own, 1)]
            nodes[1]["supported_by"].append(f"G{number}")
            nodes += [_node(f"G{number}", "goal", words, [each["id"] for each in leaves]), *leaves]
    doubts = [each for each in claims if not each.is_evidence]
    nodes += [_leaf(report, f"F{at}", each) for at, each in enumerate(doubts, 1)]
    nodes += [
        _node(f"M{at}", "finding", f"not measured: {words}")
        for at, words in enumerate(missing_of(report), 1)
    ]
    findings = [each["id"] for each in nodes if each["kind"] == "finding"]
    nodes[0]["in_context_of"] = ["C1", "C2", *findings]
    return {
        "notation": "goal structuring notation",
        "pattern": "AMLAS stage 5, model verification",
        "nppr_version": report.nppr_version,
        "report_sha256": filed.sha256,
        "classifier": report.classifier.model_dump(mode="json"),
        "data_fingerprint": report.data.fingerprint,
        "seed": report.seed,
        "nodes": nodes,
    }


def safety_case_json(filed: FiledReport) -> str:
    """The fragment as JSON."""
    return json.dumps(safety_case(filed), indent=2, ensure_ascii=False) + "\n"


def safety_case_mermaid(filed: FiledReport) -> str:
    """The fragment as a Mermaid diagram."""
    nodes = safety_case(filed)["nodes"]
    lines = ["flowchart TD"]
    for node in nodes:
        before, after = _SHAPES[node["kind"]]
        hashed = f"<br/>sha256 {node['evidence']['sha256'][:12]}" if "evidence" in node else ""
        lines.append(f'  {_id(node)}{before}"{_label(node)}{hashed}"{after}')
    for node in nodes:
        lines += [f"  {_id(node)} --> {other.replace('.', '_')}" for other in node["supported_by"]]
        lines += [f"  {_id(node)} -.- {other}" for other in node.get("in_context_of", ())]
    return "\n".join(lines) + "\n"


def _node(name: str, kind: str, text: str, supported_by: Sequence[str] = ()) -> dict[str, Any]:
    return {"id": name, "kind": kind, "text": text, "supported_by": list(supported_by)}


def _leaf(report: ReportRecord, name: str, each: NumberClaim) -> dict[str, Any]:
    """A number: a solution, or a finding where flags make it unreliable."""
    kind = "solution" if each.is_evidence else "finding"
    flags = list(each.because)
    evidence = {"file": "report.json", **each.facts, "seed": report.seed, "flags": flags}
    flagged = f"Not evidence ({', '.join(each.because)}): " if each.because else ""
    return {**_node(name, kind, flagged + each.sentence), "evidence": evidence}


def _id(node: dict[str, Any]) -> str:
    return str(node["id"]).replace(".", "_")


def _label(node: dict[str, Any]) -> str:
    """Short text without what has a meaning in Mermaid or HTML."""
    text = " ".join(f"{node['id']}: {node['text']}".split())
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
    marks = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;"}
    return "".join(marks.get(letter, letter) for letter in text)
