from __future__ import annotations

import pytest

from nppr.noise import Dependency

INSIDE = {
    "independent": {"independent", "label", "input", "joint"},
    "label": {"label", "joint"},
    "input": {"input", "joint"},
    "joint": {"joint"},
}


@pytest.mark.parametrize("small", Dependency)
@pytest.mark.parametrize("large", Dependency)
def test_contains_is_the_order_of_the_table(large: Dependency, small: Dependency) -> None:
    assert large.contains(small) == (large.value in INSIDE[small.value])


def test_contains_is_a_partial_order() -> None:
    for a in Dependency:
        assert a.contains(a)
        for b in Dependency:
            assert a is b or not (a.contains(b) and b.contains(a))
            for c in Dependency:
                assert a.contains(c) or not (a.contains(b) and b.contains(c))


def test_what_each_dependency_sees() -> None:
    assert {d.value for d in Dependency if d.sees_label} == {"label", "joint"}
    assert {d.value for d in Dependency if d.sees_input} == {"input", "joint"}


def test_words_say_what_is_seen() -> None:
    assert len({d.words for d in Dependency}) == 4
    for d in Dependency:
        assert ("label" in d.words) == d.sees_label
        assert ("input" in d.words) == d.sees_input
