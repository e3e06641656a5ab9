from __future__ import annotations

from itertools import pairwise

import matplotlib as mpl
import pytest

from nppr.report.figures.style import (
    FIXED,
    INK,
    PALETTE,
    colour_of,
    look_of,
    named,
    styled,
    thinned,
)


def test_known_sources_look_different() -> None:
    looks = list(FIXED.values())
    assert len(set(looks)) == len(looks)
    assert len({(look.colour, look.marker) for look in looks}) == len(looks)
    usual = ("nppr", "nppr:floor=0.5", "gaussian", "uniform", "laplace", "pgd", "merged")
    assert len({colour_of(source) for source in usual}) == len(usual)


def test_unknown_sources_keep_their_look() -> None:
    assert colour_of("uniform:scale=0.5") == "#56B4E9"
    names = [f"mine:{number}" for number in range(200)]
    assert {colour_of(name) for name in names} == set(PALETTE)
    assert [look_of(name) for name in names] == [look_of(name) for name in names]
    assert len({look_of(name) for name in names}) > 150


@pytest.mark.parametrize("colour", PALETTE)
def test_colours_are_seen_on_white_and_on_black(colour: str) -> None:
    def light(text: str) -> float:
        parts = [int(text[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert 1.05 / (light(colour) + 0.05) > 2
    assert (light(colour) + 0.05) / (light(INK) + 0.05) > 3


def test_settings_of_others_are_untouched() -> None:
    before = mpl.rcParams["text.color"]
    with styled():
        assert mpl.rcParams["text.color"] == INK
    assert mpl.rcParams["text.color"] == before


def test_names_are_short_and_printable() -> None:
    assert named("a\nb\x00") == "a b"
    assert len(named("x" * 100)) <= 20


@pytest.mark.parametrize(("count", "most"), [(0, 5), (1, 5), (5, 5), (200, 30), (31, 30)])
def test_thinned(count: int, most: int) -> None:
    kept = thinned(count, most)
    assert len(kept) <= most
    assert kept[:1] == ([0] if count else [])
    assert len({second - first for first, second in pairwise(kept)}) <= 1
