from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import nppr
from helpers import grouped
from nppr.core.tally import Metric
from nppr.errors import ClassifierError, GradientError
from nppr.models import Classifier, frozen, load_classifier

onnx = pytest.importorskip("onnx", reason="makes the test's files")
pytest.importorskip("onnxruntime", reason="the extra `onnx`")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

WEIGHTS = np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)


def linear_file(path: Path, *, batch: int | str = "batch", outputs: int = 1) -> Path:
    """Flatten and multiply, written with onnx alone."""
    nodes = [helper.make_node("Flatten", ["x"], ["flat"], axis=1)]
    nodes += [helper.make_node("MatMul", ["flat", "w"], [f"y{i}"]) for i in range(outputs)]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 1, 8, 8])],
        [
            helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [batch, 10])
            for i in range(outputs)
        ],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


def expected(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(1) @ torch.from_numpy(WEIGHTS)


@pytest.mark.parametrize("batch", ["batch", 1, 4])
def test_answers_are_the_files(tmp_path: Path, batch: int | str) -> None:
    loaded = load_classifier(str(linear_file(tmp_path / "m.onnx", batch=batch)), mean=[0.25])
    x = torch.rand(6, 1, 8, 8)
    with frozen(loaded) as model:
        assert torch.allclose(model.logits(x), expected(x - 0.25), atol=1e-4)


def test_sources_that_need_gradients_are_skipped_with_a_flag(tmp_path: Path) -> None:
    path = linear_file(tmp_path / "m.onnx")
    asked = {"inputs": 60, "draws": 8, "anyway": True}
    report = nppr.assess(str(path), "digits", sources="uniform,pgd", **grouped(**asked))
    same = nppr.assess(Classifier(expected), "digits", sources="uniform", **grouped(**asked))
    assert report.headline("uniform", Metric.PR) == same.headline("uniform", Metric.PR)
    skipped = report.headline("pgd", Metric.AR)
    assert skipped is not None
    assert skipped.value is None
    assert skipped.flags == ("no-gradients",)
    assert "no gradients" in str(skipped.error)
    assert [flag.source for flag in report.flags if flag.id == "no-gradients"] == [None, "pgd"]


def test_no_gradients_are_named(tmp_path: Path) -> None:
    loaded = load_classifier(str(linear_file(tmp_path / "m.onnx")))
    with frozen(loaded) as model, pytest.raises(GradientError):
        model.gradient(lambda logits: logits[:, 0], torch.rand(2, 1, 8, 8))


def test_bad_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with pytest.raises(ClassifierError, match="does not exist"):
        load_classifier(str(path))
    whole = linear_file(path).read_bytes()
    for length in np.linspace(0, len(whole) - 1, 25).astype(int):
        path.write_bytes(whole[:length])
        with pytest.raises(ClassifierError):
            load_classifier(str(path))
    with pytest.raises(ClassifierError, match="one output"):
        load_classifier(str(linear_file(path, outputs=2)))


def test_another_input_shape_is_named(tmp_path: Path) -> None:
    loaded = load_classifier(str(linear_file(tmp_path / "m.onnx")))
    with frozen(loaded) as model, pytest.raises(ClassifierError, match=r"\(1, 9, 9\)"):
        model.logits(torch.rand(2, 1, 9, 9))


def test_telemetry_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    load_classifier(str(linear_file(tmp_path / "m.onnx")))
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
