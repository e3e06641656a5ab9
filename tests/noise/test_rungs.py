from __future__ import annotations

import pytest

from nppr.core.nouns import LAW, NOISE, Nouns
from nppr.noise.rungs import LADDER, Dependency, Known, choose_rung, rungs_of
from nppr.search.search_settings import PRESETS


def test_the_ladder_is_in_the_order_of_the_sets() -> None:
    for place, rung in enumerate(LADDER):
        assert rung.depth == place
        assert not any(above.contains(rung) for above in LADDER[:place])


@pytest.mark.parametrize("rung", Dependency)
def test_a_search_goes_through_smaller_sets(rung: Dependency) -> None:
    assert rung.path[-1] is rung
    for smaller, larger in zip(rung.path, rung.path[1:], strict=False):
        assert larger.contains(smaller)
        assert smaller.is_fitted


@pytest.mark.parametrize("known", [Known.LABEL, Known.FEATURES])
@pytest.mark.parametrize("rung", Dependency)
def test_a_rung_without_some_knowledge_lies_inside_it(rung: Dependency, known: Known) -> None:
    less = rung.without(known)
    assert known not in less.knows
    assert rung.contains(less)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_one_default_that_it_may_ask_for(preset: str) -> None:
    assert [rung for rung in Dependency if preset in rung.declared.default_of] == [
        choose_rung(preset)
    ]
    assert choose_rung(preset) in rungs_of(preset)


@pytest.mark.parametrize("nouns", [NOISE, LAW])
def test_every_rung_has_words_of_its_own(nouns: Nouns) -> None:
    assert len({rung.describe(nouns) for rung in LADDER}) == len(LADDER)
    assert len({rung.threat_of(nouns) for rung in LADDER}) == len(LADDER)
    assert len({rung.epithet for rung in LADDER}) == len(LADDER)
