from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nppr.budget import Budget
from nppr.classifiers import frozen, load_classifier
from nppr.classifiers.zoo import ZOO
from nppr.data import load_data
from nppr.errors import ClassifierError
from nppr.measure import measure
from nppr.sources import PGD

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def export(module: nn.Module, path: Path, *, batch: int | None = None, side: int = 8) -> Path:
    example = torch.rand(batch or 2, 1, side, side)
    dynamic = None if batch else ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(module.eval(), (example,), dynamic_shapes=dynamic), path)
    return path


@pytest.fixture(scope="module")
def digits_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    module = load_classifier("digits-cnn").module
    assert module is not None
    return export(module, tmp_path_factory.mktemp("pt2") / "digits.pt2")


def test_answers_and_gradients_are_the_modules(digits_file: Path) -> None:
    known = load_classifier("digits-cnn")
    loaded = load_classifier(str(digits_file), mean=known.mean, std=known.std)
    x = torch.rand(5, 1, 8, 8)
    with frozen(known) as ours, frozen(loaded) as theirs:
        for first, second in zip(
            ours.gradient(lambda logits: logits[:, 0], x),
            theirs.gradient(lambda logits: logits[:, 0], x),
            strict=True,
        ):
            assert torch.allclose(first, second, atol=1e-5)
    evaluate = load_data("digits").limit(inputs=40).evaluate
    tallies = [
        measure(PGD(Budget.linf(0.1)), model, evaluate, classes=10) for model in (known, loaded)
    ]
    assert np.array_equal(tallies[0].right, tallies[1].right)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_fixed_batch_size_works_too(tmp_path: Path, batch: int) -> None:
    module = ZOO["digits-cnn"].build(10, 1)
    loaded = load_classifier(str(export(module, tmp_path / "m.pt2", batch=batch)))
    x = torch.rand(7, 1, 8, 8)
    with frozen(loaded) as model, torch.no_grad():
        assert torch.allclose(model.logits(x), module(x), atol=1e-5)


def test_another_input_shape_is_named(digits_file: Path) -> None:
    loaded = load_classifier(str(digits_file))
    with (
        frozen(loaded) as model,
        pytest.raises(ClassifierError, match=r"\(1, 8, 8\), got \(1, 9, 9\)"),
    ):
        model.logits(torch.rand(2, 1, 9, 9))


def test_two_inputs_are_named(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

    example = (torch.rand(2, 3), torch.rand(2, 3))
    torch.export.save(torch.export.export(Two(), example), tmp_path / "m.pt2")
    with pytest.raises(ClassifierError, match="one input"):
        load_classifier(str(tmp_path / "m.pt2"))


def test_missing_truncated_and_flipped_files(digits_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    with pytest.raises(ClassifierError, match="does not exist"):
        load_classifier(str(path))
    whole = digits_file.read_bytes()
    for length in np.linspace(0, len(whole) - 1, 25).astype(int):
        path.write_bytes(whole[:length])
        with pytest.raises(ClassifierError):
            load_classifier(str(path))
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 25):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        try:
            load_classifier(str(path))
        except ClassifierError:
            continue


def rewritten(source: Path, target: Path, change: Any) -> Path:
    """A copy of an archive with members changed, added or removed by `change(name, content)`."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = change(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
    return target


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return (Path.touch, (self.path,))


def test_crafted_archives_run_nothing(digits_file: Path, tmp_path: Path) -> None:
    trap = tmp_path / "executed"
    buffer = io.BytesIO()
    torch.save(Trap(trap), buffer)

    def pickled_inputs(name: str, content: bytes) -> bytes:
        return buffer.getvalue() if "sample_inputs" in name else content

    def pickled_weight(name: str, content: bytes) -> bytes:
        if name.endswith("weights_config.json"):
            config = json.loads(content)
            for payload in config["config"].values():
                payload["use_pickle"] = True
            return json.dumps(config).encode()
        return buffer.getvalue() if "/weights/weight_" in name else content

    def opaque(name: str, content: bytes) -> bytes:
        if name.endswith("constants_config.json"):
            config = json.loads(content)
            payload = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True,
                       "tensor_meta": None}  # fmt: skip
            config["config"]["trap"] = payload
            return json.dumps(config).encode()
        return content

    def system_call(name: str, content: bytes) -> bytes:
        if "/models/" in name:
            target = b'"torch.os.mkdir"'
            return content.replace(b'"torch.ops.aten.relu.default"', target)
        return content

    def expression(name: str, content: bytes) -> bytes:
        if "/models/" in name:
            program = json.loads(content)
            text = json.dumps(program)
            evil = f"__import__('pathlib').Path('{trap}').touch()"
            return text.replace('"expr_str": "', f'"expr_str": "{evil} or ').encode()
        return content

    for change in (pickled_inputs, pickled_weight, opaque, system_call, expression):
        path = rewritten(digits_file, tmp_path / "m.pt2", change)
        if change is opaque:
            with zipfile.ZipFile(path, "a") as archive:
                root = archive.namelist()[0].split("/")[0]
                archive.writestr(f"{root}/data/constants/opaque_obj_0", pickle.dumps(Trap(trap)))
        with pytest.raises(ClassifierError, match="is refused"):
            load_classifier(str(path))
    assert not trap.exists()
    # The archive as it was is still accepted.
    load_classifier(str(rewritten(digits_file, tmp_path / "m.pt2", lambda _, content: content)))
