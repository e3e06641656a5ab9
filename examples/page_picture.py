"""Take a picture of the page of a run: `python examples/page_picture.py RUN OUT.png`.

Needs Chromium and the Python package playwright.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

WIDTH, HEIGHT = 1200, 716


def main(run: Path, out: Path) -> None:
    """The first screen of `run/report.html`: the ladder, the lower bound and the grade."""
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto((run / "report.html").resolve().as_uri())
        page.screenshot(path=out)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
