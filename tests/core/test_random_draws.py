import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nppr.core.random_draws import DRAWS_PER_BLOCK, DrawBlock, derive_seeds

SHAPE = (1, 4, 4)


def block(
    indices: tuple[int, ...], *, seed: int = 0, number: int = 0, size: int = DRAWS_PER_BLOCK
) -> DrawBlock:
    return DrawBlock(seed, "evaluate", indices, number, size, torch.device("cpu"))


@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_numbers_depend_on_the_input_not_on_its_batch(kind: str) -> None:
    together = getattr(block((3, 7, 11)), kind)("stream", SHAPE)
    alone = getattr(block((7,)), kind)("stream", SHAPE)
    assert torch.equal(together[1], alone[0])


def test_fewer_draws_are_a_prefix_of_more() -> None:
    many = block((5,)).normal("stream", SHAPE)
    few = block((5,), size=3).normal("stream", SHAPE)
    assert few.shape == (1, 3, *SHAPE)
    assert torch.equal(many[:, :3], few)


def test_seed_stream_index_block_and_split_all_matter() -> None:
    base = block((5,)).normal("stream", SHAPE)
    others = [
        block((5,), seed=1).normal("stream", SHAPE),
        block((5,)).normal("other", SHAPE),
        block((6,)).normal("stream", SHAPE),
        block((5,), number=1).normal("stream", SHAPE),
        DrawBlock(0, "fit", (5,), 0, 16, torch.device("cpu")).normal("stream", SHAPE),
    ]
    for other in others:
        assert not torch.allclose(base, other)


def test_numbers_have_their_law() -> None:
    wide = block(tuple(range(2000)))
    normal, uniform = wide.normal("n", SHAPE), wide.uniform("u", SHAPE)
    assert float(normal.mean()) == pytest.approx(0, abs=0.01)
    assert float(normal.std()) == pytest.approx(1, abs=0.01)
    assert float(uniform.min()) >= 0
    assert float(uniform.max()) < 1
    assert float(uniform.mean()) == pytest.approx(0.5, abs=0.005)
    # Neighbouring inputs and draws are uncorrelated.
    for a, b in ((normal[1:], normal[:-1]), (normal[:, 1:], normal[:, :-1])):
        assert float((a * b).mean()) == pytest.approx(0, abs=0.01)


def test_no_two_blocks_of_a_stream_share_a_cpu_generator() -> None:
    # PyTorch's CPU generator reads the low 32 bits of its seed only.
    low = {
        seed & 0xFFFFFFFF
        for number in range(50)
        for seed in derive_seeds(0, "s", range(2000), number)
    }
    assert len(low) == 2000 * 50


def test_seeds_of_inputs_do_not_depend_on_each_other() -> None:
    indices = [3, 2**20 + 3, 5, 2**21 + 5]
    alone = [derive_seeds(7, "s", [index], 4097)[0] for index in indices]
    assert derive_seeds(7, "s", indices, 4097) == alone
    assert len(set(alone)) == 4


@given(st.integers(0, 2**40), st.integers(0, 2**30), st.integers(-(2**63), 2**63))
def test_keys_are_seeds(index: int, number: int, seed: int) -> None:
    (value,) = derive_seeds(seed, "s", [index], number)
    assert 0 <= value < 2**63
    torch.Generator().manual_seed(value)
