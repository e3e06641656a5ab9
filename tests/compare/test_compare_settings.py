"""Names tell entries apart by what differs, else by folders; other searches are not compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compare.runs import Measured, a_run, pr, rows_of, tally, with_rows
from helpers import DIAGNOSTICS
from nppr.cli import run as run_command
from nppr.compare import Comparison, compare, read_comparison, summary
from nppr.compare.compare_answer import EFFORT
from nppr.compare.compare_settings import Group, differing_settings, names_of
from nppr.compare.compare_views import (
    differences_table,
    render_comparison,
    to_latex,
    to_md,
    values_table,
)
from nppr.compare.comparison import Compared
from nppr.core.tally import Metric
from nppr.noise import Dependency, Family, Rule
from nppr.report import RunFiles
from nppr.report.number import MergedSubject
from nppr.search import SearchSettings, default_settings
from nppr.search.search_record import (
    BudgetRecord,
    DistributionRecord,
    FeaturesRecord,
    ReferenceChoice,
    SearchConditions,
    SearchRecord,
)

ONES = np.ones(3, np.bool_)


def entry(folder: str, **settings: Any) -> Group:
    return (a_run(folder, ONES, {}, **settings),)


def test_classifiers_with_names_of_their_own_keep_them() -> None:
    assert names_of([entry("x", classifier="a"), entry("y", classifier="b")]) == ["a", "b"]


def test_the_same_classifier_is_named_by_settings() -> None:
    entries = [entry("x", eps="0.1"), entry("y", eps="0.2"), entry("z", classifier="b")]
    assert names_of(entries) == ["net, linf 0.1", "net, linf 0.2", "b"]


def test_nested_settings_are_named() -> None:
    entries = [entry("x", search=default_settings(Family(floor=rho))) for rho in (0.0, 0.5)]
    assert names_of(entries) == ["net, search family floor 0", "net, search family floor 0.5"]
    assert differing_settings(entries)[1] == {"search family floor": "0.5"}


def test_long_names_give_way_to_the_folder() -> None:
    entries = [entry(f"runs/{name}", radii=(f"0.{digit * 60}",)) for name, digit in ("x1", "y2")]
    assert names_of(entries) == ["net (x)", "net (y)"]


def test_a_name_holds_no_more_than_is_needed() -> None:
    entries = [
        entry("x", eps="0.1", draws=16),
        entry("y", eps="0.2", draws=16),
        entry("z", eps="0.2", draws=32),
    ]
    assert names_of(entries) == [
        "net, linf 0.1",
        "net, linf 0.2, draws 16",
        "net, linf 0.2, draws 32",
    ]


def test_a_search_that_only_some_have_is_one_line() -> None:
    entries = [entry("x", search=SearchSettings()), entry("y")]
    assert differing_settings(entries) == [{"search": "yes"}, {"search": "-"}]


def test_nothing_that_differs_gives_folders_and_then_paths() -> None:
    assert names_of([entry("p/x"), entry("p/y")]) == ["net (x)", "net (y)"]
    assert names_of([entry("p/x"), entry("q/x")]) == ["net (p/x)", "net (q/x)"]


N = 500
ALL = np.ones(N, np.bool_)
MEANS = {"a": 0.2, "b": 0.6, "c": 0.4}
BUDGET = BudgetRecord(norm="linf", radius=0.1, text="0.1")


def searched(
    name: str,
    seed: int = 0,
    *,
    steps: int = 10,
    settings: SearchSettings | None = None,
    conditions: dict[str, Any] | None = None,
    budget: BudgetRecord = BUDGET,
    features: dict[str, Any] | None = None,
) -> RunFiles:
    """A run with learned noise, over which uniform noise won, and an attack."""
    mean = MEANS[name]
    noise = Measured(Metric.NPPR, np.random.default_rng(seed + 1).binomial(16, mean, N), 16)
    attack = Measured(Metric.AR, np.random.default_rng(7).binomial(1, mean, N), 1)
    sources = {"nppr": noise, "uniform": pr(np.full(N, mean), 3), "pgd": attack}
    options = {"pgd": {"steps": steps}}
    found = a_run(f"{name}{seed}", ALL, sources, classifier=name, seed=seed, options=options)
    given = {"fit_inputs": 100, "select_inputs": 50, "seed": seed, "quantise": False}
    search = SearchRecord(
        selected="joint", select_value=0.5, stages=(), fit_calls=1, forward_calls=1,
        references=ReferenceChoice(winner="uniform", select_values={}),
        settings=settings or SearchSettings(),
        conditions=SearchConditions(**{**given, "fingerprint": name, **(conditions or {})}),
    )  # fmt: skip
    made = DistributionRecord(
        name="nppr", fit_seed=None, budget=budget, family=Family(), rule=Rule.WEIGHTS, features=8,
        search=search, diagnostics=DIAGNOSTICS,
    )  # fmt: skip
    uniform = tally(sources["uniform"].correct, 16, ALL)
    both = [
        row.with_subject(with_references=True).model_copy(update={"tally": "uniform"})
        for row in rows_of("nppr", Metric.NPPR, uniform)
        if row.metric is Metric.NPPR
    ]
    unbroken = np.all([each.correct == each.draws for each in sources.values()], axis=0)
    head = found.report.headline("pgd", Metric.AR)
    assert head is not None
    value = float(unbroken.mean())
    merged = head.model_copy(update={"subject": MergedSubject(), "value": value, "tally": None})
    seen = {"model": "net", "fingerprint": name, "layer": "fc", "number": 8, **(features or {})}
    classifier = found.report.classifier.model_copy(update={"features": FeaturesRecord(**seen)})
    return with_rows(found, *both, merged, distributions=(made,), classifier=classifier)


DEFAULTS = SearchSettings()
DIFFERENT: dict[str, tuple[dict[str, Any], str]] = {
    "calls": ({"settings": replace(DEFAULTS, calls=512)}, "search calls: 199680 in A, 512 in B"),
    "floors": (
        {"settings": replace(DEFAULTS, floors=(0.0, 0.5))},
        "search floors: 0 in A, 0, 0.5 in B",
    ),
    "dependency": (
        {"settings": default_settings(Family(dependency=Dependency.LABEL))},
        "search family dependency: joint in A, label in B",
    ),
    "fit seeds": ({"settings": replace(DEFAULTS, seeds=3)}, "search seeds: 1 in A, 3 in B"),
    "preset": ({"settings": replace(DEFAULTS, preset="paper")}, "search preset: nppr in A, paper"),
    "recipe": ({"settings": default_settings(draws=9)}, "search recipe draws: 1 in A, 9 in B"),
    "fit inputs": ({"conditions": {"fit_inputs": 7}}, "fit inputs: 100 in A, 7 in B"),
    "select inputs": ({"conditions": {"select_inputs": 7}}, "select inputs: 50 in A, 7 in B"),
    "seed": ({"conditions": {"seed": 9}}, "seed: 0 in A, 9 in B"),
    "quantise": ({"conditions": {"quantise": True}}, "quantise: False in A, True in B"),
    "transfer": (
        {"conditions": {"fingerprint": "a"}},
        "fitted on: the classifier itself in A, hash a in B",
    ),
    "radius": (
        {"budget": BudgetRecord(norm="linf", radius=0.01, text="0.01")},
        "fitted in: the budget of the run in A, linf 0.01 in B",
    ),
    "feature model": (
        {"features": {"model": "other", "fingerprint": "x"}},
        "feature model: the classifier itself in A, other (hash x) in B",
    ),
    "feature layer": ({"features": {"layer": "conv1"}}, "feature layer: fc in A, conv1 in B"),
}


def rows(found: Comparison, metric: Metric) -> list[Compared]:
    return [result for result in found.results if result.metric is metric]


def row(found: Comparison, source: str, metric: Metric) -> Compared:
    result = found.of(source, metric)
    assert result is not None
    return result


def test_searches_of_the_same_settings_are_compared() -> None:
    found = compare([searched("a"), searched("b")])
    assert [each.source for each in rows(found, Metric.NPPR)] == [
        "nppr (lowest of the set)",
        "nppr",
    ]
    assert {(each.incomparable, len(each.differences)) for each in found.results} == {("", 1)}
    assert [each.rank for each in row(found, "nppr", Metric.NPPR).standings] == [2, 1]
    assert found.answer.startswith("B is more robust under the worst noise found (nppr")
    assert EFFORT in found.notes


@pytest.mark.parametrize("case", DIFFERENT)
def test_searches_of_other_settings_are_not_compared(case: str) -> None:
    changes, expected = DIFFERENT[case]
    found = compare([searched("a"), searched("b", **changes)])
    assert rows(found, Metric.NPPR)
    for each in [*rows(found, Metric.NPPR), row(found, "merged", Metric.AR)]:
        assert each.differences == ()
        assert [standing.rank for standing in each.standings] == [None, None]
        assert None not in [standing.value for standing in each.standings]
        assert expected in each.incomparable
    assert found.notes[0] == rows(found, Metric.NPPR)[0].incomparable
    assert "NPPR" not in found.answer
    assert found.answer.startswith("B is more robust under the noise uniform")
    noise = row(found, "uniform", Metric.PR)
    assert [standing.rank for standing in noise.standings] == [2, 1]


def test_every_rendering_states_it_once_and_ranks_nothing() -> None:
    weaker = replace(DEFAULTS, calls=512)
    found = compare([searched("a"), searched("b", settings=weaker)])
    sentence = found.notes[0]
    assert sentence.startswith("Not compared: AR merged, NPPR nppr (lowest of the set), NPPR nppr.")
    for text in (summary(found), to_md(found), render_comparison(found)):
        assert text.count(sentence.partition(".")[0]) == 1
        assert text.index(found.answer[:20]) < text.index(sentence.partition(".")[0])
        assert "B is more robust under the worst noise" not in text
    assert [each[0].text for each in differences_table(found).rows] == ["accuracy", "AR", "PR"]
    strong = {each[0].text for each in values_table(found).rows if any(c.strong for c in each)}
    assert strong == {"AR", "PR"}
    assert "NPPR" not in to_latex(found).partition("Differences in")[2]


def test_one_entry_that_differs_takes_the_ranks_of_the_row() -> None:
    weaker = replace(DEFAULTS, calls=512)
    runs = [searched("a"), searched("b"), searched("c", settings=weaker)]
    found = row(compare(runs), "nppr", Metric.NPPR)
    assert found.differences == ()
    assert "search calls: 199680 in A, 199680 in B, 512 in C" in found.incomparable


def test_attacks_of_other_options_under_one_name_are_not_compared() -> None:
    found = compare([searched("a"), searched("b", steps=1)])
    for source in ("pgd", "merged"):
        each = row(found, source, Metric.AR)
        assert each.differences == ()
        assert "pgd steps: 10 in A, 1 in B" in each.incomparable
    assert found.answer.startswith("B is more robust under the worst noise")  # the same searches


def test_an_attack_fitted_on_other_inputs_is_not_compared() -> None:
    def fitted(name: str, inputs: int) -> RunFiles:
        run = searched(name)
        report = run.report
        sources = tuple(
            each.model_copy(update={"fitted": each.name == "pgd"})
            for each in report.settings.sources
        )
        settings = report.settings.model_copy(update={"sources": sources})
        sizes = report.data.inputs.model_copy(update={"fit": inputs})
        data = report.data.model_copy(update={"inputs": sizes})
        changed = report.model_copy(update={"settings": settings, "data": data})
        return replace(run, report=changed)

    assert row(compare([fitted("a", 100), fitted("b", 100)]), "pgd", Metric.AR).differences
    found = row(compare([fitted("a", 100), fitted("b", 7)]), "pgd", Metric.AR)
    assert found.differences == ()
    assert "fit inputs: 100 in A, 7 in B" in found.incomparable


def test_seeds_of_one_entry_are_one_search() -> None:
    runs = [searched(name, seed) for name in "ab" for seed in (0, 1)]
    found = row(compare(runs), "nppr", Metric.NPPR)
    assert found.incomparable == ""
    assert len(found.differences) == 1
    other = row(compare([*runs[:2], searched("b", 0)]), "nppr", Metric.NPPR)
    assert "seed: 0, 1 in A, 0 in B" in other.incomparable


def test_merged_attacks_are_compared_only_where_the_search_of_every_floor_is_the_same() -> None:
    def two_floors(name: str, calls: int) -> RunFiles:
        found = searched(name)
        (last,) = found.report.distributions
        settings = replace(DEFAULTS, calls=calls)
        search = last.search.model_copy(update={"settings": settings})
        first = last.model_copy(
            update={"name": "nppr:floor=0.5", "family": Family(floor=0.5), "search": search}
        )
        own = found.report.headline("nppr", Metric.NPPR)
        assert own is not None
        return with_rows(found, own.with_subject(floor=0.5), distributions=(first, last))

    same = row(compare([two_floors("a", 4096), two_floors("b", 4096)]), "merged", Metric.AR)
    assert same.incomparable == ""
    other = row(compare([two_floors("a", 4096), two_floors("b", 512)]), "merged", Metric.AR)
    assert "search calls: 199680, 4096 in A, 199680, 512 in B" in other.incomparable


def test_the_rung_per_input_has_the_search_it_starts_at_and_its_own_calls() -> None:
    def own(name: str, per_input: int, calls: int = 4096) -> RunFiles:
        found = searched(name, settings=replace(DEFAULTS, calls=calls, per_input_calls=per_input))
        head = found.report.headline("nppr", Metric.NPPR)
        assert head is not None
        return with_rows(
            found,
            head.with_subject(rung=Dependency.PER_INPUT).model_copy(update={"tally": None}),
        )

    found = compare([own("a", 20), own("b", 40)])
    assert row(found, "nppr", Metric.NPPR).incomparable == ""
    expected = "search per input calls: 20 in A, 40 in B"
    for source, metric in (("nppr:per-input", Metric.NPPR), ("merged", Metric.AR)):
        assert expected in row(found, source, metric).incomparable
    found = compare([own("a", 20), own("b", 20, calls=512)])
    assert "search calls: 4096 in A" in row(found, "nppr:per-input", Metric.NPPR).incomparable


@pytest.mark.slow
def test_a_weaker_search_is_named_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "assess --sources uniform,nppr --inputs 40 --draws 4 --fit-inputs 80 --select-inputs 40"
    words += " --floor 0 --components 1 --dependency independent --no-page --quiet --out"
    assert run_command([*words.split(), "a", "--fit-calls", "2048"]) == 0
    assert run_command([*words.split(), "b", "--fit-calls", "1024"]) == 0
    capsys.readouterr()
    assert run_command(["compare", "a", "b", "--out", "found", "--format", "md"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "different settings (search calls: 2048 in A, 1024 in B)" in shown
    assert "more robust under the worst noise" not in shown
    found = row(read_comparison("found/compare.json"), "nppr:independent", Metric.NPPR)
    assert [standing.rank for standing in found.standings] == [None, None]
    assert found.differences == ()


def test_hashes_are_the_last_settings() -> None:
    runs = [a_run(name, ONES, {}, classifier=name, draws=at) for at, name in enumerate("ab", 4)]
    found = compare(runs)
    differing = ["classifier", "draws", "hash of the weights"]
    assert [list(each.differs) for each in found.entries] == [differing] * 2
    text = found.to_json()
    assert text.index('"answer"') < text.index('"results"') < text.index("hash of the weights")
