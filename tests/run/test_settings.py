import pytest

from nppr.errors import SpecError
from nppr.run import Facts, Settings


def test_identity_changes_with_everything_that_decides_the_numbers() -> None:
    base = Facts({"name": "a"}, {"name": "d"}, {"norm": "linf"}, {"draws": 1}, 0)
    others = [
        Facts({"name": "b"}, {"name": "d"}, {"norm": "linf"}, {"draws": 1}, 0),
        Facts({"name": "a"}, {"name": "e"}, {"norm": "linf"}, {"draws": 1}, 0),
        Facts({"name": "a"}, {"name": "d"}, {"norm": "l2"}, {"draws": 1}, 0),
        Facts({"name": "a"}, {"name": "d"}, {"norm": "linf"}, {"draws": 2}, 0),
        Facts({"name": "a"}, {"name": "d"}, {"norm": "linf"}, {"draws": 1}, 1),
    ]
    assert all(other.identity() != base.identity() for other in others)


def test_settings_are_checked_at_construction() -> None:
    with pytest.raises(SpecError, match="`draws`"):
        Settings(draws=0)
    with pytest.raises(SpecError, match="`confidence`"):
        Settings(confidence=float("nan"))
