"""A run with audited 16-bit floats: what the report states, and what it leaves to exact counts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from helpers import grouped
from nppr.core.budget import Budget
from nppr.core.tally import Metric
from nppr.data import Data, from_arrays
from nppr.errors import RunFolderError, SpecError
from nppr.models import Classifier
from nppr.report import Report
from nppr.run.assess import assess
from nppr.system.specs import BFLOAT16

pytestmark = pytest.mark.slow

BUDGET = Budget.linf(0.1)


@pytest.fixture(autouse=True)
def computes_in_16_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)


@pytest.fixture(scope="module")
def case() -> tuple[Classifier, Data]:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4)
    ).eval()
    x = torch.rand(400, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        centred = network(x)
        network[-1].bias -= centred.mean(0)
        labels = network(x).argmax(1)
    return Classifier(network, name="small"), from_arrays(x, labels, shares=(0.0, 0.0))


def run(case: tuple[Classifier, Data], **more: object) -> Report:
    classifier, data = case
    return assess(
        classifier, data, budget=BUDGET, sources="uniform,pgd", **grouped(draws=16, **more)
    )


def test_the_report_states_engine_and_audit(case: tuple[Classifier, Data]) -> None:
    exact, screened = run(case), run(case, engine=BFLOAT16)
    assert (exact.environment.engine, exact.settings.measure.engine, exact.audits) == (
        "eager",
        "eager",
        (),
    )
    assert screened.environment.engine == screened.settings.measure.engine == BFLOAT16
    (audit,) = screened.audits
    assert audit.source == "uniform"
    assert 0 < audit.audited < audit.alone
    assert 0 < audit.widened_by <= 0.02
    assert not audit.discarded
    assert [flag.id for flag in screened.flags].count("screened") == 1
    assert "none differed" in next(f.message for f in screened.flags if f.id == "screened")
    (plain,), (wide,) = (
        [row for row in each.numbers if row.metric is Metric.PR] for each in (exact, screened)
    )
    assert wide.value == plain.value, "the counts are those of the model here"
    for own, wider in zip(plain.intervals, wide.intervals, strict=True):
        assert wider.method == own.method
        assert wider.low < own.low, own.method


def test_bounds_and_merged_ar_need_exact_counts(case: tuple[Classifier, Data]) -> None:
    exact, screened = run(case), run(case, engine=BFLOAT16)
    metrics = [{row.metric for row in each.numbers} for each in (exact, screened)]
    assert Metric.BOUND in metrics[0]
    assert Metric.BOUND not in metrics[1]
    assert [row for row in exact.numbers if row.source == "merged"]
    assert not [row for row in screened.numbers if row.source == "merged"], "one source is left"
    attacks = [[row for row in each.numbers if row.source == "pgd"] for each in (exact, screened)]
    assert attacks[0] == attacks[1]


def test_a_folder_of_the_other_engine_is_not_read(
    case: tuple[Classifier, Data], tmp_path: Path
) -> None:
    run(case, engine=BFLOAT16, out=tmp_path / "run")
    with pytest.raises(RunFolderError, match="engine"):
        run(case, out=tmp_path / "run", resume=True)
    again = run(case, engine=BFLOAT16, out=tmp_path / "run", resume=True)
    assert again.audits[0].audited > 0


@pytest.mark.parametrize("more", [{"precision": 0.05}, {"rare_calls": 100_000}])
def test_what_needs_exact_counts_refuses_the_engine(
    case: tuple[Classifier, Data], more: dict[str, float]
) -> None:
    with pytest.raises(SpecError, match="`engine` bfloat16 must be given without"):
        run(case, engine=BFLOAT16, **more)


def test_an_unknown_engine_is_named(case: tuple[Classifier, Data]) -> None:
    with pytest.raises(SpecError, match="`engine` must be one of bfloat16, eager, got 'auto'"):
        run(case, engine="auto")
