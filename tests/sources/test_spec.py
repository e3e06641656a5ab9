import pytest

from helpers import Stray
from nppr.budget import Budget
from nppr.errors import SpecError
from nppr.sources import PGD, Gaussian, Uniform, parse_sources
from nppr.sources.spec import check_unique

BUDGET = Budget.linf(0.1)


def test_sources_and_options() -> None:
    parsed = parse_sources(
        "gaussian, uniform:scale=0.5,pgd:steps=20:step=0.1:random-start=true", BUDGET
    )
    assert parsed == [Gaussian(BUDGET), Uniform(BUDGET, 0.5), PGD(BUDGET, 20, 0.1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gausian", "Did you mean 'gaussian'"),
        ("", "`source` must be one of"),
        ("gaussian,,pgd", "`source` must be one of"),
        ("pgd:step-size=3", "`option of pgd`.*Did you mean 'steps'|`option of pgd`"),
        ("pgd:stps=3", "Did you mean 'step"),
        ("pgd:steps", "must have a value"),
        ("pgd:steps=2.5", "whole number, got '2.5'"),
        ("pgd:steps=0", "`steps` must be a whole number >= 1"),
        ("pgd:random-start=yes", "true or false"),
        ("gaussian:scale=big", "a number, got 'big'"),
        ("gaussian:scale=-1", "`scale` must be a number > 0"),
        ("uniform,pgd,uniform", "'uniform' twice"),
        ("pgd,pgd:steps=10", "'pgd' twice"),
        ("gaussian:budget=3", "`option of gaussian`"),
        ("pgd:steps=5:steps=7", "`steps` of pgd must be given once"),
    ],
)
def test_bad_text_is_named(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_sources(text, BUDGET)


@pytest.mark.parametrize("name", ["clean", "merged"])
def test_rows_of_the_report_are_no_names_for_sources(name: str) -> None:
    with pytest.raises(SpecError, match="is taken"):
        check_unique([Stray(BUDGET, 0.0, name=name)])
