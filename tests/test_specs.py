"""What is known of names and paths before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from nppr.classifiers.load_model import FILES
from nppr.classifiers.zoo import ZOO
from nppr.errors import NpprError
from nppr.specs import MODEL_FILES, NETWORKS, check_data, check_model, check_weights


def test_the_names_are_those_that_can_be_loaded() -> None:
    assert set(NETWORKS) == set(ZOO)
    assert set(MODEL_FILES) == set(FILES)


def test_what_is_there_passes(tmp_path: Path) -> None:
    for name in ("net.onnx", "net.pt2", "net.py", "weights.pt"):
        (tmp_path / name).touch()
    check_model(str(tmp_path / "net.onnx"))
    check_model(str(tmp_path / "net.pt2"))
    check_model(f"{tmp_path / 'net.py'}:make")
    check_model("package.module:make")
    check_model("hf:some/model")
    check_weights(tmp_path / "weights.pt")
    check_data(tmp_path)
    check_data("hf:some/data")


@pytest.mark.parametrize(
    "model",
    [
        "",
        "none",
        "none.onnx",
        "none.pt2",
        "none.py:make",
        "resnet",
        "a" * 300 + ".pt2",
        "a" * 300 + ".py:make",
    ],
)
def test_a_model_that_is_not_there_is_named(model: str) -> None:
    with pytest.raises(NpprError, match=r"^`own` must .*got '[^']*'"):
        check_model(model, "own")


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(NpprError, match=r"^`own` must be a file, got"):
        check_weights(tmp_path, "own")
    with pytest.raises(NpprError, match=r"^`own` must be a file, got"):
        check_weights("a" * 300, "own")
    for data in ("", "none", "~nobody-of-this-name/data", tmp_path / "none"):
        with pytest.raises(NpprError, match=r"^`own` must be one of digits, got"):
            check_data(data, "own")
