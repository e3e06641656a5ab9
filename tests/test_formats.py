"""Names and paths are checked before anything is loaded."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from nppr.data.data_formats import DataFormat
from nppr.errors import NpprError, SpecError
from nppr.formats import (
    DATA_FORMATS,
    MODEL_FORMATS,
    NETWORKS,
    PYTHON,
    require_data,
    require_model,
    require_weights,
)
from nppr.models.model_formats import ModelFormat
from nppr.models.zoo import ZOO
from nppr.system.specs import read_toml


def test_the_names_are_those_that_can_be_loaded() -> None:
    assert set(NETWORKS) == set(ZOO)
    assert all(isinstance(each, ModelFormat) for each in MODEL_FORMATS.values())
    assert all(isinstance(each, DataFormat) for each in DATA_FORMATS.values())


def test_the_words_of_a_wrong_name_list_every_format() -> None:
    with pytest.raises(SpecError) as caught:
        require_model("resnet")
    names = set(MODEL_FORMATS.own()) - {PYTHON}
    assert {".onnx", "hf:"} <= names
    assert [name for name in names if name not in str(caught.value)] == []


def test_what_is_there_passes(tmp_path: Path) -> None:
    for name in ("net.onnx", "net.pt2", "net.py", "weights.pt"):
        (tmp_path / name).touch()
    require_model(str(tmp_path / "net.onnx"))
    require_model(str(tmp_path / "net.pt2"))
    require_model(f"{tmp_path / 'net.py'}:make")
    require_model("package.module:make")
    require_model("hf:some/model")
    require_weights(tmp_path / "weights.pt")
    require_data(tmp_path)
    require_data("hf:some/data")


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
        require_model(model, "own")


def test_python_code_without_a_callable_is_told_which_there_are(tmp_path: Path) -> None:
    path = tmp_path / "my_model.py"
    path.write_text("raise SystemExit\ndef make(): ...\nclass Net: ...\ndef _hidden(): ...\n")
    with pytest.raises(NpprError, match=r"defines make, Net\. Example: --own .*my_model\.py:make"):
        require_model(str(path), "own")
    path.write_text("def (")
    with pytest.raises(NpprError, match=r"Example: --own .*my_model\.py:make"):
        require_model(str(path), "own")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("m.pt", r"a pickle.*--weights 'm\.pt'.*run code.*--model my_model\.py:make"),
        ("m.PTH", "a pickle"),
        ("m.pkl", "a pickle"),
        ("m.safetensors", r"weights without a network.*--weights 'm\.safetensors'"),
        ("m.ts", r"TorchScript.*torch\.export\.save"),
        ("m.keras", r"another library\. Export it as \.onnx"),
    ],
)
def test_a_file_that_is_no_model_says_what_to_do(name: str, message: str) -> None:
    with pytest.raises(
        NpprError, match=f"`own` must be a model that can be run, got '{name}': .*{message}"
    ):
        require_model(name, "own")


def test_torchscript_is_known_by_its_content(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("m/code/__torch__.py", "")
    with pytest.raises(NpprError, match=r"TorchScript.*torch\.export\.save"):
        require_model(str(tmp_path / "m.pt"))


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(NpprError, match=r"^`own` must be a file, got"):
        require_weights(tmp_path, "own")
    with pytest.raises(NpprError, match=r"^`own` must be a file, got"):
        require_weights("a" * 300, "own")
    for data in ("", "none", "~nobody-of-this-name/data", tmp_path / "none"):
        with pytest.raises(NpprError, match=r"^`own` must be one of digits, got"):
            require_data(data, "own")


@pytest.mark.parametrize("argument", ["policy", "study"])
def test_a_file_that_is_too_large_is_refused(argument: str, tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    with path.open("wb") as file:
        file.truncate((8 << 20) + 1)
    with pytest.raises(SpecError, match=f"`{argument}` must be a TOML file.* more than 8 MiB"):
        read_toml(argument, path)
