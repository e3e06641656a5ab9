"""The page that a reader gets: one HTML file, rendered from the run's files alone."""

from nppr.report.page.render import fragment_of, page_of, render

__all__ = ["fragment_of", "page_of", "render"]
