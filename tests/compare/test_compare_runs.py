"""Comparisons of runs whose differences are known, and what cannot be compared."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from compare.runs import Measured, a_run, lines_of, pr, with_rows, written
from helpers import stated
from nppr.compare import Comparison, compare
from nppr.compare.compare_runs import Pair, decide_pairs, group_seeds
from nppr.compare.comparison import Difference
from nppr.core.tally import FloatArray, Metric
from nppr.errors import NpprError
from nppr.report import PerInput, RunFiles
from nppr.report.model import AuditRecord
from nppr.report.number import MergedSubject
from nppr.statistics.betting import betting
from nppr.statistics.paired import Share
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
    assert (found.value, found.approximate_low, found.approximate_high) == (0, 0, 0)
    assert (found.first_better, found.second_better, found.p_value) == (0, 0, 1)
    assert found.method == "betting"
    assert not found.separated
    assert found.guaranteed_low < 0 < found.guaranteed_high


def test_a_constant_shift_is_separated() -> None:
    correct = np.random.default_rng(3).integers(0, 12, N)
    runs = [
        a_run(name, ALL, {"uniform": Measured(Metric.PR, correct + more, 16)}, classifier=name)
        for name, more in (("a", 4), ("b", 0))
    ]
    found = difference_of(compare(runs))
    assert found.value == pytest.approx(0.25)
    assert found.separated
    assert found.better == 0
    assert (found.inputs, found.first_better, found.second_better) == (N, N, 0)


def test_pairing_is_narrower_where_the_same_inputs_are_hard() -> None:
    runs = pair()
    found = difference_of(compare(runs))
    alone = [betting(lines_of(run)["rate"], 0.975) for run in runs]
    apart = sum(each.high - each.low for each in alone)
    assert found.guaranteed_high - found.guaranteed_low < 0.6 * apart
    assert found.guaranteed_low < -0.1 < found.guaranteed_high
    assert found.separated


def test_values_are_those_of_the_reports() -> None:
    runs = pair()
    compared = compare(runs).of("uniform", Metric.PR)
    assert compared is not None
    for run, standing in zip(runs, compared.standings, strict=True):
        row = run.report.headline("uniform", Metric.PR)
        assert row is not None
        assert (standing.value, standing.low, standing.high) == (row.value, *stated(row).ends)
        assert standing.inputs == N
    assert [standing.rank for standing in compared.standings] == [2, 1]
    wider = compare(runs, confidence=0.99).of("uniform", Metric.PR)
    assert wider is not None
    for before, after in zip(compared.standings, wider.standings, strict=True):
        assert before.value == after.value
        assert after.low < before.low < before.high < after.high  # type: ignore[operator]


def test_inputs_that_only_one_classifies_correctly_do_not_count() -> None:
    """Of 400 inputs each misses ten of its own; the others differ by exactly 1/16."""
    n = 400
    clean = {"a": np.arange(n) >= 10, "b": np.arange(n) < n - 10}
    rights = {"a": np.where(np.arange(n) < n - 10, 9, 0), "b": np.where(np.arange(n) < 10, 0, 8)}
    runs = [
        a_run(
            name, clean[name], {"uniform": Measured(Metric.PR, rights[name], 16)}, classifier=name
        )
        for name in "ab"
    ]
    found = compare(runs)
    difference = difference_of(found)
    assert difference.inputs == n - 20
    assert difference.value == pytest.approx(1 / 16)
    assert (difference.first_better, difference.second_better) == (n - 20, 0)
    accuracy = difference_of(found, "clean", Metric.ACCURACY)
    assert (accuracy.inputs, accuracy.first_better, accuracy.second_better) == (n, 10, 10)
    assert accuracy.method == "sign-test"


def outcomes(n: int, better: int, worse: int, unlike: int, metric: Metric = Metric.AR) -> Any:
    """Two runs with so many discordant inputs; each misclassifies `unlike` inputs of its own.

    Half of the other inputs are broken for both.
    """
    at = np.arange(n + 2 * unlike)
    correct = [at >= unlike, (at < unlike) | (at >= 2 * unlike)]
    place = at - 2 * unlike
    agreed = (place >= better + worse) & (place % 2 == 0) | (place < 0)
    held = [(better <= place) & (place < better + worse) | agreed, (place < better) | agreed]
    return [
        a_run(name, clean, {"pgd": Measured(metric, (right & clean).astype(int), 1)}, classifier=name)
        for name, clean, right in zip("ab", correct, held, strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize("metric", [Metric.AR, Metric.PR])
@pytest.mark.parametrize(("better", "worse"), [(43, 4), (54, 7), (40, 6)])
@pytest.mark.parametrize("unlike", [0, 5])
def test_an_obvious_difference_is_separated(
    metric: Metric, better: int, worse: int, unlike: int
) -> None:
    """Also where a few inputs are clean-correct for one of the two only."""
    found = difference_of(compare(outcomes(337, better, worse, unlike, metric)), "pgd", metric)
    assert found.separated
    assert found.better == 1
    assert found.inputs == 337
    assert (found.second_better, found.first_better) == (better, worse)
    assert found.method == "sign-test"
    assert found.p_value == pytest.approx(stats.binomtest(better, better + worse).pvalue)


@pytest.mark.parametrize("unlike", [0, 5])
def test_an_obvious_difference_of_rates_is_separated(unlike: int) -> None:
    runs = []
    for name, run in zip("ab", outcomes(337, 54, 7, unlike), strict=True):
        lines = lines_of(run)
        clean = lines["clean_correct"] == 1
        correct = np.where(lines["correct"] == 1, 15, 1) * clean
        noise = Measured(Metric.NPPR, correct, 16)
        runs.append(a_run(name, clean, {"nppr": noise}, classifier=name))
    found = difference_of(compare(runs), "nppr", Metric.NPPR)
    assert found.separated
    assert found.method == "betting"
    assert found.p_value < 1e-5


def test_sparse_and_skewed_differences_of_mean_zero_are_not_separated() -> None:
    """A sixteenth gained on 1.6 % of the inputs, everything lost on 0.1 %: a normal interval of the
    difference is wrong in more than half of such comparisons."""
    rng, separated = np.random.default_rng(4), 0
    for _ in range(60):
        u = rng.random(400)
        base = np.where(u < 0.016, 15, np.where(u < 0.017, 16, rng.binomial(16, 0.85, 400)))
        moved = np.where(u < 0.016, 16, np.where(u < 0.017, 0, base))
        clean = np.ones(400, np.bool_)
        runs = [
            a_run(name, clean, {"uniform": Measured(Metric.PR, right, 16)}, classifier=name)
            for name, right in (("a", base), ("b", moved))
        ]
        separated += difference_of(compare(runs)).separated
    assert separated <= 60 * 0.05 + 2 * math.sqrt(60 * 0.05 * 0.95)


def test_the_verdicts_of_all_rows_hold_together() -> None:
    """28 against 12 inputs is p = 0.017: enough for one row, not for fourteen; accuracy is apart."""
    (first, second) = outcomes(337, 28, 12, 0)
    alone = difference_of(compare([first, second]), "pgd", Metric.AR)
    assert alone.separated
    assert alone.adjusted_p_value == alone.p_value
    many = []
    for name, run in (("a", first), ("b", second)):
        attack = Measured(Metric.AR, lines_of(run)["correct"], 1)
        same = {f"uniform:scale=0.{at}": pr(np.full(337, 0.5), at) for at in range(10, 23)}
        many.append(a_run(name, np.ones(337, np.bool_), {"pgd": attack, **same}, classifier=name))
    among = difference_of(compare(many), "pgd", Metric.AR)
    assert among.p_value == alone.p_value
    assert among.adjusted_p_value == pytest.approx(14 * alone.p_value)
    assert not among.separated


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
    """34 inputs against 15 are enough for one pair, not for fifteen."""
    at = np.arange(N)
    plain, moved = (at >= 34).astype(int), ((at < 34) | (at >= 49)).astype(int)
    rights = {"a": moved, **dict.fromkeys("bcdef", plain)}
    runs = [
        a_run(name, ALL, {"uniform": Measured(Metric.AR, right, 1)}, classifier=name)
        for name, right in rights.items()
    ]
    alone, among = (difference_of(compare(each), metric=Metric.AR) for each in (runs[:2], runs))
    assert alone.separated
    assert not among.separated
    assert alone.guaranteed_low == among.guaranteed_low


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
    assert difference.method == "betting"
    clean = found.of("clean", Metric.ACCURACY)
    assert clean is not None
    assert clean.differences[0].method == "sign-test"
    means = [standing.value for standing in compared.standings]
    assert None not in means
    assert difference.value == pytest.approx(np.subtract(*np.array(means, float)))
    assert compared.standings[0].normalised_std is not None


def test_several_seeds_have_a_guaranteed_interval() -> None:
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
    assert edge.method == middle.method == "betting"
    assert edge.flags == middle.flags == ()
    assert edge.low is not None
    assert edge.high is not None
    assert edge.low < 0.99 < edge.high


def test_seeds_of_one_classifier_have_nothing_to_be_compared_with() -> None:
    runs = [a_run(f"a{seed}", ALL, {"uniform": pr(HARD, seed)}, seed=seed) for seed in range(2)]
    found = compare(runs)
    assert len(found.entries) == 1
    assert {len(result.differences) for result in found.results} == {0}
    assert {each.rank for result in found.results for each in result.standings} == {None}


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
    assert difference.method == "betting"
    assert difference.inputs == len(
        {index for run in runs[:2] for index in lines_of(run)["index"].tolist()}
    )
    assert difference.value == pytest.approx(0.2 * HARD.mean(), abs=0.03)
    assert difference.separated
    with pytest.raises(NpprError, match="same inputs"):
        compare(runs[:3])


def test_different_data_are_refused_or_get_no_verdict() -> None:
    runs = pair(fingerprint="other")
    with pytest.raises(NpprError, match=r"same inputs.*--allow-different-data") as caught:
        compare(runs)
    assert "\n" not in str(caught.value)
    found = compare(runs, allow_different_data=True)
    assert not found.paired
    assert found.results
    for result in found.results:
        assert result.differences == ()
        assert {standing.rank for standing in result.standings} == {None}
        assert None not in [standing.value for standing in result.standings]
    assert found.answer.startswith("No robustness number of these runs can be compared.")
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
        merged = row.model_copy(update={"subject": MergedSubject(), "value": value, "tally": None})
        runs.append(with_rows(run, merged))
    found = compare(runs)
    assert difference_of(found, "pgd", Metric.AR).separated
    both = difference_of(found, "merged", Metric.AR)
    assert both.value < 0
    assert (both.method, both.separated) == ("sign-test", True)
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
    runs = [replace(run, report=run.report.model_copy(update={"numbers": ()})) for run in pair()]
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


def test_runs_without_a_common_clean_correct_input_get_no_verdict_on_robustness() -> None:
    low = np.arange(N) < N // 2
    noise = {"uniform": Measured(Metric.PR, np.full(N, 8), 16)}
    runs = [a_run(name, each, noise, classifier=name) for name, each in (("a", low), ("b", ~low))]
    found = compare(runs)
    uniform = found.of("uniform", Metric.PR)
    assert uniform is not None
    assert uniform.differences == ()
    assert [standing.rank for standing in uniform.standings] == [None, None]
    assert found.answer.startswith(
        "No robustness number of these runs can be compared. Clean accuracy"
    )


@pytest.mark.parametrize("discarded", [False, True])
def test_screened_counts_decide_nothing(discarded: bool) -> None:
    first, second = pair(0.3)
    audit = AuditRecord(
        source="uniform",
        share=0.02,
        alone=9_000,
        audited=180,
        discarded=discarded,
        widened_by=0.005,
    )
    found = compare([first, with_rows(second, audits=(audit,))])
    row = found.of("uniform", Metric.PR)
    assert row is not None
    assert bool(row.differences) is discarded
    assert ("needs exact counts" in row.incomparable) is not discarded


REPEATS = 150
MOST = REPEATS * 0.05 + 2 * math.sqrt(REPEATS * 0.05 * 0.95)


def share(rates: FloatArray, *, outcomes: bool = False) -> Share:
    return Share(rates, np.ones(len(rates)), outcomes)


def skewed(rng: np.random.Generator, n: int, loss: float) -> Pair:
    """A sixteenth gained on some inputs, everything lost on few: the means are equal."""
    u, rest = rng.random(n), rng.binomial(16, 0.85, n) / 16
    wins, lost = u < 16 * loss, (16 * loss <= u) & (u < 17 * loss)
    a = np.where(wins, 15 / 16, np.where(lost, 1.0, rest))
    return share(a), share(np.where(wins, 1.0, np.where(lost, 0.0, rest)))


def attacked(rng: np.random.Generator, n: int, discordant: float) -> Pair:
    differ, side = rng.random(n) < discordant, rng.random(n) < 0.5
    ends = (np.where(differ, wins, True).astype(np.float64) for wins in (side, ~side))
    a, b = (share(each, outcomes=True) for each in ends)
    return a, b


@pytest.mark.slow
@pytest.mark.parametrize(("n", "loss"), [(400, 0.001), (600, 0.001), (400, 0.0025), (50, 0.01)])
def test_sparse_and_skewed_differences_name_no_winner(n: int, loss: float) -> None:
    rng = np.random.default_rng(0)
    wrong = sum(decide_pairs([skewed(rng, n, loss)], 0.95)[0].separated for _ in range(REPEATS))
    assert wrong <= MOST


@pytest.mark.slow
def test_fourteen_rows_together_name_no_winner() -> None:
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(REPEATS):
        rows = [attacked(rng, 400, 0.1) for _ in range(7)]
        rows += [skewed(rng, 400, 0.001) for _ in range(7)]
        wrong += any(each.separated for each in decide_pairs(rows, 0.95))
    assert wrong <= MOST


def test_the_error_is_used_up_by_attacks() -> None:
    """The exact test is not merely silent: with many discordant inputs it errs in nearly 5 %."""
    rng = np.random.default_rng(2)
    wrong = sum(decide_pairs([attacked(rng, 400, 1.0)], 0.95)[0].separated for _ in range(1000))
    assert 20 <= wrong <= 64


def test_one_outcome_per_input_is_decided_by_the_sign_test_and_rates_by_bets() -> None:
    rng = np.random.default_rng(3)
    pair = attacked(rng, 50, 0.5)
    rates = share(pair[1].above)
    found = [each.method for each in decide_pairs([pair, (pair[0], rates)], 0.95)]
    assert found == ["sign-test", "betting"]
    assert decide_pairs([], 0.95) == []
