"""The dictionary of patterns holds the patterns that people name, once each."""

from __future__ import annotations

import pytest
import torch

from nppr.noise.dictionary import PHASES, Pattern, list_patterns

SHAPE = (3, 16, 16)


def drawn(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.stack([one.draw(shape) for each in list_patterns(shape) for one in each.phases])


@pytest.mark.parametrize("shape", [SHAPE, (1, 8, 8), (1, 1, 64), (5, 12, 7), (2, 1, 1)])
def test_every_pattern_is_plus_or_minus_one_everywhere(shape: tuple[int, ...]) -> None:
    known = drawn(shape)
    assert known.shape[1:] == shape
    assert torch.equal(known.abs(), torch.ones_like(known))


@pytest.mark.parametrize("period", [1, 2, 4])
def test_checkerboards_and_stripes_are_in_it(period: int) -> None:
    rows = (torch.arange(16) // period) % 2 * 2.0 - 1
    known = {tuple(each.flatten().tolist()) for each in drawn(SHAPE)}
    board = (rows[:, None] * rows).expand(3, 16, 16)
    stripes = rows[:, None].expand(3, 16, 16)
    assert tuple(board.flatten().tolist()) in known
    assert tuple(stripes.flatten().tolist()) in known
    opponent = board * torch.tensor([1.0, -1.0, 1.0])[:, None, None]
    assert tuple(opponent.flatten().tolist()) in known


def test_the_dictionary_stays_small_for_large_images() -> None:
    assert len(list_patterns((3, 224, 224))) < 2000
    assert {each.colour for each in list_patterns((12, 4, 4))} == {
        (1,) * 12, (1, -1) * 6, (1,) * 6 + (-1,) * 6
    }  # fmt: skip


def test_half_a_turn_is_the_opposite_sign() -> None:
    wave = Pattern(3, -2, (1, 1, -1))
    phases = [each.draw(SHAPE) for each in wave.phases]
    assert torch.equal(phases[0], -phases[PHASES // 2])
