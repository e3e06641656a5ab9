import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from nppr.errors import ClassifierError, WeightsError
from nppr.models import load_classifier
from nppr.models.formats.python_models import files_beside
from nppr.system.records import write_tensors

CODE = """
from torch import nn

def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 10))

ready = make()

def function():
    return lambda x: x.flatten(1)[:, :10]

def broken():
    raise ValueError("no such\\ncheckpoint")

def number():
    return 3

def quits():
    raise SystemExit

constant = 5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "user_model.py"
    path.write_text(CODE)
    return path


@pytest.mark.parametrize("name", ["make", "Net", "ready", "function"])
def test_factories_classes_modules_and_callables(file: Path, name: str) -> None:
    classifier = load_classifier(f"{file}:{name}", mean=[0.5])
    assert classifier.forward(torch.rand(2, 1, 8, 8)).shape == (2, 10)
    assert classifier.mean == (0.5,)


def test_a_module_of_the_current_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert isinstance(load_classifier("user_model:make").module, nn.Module)


def test_a_wrapper_keeps_its_own_names(file: Path, tmp_path: Path) -> None:
    file.write_text(
        CODE
        + """
class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Net()
    def forward(self, x):
        return self.model(x)
"""
    )
    whole = load_classifier(f"{file}:Wrapper")
    torch.save(whole.tensors(), tmp_path / "w.pt")
    again = load_classifier(f"{file}:Wrapper", weights=tmp_path / "w.pt")
    assert again.fingerprint() == whole.fingerprint()
    assert load_classifier(f"{file}:Net", weights=tmp_path / "w.pt").weights == "w.pt"


def test_weights_go_into_a_module(file: Path, tmp_path: Path) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    write_tensors(tmp_path / "w.safetensors", network.state_dict(), {"mean": "0.25"})
    classifier = load_classifier(f"{file}:make", weights=tmp_path / "w.safetensors")
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(classifier.forward(x), network(x - 0.25))
    with pytest.raises(WeightsError, match=r"is not an nn\.Module"):
        load_classifier(f"{file}:function", weights=tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", "raised ValueError: no such checkpoint"),
        ("number", "got int"),
        ("quits", "raised SystemExit"),
        ("constant", "'constant' is not one"),
        ("mak", "Found: Net, broken, function, make"),
    ],
)
def test_bad_callables_are_named(file: Path, name: str, message: str) -> None:
    with pytest.raises(ClassifierError, match=message):
        load_classifier(f"{file}:{name}")


def test_bad_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(ClassifierError, match="does not exist"):
        load_classifier(f"{tmp_path / 'missing.py'}:make")
    with pytest.raises(ClassifierError, match="ModuleNotFoundError"):
        load_classifier("no.such.package:make")
    (tmp_path / "bad.py").write_text("def make(:\n")
    with pytest.raises(ClassifierError, match="SyntaxError"):
        load_classifier(f"{tmp_path / 'bad.py'}:make")


BESIDE = """
import colorsys, random
import torch
from torch import nn
from layers import WIDTH
from parts.head import bias

class Net(nn.Module):
    def forward(self, x):
        from late import SHIFT
        return x.flatten(1)[:, :WIDTH] + bias + SHIFT
"""


def write_beside(folder: Path, width: int) -> Path:
    """A model that imports what is beside it, also while it classifies."""
    files = {
        "model.py": BESIDE,
        "layers.py": f"WIDTH = {width}",
        "parts/__init__.py": "",
        "parts/head.py": "import layers\nbias = layers.WIDTH",
        "late.py": "import layers\nSHIFT = layers.WIDTH",
    }
    for name in ("colorsys", "random", "torch", "quopri"):
        files[f"{name}.py"] = f"raise ValueError('{name} was replaced')"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "model.py"


def test_a_file_imports_what_is_beside_it_and_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sys.modules.pop("colorsys", None)
    path = write_beside(tmp_path / "a", 3)
    before = list(sys.path)
    classifier = load_classifier(f"{path}:Net")
    assert classifier.forward(torch.zeros(1, 1, 2, 2)).tolist() == [[6.0] * 3]
    assert sys.path == before
    with monkeypatch.context() as patch:
        patch.chdir(path.parent)  # some modules of PyTorch name a file that does not exist
        beside = {each.name for each in files_beside(path)}
    assert beside == {"layers.py", "__init__.py", "head.py", "late.py"}
    # Nobody else finds them: a library that looks for an optional package is left alone.
    assert importlib.util.find_spec("layers") is not None  # imported
    (path.parent / "optional.py").write_text("")
    assert importlib.util.find_spec("optional") is None


def test_models_in_different_folders_have_files_of_the_same_name(tmp_path: Path) -> None:
    early = "from late import SHIFT", "pass"
    paths = [write_beside(tmp_path / name, width) for name, width in (("a", 3), ("b", 2))]
    for path in paths:
        path.write_text("from late import SHIFT" + BESIDE.replace(*early))
    wide, narrow = (load_classifier(f"{path}:Net") for path in paths)
    x = torch.zeros(1, 1, 2, 2)
    for _ in range(2):
        assert narrow.forward(x).tolist() == [[4.0] * 2]
        assert wide.forward(x).tolist() == [[6.0] * 3]
