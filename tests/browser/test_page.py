"""The page in a real browser: it runs, sorts, fits every width, prints, and asks nobody anything."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pypdf
import pytest

from nppr.report.findings import table_rows
from nppr.report.page import page_of, render
from nppr.report.page.render import SECTIONS
from report.page.made_runs import MARKUP, made_evidence, made_report

if TYPE_CHECKING:
    from browser.conftest import Browser

pytestmark = pytest.mark.slow

SHOWN = {name: heading for name, heading in SECTIONS.items() if name != "samples"}
"""The sections of a run without frames of a sensor."""

CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parsed = (text) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parsed(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  let least = [Infinity, ""];
  const walker = document.createTreeWalker(document.querySelector("body"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const shown = walker.currentNode.textContent.trim() && node.getClientRects().length;
    if (!shown || node.closest("svg, script, style, .skip")) continue;
    const [a, b] = [light(parsed(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least[0]) least = [ratio, node.outerHTML.slice(0, 200)];
  }
  return least;
}"""

CUT = """() => [...document.querySelectorAll("section *")].filter((node) => {
  const box = node.getBoundingClientRect();
  const hidden = node.closest("[hidden], button.copy, option") || node.namespaceURI.endsWith("svg");
  return !hidden && box.width && (box.right > innerWidth + 1 || box.left < -1);
}).map((node) => node.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def text() -> str:
    report, per_input = made_report(names=[f"class {i}" for i in range(10)], radii=True)
    return page_of(report, per_input, made_evidence())


def test_it_opens_in_silence_and_asks_nobody(browser: Browser, text: str) -> None:
    opened = browser.open(text)
    assert opened.said == []
    assert opened.asked[0].startswith("file://")
    assert all(url.startswith("data:") for url in opened.asked[1:])
    headings = opened.page.locator("h2").all_text_contents()
    assert headings == list(SHOWN.values())
    assert opened.page.locator("#comparison-table tbody tr").count() == len(
        table_rows(made_report()[0])
    )
    loaded = "() => [...document.images].every((image) => image.naturalWidth > 0)"
    assert opened.page.evaluate(loaded)


def test_the_policy_stops_what_does_not_belong(browser: Browser, text: str) -> None:
    strange = '<script>document.title = "taken"</script><img src="https://example.org/x.png">'
    opened = browser.open(text.replace("</main>", strange + "</main>"))
    assert opened.page.title() != "taken"
    refused = [line for line in opened.said if "Content Security Policy" in line]
    assert any("script" in line for line in refused)
    assert any("example.org" in line for line in refused)


def column(page: Any, number: int) -> list[str]:
    cells = page.locator(f"#comparison-table tbody td:nth-child({number})")
    values = cells.evaluate_all("cells => cells.map(c => c.dataset.sort ?? c.textContent)")
    return [str(value) for value in values]


def test_tables_sort_by_click_and_by_key(browser: Browser, text: str) -> None:
    page = browser.open(text).page
    head = page.locator("#comparison-table th", has_text="value")
    given = column(page, 3)
    numbers = sorted(float(value) for value in given)
    assert [float(value) for value in given] != numbers
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert [float(value) for value in column(page, 3)] == numbers
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert [float(value) for value in column(page, 3)] == numbers[::-1]
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") is None
    assert column(page, 3) == given
    page.locator("#comparison-table th", has_text="source").get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert column(page, 2) == sorted(column(page, 2), key=str.lower)


def test_cells_without_a_value_stay_last(browser: Browser, text: str) -> None:
    page = browser.open(text).page
    button = page.locator("#comparison-table th", has_text="/ clean").get_by_role("button")
    for _ in range(2):
        button.click()
        values = column(page, 6)
        known = [value for value in values if value]
        assert values == known + [""] * (len(values) - len(known))
        assert 0 < len(known) < len(values)


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_the_page_does_not_scroll_sideways(browser: Browser, text: str, width: int) -> None:
    page = browser.open(text, width).page
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


FIRST_SCREEN = """() => ["#ladder-table", ".least", ".graded"].map(
  (name) => document.querySelector(name).getBoundingClientRect().bottom)"""


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (390, 844)])
def test_the_first_screen_holds_the_answer(
    browser: Browser, text: str, width: int, height: int
) -> None:
    page = browser.open(text, width).page
    assert max(page.evaluate(FIRST_SCREEN)) <= height
    if width < 400:
        tall = page.evaluate("document.querySelector('nav.page').getBoundingClientRect().height")
        assert tall <= 32  # one line


def test_the_longest_numbers_fit_a_phone(browser: Browser) -> None:
    report, per_input = made_report(names=[f"class {i}" for i in range(10)])
    rows = [
        row.with_intervals(
            *(each.model_copy(update={"low": 0.9971, "high": 1.0}) for each in row.intervals)
        ).model_copy(update={"value": 0.9991})
        if row.metric in ("AR", "NPPR")
        else row
        for row in report.numbers
    ]
    report = report.model_copy(update={"numbers": tuple(rows)})
    page = browser.open(render(report, per_input, made_evidence()), 360).page
    labels = [" ".join(text.split()) for text in page.locator(".line .label").all_inner_texts()]
    assert any(each.startswith("AR at most 100.0 % (99.9 % observed)") for each in labels)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(browser: Browser, text: str, scheme: str) -> None:
    page = browser.open(text, color_scheme=scheme).page
    page.emulate_media(media="screen", color_scheme=scheme)
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    least, where = page.evaluate(CONTRAST)
    assert least >= 4.5, where


def test_labels_of_the_line_never_meet(browser: Browser, text: str) -> None:
    boxes = "nodes => nodes.map(n => n.getBoundingClientRect()).map(b => [b.top, b.bottom])"
    for width in (360, 1400):
        page = browser.open(text, width).page
        found = page.locator(".line li").evaluate_all(boxes)
        for (_, bottom), (top, _) in pairwise(found):
            assert bottom <= top + 0.5


def test_images_leave_no_gap_to_fill(browser: Browser, text: str) -> None:
    page = browser.open(text, 360).page
    shift = """() => new Promise((done) => {
      let sum = 0;
      new PerformanceObserver((list) => list.getEntries().forEach((one) => { sum += one.value; }))
        .observe({ type: "layout-shift", buffered: true });
      setTimeout(() => done(sum), 200);
    })"""
    assert page.evaluate(shift) == 0


def test_print_holds_every_section(browser: Browser, text: str) -> None:
    page = browser.open(text, 794, media="print").page
    for name in SHOWN:
        assert page.locator(f"#{name}").is_visible()
    printed = page.pdf(format="A4")
    pages = pypdf.PdfReader(io.BytesIO(printed)).pages
    words = " ".join(" ".join(each.extract_text() for each in pages).split())
    found = [words.find(heading) for heading in SHOWN.values()]
    assert found == sorted(found)
    assert min(found) >= 0
    assert len(pages) >= 4
    assert page.evaluate(CUT) == []
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0


def test_text_can_be_copied(browser: Browser, text: str) -> None:
    page = browser.open(text).page
    page.locator("button.copy").first.click()
    assert "@inproceedings{" in page.evaluate("getSelection().toString()")


def test_markup_in_names_is_text(browser: Browser) -> None:
    report, per_input = made_report(names=[MARKUP] * 10)
    opened = browser.open(page_of(report, per_input, made_evidence()))
    assert opened.said == []
    assert opened.page.locator("#class-bars tbody th").first.text_content() == MARKUP
    assert opened.page.locator("main script").count() == 0


@pytest.mark.parametrize("kind", ["many classes", "one input", "noise", "bound", "clean", "failed"])
def test_odd_runs_fit_a_phone(browser: Browser, kind: str) -> None:
    if kind == "many classes":
        names = [f"a class with quite a long name, number {i}" for i in range(200)]
        report, per_input = made_report(1400, 200, names=names)
    elif kind == "one input":
        report, per_input = made_report(1, 2)
    else:
        report, per_input = made_report(only=kind)
    opened = browser.open(render(report, per_input, made_evidence()), 360)
    assert opened.said == []
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for name in SHOWN:
        assert opened.page.locator(f"#{name} h2").is_visible()
    if kind == "many classes":
        assert opened.page.locator("#class-bars tbody tr").count() == 20
        assert not opened.page.locator("#classes details table").is_visible()
