"""The page of a comparison in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from compare.runs import a_run, pr
from nppr.compare import compare
from nppr.compare.compare_views import render_comparison
from report.page.made_runs import MARKUP

if TYPE_CHECKING:
    from browser.conftest import Browser

pytestmark = pytest.mark.slow


def test_the_page_of_a_comparison(browser: Browser) -> None:
    p = np.random.default_rng(0).beta(1, 1, 200)
    clean = np.ones(200, bool)
    runs = [
        a_run(name, clean, classifier=name, sources={"uniform": pr(p * share, 0)})
        for name, share in ((MARKUP, 0.5), ("other", 0.9))
    ]
    text = render_comparison(compare(runs))
    for width in (360, 1400):
        opened = browser.open(text, width)
        page = opened.page
        assert opened.said == []
        assert [url for url in opened.asked if not url.startswith(("file:", "data:"))] == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    table = page.locator("table.sortable").first
    before = table.locator("tbody tr").all_inner_texts()
    table.locator("thead button").first.click()
    table.locator("thead button").first.click()
    after = table.locator("tbody tr").all_inner_texts()
    assert sorted(after) == sorted(before)
    assert table.locator("th[aria-sort]").count() == 1
