from __future__ import annotations

from pathlib import Path

import torch

from nppr.data import from_arrays
from nppr.flags import FLAGS, NO_GRADIENTS, OVERLAP, overlap_flags, result_flags
from nppr.report.schema import failed
from nppr.statistics.estimates import APPROXIMATE
from nppr.types import Metric


def test_every_flag_is_explained_and_documented() -> None:
    assert APPROXIMATE in FLAGS
    documented = (Path(__file__).parents[1] / "docs" / "flags.md").read_text()
    for flag in (*FLAGS, OVERLAP):
        assert f"`{flag}`" in documented


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
