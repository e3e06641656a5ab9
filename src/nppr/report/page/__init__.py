"""The page that a reader gets: one HTML file, rendered from the run's files alone."""

from nppr.report.page.figures import PageFigure
from nppr.report.page.files import write_rendered
from nppr.report.page.render import fragment_of, page_of, render
from nppr.report.page.shell import page_shell

__all__ = ["PageFigure", "fragment_of", "page_of", "page_shell", "render", "write_rendered"]
