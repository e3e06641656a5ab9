import numpy as np

from nppr.data import load_data


def test_fixed_disjoint_stratified_parts() -> None:
    data = load_data("digits")
    parts = [data.fit.indices, data.select.indices, data.evaluate.indices]
    assert [len(part) for part in parts] == [900, 300, 597]
    assert sorted(np.concatenate(parts).tolist()) == list(range(1797))
    for part in (data.fit, data.select, data.evaluate):
        shares = np.bincount(part.labels, minlength=10) / len(part)
        assert np.abs(shares - 0.1).max() < 0.01


def test_images_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    data = load_data("digits")
    x, y = data.evaluate.batch(np.array([0, 100]))
    truth = load_digits()
    for row, position in enumerate((0, 100)):
        index = data.evaluate.indices[position]
        assert np.allclose(x[row, 0].numpy() * 16, truth.images[index])
        assert int(y[row]) == truth.target[index]
