from __future__ import annotations

import io
import json
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from data import layouts
from nppr.core.budget import Budget
from nppr.data import load_data
from nppr.errors import ClassifierError
from nppr.measuring.measurement import measure
from nppr.models import frozen, load_classifier
from nppr.models.formats.array_models import FixedInputModel
from nppr.models.zoo import ZOO
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


@pytest.mark.slow
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
    assert np.array_equal(tallies[0].correct, tallies[1].correct)


def test_an_older_pytorch_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.6.0+cpu")
    (tmp_path / "m.pt2").touch()
    with pytest.raises(ClassifierError, match=r"needs PyTorch 2\.9 or later.*got 2\.6\.0"):
        load_classifier(str(tmp_path / "m.pt2"))


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


PROGRAM = "digits/models/model.json"
INPUTS = "digits/data/sample_inputs/model.pt"


def pickled(trap: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save(Trap(trap), buffer)
    return buffer.getvalue()


def edited(change: Any) -> Any:
    """Changes the program of an archive."""

    def edit(name: str, content: bytes) -> bytes:
        if name != PROGRAM:
            return content
        program = json.loads(content)
        change(program)
        return json.dumps(program).encode()

    return edit


def nodes(program: Any) -> list[Any]:
    found: list[Any] = program["graph_module"]["graph"]["nodes"]
    return found


TARGETS = [
    "torch.os.mkdir",
    "torch.ops.aten.from_file.default",
    "torch.ops.aten.save.default",
    "torch.ops.aten.__class__.__init__",
    "torch.ops.aten.relu.__class__",
    "torch.ops.load_library",
    "_operator.attrgetter",
    "_operator.methodcaller",
    "#extension",
    "math.factorial",
]


@pytest.mark.parametrize("target", TARGETS)
def test_operators_that_are_no_tensor_operators_are_refused(
    digits_file: Path, tmp_path: Path, target: str
) -> None:
    change = edited(lambda program: nodes(program)[0].update(target=target))
    path = rewritten(digits_file, tmp_path / "m.pt2", change)
    with pytest.raises(ClassifierError, match="is refused"):
        load_classifier(str(path))


@pytest.mark.parametrize(
    "size",
    ["__import__('os').getcwd()", "exit()", "Symbol('s77').func", "9**9**9**9", "1+" * 200 + "1"],
)
def test_sizes_that_are_no_sizes_are_refused(digits_file: Path, tmp_path: Path, size: str) -> None:
    def change(name: str, content: bytes) -> bytes:
        if name != PROGRAM:
            return content
        text = json.dumps(json.loads(content))
        return text.replace('"expr_str": "', f'"expr_str": "{size} + ').encode()

    with pytest.raises(ClassifierError, match="is refused"):
        load_classifier(str(rewritten(digits_file, tmp_path / "m.pt2", change)))


def test_names_that_could_be_source_text_are_refused(digits_file: Path, tmp_path: Path) -> None:
    for name in ("x; import os", "x\nimport os", "x(", "'x", "a.__globals__"):
        change = edited(
            lambda program, name=name: nodes(program)[0]["outputs"][0]["as_tensor"].update(
                name=name
            )
        )
        with pytest.raises(ClassifierError, match="is refused"):
            load_classifier(str(rewritten(digits_file, tmp_path / "m.pt2", change)))


def test_trees_of_other_types_are_refused(digits_file: Path, tmp_path: Path) -> None:
    for kind in ("collections.defaultdict", "collections.OrderedDict", "enum", "os.PathLike"):
        tree = json.dumps([1, {"type": kind, "context": "null", "children_spec": []}])

        def change(program: Any, tree: str = tree) -> None:
            program["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = tree

        with pytest.raises(ClassifierError, match="is refused"):
            load_classifier(str(rewritten(digits_file, tmp_path / "m.pt2", edited(change))))


def test_guards_are_not_run(digits_file: Path, tmp_path: Path) -> None:
    trap = tmp_path / "executed"
    code = f"__import__('pathlib').Path('{trap}').touch() is None"
    change = edited(lambda program: program["guards_code"].append(code))
    loaded = load_classifier(str(rewritten(digits_file, tmp_path / "m.pt2", change)))
    with frozen(loaded) as model:
        model.logits(torch.rand(2, 1, 8, 8))
    assert not trap.exists()


def test_pickles_are_not_run(digits_file: Path, tmp_path: Path) -> None:
    trap = tmp_path / "executed"
    evil = pickled(trap)

    def weight(name: str, content: bytes) -> bytes:
        if name.endswith("weights_config.json"):
            config = json.loads(content)
            for payload in config["config"].values():
                payload["use_pickle"] = True
            return json.dumps(config).encode()
        return evil if "/weights/weight_" in name else content

    def opaque(name: str, content: bytes) -> bytes:
        if name.endswith("constants_config.json"):
            payload = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True,
                       "tensor_meta": None}  # fmt: skip
            return json.dumps({"config": {"trap": payload}}).encode()
        return content

    changes = [lambda name, content: evil if name == INPUTS else content, weight, opaque]
    for number, change in enumerate(changes):
        path = rewritten(digits_file, tmp_path / f"m{number}.pt2", change)
        if change is opaque:
            with zipfile.ZipFile(path, "a") as archive:
                archive.writestr("digits/data/constants/opaque_obj_0", pickle.dumps(Trap(trap)))
        with pytest.raises(ClassifierError, match="is refused"):
            load_classifier(str(path))
    assert not trap.exists()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_that_occur_twice_are_refused(digits_file: Path, tmp_path: Path) -> None:
    trap = tmp_path / "executed"
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(digits_file) as old, zipfile.ZipFile(path, "w") as new:
        new.writestr(INPUTS, pickled(trap))
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(ClassifierError, match="occurs twice"):
        load_classifier(str(path))
    assert not trap.exists()


def test_the_archive_as_it_was_is_accepted(digits_file: Path, tmp_path: Path) -> None:
    load_classifier(str(rewritten(digits_file, tmp_path / "m.pt2", lambda _, content: content)))


@pytest.mark.parametrize("name", ["resnet18", "resnet20"])
@pytest.mark.slow
def test_networks_of_the_zoo_survive_the_round_trip(tmp_path: Path, name: str) -> None:
    module = ZOO[name].build(10, 3).eval()
    x = torch.rand(2, 3, 32, 32)
    dynamic = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(module, (x,), dynamic_shapes=dynamic), tmp_path / "m.pt2")
    with frozen(load_classifier(str(tmp_path / "m.pt2"))) as model, torch.no_grad():
        assert torch.allclose(model.logits(x), module(x), atol=1e-5)


