"""The page that a reader gets: one HTML file, rendered from the run's files alone."""

from nppr.report.page.render import fragment_of, page_of, render
from nppr.report.page.shell import page_shell, rendered

__all__ = ["fragment_of", "page_of", "page_shell", "render", "rendered"]
