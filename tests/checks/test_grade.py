from __future__ import annotations

import pytest

from nppr.checks import Grade, grade
from nppr.flags import (
    ATTACK_TOO_WEAK,
    FEW_DRAWS,
    FEW_INPUTS,
    NEAR_CHANCE,
    NEARLY_DETERMINISTIC,
    ONE_COMPONENT,
    OVERLAP,
    flag,
)


@pytest.mark.parametrize(
    ("names", "letter", "deciding"),
    [
        ((), "A", ()),
        ((ONE_COMPONENT, NEARLY_DETERMINISTIC), "A", ()),
        ((FEW_DRAWS, ONE_COMPONENT, FEW_INPUTS), "B", (FEW_DRAWS, FEW_INPUTS)),
        ((FEW_DRAWS, ATTACK_TOO_WEAK), "C", (ATTACK_TOO_WEAK,)),
        ((ATTACK_TOO_WEAK, NEAR_CHANCE, FEW_DRAWS, OVERLAP), "D", (NEAR_CHANCE, OVERLAP)),
    ],
)
def test_the_worst_flag_decides(
    names: tuple[str, ...], letter: str, deciding: tuple[str, ...]
) -> None:
    found = grade([flag(name) for name in names])
    assert found.letter == letter
    for name in names:
        assert (name in found.reason) is (name in deciding)


def test_a_flag_of_many_sources_is_named_once() -> None:
    found = grade([flag(FEW_DRAWS, source=source) for source in ("uniform", "gaussian")])
    assert found == Grade("B", "the numbers stand, with notes (few-draws)")