def test_a_limited_batch_is_split(tmp_path: Path) -> None:
    module = ZOO["digits-cnn"].build(10, 1).eval()
    dynamic = ({0: torch.export.Dim("batch", max=16)},)
    program = torch.export.export(module, (torch.rand(2, 1, 8, 8),), dynamic_shapes=dynamic)
    torch.export.save(program, tmp_path / "m.pt2")
    loaded = load_classifier(str(tmp_path / "m.pt2"))
    sizes: list[int] = []
    run = cast(FixedInputModel, loaded.model).run

    def counted(x: torch.Tensor) -> torch.Tensor:
        sizes.append(len(x))
        return run(x)

    loaded.model = replace(cast(FixedInputModel, loaded.model), run=counted)
    for number in (40, 5, 1):
        x = torch.rand(number, 1, 8, 8)
        with frozen(loaded) as model, torch.no_grad():
            assert torch.allclose(model.logits(x), module(x), atol=1e-5)
    assert sizes[:4] == [16, 16, 8, 5]  # as they come: nothing is filled up to the limit
    assert sizes[4] <= 2


WEIGHT = "digits/data/weights/weight_0"
CONFIG = "digits/data/weights/model_weights_config.json"


@pytest.mark.parametrize("announced", [None, 1000])
@pytest.mark.parametrize("name", [WEIGHT, PROGRAM, CONFIG, INPUTS])
def test_members_that_unpack_to_too_much_are_refused(
    digits_file: Path, tmp_path: Path, name: str, announced: int | None
) -> None:
    path = rewritten(
        digits_file, tmp_path / "m.pt2", lambda own, content: None if own == name else content
    )
    layouts.append_swelling(path, name, b"", 300 * layouts.MIB, announced)
    reason = r"is refused: it takes more than 64 MiB, the limit for tensors in a .* Export the netw"
    with (
        layouts.little_memory(),
        pytest.raises(ClassifierError, match="Bad CRC-32" if announced else reason),
    ):
        load_classifier(str(path))


def test_a_long_description_is_refused(digits_file: Path, tmp_path: Path) -> None:
    change = edited(lambda program: program.update({"metadata": " " * 17 * layouts.MIB}))
    path = rewritten(digits_file, tmp_path / "m.pt2", change)
    with pytest.raises(ClassifierError, match="more than 16 MiB, the limit for a description"):
        load_classifier(str(path))


@pytest.mark.parametrize("times", [1, 3])
def test_pickles_that_unpack_to_too_much_are_refused(
    digits_file: Path, tmp_path: Path, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive within the archive, and one that several weights name."""
    monkeypatch.setattr("nppr.system.bounded.PROGRAM", 4 * layouts.MIB)
    plain, packed = io.BytesIO(), io.BytesIO()
    torch.save(torch.zeros(1_250_000 // times), plain)
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))

    def change(name: str, content: bytes) -> bytes:
        if times > 1 and name == CONFIG:
            config = json.loads(content)
            for payload in list(config["config"].values())[:times]:
                payload.update(path_name="weight_0", use_pickle=True)
            return json.dumps(config).encode()
        return packed.getvalue() if name == (INPUTS if times == 1 else WEIGHT) else content

    path = rewritten(digits_file, tmp_path / "m.pt2", change)
    with pytest.raises(ClassifierError, match="what its tensors announce takes more than 4 MiB"):
        load_classifier(str(path))


@pytest.mark.parametrize("side", [10**10, -(10**10)])
def test_weights_that_announce_too_much_are_refused(
    digits_file: Path, tmp_path: Path, side: int
) -> None:
    def change(name: str, content: bytes) -> bytes:
        if name == CONFIG:
            config = json.loads(content)
            first = next(iter(config["config"].values()))
            first["tensor_meta"]["sizes"] = [{"as_int": side}]
            return json.dumps(config).encode()
        return b"" if name == WEIGHT else content

    path = rewritten(digits_file, tmp_path / "m.pt2", change)
    with pytest.raises(ClassifierError, match="what its tensors announce takes more than 64 MiB"):
        load_classifier(str(path))


def test_a_compressed_archive_of_a_plausible_size_loads(digits_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    with (
        zipfile.ZipFile(digits_file) as old,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    x = torch.rand(2, 1, 8, 8)
    with (
        frozen(load_classifier(str(path))) as ours,
        frozen(load_classifier(str(digits_file))) as own,
    ):
        assert torch.equal(ours.logits(x), own.logits(x))
