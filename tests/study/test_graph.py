from __future__ import annotations

from helpers import FAMILIES
from nppr.study.graph import Member, add_walked, find_parents, is_inside

IND, LABEL, INPUT, JOINT = FAMILIES


def test_a_label_family_needs_only_the_independent_one() -> None:
    assert add_walked([Member(0.0, 7, LABEL)]) == [Member(0.0, 7, IND), Member(0.0, 7, LABEL)]


def test_every_member_comes_after_those_it_starts_from() -> None:
    members = add_walked(Member(0.0, k, JOINT) for k in (12, 3, 7))
    assert len(members) == 12
    for number, member in enumerate(members):
        assert set(find_parents(member, members)) <= set(members[:number])


def test_nearest_are_not_inside_each_other() -> None:
    members = add_walked(Member(0.0, k, JOINT) for k in (3, 7, 12))
    assert any(find_parents(member, members) for member in members)
    for member in members:
        near = find_parents(member, members)
        assert all(is_inside(each, member) for each in near)
        assert not any(is_inside(one, other) for one in near for other in near)


def test_floors_do_not_nest_here() -> None:
    assert not is_inside(Member(0.0, 3, IND), Member(0.5, 3, IND))
    assert find_parents(Member(0.5, 3, INPUT), []) == [Member(0.0, 3, INPUT)]
