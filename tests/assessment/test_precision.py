"""How many inputs and draws a wanted precision takes, and runs that measure until it is reached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm

from helpers import Broken, half_classifier
from nppr.assessment.assess import assess
from nppr.assessment.precision import GrowingStore, Round, judge_round, whole_blocks
from nppr.blocks import Blocks
from nppr.budget import Budget
from nppr.data import from_arrays
from nppr.doctor.flags import PRECISION
from nppr.errors import SpecError
from nppr.tally import BoolArray, Evaluate, FloatArray, IntArray, Metric, Progress, Tally

pytestmark = pytest.mark.slow

FIRST = Round(256, 16)
Z = float(norm.ppf(0.975))


def tally(correct: IntArray, draws: int, clean: BoolArray | None = None) -> Tally[Evaluate]:
    inputs = len(correct)
    return Tally(
        kind=Evaluate,
        indices=np.arange(inputs),
        labels=np.zeros(inputs, np.int64),
        clean_correct=np.ones(inputs, bool) if clean is None else clean,
        correct=correct,
        draws=draws,
        calls=inputs * draws,
        micro_batch=1,
    )


def drawn(p: FloatArray, draws: int, seed: int = 0) -> Tally[Evaluate]:
    return tally(np.random.default_rng(seed).binomial(draws, p), draws)


def test_more_inputs_come_first() -> None:
    p = np.random.default_rng(1).beta(2, 2, 256)
    need = judge_round({"a": drawn(p, 16)}, Round(256, 16), 100_000, 0.01, 0.95)
    expected = (p.var() + (p * (1 - p)).mean() / 16) * (Z / 0.01) ** 2
    assert need.following is not None
    assert need.following.draws == 16
    assert need.inputs == pytest.approx(expected, rel=0.15)
    assert need.following.inputs == pytest.approx(1.05 * need.inputs, abs=2)
    assert not need.reached


def test_misclassified_inputs_are_counted_in() -> None:
    p = np.random.default_rng(1).beta(2, 2, 256)
    half = np.arange(256) % 2 == 0
    all_correct = judge_round({"a": drawn(p, 16)}, Round(256, 16), 10**6, 0.01, 0.95)
    correct = np.random.default_rng(0).binomial(16, p)
    half_correct = judge_round({"a": tally(correct, 16, half)}, Round(256, 16), 10**6, 0.01, 0.95)
    assert half_correct.inputs == pytest.approx(2 * all_correct.inputs, rel=0.2)


def test_draws_come_when_inputs_run_out_and_reach_it() -> None:
    p = np.full(300, 0.6)  # all of the variance is that of draws
    need = judge_round({"a": drawn(p, 16)}, Round(300, 16), 300, 0.01, 0.95)
    assert need.following is not None
    assert need.following.inputs == 300
    assert need.following.draws % 16 == 0
    more = judge_round({"a": drawn(p, need.following.draws)}, need.following, 300, 0.01, 0.95)
    assert more.widths["a"].half_width < need.widths["a"].half_width
    assert more.widths["a"].within == pytest.approx(0.24, abs=0.01)


def test_no_number_of_draws_helps_where_inputs_differ() -> None:
    p = np.repeat([0.0, 1.0], 150)
    need = judge_round({"a": drawn(p, 16)}, Round(300, 16), 300, 0.01, 0.95)
    assert need.following is None
    assert not need.reached
    assert need.inputs == pytest.approx(0.25 * (Z / 0.01) ** 2, rel=0.02)


def test_the_worst_source_decides() -> None:
    rng = np.random.default_rng(0)
    easy, hard = drawn(np.full(256, 0.99), 16), drawn(rng.beta(0.3, 0.3, 256), 16)
    alone = judge_round({"hard": hard}, FIRST, 10**6, 0.01, 0.95)
    both = judge_round({"easy": easy, "hard": hard}, FIRST, 10**6, 0.01, 0.95)
    assert both.inputs == alone.inputs


def test_a_mean_of_one_does_not_look_exact() -> None:
    perfect = tally(np.full(100, 16), 16)
    need = judge_round({"a": perfect}, Round(100, 16), 10**6, 0.01, 0.95)
    assert not need.reached
    assert need.widths["a"].half_width > 0.01


def test_the_wanted_width_is_reached_and_holds_the_truth() -> None:
    """The whole procedure on simulated inputs: coverage of the interval it ends with."""
    rng = np.random.default_rng(0)
    held, ends = [], []
    for seed in range(300):
        p, at = rng.beta(1.6, 0.4, 20_000), FIRST
        correct = rng.binomial(16, p)
        while True:
            found = tally(correct[: at.inputs], 16)
            need = judge_round({"a": found}, at, len(p), 0.02, 0.95)
            if need.following is None:
                break
            at = need.following
        assert need.reached, seed
        half = need.widths["a"].half_width
        held.append(abs(found.rates.mean() - 0.8) <= half)
        ends.append(half)
    assert max(ends) <= 0.02
    assert np.mean(ends) > 0.015  # it does not take many more inputs than needed
    assert 0.915 <= np.mean(held) <= 0.985  # 95 %, give or take 2.8 standard errors


def test_draws_are_whole_blocks() -> None:
    assert [whole_blocks(n) for n in (1, 16, 17, 100)] == [16, 16, 32, 112]


def test_a_growing_store_keeps_every_row_in_its_place() -> None:
    first = GrowingStore(np.array([1, 4]), 6)
    assert first.load(2) is None
    blocks = Blocks(np.array([3, 5]), np.array([1, 1]), np.array([4, 4]), np.array([[0.5], [1.5]]))
    first.save(blocks, now=True)
    larger = GrowingStore(np.array([0, 1, 4]), 6, held=first.held)
    found = larger.load(3)
    assert found is not None
    assert found.correct.tolist() == [0, 3, 5]
    assert found.finished.tolist() == [0, 1, 1]
    assert found.calls.tolist() == [0, 4, 4]
    assert found.sums[1:].tolist() == [[0.5], [1.5]]
    found.correct[0] = 9
    larger.save(found, now=True)
    again = GrowingStore(np.arange(6), 6, held=larger.held).load(6)
    assert again is not None
    assert again.correct.tolist() == [9, 3, 0, 0, 5, 0]


def test_the_numbers_are_those_of_a_plain_run_of_the_same_size() -> None:
    sources = "gaussian,pgd:steps=2"
    grown = assess(sources=sources, precision=0.008, batch_size=64)
    assert grown.precision is not None
    assert grown.precision.reached
    assert len(grown.precision.rounds) > 1
    inputs, draws = grown.precision.rounds[-1]
    plain = assess(sources=sources, inputs=inputs, draws=draws, batch_size=64)
    assert grown.results == plain.results
    assert grown.data == plain.data
    assert grown.data.inputs.evaluate == inputs


def test_more_draws_extend_fewer_when_inputs_run_out() -> None:
    images = torch.full((40, 1, 4, 4), 0.5)
    images[..., 0, 0] += 1e-3  # clean-correct by a hair, a coin toss with noise
    data = from_arrays(images, torch.arange(40) % 1, shares=(0.0, 0.0), class_names=("a", "b"))
    made: dict[str, Any] = {"budget": Budget.linf(0.1), "sources": "uniform", "batch_size": 16}
    grown = assess(half_classifier(), data, precision=0.045, **made)
    assert grown.precision is not None
    assert grown.precision.reached
    assert grown.precision.rounds[0] == (40, 16)
    inputs, draws = grown.precision.rounds[-1]
    assert inputs == 40
    assert draws > 16
    plain = assess(half_classifier(), data, draws=draws, **made)
    assert grown.results == plain.results


def test_a_precision_that_cannot_be_reached_is_flagged_with_what_it_would_take() -> None:
    report = assess(sources="gaussian", inputs=30, precision=0.001)
    assert report.precision is not None
    assert not report.precision.reached
    assert report.precision.available_inputs == 30
    flag = next(flag for flag in report.flags if flag.id == PRECISION)
    assert report.precision.needed_inputs is not None
    assert f"{report.precision.needed_inputs:,} inputs" in flag.message
    assert report.precision.needed_inputs > 30


def test_an_interrupted_run_resumes_to_the_same_report(tmp_path: Path) -> None:
    whole = assess(sources="gaussian,uniform", precision=0.008, out=tmp_path / "a")
    assert whole.precision is not None
    last = whole.precision.rounds[-1][0]

    def interrupt(state: Progress) -> None:
        if state.source == "uniform" and state.total == last * 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        assess(sources="gaussian,uniform", precision=0.008, out=tmp_path / "b", progress=interrupt)
    noted = json.loads((tmp_path / "b" / "run.json").read_text())["rounds"]
    assert noted == [list(each) for each in whole.precision.rounds]
    again = assess(sources="gaussian,uniform", precision=0.008, out=tmp_path / "b", resume=True)
    assert again.precision == whole.precision
    assert again.results == whole.results
    texts = [(tmp_path / name / "per_input.csv").read_text() for name in ("a", "b")]
    assert texts[0] == texts[1]


def test_precision_needs_a_source_that_draws(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(SpecError, match="`precision` must be given with a source that draws"):
        assess(sources="pgd:steps=1", inputs=20, precision=0.1, out=out)
    assert not out.exists()


def test_a_source_that_fails_has_its_row_and_does_not_stop_the_others() -> None:
    report = assess(sources=["uniform", Broken(Budget.linf(0.1), 0.0)], inputs=40, precision=0.1)
    failed = report.headline("stray", Metric.PR)
    assert failed is not None
    assert failed.error
    assert report.headline("uniform", Metric.PR) is not None
