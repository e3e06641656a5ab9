"""Every number of a page is that of `report.json`, and every kind of run gives a page."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from markupsafe import Markup
from matplotlib.figure import Figure

from nppr.report import Report
from nppr.report.figures import Drawn
from nppr.report.findings import table_rows
from nppr.report.page import fragment_of, page_of, render
from nppr.report.page.render import SECTIONS
from nppr.report.page.shell import page_shell
from nppr.report.printed_numbers import Numbers
from report.page.made_runs import MARKUP, made_evidence, made_report, with_ladder

SCALES = {"percent": 100.0, "level": 100.0, "at-least": 100.0, "at-most": 100.0}
ROUNDED = {"at-least": -1, "at-most": 1, "loss-at-least": -1, "loss-at-most": 1, "tiny-at-most": 1}
"""Bounds are rounded to the side on which they hold."""


class Page(HTMLParser):
    """The numbers, headings and table cells of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.numbers: list[tuple[dict[str, str], str]] = []
        self.headings: list[tuple[int, str]] = []
        self.images: list[dict[str, str]] = []
        self.tags: list[str] = []
        self._open: dict[str, str] | None = None
        self._heading: int | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        if tag == "data":
            self._open = known
            self.numbers.append((known, ""))
        if tag == "img":
            self.images.append(known)
        if re.fullmatch("h[1-6]", tag):
            self._heading = int(tag[1])
            self.headings.append((self._heading, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "data":
            self._open = None
        if re.fullmatch("h[1-6]", tag):
            self._heading = None

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            facts, text = self.numbers[-1]
            self.numbers[-1] = (facts, text + data)
        if self._heading is not None:
            level, text = self.headings[-1]
            self.headings[-1] = (level, text + data)


def at(content: Any, pointer: str) -> Any:
    """What is at a JSON pointer."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        content = content[int(key)] if isinstance(content, list) else content[key]
    return content


def wrong_numbers(page: Page, content: Any) -> list[str]:
    """Pointers whose printed number is not that of the file, to the last printed digit."""
    wrong = []
    for facts, text in page.numbers:
        if "data-pointer" not in facts:
            continue
        truth = at(content, facts["data-pointer"])
        plain = text.replace(",", "")
        digits, _, power = plain.partition("e")
        unit = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
        shown = float(plain) / SCALES.get(facts["data-form"], 1.0)
        slack = 0.5001 * unit / SCALES.get(facts["data-form"], 1.0)
        side = ROUNDED.get(facts["data-form"])
        off = abs(shown - truth) > slack
        if side is not None:
            off = not -1e-9 <= side * (shown - truth) < 2 * slack
        if off or float(facts["value"]) != truth:
            wrong.append(facts["data-pointer"])
    return wrong


@pytest.fixture(scope="module")
def made() -> tuple[Report, str]:
    report, per_input = made_report(radii=True)
    report = with_ladder(report)
    return report, render(report, per_input, made_evidence())


def test_every_number_is_that_of_the_file(made: tuple[Report, str]) -> None:
    report, text = made
    page = Page(text)
    assert wrong_numbers(page, json.loads(report.to_json())) == []
    pointers = {facts["data-pointer"] for facts, _ in page.numbers if "data-pointer" in facts}
    assert len(pointers) > 130
    assert {pointer.split("/")[1] for pointer in pointers} >= {
        "numbers", "other_radii", "distributions", "ladder", "timing", "settings", "data",
        "seed", "budget",
    }  # fmt: skip


def test_a_changed_number_is_found(made: tuple[Report, str]) -> None:
    report, text = made
    content = json.loads(report.to_json())
    pointer, shown = next(
        (facts["data-pointer"], shown)
        for facts, shown in Page(text).numbers
        if facts.get("data-field") in ("value", "low", "high") and "." in shown
    )
    digit = str((int(shown[-1]) + 1) % 10)
    changed = re.sub(
        rf'(data-pointer="{re.escape(pointer)}"[^>]*>)[^<]*',
        rf"\g<1>{shown[:-1]}{digit}",
        text,
        count=1,
    )
    assert wrong_numbers(Page(changed), content) == [pointer]


def test_numbers_of_results_name_their_result(made: tuple[Report, str]) -> None:
    report, text = made
    content = json.loads(report.to_json())
    named = [facts for facts, _ in Page(text).numbers if "data-source" in facts]
    assert len(named) > 50
    ends = [facts for facts in named if "/intervals/" in facts["data-pointer"]]
    assert len(ends) > 25
    for facts in named:
        row = at(content, "/".join(facts["data-pointer"].split("/")[:3]))
        assert facts["data-source"].startswith(row["subject"]["source"])
        assert facts["data-metric"] == row["metric"]
        known = [(each["method"], each["claim"]) for each in row["intervals"]]
        assert (facts["data-method"], facts["data-claim"]) in known
        assert facts["data-pointer"].endswith("/" + facts["data-field"])
    for facts in ends:
        used = at(content, facts["data-pointer"].rpartition("/")[0])
        assert (facts["data-method"], facts["data-claim"]) == (used["method"], used["claim"])


def test_no_number_of_the_table_is_plain_text(made: tuple[Report, str]) -> None:
    table = made[1].split('id="comparison-table"')[1].split("</table>")[0]
    cells = re.findall(r'<td class="n"[^>]*>(.*?)</td>', table, re.DOTALL)
    assert any("<data" in cell for cell in cells)
    for cell in cells:
        assert not re.search(r"\d", re.sub(r"<data.*?</data>|<[^>]*>", "", cell)), cell


def test_rows_are_those_of_the_console(made: tuple[Report, str]) -> None:
    report, text = made
    table = text.split('id="comparison-table"')[1].split("</table>")[0]
    shown = re.findall(r'<td class="source">(.*?)</td>', table)
    assert shown == [row.name for row in table_rows(report)]


def test_sections_and_headings_are_in_order(made: tuple[Report, str]) -> None:
    page = Page(made[1])
    without_frames = [text for name, text in SECTIONS.items() if name != "samples"]
    assert [text for level, text in page.headings if level == 2] == without_frames
    assert [level for level, _ in page.headings].count(1) == 1
    for (before, _), (level, _) in zip(page.headings, page.headings[1:], strict=False):
        assert level <= before + 1
    assert page.tags.count("main") == 1
    assert page.images
    assert all(image["alt"] and image["width"] and image["height"] for image in page.images)


def test_nothing_comes_from_elsewhere(made: tuple[Report, str]) -> None:
    text = made[1]
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", text)
    assert "http" not in re.sub(r'http-equiv|xmlns(:\w+)?="[^"]*"', "", text)
    assert " style=" not in text
    assert " onclick" not in text
    policy = re.search(r'Security-Policy" content="([^"]*)"', text)
    assert policy
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe" not in policy[1]


@pytest.mark.parametrize(
    ("only", "sentence"),
    [
        (
            "all",
            "that follows the input and its class by a rule (<code>nppr:joint</code>, of any structure",
        ),
        ("noise", "under the worst fixed noise measured"),
        ("attack", "withstand everything that was tried within the budget"),
        ("bound", "under all noise whose density is at most 10 times"),
        ("clean", "no perturbation was measured"),
        ("failed", "was searched for without success, so there is no NPPR:"),
    ],
)
def test_every_run_has_its_sentence(only: str, sentence: str) -> None:
    report, per_input = made_report(only=only)
    text = render(report, per_input)
    assert sentence in text
    assert wrong_numbers(Page(text), json.loads(report.to_json())) == []
    assert "<b>nothing</b>" not in text


def test_names_are_escaped() -> None:
    names = [MARKUP, *map(str, range(9))]
    report, per_input = made_report(names=names)
    text = render(report, per_input, made_evidence())
    assert MARKUP not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 2
    assert MARKUP not in fragment_of(report)


def test_missing_files_are_reported() -> None:
    report, _ = made_report()
    text = render(report)
    assert "holds no <code>per_input.csv</code>" in text
    assert "holds no <code>evidence.safetensors</code>" in text


def test_one_input() -> None:
    report, per_input = made_report(inputs=1, classes=2)
    text = render(report, per_input, made_evidence(1, classes=2))
    assert "the only class with clean-correct inputs is <strong>0</strong>" in text
    assert "1 class has no clean-correct input: 1." in text


def test_many_classes_stay_readable_and_small() -> None:
    report, per_input = made_report(
        inputs=1400, classes=200, names=[f"class {i}" for i in range(200)]
    )
    text = render(report, per_input, made_evidence(12, 200, side=64))
    assert "The other 180 classes" in text
    assert text.count('<rect class="track"') == 20
    assert len(text.encode()) < 5_000_000


def test_pages_are_repeatable(made: tuple[Report, str]) -> None:
    report, per_input = made_report(radii=True)
    assert render(with_ladder(report), per_input, made_evidence()) == made[1]


def test_figures_stand_where_they_belong() -> None:
    report, per_input = made_report()
    report = with_ladder(report)
    drawn = [
        Drawn(name, f"Title <of> {name}", "in words", "How to read it", Figure())
        for name in ("rates", "searches")
    ]
    text = render(report, per_input, figures=drawn)
    places = [text.index(f'id="{name}"') for name in ("comparison", "figure-rates", "classes")]
    assert places == sorted(places)
    assert (
        text.index('id="ladder"')
        < text.index('id="figure-searches"')
        < text.index('id="admissible"')
    )
    assert "Title &lt;of&gt; rates" in text


def test_the_fragment_is_compact_and_without_script() -> None:
    report, _ = made_report()
    text = fragment_of(report)
    assert len(text) < 40_000
    assert "<script" not in text
    assert "<style" not in text
    assert "under the worst noise found" in text


def test_a_number_has_its_place() -> None:
    report, _ = made_report()
    number = Numbers(report).at("seconds", "timing", "seconds", "a/b~c")
    assert str(number) == "1.2"
    assert 'data-pointer="/timing/seconds/a~1b~0c"' in number.__html__()


def test_the_shell_admits_its_own_style_and_script_alone() -> None:
    text = page_shell("a <b>", Markup("<main id='main'></main>"))
    assert "<title>a &lt;b&gt;</title>" in text
    policy = text.split('Security-Policy" content="')[1].split('"')[0]
    for tag in ("style", "script"):
        inner = text.split(f"<{tag}>")[1].split(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{tag}-src &#39;sha256-{digest.replace('+', '&#43;')}&#39;" in policy.replace(
            "+", "&#43;"
        )


def test_real_figures_fit_the_policy() -> None:
    report, per_input = made_report()
    text = page_of(report, per_input, made_evidence())
    assert 'id="figure-rates"' in text
    assert " style=" not in text
    names = re.findall(r' id="([^"]*)"', text)
    assert len(names) == len(set(names))
