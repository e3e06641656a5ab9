"""The doctor: flags that say when a number cannot be trusted, and one grade for all of them."""

from nppr.checks.classifier import check_model
from nppr.checks.examine import examine
from nppr.checks.grade import Grade, grade
from nppr.checks.results import check_results

__all__ = ["Grade", "check_model", "check_results", "examine", "grade"]
