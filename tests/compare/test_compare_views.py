"""What is written: JSON that is read again, tables and a page that say the same."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from compare.runs import Measured, a_run, pr, with_rows
from helpers import stated
from nppr.compare import Comparison, compare, read_comparison
from nppr.compare.compare_views import (
    FORMATS,
    console_tables,
    differences_table,
    long_table,
    paper_table,
    render_comparison,
    summary,
    to_latex,
    to_md,
    write_comparison,
)
from nppr.compare.comparison import (
    SCHEMA_VERSION,
    Compared,
    Difference,
    Entry,
    RunEntry,
    Standing,
)
from nppr.core.tally import Metric
from nppr.errors import NpprError
from nppr.report import RunFiles
from nppr.report.findings import headline_of
from nppr.report.printed_numbers import percent
from report.page.made_runs import failed, made_report, won_by

EVIL = "<script>alert(1)</script>|&_%$#{}~^\\"
N = 500


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    rng = np.random.default_rng(0)
    p = rng.beta(1, 1, N)
    runs: list[RunFiles] = []
    for name, share in ((EVIL, 0.5), ("other", 0.8)):
        correct = rng.random(N) < 0.95
        for seed in (0, 1):
            attack = Measured(Metric.AR, rng.binomial(1, share, N), 1)
            runs.append(
                a_run(
                    f"{len(runs)}", correct, classifier=name, seed=seed,
                    sources={"pgd": attack, "uniform": pr(p * share, seed)},
                )
            )  # fmt: skip
    return compare(runs)


class Page(HTMLParser):
    """Tags, the text of cells, and the text alternatives of figures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.said: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        known = dict(attrs)
        assert "style" not in known
        if tag == "svg" and known.get("aria-hidden") != "true":
            assert known["role"] == "img"
            self.said.append(str(known["aria-label"]))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_json_is_read_again(comparison: Comparison, tmp_path: Path) -> None:
    written = write_comparison(tmp_path, comparison)
    assert [path.name for path in written] == [
        "compare.json", "compare.html", "compare.md", "compare.csv", "compare.tex",
    ]  # fmt: skip
    assert read_comparison(tmp_path / "compare.json") == comparison
    held = sorted(path.name for path in tmp_path.iterdir())
    assert held == sorted([*(path.name for path in written), "manifest.json"])


def test_only_what_is_asked_for_is_written_and_the_truth(
    comparison: Comparison, tmp_path: Path
) -> None:
    write_comparison(tmp_path, comparison, ["md"])
    held = sorted(path.name for path in tmp_path.iterdir())
    assert held == ["compare.json", "compare.md", "manifest.json"]


def test_another_comparison_is_not_replaced_unasked(comparison: Comparison, tmp_path: Path) -> None:
    write_comparison(tmp_path, comparison, ["json"])
    write_comparison(tmp_path, comparison, ["json"])
    other = comparison.model_copy(update={"seed": 7})
    with pytest.raises(NpprError, match="--overwrite"):
        write_comparison(tmp_path, other)
    write_comparison(tmp_path, other, overwrite=True)
    assert read_comparison(tmp_path / "compare.json").seed == 7


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[:200], "cut off or edited"),
        (
            lambda text: text.replace('"schema_version": 3', '"schema_version": 9'),
            "version 3, which nppr .* reads, got 9",
        ),
        (
            lambda text: text.replace('"confidence": 0.95', '"confidence": "much"', 1),
            "'confidence'",
        ),
        (lambda text: f"[{text}]", "field ''"),
    ],
    ids=["cut", "newer", "edited", "list"],
)
def test_a_damaged_comparison_is_one_line(
    comparison: Comparison,
    tmp_path: Path,
    change: Callable[[str], str],
    said: str,
) -> None:
    path = tmp_path / "compare.json"
    path.write_text(change(comparison.to_json()))
    with pytest.raises(NpprError, match=said) as caught:
        read_comparison(path)
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_one_line(
    comparison: Comparison, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NpprError, match="`out` must be a folder that can be written"):
        write_comparison(tmp_path / "file" / "in", comparison)


@pytest.mark.parametrize("name", ["compare.csv", "compare.json", "notes.txt"])
def test_files_that_are_of_no_comparison_are_never_replaced(
    comparison: Comparison, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("precious")
    with pytest.raises(NpprError, match="holds other files"):
        write_comparison(tmp_path, comparison, overwrite=True)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]


