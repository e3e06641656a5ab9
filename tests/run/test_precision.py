"""How many inputs and draws a wanted precision takes, and runs that measure until it is reached."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from helpers import Broken, grouped, half_classifier, stated
from nppr.core.budget import Budget
from nppr.core.tally import BoolArray, Evaluate, FloatArray, IntArray, Metric, Progress, Tally
from nppr.data import from_arrays
from nppr.doctor.flags import PRECISION
from nppr.errors import SpecError
from nppr.measuring.blocks import Blocks, GrowingStore
from nppr.report import Report
from nppr.report.findings import table_rows
from nppr.report.number import Number
from nppr.report.results_table import notes_of
from nppr.run.assess import assess
from nppr.run.precision import MARGIN, Need, Round, RoundReview, fill_blocks
from nppr.settings import Measure, Run
from nppr.statistics import Interval, betting_sequence
from nppr.statistics.estimates import SEQUENCE

pytestmark = pytest.mark.slow

FIRST = Round(256, 16)
ERROR = 0.05 / 2
"""Of the stage in which inputs are added."""


class Stop(NamedTuple):
    rates: FloatArray
    interval: Interval
    need: Need


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


def look(*rounds: Round, precision: float = 0.01, seed: int = 0) -> RoundReview:
    """After these rounds, whose inputs came in one after the other."""
    came_in = np.repeat(
        np.arange(len(rounds)), np.diff([each.inputs for each in rounds], prepend=0)
    )
    return RoundReview(rounds, came_in, precision, 0.95, seed)


def expected_inputs(variance: float, precision: float = 0.01) -> float:
    """Numbers of this variance that a small precision takes: `2 v log(2 / error) / d^2`."""
    return 2 * variance * math.log(2 / ERROR) / precision**2


def test_more_inputs_come_first() -> None:
    p = np.random.default_rng(1).beta(2, 2, 256)
    need = look(FIRST).judge({"a": drawn(p, 16)}, 100_000)
    variance = float(p.var() + (p * (1 - p)).mean() / 16)
    assert need.inputs == pytest.approx(expected_inputs(variance), rel=0.2)
    assert need.following == Round(512, 16)  # at most twice as many, which costs no coverage
    assert not need.reached


def test_the_last_round_is_not_much_larger_than_needed() -> None:
    p = np.random.default_rng(1).beta(2, 2, 5_000)
    need = look(Round(5_000, 16)).judge({"a": drawn(p, 16)}, 100_000)
    assert need.following is not None
    assert need.following.inputs == math.ceil(MARGIN * need.inputs)


def test_misclassified_inputs_are_counted_in() -> None:
    p = np.random.default_rng(1).beta(2, 2, 256)
    half = np.arange(256) % 2 == 0
    all_correct = look(FIRST).judge({"a": drawn(p, 16)}, 10**6)
    correct = np.random.default_rng(0).binomial(16, p)
    half_correct = look(FIRST).judge({"a": tally(correct, 16, half)}, 10**6)
    assert half_correct.inputs == pytest.approx(2 * all_correct.inputs, rel=0.2)


def test_draws_come_when_inputs_run_out_and_reach_it() -> None:
    p = np.full(2000, 0.6)  # all of the variance is that of draws
    rounds = [Round(2000, 16)]
    while True:
        at = rounds[-1]
        need = look(*rounds, precision=0.007).judge({"a": drawn(p, at.draws)}, 2000)
        if need.following is None:
            break
        assert need.following.inputs == 2000
        assert need.following.draws in [at.draws * 2**k for k in range(1, 8)]
        rounds.append(need.following)
    assert need.reached
    assert len(rounds) > 1
    assert need.widths["a"].within == pytest.approx(0.24, abs=0.01)


def test_no_number_of_draws_helps_where_inputs_differ() -> None:
    p = np.repeat([0.0, 1.0], 150)
    need = look(Round(300, 16)).judge({"a": drawn(p, 16)}, 300)
    assert need.following is None
    assert not need.reached
    assert need.inputs == pytest.approx(expected_inputs(0.25), rel=0.1)


def test_the_worst_source_decides() -> None:
    rng = np.random.default_rng(0)
    easy, hard = drawn(np.full(256, 0.99), 16), drawn(rng.beta(0.3, 0.3, 256), 16)
    alone = look(FIRST).judge({"hard": hard}, 10**6)
    both = look(FIRST).judge({"easy": easy, "hard": hard}, 10**6)
    assert both.inputs == alone.inputs


def test_a_mean_of_one_does_not_look_exact() -> None:
    perfect = tally(np.full(100, 16), 16)
    need = look(Round(100, 16)).judge({"a": perfect}, 10**6)
    assert not need.reached
    assert need.widths["a"].half_width > 0.01


def test_the_errors_of_all_stages_add_up_to_that_of_the_run() -> None:
    """More draws begin a stage with an interval over all inputs at once and a smaller error."""
    found = drawn(np.random.default_rng(0).beta(2, 1, 300), 64)
    x, stages = found.rates, [Round(200, 16), Round(300, 16), Round(300, 64)]
    assert [look(*stages[: n + 1]).stage for n in range(3)] == [1, 1, 3]
    assert look(*stages).interval(found) == betting_sequence([x], 1 - 0.05 / 12, 0.01)
    parts = [x[:200], x[200:]]
    assert look(*stages[:2]).interval(found) == betting_sequence(parts, 1 - 0.05 / 2, 0.01)
    assert sum(0.05 / (k * (k + 1)) for k in range(1, 10_000)) <= 0.05


def stop(rng: np.random.Generator, mean: float, spread: float, precision: float) -> Stop:
    """The whole procedure on inputs with probabilities of this mean: where it stops, with what."""
    correct = rng.binomial(16, rng.beta(spread * mean, spread * (1 - mean), 20_000))
    rounds = [FIRST]
    while True:
        found = tally(correct[: rounds[-1].inputs], 16)
        at = look(*rounds, precision=precision)
        need = at.judge({"a": found}, len(correct))
        if need.following is None:
            return Stop(found.rates, at.interval(found), need)
        rounds.append(need.following)


@pytest.mark.parametrize(
    ("mean", "precision"), [(0.8, 0.04), (0.98, 0.01), (0.99, 0.01), (0.995, 0.01), (0.999, 0.005)]
)
def test_the_interval_a_run_stops_with_holds_the_truth(mean: float, precision: float) -> None:
    """Bimodal inputs. The normal interval at the end of a run would miss near 100 %."""
    rng = np.random.default_rng(0)
    stops = [stop(rng, mean, 0.2, precision) for _ in range(100)]
    assert all(each.need.reached for each in stops)
    widths = [each.need.widths["a"].half_width for each in stops]
    assert max(widths) <= precision
    assert np.mean(widths) > precision / 2  # it does not take many more inputs than needed
    for each, width in zip(stops, widths, strict=True):
        value = each.rates.mean()
        ends = each.interval.high - value, value - each.interval.low
        assert width == pytest.approx(max(ends))
    held = [each.interval.low <= mean <= each.interval.high for each in stops]
    assert np.mean(held) >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / len(stops))
    assert np.mean(held) >= 0.98  # far on the safe side in practice


def test_draws_are_whole_blocks() -> None:
    assert [fill_blocks(n) for n in (1, 16, 17, 100)] == [16, 16, 32, 112]


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


def without_sequence(report: Report) -> tuple[Number, ...]:
    return tuple(
        row.with_intervals(*(each for each in row.intervals if each.method != SEQUENCE))
        for row in report.numbers
    )


def without_bounds(report: Report) -> tuple[Number, ...]:
    """Bounds beside PR need a size that does not depend on the results."""
    return tuple(row for row in report.numbers if row.metric is not Metric.BOUND)


def test_the_interval_shown_is_the_one_the_run_stopped_by() -> None:
    report = assess(sources="gaussian,uniform", measure=Measure(precision=0.02))
    assert report.precision is not None
    assert report.precision.reached
    reaches = []
    shown = [row for row in table_rows(report) if row.metric is Metric.PR]
    assert {row.name for row in shown} == {"gaussian", "uniform"}
    for row in shown:
        assert stated(row).method == SEQUENCE
        assert row.guaranteed is row.own
        value, low, high = (np.float64(end) for end in (row.value, *stated(row).ends))
        reaches.append(float(max(high - value, value - low)))
        assert reaches[-1] == report.precision.widths[row.name].half_width
    assert max(reaches) <= 0.02
    words = (
        f"every PR and NPPR is within ±{100 * max(reaches):.2f} percentage points by the interval"
    )
    assert words in notes_of(report)


def test_the_numbers_are_those_of_a_plain_run_of_the_same_size() -> None:
    sources = "gaussian,pgd:steps=2"
    grown = assess(sources=sources, measure=Measure(precision=0.015), run=Run(batch_size=64))
    assert grown.precision is not None
    assert grown.precision.reached
    assert len(grown.precision.rounds) > 1
    inputs, draws = grown.precision.rounds[-1]
    plain = assess(
        sources=sources, measure=Measure(inputs=inputs, draws=draws), run=Run(batch_size=64)
    )
    assert without_sequence(grown) == without_bounds(plain)
    assert grown.data == plain.data
    assert grown.data.inputs.evaluate == inputs


def test_more_draws_extend_fewer_when_inputs_run_out(tmp_path: Path) -> None:
    images = torch.full((1000, 1, 4, 4), 0.5)
    images[..., 0, 0] += 1e-3  # clean-correct by a hair, a coin toss with noise
    data = from_arrays(images, torch.arange(1000) % 1, shares=(0.0, 0.0), class_names=("a", "b"))
    made: dict[str, Any] = {"budget": Budget.linf(0.1), "sources": "uniform", "batch_size": 256}
    grown = assess(half_classifier(), data, **grouped(precision=0.013, out=tmp_path, **made))
    assert grown.precision is not None
    assert grown.precision.reached
    assert grown.precision.rounds[:3] == ((256, 16), (512, 16), (1000, 16))
    inputs, draws = grown.precision.rounds[-1]
    assert inputs == 1000
    assert draws > 16
    plain = assess(half_classifier(), data, **grouped(draws=draws, **made))
    assert without_sequence(grown) == without_bounds(plain)
    # Blocks of rounds that nobody knows any more are measured again.
    (tmp_path / "run.json").write_text("")
    again = assess(
        half_classifier(), data, **grouped(precision=0.013, out=tmp_path, resume=True, **made)
    )
    assert again.precision == grown.precision
    assert again.numbers == grown.numbers


def test_a_precision_that_cannot_be_reached_is_flagged_with_what_it_would_take() -> None:
    report = assess(sources="gaussian", measure=Measure(inputs=30, precision=0.001))
    assert report.precision is not None
    assert not report.precision.reached
    assert report.precision.available_inputs == 30
    flag = next(flag for flag in report.flags if flag.id == PRECISION)
    assert report.precision.needed_inputs is not None
    assert f"{report.precision.needed_inputs:,} inputs" in flag.message
    assert report.precision.needed_inputs > 30


def test_an_interrupted_run_resumes_to_the_same_report(tmp_path: Path) -> None:
    whole = assess(
        sources="gaussian,uniform", measure=Measure(precision=0.015), run=Run(out=tmp_path / "a")
    )
    assert whole.precision is not None
    last = whole.precision.rounds[-1][0]

    def interrupt(state: object) -> None:
        if isinstance(state, Progress) and (state.source, state.total) == ("uniform", last * 16):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        assess(
            sources="gaussian,uniform",
            progress=interrupt,
            measure=Measure(precision=0.015),
            run=Run(out=tmp_path / "b"),
        )
    noted = json.loads((tmp_path / "b" / "run.json").read_text())["rounds"]
    assert noted == [list(each) for each in whole.precision.rounds]
    again = assess(
        sources="gaussian,uniform",
        measure=Measure(precision=0.015),
        run=Run(out=tmp_path / "b", resume=True),
    )
    assert again.precision == whole.precision
    assert again.numbers == whole.numbers
    texts = [(tmp_path / name / "per_input.csv").read_text() for name in ("a", "b")]
    assert texts[0] == texts[1]


def test_precision_needs_a_source_that_draws(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(SpecError, match="`precision` must be given with a source that draws"):
        assess(sources="pgd:steps=1", measure=Measure(inputs=20, precision=0.1), run=Run(out=out))
    assert not out.exists()


def test_a_source_that_fails_has_its_row_and_does_not_stop_the_others() -> None:
    report = assess(
        sources=["uniform", Broken(Budget.linf(0.1), 0.0)],
        measure=Measure(inputs=40, precision=0.1),
    )
    failed = report.headline("stray", Metric.PR)
    assert failed is not None
    assert failed.error
    assert report.headline("uniform", Metric.PR) is not None
