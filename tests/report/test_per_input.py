"""The table behind every number: CSV and parquet, there and back."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from nppr.core.tally import Evaluate, Tally
from nppr.errors import NpprError
from nppr.report.per_input import COLUMNS, PerInput, per_input_of, read_per_input


def lines() -> PerInput:
    tallies = {
        name: Tally(
            kind=Evaluate, indices=np.array([7, 3, 5]), labels=np.array([0, 1, 1]),
            clean_correct=np.array([True, False, True]), correct=np.array(right), draws=3, calls=9,
            micro_batch=8,
        )
        for name, right in (("uniform", [3, 0, 1]), ("a,b", [2, 2, 2]))
    }  # fmt: skip
    return per_input_of(tallies, 0.95)


def test_csv_comes_back(tmp_path: Path) -> None:
    (tmp_path / "lines.csv").write_text(lines().to_csv(), newline="")
    found = read_per_input(tmp_path / "lines.csv")
    assert found.sources == ["uniform", "a,b"]
    assert len(found) == 6
    for name in COLUMNS:
        expected = lines()[name]
        if expected.dtype == np.float64:
            assert found[name] == pytest.approx(expected, abs=1e-6)
        else:
            assert found[name].tolist() == expected.tolist()


def test_lines_of_a_source() -> None:
    assert lines().of("uniform")["rate"] == pytest.approx([1, 0, 1 / 3])
    assert len(lines().of("nothing")) == 0


def test_parquet_has_every_digit_and_type(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "new" / "lines.parquet"
    lines().to_parquet(path)
    table = parquet.read_table(path)
    assert table.column_names == list(COLUMNS)
    kinds = [str(kind) for kind in table.schema.types]
    assert kinds == ["int64", "int64", "int64", "string", "int64", "int64"] + ["double"] * 3
    for name in COLUMNS:
        assert table[name].to_pylist() == lines()[name].tolist()
    assert [each.name for each in path.parent.iterdir()] == ["lines.parquet"]


def test_no_lines_are_a_table_too(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    per_input_of({}, 0.95).to_parquet(tmp_path / "none.parquet")
    assert parquet.read_table(tmp_path / "none.parquet").num_rows == 0


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(NpprError, match=r"`per_input` as parquet.*pip install 'nppr\[parquet\]'"):
        lines().to_parquet(tmp_path / "lines.parquet")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "its header must be"),
        ("index,label\n1,2\n", "its header must be"),
        (",".join(COLUMNS) + "\n1,0,1,uniform,3,3,1,0.3,1\n1,0\n", "line 3"),
        (",".join(COLUMNS) + "\nx,0,1,uniform,3,3,1,0.3,1\n", "line 2"),
    ],
    ids=["empty", "other", "cut", "text"],
)
def test_what_is_no_table_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "per_input.csv"
    path.write_text(text)
    with pytest.raises(NpprError, match=said) as caught:
        read_per_input(path)
    assert "\n" not in str(caught.value)
