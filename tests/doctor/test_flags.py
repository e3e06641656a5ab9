from __future__ import annotations

import re
from pathlib import Path

import torch

from nppr import flags
from nppr.data import from_arrays
from nppr.flags import FLAGS, NO_GRADIENTS, OVERLAP, SEVERITY, overlap_flags, result_flags
from nppr.report.schema import failed
from nppr.statistics.estimates import APPROXIMATE, UNRESOLVED
from nppr.tally import Metric

DOCUMENTED = (Path(__file__).parents[1] / "docs" / "flags.md").read_text()
ROWS = dict(re.findall(r"^\| `([a-z-]+)` \|.*\| ([a-z]+) \|$", DOCUMENTED, re.MULTILINE))


def test_every_flag_is_explained_documented_and_weighed() -> None:
    constants = {
        getattr(flags, name) for name in flags.__all__ if name.isupper()
        and isinstance(getattr(flags, name), str)
    }  # fmt: skip
    assert constants | {APPROXIMATE, UNRESOLVED} == set(FLAGS)
    assert {name: severity.value for name, severity in SEVERITY.items()} == ROWS
    assert set(SEVERITY) == set(FLAGS)


def test_a_flag_says_what_was_found_and_what_it_means() -> None:
    found = flags.flag(flags.FEW_INPUTS, "3 inputs are right", "uniform")
    assert found.message == "3 inputs are right: " + FLAGS[flags.FEW_INPUTS]
    assert (found.id, found.source) == (flags.FEW_INPUTS, "uniform")
    assert flags.flag(flags.FEW_INPUTS).message == FLAGS[flags.FEW_INPUTS]


def test_a_flag_of_many_results_is_told_once_a_source() -> None:
    rows = [
        failed(source, Metric.AR, 0.95, "no", (NO_GRADIENTS,)) for source in ("pgd", "pgd", "cw")
    ]
    assert [flag.source for flag in result_flags(rows)] == ["pgd", "cw"]


def test_the_same_image_in_two_parts_is_flagged() -> None:
    images = torch.rand(20, 1, 4, 4)
    labels = torch.arange(20) % 2
    assert not overlap_flags(from_arrays(images, labels))
    same = overlap_flags(from_arrays(torch.ones(20, 1, 4, 4), labels))
    assert {flag.id for flag in same} == {OVERLAP}
