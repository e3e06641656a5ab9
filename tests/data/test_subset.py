import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nppr.data.subset import stratified_order, three_way

labels = st.lists(st.integers(0, 4), min_size=1, max_size=80).map(
    lambda values: np.array(values, dtype=np.int64)
)


@given(labels, st.integers(0, 100))
def test_every_prefix_is_stratified(
    y: "np.ndarray[tuple[int], np.dtype[np.int64]]", seed: int
) -> None:
    order = stratified_order(y, np.arange(len(y)), seed)
    assert sorted(order.tolist()) == list(range(len(y)))
    for size in range(1, len(y) + 1):
        for label in np.unique(y):
            expected = size * (y == label).mean()
            assert abs((y[order[:size]] == label).sum() - expected) <= len(np.unique(y)) / 2 + 0.5


def test_seeds_give_other_orders_and_indices_decide() -> None:
    y = np.zeros(50, dtype=np.int64)
    first = stratified_order(y, np.arange(50), 0)
    assert not np.array_equal(first, stratified_order(y, np.arange(50), 1))
    assert np.array_equal(first, stratified_order(y, np.arange(50), 0))
    assert not np.array_equal(first, stratified_order(y, np.arange(50) + 1000, 0))


@given(labels)
def test_three_way_is_a_partition(y: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> None:
    parts = three_way(y, (0.5, 0.2), 0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(y)))
