"""The answer in words: the winner first, both directions where there are two, plain where none is."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import stats

from compare.runs import Measured, a_run
from nppr.compare import Comparison, compare
from nppr.compare.compare_answer import EFFORT, p_text
from nppr.compare.compare_runs import decide_pairs
from nppr.core.tally import IntArray, Metric
from nppr.statistics.paired import Share

N = 300
ALL = np.ones(N, np.bool_)


def discordant(better: int, worse: int) -> tuple[IntArray, IntArray]:
    """Outcomes of two entries, the second of which is better on so many inputs."""
    at = np.arange(N)
    first, second = at >= better, (at < better) | (at >= better + worse)
    return first.astype(np.int64), second.astype(np.int64)


def compared(rows: dict[str, tuple[Metric, int, int]], entries: str = "ab") -> Comparison:
    """Entries with these rows: metric, and on how many inputs the second is better and worse.

    Entries after the second repeat the first.
    """
    runs = []
    for place, entry in enumerate(entries):
        measured = {
            name: Measured(metric, discordant(better, worse)[place == 1], 1)
            for name, (metric, better, worse) in rows.items()
        }
        runs.append(a_run(entry, ALL, measured, classifier=entry))
    return compare(runs)


def test_the_winner_is_the_first_sentence() -> None:
    found = compared({"nppr": (Metric.NPPR, 54, 7), "pgd": (Metric.AR, 43, 4)})
    assert found.answer == (
        "B is more robust under the worst noise found (nppr): 54 inputs better, 7 worse (p < 1e-9)."
    )
    assert found.notes[0] == EFFORT
    assert "Rows on robustness, 2 in all: B is more robust in 2." in found.notes
    assert any("on the 300 inputs that both classify correctly" in note for note in found.notes)


def test_known_noise_needs_no_words_on_effort() -> None:
    assert EFFORT not in compared({"uniform": (Metric.PR, 54, 7)}).notes


def test_verdicts_of_both_directions_are_in_the_answer() -> None:
    found = compared({"uniform": (Metric.PR, 7, 54), "pgd": (Metric.AR, 43, 4)})
    assert found.answer == (
        "The order depends on the noise: A is more robust under the noise uniform, B under the attack"
        " pgd. A: 54 inputs better, 7 worse (p < 1e-9). B: 43 inputs better, 4 worse (p < 1e-8)."
    )
    three = compared({"uniform": (Metric.PR, 7, 54), "pgd": (Metric.AR, 43, 4)}, "abc")
    assert "A is more robust than B under the noise uniform, B than A under the attack pgd" in (
        three.answer
    )


def test_a_row_without_a_verdict_is_named_and_does_not_hide_another() -> None:
    found = compared({"nppr": (Metric.NPPR, 8, 6), "pgd": (Metric.AR, 43, 4)})
    assert found.answer.startswith("B is more robust under the attack pgd: 43 inputs better")
    note = "Rows on robustness, 2 in all: B is more robust in 1; 1 not separated (NPPR nppr)."
    assert note in found.notes


def test_nothing_separated_is_said_plainly_with_what_would_help() -> None:
    found = compared({"uniform": (Metric.PR, 20, 12)})
    assert found.answer == (
        "No difference in robustness is shown: under the noise uniform, A is better on 12 inputs and B"
        " on 20 (p = 0.22)."
    )
    (help_,) = (note for note in found.notes if "would help" in note)
    assert "--inputs" in help_
    assert "a difference of 2.7 points" in help_
    assert "about 1,200 common inputs; these runs have 300" in help_
    three = compared({"uniform": (Metric.PR, 20, 12)}, "abc")
    assert three.answer == "No difference in robustness is shown between any two of the 3 runs."


def test_the_inputs_that_would_help_are_enough() -> None:
    """With that many inputs and the same shares the difference is shown."""
    found = compared({"uniform": (Metric.PR, 20, 12)})
    (asked,) = (re.search(r"about ([\d,]+) common", note) for note in found.notes if "help" in note)
    assert asked is not None
    times = int(asked[1].replace(",", "")) // N
    pair = [
        Share(np.tile(each, times).astype(np.float64), np.ones(times * N), outcomes=True)
        for each in discordant(20, 12)
    ]
    assert times == 4
    assert decide_pairs([(pair[0], pair[1])], 0.95)[0].separated


def test_a_verdict_lost_to_the_correction_says_so() -> None:
    rows = {f"uniform:scale=0.{at}": (Metric.PR, 5, 5) for at in range(10, 22)}
    found = compared({"uniform": (Metric.PR, 28, 12), **rows})
    shown = compared({"uniform": (Metric.PR, 28, 12)})
    assert shown.answer.startswith("B is more robust")
    assert found.answer.startswith("No difference in robustness is shown")
    lost = found.of("uniform", Metric.PR)
    assert lost is not None
    assert lost.differences[0].p_value < 0.05 < lost.differences[0].adjusted_p_value


def test_a_difference_of_nothing_is_not_promised_by_more_inputs() -> None:
    notes = compared({"uniform": (Metric.PR, 5, 5)}).notes
    assert not any("would help" in note for note in notes)
    assert any("nothing to show" in note and "guaranteed" in note for note in notes)


def test_a_mean_against_the_count_of_inputs_is_explained() -> None:
    """B gains a sixteenth on 60 inputs and loses everything on 30."""
    base = np.where(np.arange(N) < 60, 15, 16)
    moved = np.where(np.arange(N) < 60, 16, np.where(np.arange(N) < 90, 0, 16))
    runs = [
        a_run(name, ALL, {"uniform": Measured(Metric.PR, right, 16)}, classifier=name)
        for name, right in (("a", base), ("b", moved))
    ]
    answer = compare(runs).answer
    assert answer.startswith("A is more robust under the noise uniform: 8.8 points on average")
    assert "although only 30 inputs are better and 60 worse" in answer


def test_clean_accuracy_is_a_sentence_of_its_own() -> None:
    correct = [np.arange(N) >= 20, np.arange(N) < N - 2]
    noise = Measured(Metric.PR, np.full(N, 8), 16)
    runs = [
        a_run(n, c, {"uniform": noise}, classifier=n) for n, c in zip("ab", correct, strict=True)
    ]
    found = compare(runs)
    assert found.answer.startswith("No difference in robustness is shown")
    p = p_text(stats.binomtest(2, 22).pvalue)
    assert (
        "Clean accuracy: A 93.3 %, B 99.3 %; B is more accurate (only A is correct on 2 inputs, only B"
        f" on 20, {p})." in found.notes
    )


def test_three_runs_have_a_leader_or_none() -> None:
    led = compared({"uniform": (Metric.PR, 54, 7)}, "abc")
    assert led.answer == "B is more robust than all others under the noise uniform."
    worse = compared({"uniform": (Metric.PR, 7, 54)}, "abc")
    assert worse.answer == (
        "No run is more robust than all others: under the noise uniform, 2 of 3 pairs are separated,"
        " and A and C have rank 1."
    )


@pytest.mark.parametrize(
    ("p", "text"),
    [(1.0, "p = 1"), (0.0012, "p = 0.0012"), (9e-4, "p < 1e-3"), (1e-9, "p < 1e-9"), (0, "p < 1e-12")],
)  # fmt: skip
def test_small_pvalues_are_never_rounded_down(p: float, text: str) -> None:
    assert p_text(p) == text
