"""A real browser that opens pages from the disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for path in map(shutil.which, NAMES) if path), None)

MILLISECONDS = 200_000
"""Until a page or a browser counts as stuck, also on a busy machine."""


@dataclass
class Opened:
    """A page in the browser with everything it logged and requested."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def heard(self, dialog: Any) -> None:
        self.said.append("dialog")
        dialog.dismiss()


@dataclass
class Browser:
    """Opens pages from the disk."""

    browser: Any
    folder: Path

    def open(self, text: str, width: int = 1400, media: str = "screen", **options: Any) -> Opened:
        path = self.folder / "page.html"
        path.write_text(text, encoding="utf-8")
        page = self.browser.new_page(viewport={"width": width, "height": 900}, **options)
        page.set_default_timeout(MILLISECONDS)
        page.emulate_media(media=media)
        opened = Opened(page)
        page.on("console", lambda message: opened.said.append(message.text))
        page.on("pageerror", lambda error: opened.said.append(str(error)))
        page.on("dialog", opened.heard)
        page.on("request", lambda request: opened.asked.append(request.url))
        page.goto(path.as_uri())
        return opened


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Skips where there is no browser or no package to drive it."""
    if CHROMIUM is None:
        pytest.skip(f"needs a browser: {', '.join(NAMES)}")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=MILLISECONDS
        )
        yield Browser(started, tmp_path_factory.mktemp("pages"))
        started.close()
