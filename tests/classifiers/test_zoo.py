import torch

from nppr.classifiers.zoo import ZOO, shipped_weights


def test_every_network_builds_for_any_classes_and_channels() -> None:
    for architecture in ZOO.values():
        module = architecture.build(7, 3).eval()
        assert module(torch.rand(2, 3, 8, 8)).shape == (2, 7)


def test_shipped_weights_are_small() -> None:
    path = shipped_weights("digits-cnn")
    assert path is not None
    assert path.stat().st_size < 300_000
    assert shipped_weights("no-such-network") is None