def test_csv_has_all_digits(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(long_table(comparison).to_csv())))
    found = comparison.of("uniform", Metric.PR)
    assert found is not None
    values = [row for row in rows if row["kind"] == "value" and row["source"] == "uniform"]
    assert [float(row["value"]) for row in values] == [each.value for each in found.standings]
    assert [float(row["std"]) for row in values] == [each.std for each in found.standings]
    assert [row["run"] for row in values] == [EVIL, "other"]
    [row] = [row for row in rows if row["kind"] == "difference" and row["source"] == "uniform"]
    assert float(row["guaranteed_low"]) == found.differences[0].guaranteed_low
    assert float(row["adjusted_p_value"]) == found.differences[0].adjusted_p_value
    assert (row["run"], row["against"]) == (EVIL, "other")
    assert row["separated"] == "true"


def test_latex_is_balanced_and_escaped(comparison: Comparison) -> None:
    text = to_latex(comparison)
    for kind in ("table", "tabular"):
        assert text.count(rf"\begin{{{kind}}}") == text.count(rf"\end{{{kind}}}") == 4
    for rule in ("toprule", "midrule", "bottomrule"):
        assert text.count("\\" + rule) == 4
    plain = re.sub(r"\\textbackslash\{\}|\\[{}$&%#_]", "", text)
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert "<" not in text
    tabulars = re.findall(r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end", plain, re.S)
    assert len(tabulars) == 4
    for tabular in tabulars:
        rows = [line for line in tabular[1].splitlines() if line.endswith(r"\\")]
        assert {line.count("&") + 1 for line in rows} == {len(tabular[0])}
    assert re.search(r"\d \$\\pm\$ \d", text)


def test_the_paper_form_has_a_row_for_each_entry(comparison: Comparison) -> None:
    table = paper_table(comparison)
    assert [column.name for column in table.columns] == [
        "data", "run", "accuracy clean", "AR pgd", "PR uniform",
    ]  # fmt: skip
    found = comparison.of("pgd", Metric.AR)
    assert found is not None
    first = found.standings[0]
    assert first.value is not None
    assert first.std is not None
    assert first.high is not None
    observed = f"{100 * first.value:.2f} ± {100 * first.std:.2f} observed"
    assert table.rows[0][3].text == f"≤ {100 * first.high:.2f} ({observed})"
    assert "observed under the noise found" in table.caption
    assert [row[3].strong for row in table.rows] == [False, True]
    normalised = paper_table(comparison, normalised=True)
    assert [column.name for column in normalised.columns] == ["data", "run", "AR pgd", "PR uniform"]


def test_markdown_has_whole_rows(comparison: Comparison) -> None:
    text = to_md(comparison)
    tables = re.findall(r"(?:^\|.*\n)+", text, re.M)
    assert len(tables) == 3
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
    assert not re.search(r"(?<!\\)<script", text)


def test_the_page_escapes_names_and_says_every_figure(comparison: Comparison) -> None:
    text = render_comparison(comparison)
    page = Page(text)
    assert page.tags.count("script") == 1
    assert EVIL in page.text
    assert [tag for tag in page.tags if tag in ("h1", "h2")] == ["h1"] + ["h2"] * 6
    assert len(page.said) == 6
    assert {len(result.standings) for result in comparison.results} == {len(comparison.entries)}
    for result in comparison.results:
        for standing in result.standings:
            assert standing.value is not None
            assert standing.std is not None
            printed = f"{100 * standing.value:.1f} ± {100 * standing.std:.1f}"
            assert sum(printed in said for said in page.said) >= 1
            assert printed in page.text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert page.text.index(comparison.answer) < page.text.index("Values in %")


def test_the_answer_comes_first_and_hashes_last(comparison: Comparison) -> None:
    first = comparison.answer[:30]
    assert comparison.answer.startswith("B is more robust under the noise uniform: ")
    for text in (to_md(comparison), render_comparison(comparison).partition("<main")[2]):
        places = [
            text.index(each) for each in (first, "Verdicts on", "49.4", "hash of the weights")
        ]
        assert places == sorted(places)
    assert summary(comparison).startswith(comparison.answer)
    titles = [str(table.title)[:9] for table in console_tables(comparison)]
    assert titles == ["Values in", "Differenc", "Settings "]
    assert list(json.loads(comparison.to_json()))[2:4] == ["answer", "notes"]
    assert render_comparison(comparison).count("hash of the weights") == 1
    same = comparison.model_copy(
        update={"entries": tuple(e.model_copy(update={"differs": {}}) for e in comparison.entries)}
    )
    assert "Settings that differ" not in to_md(same) + to_latex(same) + render_comparison(same)
    assert len(console_tables(same)) == 2


def test_every_verdict_is_in_words_and_approximate_intervals_are_called_so(
    comparison: Comparison,
) -> None:
    table = differences_table(comparison)
    at = {column.name: place for place, column in enumerate(table.columns)}
    (attack,) = (row for row in table.rows if row[0].text == "AR")
    found = comparison.of("pgd", Metric.AR)
    assert found is not None
    (difference,) = found.differences
    assert attack[at["verdict"]].text == "B better"
    assert attack[at["better"]].text == f"{difference.first_better} : {difference.second_better}"
    assert attack[at["method"]].text == "betting"  # two seeds: an input has more than one outcome
    (clean,) = (row for row in table.rows if row[0].text == "accuracy")
    assert clean[at["verdict"]].text == "not shown"
    assert clean[at["method"]].text == "sign test"
    headings = [column.heading for column in table.columns if column.interval]
    assert headings == ["guaranteed", "approximate"]


def test_an_upper_bound_is_never_shown_without_its_upper_end(comparison: Comparison) -> None:
    found = comparison.of("pgd", Metric.AR)
    assert found is not None
    for standing in found.standings:
        assert standing.value is not None
        assert standing.std is not None
        assert standing.high is not None
        observed = f"{100 * standing.value:.1f} ± {100 * standing.std:.1f}"
        most = percent(standing.high, "at-most")
        cell = f"≤ {most} ({observed} observed)"
        assert cell in to_md(comparison)
        assert cell in Page(render_comparison(comparison)).text
        words = f"at most {most} % ({observed} % observed)"
        assert any(words in said for said in Page(render_comparison(comparison)).said)
    rows = list(csv.DictReader(io.StringIO(long_table(comparison).to_csv())))
    assert {
        row["direction"] for row in rows if row["kind"] == "value" and row["source"] == "pgd"
    } == {"upper bound"}


def test_one_run_is_shown_with_the_interval_that_its_page_quotes() -> None:
    """The guaranteed one where the approximate one is outside its tested regime."""
    always = Measured(Metric.PR, np.full(40, 16), 16)
    runs = [a_run(n, np.ones(40, np.bool_), {"uniform": always}, classifier=n) for n in "ab"]
    found = compare(runs).of("uniform", Metric.PR)
    assert found is not None
    row = runs[0].report.headline("uniform", Metric.PR)
    assert row is not None
    assert stated(row).method == "normal"
    assert found.standings[0].method == "betting"
    assert row.shown is not None
    assert found.standings[0].low == row.shown.low
    relative = runs[0].report.headline("uniform", Metric.NORMALISED_ACCURACY)
    assert found.standings[0].normalised_low == stated(relative).low


def test_failures_and_markup_in_them_are_shown() -> None:
    ones = np.ones(20, np.bool_)
    runs = [a_run(name, ones, {}, classifier=name) for name in "ab"]
    broken = failed("pgd", Metric.AR, "<b>why</b>")
    found = compare([with_rows(runs[0], broken), runs[1]])
    page = Page(render_comparison(found))
    assert "<b>why</b>" in page.text
    assert "b" not in page.tags
    assert "failed" in to_md(found)
    assert json.loads(found.to_json())["results"][1]["standings"][0]["error"] == "<b>why</b>"


def test_every_format_renders_one_entry_of_seeds() -> None:
    ones = np.ones(20, np.bool_)
    seeds = [a_run(f"{seed}", ones, {"uniform": pr(ones / 2, seed)}, seed=seed) for seed in (0, 1)]
    found = compare(seeds)
    for _, render in FORMATS.values():
        assert "±" in render(found) or r"\pm" in render(found) or "std" in render(found)
    assert "2 seeds" in found.answer


@pytest.mark.parametrize("winner", [None, "gaussian"])
def test_the_answer_is_that_of_the_runs_pages(tmp_path: Path, winner: str | None) -> None:
    runs = []
    for name in ("a", "b"):
        report, per_input = made_report(inputs=200)
        report = won_by(winner, report) if winner else report
        classifier = report.classifier.model_copy(update={"name": name})
        kept = tuple(row for row in report.numbers if row.source != "merged")
        report = report.model_copy(update={"classifier": classifier, "numbers": kept})
        runs.append(RunFiles(tmp_path / name, report, per_input, None))
    found = compare(runs)
    first = next(result for result in found.results if result.metric is Metric.NPPR)
    for run, standing in zip(runs, first.standings, strict=True):
        row = headline_of(run.report)
        assert row is not None
        assert (first.source, standing.value) == (row.name, row.value)
    assert f"({first.source})" in found.answer
    order = [each.source for each in found.results if each.metric is Metric.NPPR]
    expected = ["nppr:joint (lowest of the set)", "nppr:joint", "nppr:joint:floor=0.5"]
    assert order == (expected if winner else expected[1:])


def test_every_field_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "compare.md").read_text(encoding="utf-8")
    for record in (Comparison, Compared, Difference, Entry, RunEntry, Standing):
        for name in record.model_fields:
            assert f"`{name}`" in text, f"{record.__name__}.{name}"
    assert f"schema version {SCHEMA_VERSION}" in text
