"""What a finished run says about itself."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nppr.budget import Budget
from nppr.flags import PRECISION, RARE_PARTLY
from nppr.run.closing import collected, described, unfinished

GROWTH: Any = SimpleNamespace(reached=False, words=lambda: "0.02 was reached instead of 0.01")


def found(looked: int, unbroken: int) -> Any:
    return SimpleNamespace(rare=SimpleNamespace(positions=np.arange(looked)), unbroken=unbroken)


def fit(name: str, floor: float) -> Any:
    family = SimpleNamespace(floor=floor)
    source = SimpleNamespace(name=name, distribution=SimpleNamespace(family=family))
    return SimpleNamespace(source=source, described=lambda: {"source": name})


def test_a_precision_that_was_not_reached_is_flagged() -> None:
    (flag,) = unfinished(GROWTH, {})
    assert flag.id == PRECISION
    assert "0.02 was reached instead of 0.01" in flag.message
    assert unfinished(SimpleNamespace(reached=True), {}) == ()  # type: ignore[arg-type]


def test_inputs_that_splitting_did_not_look_at_are_flagged() -> None:
    (flag,) = unfinished(None, {"uniform": found(1_200, 1_500), "gaussian": found(7, 7)})
    assert (flag.id, flag.source) == (RARE_PARTLY, "uniform")
    assert "1,200 of 1,500 inputs" in flag.message


def test_fits_of_one_floor_are_described_with_their_spread() -> None:
    fits = [fit("nppr", 0.0), fit("nppr:fit-seed=1", 0.0), fit("nppr:floor=0.5", 0.5)]
    rates = dict(zip((each.source.name for each in fits), (0.2, 0.3, 0.9), strict=True))
    measured: Any = SimpleNamespace(
        fitted=fits,
        tallies={
            name: SimpleNamespace(headline_rates=np.array([rate])) for name, rate in rates.items()
        },
    )
    seeds = described(fits[0], measured)["fit_seeds"]
    assert seeds["values"] == {"nppr": 0.2, "nppr:fit-seed=1": 0.3}
    assert seeds["minimum"] == 0.2
    assert seeds["spread"] == pytest.approx(0.1)
    assert described(fits[2], measured)["fit_seeds"] is None


def test_failing_to_collect_does_not_cost_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError("the images are gone")

    monkeypatch.setattr("nppr.run.closing.collect", fails)
    session = SimpleNamespace(
        classifier=None, data=None, settings=SimpleNamespace(seed=0, quantise=False)
    )
    measured: Any = SimpleNamespace(session=session, tallies={}, clean=None, fitted=[])
    with caplog.at_level(logging.WARNING):
        assert collected(measured, [], Budget.linf(0.1)) is None
    assert "nothing is collected" in caplog.text
