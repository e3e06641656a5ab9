"""A CycloneDX 1.6 document with the model card of the classifier: its numbers with their intervals.

The format has fields for the type, value, slice and interval of a metric. The other facts needed to
quote a number (direction, claim, set, seed, place) are properties of the model card, by the number of
the metric.
"""

from __future__ import annotations

from typing import Any

from nppr.export.claims import FiledReport, NumberClaim, claims_of, missing_of
from nppr.export.documents import Document, as_json

SPEC_VERSION = "1.6"

_METRIC = ("metric", "source", "slice", "value", "low", "high")
"""Facts that have a field in a metric of the format."""


def cyclonedx_card(filed: FiledReport) -> dict[str, Any]:
    """Return the document."""
    report, claims = filed.report, claims_of(filed)
    task = report.data.task_kind or (None if report.data.task else "classification")
    evidence = [each for each in claims if each.is_evidence]
    limits = [
        *(f"{each.text} [{each.pointer}]" for each in claims if each.because or each.remarks),
        *(f"Not measured: {each}" for each in missing_of(report)),
        *dict.fromkeys(f"{flag.id}: {flag.message}" for flag in report.flags),
    ]
    card = {
        "modelParameters": {
            **({"task": task} if task else {}),
            "datasets": [{"type": "dataset", "name": report.data.name}],
        },
        "quantitativeAnalysis": {
            "performanceMetrics": [_describe_metric(each) for each in evidence]
        },
        "considerations": {"technicalLimitations": limits},
        "properties": [
            *_list_properties(
                "run",
                seed=report.seed,
                date=filed.date,
                grade=report.grade.letter,
                budget=report.budget,
                report_sha256=filed.sha256,
                classifier_fingerprint=report.classifier.fingerprint,
                data_fingerprint=report.data.fingerprint,
            ),
            *(
                fact
                for number, each in enumerate(evidence)
                for fact in _list_properties(f"metric:{number}", **_scope(each), seed=report.seed)
            ),
        ],
    }
    component: dict[str, Any] = {
        "type": "machine-learning-model",
        "bom-ref": report.classifier.fingerprint,
        "name": report.classifier.name,
        "modelCard": card,
    }
    if weights := report.classifier.weights_sha256:
        component["hashes"] = [{"alg": "SHA-256", "content": weights}]
    tool = {"type": "application", "name": "nppr", "version": report.nppr_version}
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {"tools": {"components": [tool]}},
        "components": [component],
    }


def _describe_metric(each: NumberClaim) -> dict[str, Any]:
    ends = {"lowerBound": each.low, "upperBound": each.high}
    return {
        "type": f"{each.metric.value} of {each.source} ({each.direction.value})",
        "value": repr(each.value),
        "slice": each.slice,
        "confidenceInterval": {name: repr(end) for name, end in ends.items() if end is not None},
    }


def _scope(each: NumberClaim) -> dict[str, Any]:
    return {fact: value for fact, value in each.facts.items() if fact not in _METRIC}


def _list_properties(name: str, **facts: object) -> list[dict[str, str]]:
    return [{"name": f"nppr:{name}:{fact}", "value": str(value)} for fact, value in facts.items()]


CYCLONEDX_CARD = Document({".cdx.json": as_json(cyclonedx_card)})
