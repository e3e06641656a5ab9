"""Splitting within a run."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import norm

from helpers import Linear, grouped
from nppr.core.budget import Budget
from nppr.core.tally import Claim, Metric
from nppr.data import Data, from_arrays
from nppr.doctor.flags import RARE_PARTLY
from nppr.errors import SpecError
from nppr.report import Number, Report
from nppr.run.assess import assess
from nppr.settings import RARE_CALLS_PER_INPUT, Measure, Run
from nppr.sources import PGD, Bound, Gaussian, Uniform

BUDGET = Budget.linf(0.5)
SOURCE = "gaussian:scale=0.02"
SIGMA = 0.01
P = np.array([0.4, 1e-3, 1e-4, 1e-5, 1e-9])
MODEL = Linear(torch.full((16,), -1 / 16), 0.5)


def known() -> Data:
    """Inputs of class 0 that fail with these probabilities, and a misclassified one of class 1."""
    distance = SIGMA / 4 * norm.isf(P)
    images = torch.tensor(0.5 - distance).view(-1, 1, 1, 1).expand(-1, 1, 4, 4)
    images = torch.cat([images, torch.full((1, 1, 4, 4), 0.4)]).float()
    return from_arrays(images, torch.tensor([0] * len(P) + [1]), shares=(0.0, 0.0))


def followed(
    calls: int = 10 * RARE_CALLS_PER_INPUT, sources: str = SOURCE, out: Path | None = None
) -> Report:
    return assess(
        MODEL,
        known(),
        budget=BUDGET,
        sources=sources,
        measure=Measure(draws=32, rare_calls=calls),
        run=Run(out=out),
    )


def split_rows(report: Report) -> list[Number]:
    return [row for row in report.numbers if row.is_split]


def test_closed_form(tmp_path: Path) -> None:
    report = followed(out=tmp_path)
    (row,) = split_rows(report)
    plain = report.headline(SOURCE, Metric.PR)
    assert plain is not None
    assert plain.value is not None
    assert row.value is not None
    assert [each.claim for each in row.intervals] == [Claim.TEST_SET]
    (entry,) = report.rare
    assert entry.unbroken == entry.followed == 4
    assert entry.calls <= 10 * RARE_CALLS_PER_INPUT
    assert (entry.found, entry.below, entry.out_of_calls) == (3, 1, 0)
    assert plain.value - row.value == pytest.approx(entry.added, rel=1e-6)
    with (tmp_path / "rare.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [int(line["index"]) for line in lines] == [1, 2, 3, 4]
    for line, p in zip(lines[:3], P[1:4], strict=True):
        assert float(line["p"]) == pytest.approx(p, rel=1.0)
        assert float(line["low"]) < float(line["p"]) < float(line["high"])
    assert float(lines[3]["p"]) < 1e-6
    assert RARE_PARTLY not in {flag.id for flag in report.flags}


def test_the_infimum_of_a_bound_uses_it() -> None:
    small = Budget.linf(0.01 * 3**0.5)  # Uniform noise of the same variance
    report = assess(
        MODEL,
        known(),
        budget=small,
        sources="bound:ratio=1+1000",
        measure=Measure(draws=32, rare_calls=10 * RARE_CALLS_PER_INPUT),
    )
    rows = {row.bound.density_ratio: row for row in split_rows(report) if row.bound}
    assert set(rows) == {1, 1000}
    (entry,) = report.rare
    assert entry.source == "bound:ratio=1+1000"
    plain = report.headline("bound:ratio=1+1000:c=1000", Metric.INFIMUM)
    assert plain is not None
    assert plain.value == pytest.approx(4 / 5)  # four inputs never failed, the fifth often
    value = rows[1000].value
    assert value is not None
    assert 0.45 < value < 0.72  # one of the four fails in about 1 of 1,000 draws, one in 10,000
    assert all(row.metric is Metric.INFIMUM for row in rows.values())


def test_calls_are_shared_and_too_few_are_flagged() -> None:
    report = followed(calls=4 * RARE_CALLS_PER_INPUT, sources=f"{SOURCE},gaussian:scale=0.021")
    assert sum(entry.calls for entry in report.rare) <= 4 * RARE_CALLS_PER_INPUT
    assert report.rare[0].followed == 2
    flags = [flag for flag in report.flags if flag.id == RARE_PARTLY]
    assert "2 of 4 inputs" in flags[0].message


def test_groups_are_kept_for_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("nppr.run.rare_failures.GROUP", 2)
    whole = followed(out=tmp_path / "a")
    stopped: list[int] = []

    def interrupt(state: object) -> None:
        if getattr(state, "source", "").startswith("rare"):
            kept = list((tmp_path / "b" / "rare").glob("*.safetensors"))
            if kept:
                stopped.append(len(kept))
                raise KeyboardInterrupt

    arguments = {"budget": BUDGET, "sources": SOURCE, "draws": 32,
                 "rare_calls": 10 * RARE_CALLS_PER_INPUT, "out": tmp_path / "b"}  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        assess(MODEL, known(), progress=interrupt, **grouped(**arguments))
    assert stopped == [1]
    again = assess(MODEL, known(), **grouped(resume=True, **arguments))
    assert again.rare == whole.rare
    texts = [(tmp_path / name / "rare.csv").read_text() for name in ("a", "b")]
    assert texts[0] == texts[1]
    (tmp_path / "b" / "report.json").unlink()
    for path in (tmp_path / "b" / "rare").glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:50])
    damaged = assess(MODEL, known(), **grouped(resume=True, **arguments))
    assert damaged.rare == whole.rare
    assert "is damaged" in caplog.text


def test_what_can_be_moved() -> None:
    uniform = Uniform(BUDGET)
    assert uniform.moved_by_splitting is uniform
    assert Bound(BUDGET).moved_by_splitting == uniform
    assert Bound(BUDGET, "gaussian").moved_by_splitting == Gaussian(BUDGET)
    assert PGD(BUDGET).moved_by_splitting is None


def test_nothing_to_follow_and_too_few_calls() -> None:
    with pytest.raises(SpecError, match="`rare` must be given with noise"):
        followed(sources="pgd:steps=1")
    often = followed(sources="uniform")
    assert often.rare == ()
    with pytest.raises(
        SpecError, match=f"`rare-calls` must be a whole number >= {RARE_CALLS_PER_INPUT}"
    ):
        followed(calls=10)
