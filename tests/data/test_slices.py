"""Columns beside the data: read, matched by position, refused in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers import two_class_data
from nppr.data import load_data, slices_of, with_slices
from nppr.errors import DataError
from nppr.system.bounded import Limit


def written(folder: Path, text: str) -> Path:
    path = folder / "slices.csv"
    path.write_text(text)
    return path


def test_every_image_has_a_value_by_its_position(tmp_path: Path) -> None:
    lines = [f"{'rain' if at % 3 else 'sun'},{at % 2}" for at in range(1797)]
    path = written(tmp_path, "\n".join(["weather,camera", *lines]) + "\n")
    data = with_slices(load_data("digits"), path).limit(inputs=50)
    part = data.evaluate
    found = slices_of(data, part.indices, part.labels)
    assert list(found) == ["class", "weather", "camera"]
    assert [each.name for each in found["weather"]] == ["rain", "sun"]
    assert np.array_equal(found["weather"][1].rows, part.indices % 3 == 0)
    for column in found.values():
        assert sum(each.rows.sum() for each in column) == 50


def test_a_parquet_file_is_read(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="needs the package pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the package pyarrow")
    path = tmp_path / "slices.parquet"
    parquet.write_table(arrow.table({"site": [at % 3 for at in range(40)]}), path)
    assert set(with_slices(two_class_data(), path).slices["site"]) == {"0", "1", "2"}


REFUSED = {
    "another length": ("site\n1\n2\n", "a line for each of the 40 images of 'halves'"),
    "ragged": ("site\n" + "1,2\n" * 40, "line 2 does not have as many cells"),
    "empty": ("", "must have a column"),
    "class": ("class\n" + "1\n" * 40, "columns named by one word other than 'class'"),
    "two words": ("a b\n" + "1\n" * 40, "columns named by one word"),
    "twice": ("a,a\n" + "1,1\n" * 40, "two columns have the same name"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_file_is_one_line(case: str, tmp_path: Path) -> None:
    text, message = REFUSED[case]
    with pytest.raises(DataError) as refused:
        with_slices(two_class_data(), written(tmp_path, text))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_file_and_too_many_values_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be a CSV or parquet file"):
        with_slices(two_class_data(), tmp_path / "none.csv")
    text = "at\n" + "".join(f"{at}\n" for at in range(1797))
    with pytest.raises(DataError, match="at most 100 different values in a column, got 1,797"):
        with_slices(load_data("digits"), written(tmp_path, text))


def test_a_file_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nppr.data.slices.COLUMNS_LIMIT", Limit(1000, "columns", "Drop some."))
    path = written(tmp_path, "site\n" + "1\n" * 500)
    with pytest.raises(DataError, match=r"it takes more than 0.977 KiB.*Drop some\."):
        with_slices(two_class_data(), path)


def test_a_parquet_file_that_swells_is_refused(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="needs the package pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the package pyarrow")
    path = tmp_path / "slices.parquet"
    rows = [b"x" * (1 << 20)] * 260
    for value in (rows, arrow.nulls(5_000_000, arrow.string())):
        parquet.write_table(arrow.table({"site": value}), path)
        assert path.stat().st_size < 1 << 21
        with pytest.raises(DataError, match="takes more than 256 MiB, the limit for columns"):
            with_slices(two_class_data(), path)
