"""Comparisons of runs whose differences are known, and what cannot be compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compare.runs import Measured, a_run, lines_of, pr, with_rows, written
from nppr.compare import Comparison, compare
from nppr.compare.compare_runs import group_seeds
from nppr.compare.comparison import Difference
from nppr.errors import NpprError
from nppr.report import PerInput, RunFiles
from nppr.statistics.estimates import APPROXIMATE
from nppr.tally import Metric
from report.page.made_runs import failed

N = 600
ALL = np.ones(N, np.bool_)
HARD = np.random.default_rng(0).beta(0.8, 0.8, N)


def difference_of(
    comparison: Comparison, source: str = "uniform", metric: Metric = Metric.PR
) -> Difference:
    found = comparison.of(source, metric)
    assert found is not None
    return found.differences[0]


def value_of(run: RunFiles) -> float:
    row = run.report.headline("uniform", Metric.PR)
    assert row is not None
    assert row.value is not None
    return row.value


def pair(shift: float = 0.1, **other: Any) -> list[RunFiles]:
    """Two classifiers that find the same inputs hard, the second better by about `shift`."""
    p = HARD * (1 - shift)
    a = a_run("a", ALL, {"uniform": pr(p, 1)}, classifier="a")
    return [a, a_run("b", ALL, {"uniform": pr(p + shift, 2)}, classifier="b", **other)]


def test_a_run_and_its_copy_do_not_differ_at_all() -> None:
    first, second = (a_run(name, ALL, {"uniform": pr(HARD, 1)}) for name in "ab")
    found = difference_of(compare([first, second]))
    assert (found.value, found.low, found.high) == (0, 0, 0)
    assert found.method == "paired-normal"
    assert not found.separated
    assert found.guaranteed_low is not None
    assert found.guaranteed_high is not None
    assert found.guaranteed_low < 0 < found.guaranteed_high
    assert found.unpaired_low < -0.02 < 0.02 < found.unpaired_high


def test_a_constant_shift_has_no_width() -> None:
    correct = np.random.default_rng(3).integers(0, 12, N)
    runs = [
        a_run(name, ALL, {"uniform": Measured(Metric.PR, correct + more, 16)}, classifier=name)
        for name, more in (("a", 4), ("b", 0))
    ]
    found = difference_of(compare(runs))
    assert (found.value, found.low, found.high) == pytest.approx((0.25, 0.25, 0.25))
    assert found.separated


def test_pairing_is_narrower_where_the_same_inputs_are_hard() -> None:
    found = difference_of(compare(pair()))
    assert found.high - found.low < 0.6 * (found.unpaired_high - found.unpaired_low)
    assert found.low < -0.1 < found.high
    assert found.separated
    assert found.flags == ()


def test_values_are_those_of_the_reports() -> None:
    runs = pair()
    compared = compare(runs).of("uniform", Metric.PR)
    assert compared is not None
    for run, standing in zip(runs, compared.standings, strict=True):
        row = run.report.headline("uniform", Metric.PR)
        assert row is not None
        assert (standing.value, standing.low, standing.high) == (row.value, row.low, row.high)
        assert standing.inputs == N
    assert [standing.rank for standing in compared.standings] == [2, 1]
    wider = compare(runs, confidence=0.99).of("uniform", Metric.PR)
    assert wider is not None
    for before, after in zip(compared.standings, wider.standings, strict=True):
        assert before.value == after.value
        assert after.low < before.low < before.high < after.high  # type: ignore[operator]


def test_different_correct_inputs_are_resampled_together() -> None:
    rng = np.random.default_rng(5)
    runs = [
        a_run(name, rng.random(N) < 0.5 + HARD / 2, {"uniform": pr(HARD, 6)}, classifier=name)
        for name in "ab"
    ]
    found = difference_of(compare(runs))
    assert found.method == "joint-bootstrap"
    means = [value_of(run) for run in runs]
    assert found.value == pytest.approx(means[0] - means[1])
    assert found.low < found.value < found.high
    assert found == difference_of(compare(runs))
    assert found.low != difference_of(compare(runs, seed=1)).low
    accuracy = difference_of(compare(runs), "clean", Metric.ACCURACY)
    assert accuracy.method == "paired-normal"


def test_few_inputs_are_flagged_and_only_a_guarantee_separates_them() -> None:
    few = np.ones(12, np.bool_)
    rights = {"a": np.full(12, 16), "b": np.array([12, 13] * 6)}
    runs = [
        a_run(name, few, {"uniform": Measured(Metric.PR, right, 16)}, classifier=name)
        for name, right in rights.items()
    ]
    found = difference_of(compare(runs))
    assert found.flags == (APPROXIMATE,)
    assert found.low > 0.1
    assert found.guaranteed_low is not None
    assert found.guaranteed_low < 0
    assert not found.separated


def test_ranks_have_ties_where_runs_do_not_separate() -> None:
    shifts = {"a": 0.0, "b": 0.3, "c": 0.302, "d": 0.6}
    runs = [
        a_run(name, ALL, {"uniform": pr(HARD * 0.3 + shift, at)}, classifier=name)
        for at, (name, shift) in enumerate(shifts.items())
    ]
    compared = compare(runs).of("uniform", Metric.PR)
    assert compared is not None
    assert [standing.rank for standing in compared.standings] == [4, 2, 2, 1]
    assert len(compared.differences) == 6
    clean = compare(runs).of("clean", Metric.ACCURACY)
    assert clean is not None
    assert [standing.rank for standing in clean.standings] == [1, 1, 1, 1]


def test_more_runs_make_a_pair_harder_to_separate() -> None:
    """The difference is 2.3 standard errors: enough for one pair, not for fifteen."""
    plain = np.full(N, 8)
    moved = plain + np.where(np.arange(N) < 328, 1, -1)
    rights = {"a": moved, **dict.fromkeys("bcdef", plain)}
    runs = [
        a_run(name, ALL, {"uniform": Measured(Metric.PR, right, 16)}, classifier=name)
        for name, right in rights.items()
    ]
    alone, among = difference_of(compare(runs[:2])), difference_of(compare(runs))
    assert alone.separated
    assert not among.separated
    assert (alone.low, alone.high) == (among.low, among.high)


def test_seeds_become_one_entry() -> None:
    runs = [
        a_run(f"{name}{seed}", ALL, {"uniform": pr(p, 10 + seed)}, classifier=name, seed=seed)
        for seed in range(3)
        for name, p in (("a", HARD), ("b", HARD * 0.8))
    ]
    found = compare(runs)
    assert [entry.name for entry in found.entries] == ["a", "b"]
    assert [[run.seed for run in entry.runs] for entry in found.entries] == [[0, 1, 2]] * 2
    compared = found.of("uniform", Metric.PR)
    assert compared is not None
    values = [value_of(run) for run in runs[::2]]
    assert compared.standings[0].value == pytest.approx(np.mean(values))
    assert compared.standings[0].std == pytest.approx(np.std(values, ddof=1))
    assert compared.standings[0].inputs == N
    difference = compared.differences[0]
    assert difference.method == "paired-normal"
    means = [standing.value for standing in compared.standings]
    assert None not in means
    assert difference.value == pytest.approx(np.subtract(*np.array(means, float)))
    assert compared.standings[0].normalised_std is not None


def test_seeds_near_the_edge_have_a_guaranteed_interval() -> None:
    """A mean of 99 % is outside the regime of the approximation, whatever the number of seeds."""
    runs = [
        a_run(
            f"{name}{seed}", ALL, {"uniform": pr(np.full(N, p), seed)}, classifier=name, seed=seed
        )
        for name, p in (("a", 0.99), ("b", 0.5))
        for seed in range(2)
    ]
    found = compare(runs)
    (uniform,) = (row for row in found.results if row.source == "uniform")
    edge, middle = uniform.standings
    assert edge.method == "betting"
    assert edge.flags == ()
    assert middle.method == "normal"
    assert edge.low is not None
    assert edge.high is not None
    assert edge.low < 0.99 < edge.high


def test_seeds_of_one_classifier_have_nothing_to_be_compared_with() -> None:
    runs = [a_run(f"a{seed}", ALL, {"uniform": pr(HARD, seed)}, seed=seed) for seed in range(2)]
    found = compare(runs)
    assert len(found.entries) == 1
    assert all(not result.differences for result in found.results)
    assert all(standing.rank is None for result in found.results for standing in result.standings)


def test_seeds_that_choose_other_inputs_are_paired_by_index() -> None:
    def subset(name: str, seed: int, p: float) -> RunFiles:
        kept = np.sort(np.random.default_rng(seed).choice(N, 450, replace=False))
        run = a_run(
            f"{name}{seed}", ALL[kept], {"uniform": pr(HARD[kept] * p, seed)}, classifier=name,
            seed=seed, fingerprint=f"subset {seed}", inputs=450,
        )  # fmt: skip
        columns = {**lines_of(run).columns, "index": kept}
        return replace(run, per_input=PerInput(columns))

    runs = [subset(name, seed, p) for name, p in (("a", 1.0), ("b", 0.8)) for seed in (0, 1)]
    found = compare(runs)
    assert found.paired
    assert len(found.entries) == 2
    difference = difference_of(found)
    assert difference.method == "joint-bootstrap"
    assert difference.guaranteed_low is None
    assert difference.high - difference.low < difference.unpaired_high - difference.unpaired_low
    with pytest.raises(NpprError, match="same inputs"):
        compare(runs[:3])


def test_different_data_are_refused_or_not_paired() -> None:
    runs = pair(fingerprint="other")
    with pytest.raises(NpprError, match=r"same inputs.*--allow-different-data") as caught:
        compare(runs)
    assert "\n" not in str(caught.value)
    found = compare(runs, allow_different_data=True)
    difference = difference_of(found)
    assert (difference.low, difference.high) == (difference.unpaired_low, difference.unpaired_high)
    assert difference.method == "unpaired-normal"
    assert not found.paired
    assert not difference.paired
    assert "different data" in found.notes[0]


def test_merged_and_attacks_are_compared() -> None:
    rng = np.random.default_rng(8)
    runs = []
    for name, p in (("a", 0.3), ("b", 0.6)):
        attack = Measured(Metric.AR, rng.binomial(1, p, N), 1)
        run = a_run(name, ALL, {"uniform": pr(HARD, 3), "pgd": attack}, classifier=name)
        broken = (attack.correct == 1) & (lines_of(run).of("uniform")["rate"] == 1)
        row = run.report.headline("pgd", Metric.AR)
        assert row is not None
        value = float(broken.mean())
        merged = row.model_copy(update={"source": "merged", "value": value, "tally": None})
        runs.append(with_rows(run, merged))
    found = compare(runs)
    assert difference_of(found, "pgd", Metric.AR).separated
    assert difference_of(found, "merged", Metric.AR).value < 0
    metrics = [result.metric for result in found.results]
    assert metrics == [Metric.ACCURACY, Metric.AR, Metric.AR, Metric.PR]


def test_a_failed_and_a_missing_source_are_named() -> None:
    first, second = pair()
    broken = failed("pgd", Metric.AR, "out of memory")
    found = compare([with_rows(first, broken), second])
    compared = found.of("pgd", Metric.AR)
    assert compared is not None
    assert [standing.error for standing in compared.standings] == [
        "out of memory",
        "not measured in this run",
    ]
    assert compared.differences == ()
    assert [standing.rank for standing in compared.standings] == [None, None]


def test_settings_that_differ_are_noted() -> None:
    p = HARD
    runs = [
        a_run("x", ALL, {"uniform": pr(p, 1)}, eps=eps, confidence=0.95, draws=draws)
        for eps, draws in (("0.1", 16), ("0.2", 32))
    ]
    runs[1] = replace(runs[1], path=Path("y"))
    found = compare(runs)
    assert [entry.name for entry in found.entries] == [
        "net, linf 0.1",
        "net, linf 0.2",
    ]
    assert found.entries[0].differs == {"budget": "linf 0.1", "draws": "16"}
    assert any("budgets differ" in note for note in found.notes)


@pytest.mark.parametrize("number", [0, 1])
def test_fewer_than_two_runs_are_refused(number: int) -> None:
    with pytest.raises(NpprError, match=f"two or more run folders, got {number}"):
        compare(pair()[:number])


def test_the_same_folder_twice_is_refused(tmp_path: Path) -> None:
    run = written(a_run(tmp_path / "a", ALL, {"uniform": pr(HARD, 1)}))
    with pytest.raises(NpprError, match=r"different folders.*twice"):
        compare([run, tmp_path / "b" / ".." / "a"])


def test_nothing_in_common_is_refused() -> None:
    runs = [replace(run, report=run.report.model_copy(update={"results": ()})) for run in pair()]
    with pytest.raises(NpprError, match="metric in common"):
        compare(runs)


def test_lines_of_another_run_are_noticed() -> None:
    first, second = pair()
    with pytest.raises(NpprError, match=r"belongs to its report\.json.*'uniform'"):
        compare([replace(first, per_input=second.per_input), second])


def test_without_lines_only_the_values_are_compared() -> None:
    first, second = pair()
    found = compare([replace(first, per_input=None), second])
    compared = found.of("uniform", Metric.PR)
    assert compared is not None
    assert compared.differences == ()
    assert None not in [standing.value for standing in compared.standings]
    assert any("per_input.csv" in note for note in found.notes)


@pytest.mark.parametrize("column", ["index", "draws"])
def test_lines_that_do_not_fit_together_are_noticed(column: str) -> None:
    first, second = pair()
    noise = {"uniform": pr(HARD, 1), "laplace": pr(HARD, 2)}
    run = a_run("c", ALL, noise, classifier="c")
    changed = lines_of(run)[column].copy()
    changed[-1] = 0
    edited = PerInput({**lines_of(run).columns, column: changed})
    with pytest.raises(NpprError, match=r"per_input\.csv.*'laplace'"):
        compare([first, second, replace(run, per_input=edited)])


def test_a_missing_folder_and_a_wrong_confidence_are_one_line(tmp_path: Path) -> None:
    run = written(a_run(tmp_path / "a", ALL, {"uniform": pr(HARD, 1)}))
    with pytest.raises(NpprError) as caught:
        compare([run, tmp_path / "nothing"])
    assert "nothing" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(NpprError, match="`confidence`"):
        compare([run, run], confidence=1.0)


def test_runs_of_the_same_seed_stay_apart() -> None:
    runs = [a_run(name, ALL, {}, seed=seed) for name, seed in (("x", 0), ("y", 1), ("z", 1))]
    assert [len(group) for group in group_seeds(runs)] == [1, 1, 1]
    assert [len(group) for group in group_seeds(runs[:2])] == [2]


def test_the_order_of_entries_is_that_of_the_runs() -> None:
    first, second = (a_run(name, ALL, {}, classifier=name, seed=5) for name in "ba")
    again = a_run("c", ALL, {}, classifier="b", seed=1)
    found = group_seeds([first, second, again])
    assert [[str(run.path) for run in group] for group in found] == [["c", "b"], ["a"]]
