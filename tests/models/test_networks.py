import pytest
import torch
from torch import nn

from nppr.errors import SpecError
from nppr.models.zoo import ZOO, Stem, shipped_weights

PAPER = {
    "resnet18": 11_181_642,
    "resnet50": 23_528_522,
    "wide_resnet50_2": 66_854_730,
    "vgg16": 134_301_514,
}
CIFAR = {"resnet20": 269_722, "resnet32": 464_154, "resnet44": 658_586, "resnet56": 853_018,
         "resnet110": 1_727_962}  # fmt: skip


@pytest.mark.parametrize("name", [*PAPER, *CIFAR])
def test_parameter_counts_for_ten_classes(name: str) -> None:
    with torch.device("meta"):
        module = ZOO[name].build(10, 3)
    count = sum(parameter.numel() for parameter in module.parameters())
    assert count == {**PAPER, **CIFAR}[name]


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "vgg16", "resnet20"])
@pytest.mark.parametrize("side", [32, 64])
def test_forward_at_32_and_64_pixels(name: str, side: int) -> None:
    with torch.device("meta"):
        module = ZOO[name].build(7, 3).eval()
        assert module(torch.rand(2, 3, side, side)).shape == (2, 7)


@pytest.mark.parametrize("name", ["digits-cnn", "resnet18", "resnet20", "wide_resnet50_2"])
def test_any_number_of_channels(name: str) -> None:
    with torch.device("meta"):
        module = ZOO[name].build(5, 1).eval()
        assert module(torch.rand(1, 1, 32, 32)).shape == (1, 5)


def test_names_are_torchvisions() -> None:
    with torch.device("meta"):
        names = {name: dict(ZOO[name].build(10, 3).state_dict()) for name in PAPER}
    resnet = names["resnet18"]
    assert resnet["conv1.weight"].shape == (64, 3, 7, 7)
    assert resnet["layer2.0.downsample.0.weight"].shape == (128, 64, 1, 1)
    assert resnet["layer2.0.downsample.1.running_var"].shape == (128,)
    assert "layer1.0.downsample.0.weight" not in resnet
    assert resnet["fc.weight"].shape == (10, 512)
    assert len(resnet) == 122
    assert names["resnet50"]["layer4.2.conv3.weight"].shape == (2048, 512, 1, 1)
    assert names["resnet50"]["layer1.0.downsample.0.weight"].shape == (256, 64, 1, 1)
    assert names["wide_resnet50_2"]["layer4.2.conv2.weight"].shape == (1024, 1024, 3, 3)
    assert names["vgg16"]["features.28.weight"].shape == (512, 512, 3, 3)
    assert names["vgg16"]["classifier.6.weight"].shape == (10, 4096)
    assert len(names["vgg16"]) == 32


def test_names_of_the_cifar_networks() -> None:
    names = ZOO["resnet20"].build(10, 3).state_dict()
    assert names["linear.weight"].shape == (10, 64)
    assert names["layer3.0.conv1.weight"].shape == (64, 32, 3, 3)
    assert not any("shortcut" in name or "downsample" in name for name in names)


def test_the_shortcut_subsamples_and_pads_with_zero_channels() -> None:
    block = ZOO["resnet20"].build(10, 3).get_submodule("layer2.0").eval()
    for norm in ("bn1", "bn2"):
        torch.nn.init.zeros_(block.get_parameter(f"{norm}.weight"))
    x = torch.rand(1, 16, 8, 8)
    with torch.no_grad():
        y = block(x)
    assert torch.equal(y[:, 8:24], x[:, :, ::2, ::2])
    assert not y[:, :8].any()
    assert not y[:, 24:].any()


@pytest.mark.parametrize("name", PAPER)
def test_the_small_stem_keeps_the_size(name: str) -> None:
    with torch.device("meta"):
        small = ZOO[name].build(10, 3, "small").eval()
        image = torch.rand(1, 3, 32, 32)
        if name == "vgg16":
            first = nn.Sequential(*list(small.get_submodule("features").children())[:5])
            assert first(image).shape == (1, 64, 32, 32)
        else:
            assert small.get_parameter("conv1.weight").shape == (64, 3, 3, 3)
            before = small.get_submodule("maxpool")(small.get_submodule("conv1")(image))
            assert before.shape == (1, 64, 32, 32)
        assert small(image).shape == (1, 10)


def test_bad_stems_are_named() -> None:
    with pytest.raises(SpecError, match="Did you mean 'small'"):
        ZOO["resnet18"].build(10, 3, "smal")
    with pytest.raises(SpecError, match="`stem` must be left out"):
        ZOO["resnet20"].build(10, 3, Stem.SMALL)


def test_shipped_weights_are_small() -> None:
    path = shipped_weights("digits-cnn")
    assert path is not None
    assert path.stat().st_size < 300_000
    assert shipped_weights("no-such-network") is None
