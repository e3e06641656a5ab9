"""The figures of a report: drawn with matplotlib, shown as SVG in the page or kept as files."""

from nppr.report.figures.drawn import FORMATS, Drawn, as_svg, check_formats, save
from nppr.report.figures.gallery import figures_of
from nppr.report.figures.style import colour_of

__all__ = ["FORMATS", "Drawn", "as_svg", "check_formats", "colour_of", "figures_of", "save"]
