from nppr.budget import Budget
from nppr.sources import PGD, Gaussian
from nppr.sources.naming import options, spelled


def test_only_what_is_not_the_default_is_spelled() -> None:
    budget = Budget.linf(0.1)
    assert spelled(Gaussian(budget)) == "gaussian"
    assert spelled(Gaussian(budget, 0.12345678)) == "gaussian:scale=0.12345678"
    assert spelled(Gaussian(budget, 3.0)) == "gaussian:scale=3"
    assert spelled(PGD(budget, steps=20, random_start=False)) == "pgd:steps=20:random-start=false"


def test_options_are_the_fields_but_for_the_budget() -> None:
    assert options(Gaussian) == {"scale": 1.0}
    assert list(options(PGD)) == ["steps", "step", "restarts", "random_start"]
