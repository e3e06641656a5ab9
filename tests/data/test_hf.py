from pathlib import Path

import numpy as np
import pytest

from data import layouts
from nppr.data import load_data
from nppr.errors import DataError

datasets = pytest.importorskip("datasets", reason="the extra hf is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def test_a_local_folder_of_parquet_files(tmp_path: Path) -> None:
    root = tmp_path / "pets"
    train, test = layouts.pixels(10, side=6), layouts.pixels(4, side=6, seed=1)
    for name, images in (("train", train), ("test", test)):
        contents = [layouts.encode(image) for image in images]
        layouts.parquet(root / f"{name}.parquet", contents, [0, 1] * (len(images) // 2))
    data = load_data(f"hf:{root}")
    assert data.class_names == ("cat", "dog")
    assert np.array_equal(layouts.learned(data)[0], train)
    assert np.array_equal(layouts.eight_bit(layouts.whole(data)["evaluate"]), test)


def test_a_local_folder_of_images(tmp_path: Path) -> None:
    images = layouts.pixels(20, side=6)
    layouts.image_folder(tmp_path / "pets" / "train", images, ["cat", "dog"])
    data = load_data(f"hf:{tmp_path / 'pets'}", resize=3)
    assert data.class_names == ("cat", "dog")
    assert layouts.whole(data)["evaluate"].shape == (6, 3, 3, 3)


def test_a_folder_that_datasets_saved(tmp_path: Path) -> None:
    path = layouts.parquet(
        tmp_path / "a.parquet", [layouts.encode(x) for x in layouts.pixels(10, side=4)], [0, 1] * 5
    )
    saved = datasets.Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache"))
    saved.save_to_disk(str(tmp_path / "saved"))
    data = load_data(f"hf:{tmp_path / 'saved'}")
    assert [len(data.fit), len(data.select), len(data.evaluate)] == [5, 2, 3]
    layouts.whole(data)


def test_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"not found: hf:.*nothing.* Give a folder, or the"
    ) as caught:
        load_data(f"hf:{tmp_path / 'nothing'}")
    assert "\n" not in str(caught.value)
