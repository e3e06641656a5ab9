import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from nppr.data import load_data
from nppr.errors import DataError, SpecError


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
    with pytest.raises(DataError, match=r"ends with .npz, .parquet, .zip or .tar.gz"):
        load_data(tmp_path / "a.csv")
    with pytest.raises(DataError, match=r"must be CIFAR-10 .*, got a.csv in"):
        load_data(tmp_path)
    for name in ("a.zip", "a.tar.gz", "a.npz"):
        (tmp_path / name).write_bytes(b"GIF89a")
        with pytest.raises(DataError, match=r"which starts with .* got b'GI' in .*/a\."):
            load_data(tmp_path / name)


@pytest.mark.parametrize("spec", ["digits", (torch.rand(10, 1, 2, 2), torch.arange(10) % 2)])
def test_fixed_parts_have_no_split(spec: str) -> None:
    with pytest.raises(SpecError, match="`split` must not be given"):
        load_data(spec, split="test")


def test_names_are_resized_and_keep_their_labels() -> None:
    plain, large = load_data("digits"), load_data("digits", resize=12)
    assert large.evaluate.batch(np.arange(3))[0].shape == (3, 1, 12, 12)
    assert np.array_equal(plain.evaluate.labels, large.evaluate.labels)


def test_importing_the_room_is_light() -> None:
    heavy = "{'PIL', 'pyarrow', 'sklearn', 'datasets'}"
    code = f"import sys, nppr.data; assert not {heavy} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
