import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from data import layouts
from nppr.data import data_loading, load_data, overlaps
from nppr.data.data_formats import DataFormat
from nppr.data.file_trees import Files
from nppr.data.image_sets import StoredImages
from nppr.data.splits import Labelled
from nppr.errors import DataError, SpecError
from nppr.formats import DATA_FORMATS


def test_names_pairs_and_data_objects() -> None:
    digits = load_data("digits")
    assert load_data(digits) is digits
    assert load_data((torch.rand(10, 1, 2, 2), torch.arange(10) % 2)).classes == 2


def test_unknown_name_suggests() -> None:
    with pytest.raises(SpecError, match="Did you mean 'digits'"):
        load_data("digit")


def test_other_objects_are_named() -> None:
    with pytest.raises(DataError, match="got int"):
        load_data(3)  # type: ignore[arg-type]


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(SpecError, match=r"digits, got './no/such.zip'.* No file or folder"):
        load_data("./no/such.zip")
    for spec in (Path("no/such"), "x" * 5000, "a\0b", "~nobody/x", ""):
        with pytest.raises(SpecError, match="No file or folder"):
            load_data(spec)


def test_other_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2")
    with pytest.raises(DataError, match=r"ends with \.npz, \.parquet, .*\.zip or \.tar\.gz"):
        load_data(tmp_path / "a.csv")
    with pytest.raises(DataError, match=r"must be one of: CIFAR-10 .*; got a.csv in"):
        load_data(tmp_path)
    for name in ("a.zip", "a.tar.gz", "a.npz"):
        (tmp_path / name).write_bytes(b"GIF89a")
        with pytest.raises(DataError, match=r"which starts with .* got b'GI' in .*/a\."):
            load_data(tmp_path / name)


@pytest.mark.parametrize("spec", ["digits", (torch.rand(10, 1, 2, 2), torch.arange(10) % 2)])
def test_fixed_splits_cannot_be_chosen(spec: str) -> None:
    with pytest.raises(SpecError, match="`split` must not be given"):
        load_data(spec, split="test")


def test_names_are_resized_and_keep_their_labels() -> None:
    plain, large = load_data("digits"), load_data("digits", resize=12)
    assert large.evaluate.batch(np.arange(3))[0].shape == (3, 1, 12, 12)
    assert np.array_equal(plain.evaluate.labels, large.evaluate.labels)


@pytest.mark.slow
def test_importing_the_room_is_light() -> None:
    heavy = "{'PIL', 'pyarrow', 'sklearn', 'datasets'}"
    code = (
        f"import sys, nppr.data as d; d.load_data('digits'); assert not {heavy} & {{*sys.modules}}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_format_that_is_added_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_splits(files: Files) -> dict[str, Callable[[], Labelled]]:
        pixels = np.load(files.path)
        return {"all": lambda: Labelled(StoredImages(pixels), np.arange(len(pixels)) % 2)}

    formats = DATA_FORMATS.copy()
    formats.add("npy", DataFormat("raw pixels", open_splits, suffixes=(".npy",)))
    monkeypatch.setattr(data_loading, "DATA_FORMATS", formats)
    np.save(tmp_path / "a.npy", layouts.pixels(10, side=4))
    assert len(load_data(tmp_path / "a.npy", resize=3).evaluate) == 3
    with pytest.raises(
        DataError, match=r"ends with \.npz, \.parquet, .*\.npy, .*\.zip or \.tar\.gz"
    ):
        load_data(Path(__file__))


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"package datasets.*pip install 'nppr\[hf\]'"):
        load_data("hf:cifar10")


SHARED = Path(__file__).parents[3] / "shared" / "data"
"""Data beside the repository, where they are there."""


def here(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(f"{SHARED / name} is not there")
    return SHARED / name


def test_cifar_10_in_parquet_files() -> None:
    pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    data = load_data(here("cifar10"))
    assert [len(data.fit), len(data.select), len(data.evaluate)] == [40_000, 10_000, 10_000]
    assert data.classes == 10
    assert data.evaluate.batch(np.arange(4))[0].shape == (4, 3, 32, 32)


def test_tiny_imagenet_zip() -> None:
    data = load_data(here("tiny-imagenet-200.zip"))
    assert [len(data.fit) + len(data.select), len(data.evaluate)] == [10_000, 5_000]
    assert data.classes == 200
    assert data.evaluate.batch(np.arange(4))[0].shape == (4, 3, 64, 64)
    assert overlaps(data)["fit", "select"] == 0
