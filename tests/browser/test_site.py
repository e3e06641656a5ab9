"""The documentation site builds without a warning, needs no network and is searched from disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from browser.conftest import Browser

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("material", "mkdocstrings_handlers.python"):
        pytest.importorskip(package, reason="needs the extra docs: make docs")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return folder


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"<(script|img|iframe|source)[^>]*src=.?(https?:)?//", text), page
        assert not re.search(r"<link[^>]*href=.?(https?:)?//", text), page


def test_links_to_examples_lead_to_pages(site: Path) -> None:
    assert 'href="examples/tasks.html"' in (site / "models.html").read_text(encoding="utf-8")
    assert 'href="../examples/http_model.html"' in (site / "guides/own-model.html").read_text()
    assert "def regression()" in re.sub("<[^>]+>", "", (site / "examples/tasks.html").read_text())


def test_search_works_from_disk(site: Path, browser: Browser) -> None:
    page = browser.browser.new_page()
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.click("input.md-search__input")
    page.keyboard.type("attack-too-weak")
    page.wait_for_selector(".md-search-result__item a")
    assert "flags.html" in page.inner_html(".md-search-result__list")
    assert all(url.startswith(("file:", "data:", "about:")) for url in asked)
    page.close()
