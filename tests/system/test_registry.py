"""Registries find what installed packages add, and survive packages that fail."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import nppr.data
import nppr.export.exports
import nppr.sources
from installed_package import install
from nppr.cli.app import describe_sources
from nppr.core.budget import Budget
from nppr.data import load_data
from nppr.errors import PluginError, SpecError
from nppr.export.exports import EXPORTS, write_exports
from nppr.formats import DATA_FORMATS, MODEL_FORMATS, require_model
from nppr.source_names import require_source_names
from nppr.sources import SOURCES, Source, default_sources, parse_sources, sources_in, split_search
from nppr.system.registry import Registry, added_points
from report.page.made_runs import made_report

BUDGET = Budget.linf(0.1)


class Thing:
    """What the registries of these tests hold."""

    def __init__(self, *claims: str) -> None:
        self.claims = claims


def things(**own: str) -> Registry[Thing]:
    return Registry(
        "thing", "nppr.things", f"{__name__}:Thing", own=own, claims=lambda thing: thing.claims,
        reserved=("all",),
    )  # fmt: skip


@pytest.fixture
def known_sources(monkeypatch: pytest.MonkeyPatch) -> Registry[type[Source]]:
    """The sources, in a registry that this test may add to."""
    known = SOURCES.copy()
    monkeypatch.setattr("nppr.sources.base.SOURCES", known)
    return known


def copy_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test load packages whose things no other test sees."""
    for name, known in (("DATA_FORMATS", DATA_FORMATS), ("MODEL_FORMATS", MODEL_FORMATS)):
        copied = known.copy()
        for module in ("formats", "data.data_loading", "models.load_model"):
            monkeypatch.setattr(f"nppr.{module}.{name}", copied, raising=False)
    monkeypatch.setattr("nppr.export.exports.EXPORTS", EXPORTS.copy())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which packages are installed."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Thing.__module__])
    return tmp_path


MAKE = f"from {__name__} import Thing\n"


def test_what_packages_add_is_found_by_name_and_imported_when_it_is_asked_for(place: Path) -> None:
    text = f"{MAKE}import sys\nsys.modules['ran'] = sys\none, two = Thing(), Thing('extra')\n"
    install(
        place, "our-things", {"nppr.things": {"one": "lazy_a:one", "b": "lazy_a:two"}}, lazy_a=text
    )
    known = things()
    known.add("mine", Thing())
    assert known.names() == ["mine", "one", "b"]
    assert "ran" not in sys.modules
    assert (known.origin_of("mine"), known.origin_of("b")) == ("nppr", "our-things 1.0")
    assert known["b"].claims == ("extra",)
    del sys.modules["ran"]
    assert list(known) == ["mine", "one", "b"]
    assert list(known.own()) == ["mine"]
    assert known.origin_of("extra") == "our-things 1.0"
    with pytest.raises(PluginError, match=r"thing name 'extra' is taken by our-things 1\.0"):
        known.add("extra", Thing())
    with pytest.raises(KeyError):
        known["none"]


FAILURES = [
    (
        "import no_such_module_at_all",
        r"ModuleNotFoundError: No module named 'no_such_module_at_all'",
    ),
    ("thing = None", r"must be an instance of .*Thing, got NoneType"),
    (f"{MAKE}thing = Thing", r"must be an instance of .*Thing, got the class Thing"),
    ("1 / 0", r"ZeroDivisionError: division by zero at .*failing_\d\.py:1\. Repair or uninstall"),
    ("import sys; sys.exit(0)", r"it raised SystemExit: 0"),
    ("raise ValueError('two\\nlines')", "ValueError: two lines at"),
    ("other = 1", "AttributeError: .*no attribute 'thing'"),
    (f"{MAKE}thing = Thing('all')", "the thing name 'all' is taken by nppr"),
    (
        "class E(Exception):\n    def __str__(self):\n        raise ValueError\nraise E",
        r"cannot be used: E: E at .*failing_\d\.py:4\.",
    ),
    ("raise KeyboardInterrupt", r"it raised KeyboardInterrupt at .*failing_\d+\.py:1\."),
]


@pytest.mark.parametrize("number", range(len(FAILURES)))
def test_a_package_that_fails_is_named_and_the_others_work(
    number: int, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code, reason = FAILURES[number]
    module = f"failing_{number}"
    install(place, "bad-things", {"nppr.things": {"bad": f"{module}:thing"}}, **{module: code})
    install(place, "good-things", {"nppr.things": {"good": f"good_{number}:thing"}},
            **{f"good_{number}": f"{MAKE}thing = Thing()"})  # fmt: skip
    expected = rf"entry point bad = {module}:thing \(nppr\.things\) of bad-things 1\.0.*{reason}"
    known = things()
    assert list(known) == ["good"]
    (warning,) = caplog.messages
    for _ in range(2):
        with pytest.raises(PluginError, match=expected) as caught:
            known["bad"]
        assert str(caught.value) == warning
        assert "\n" not in warning
    assert list(known) == ["good"]
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("written", ["::", "a b c:d"])
def test_a_place_that_names_no_object_is_named(written: str, place: Path) -> None:
    install(place, "odd-place", {"nppr.things": {"odd": written}})
    with pytest.raises(PluginError, match="its place must be module:name"):
        things()["odd"]


def test_what_a_package_prints_is_no_part_of_a_result(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{MAKE}print('Hello')\nthing = Thing()"
    install(place, "loud-things", {"nppr.things": {"loud": "loud_module:thing"}}, loud_module=text)
    assert things()["loud"]
    assert capsys.readouterr() == ("", "Hello\n")


def test_a_class_that_was_registered_before_its_package_failed_is_gone(
    place: Path, known_sources: Registry[type[Source]]
) -> None:
    text = (
        "import nppr\nclass Half(nppr.Source, kind='half-made'):\n    perturb = None\n"
        "raise OSError('disk')\n"
    )
    install(place, "half-made", {"nppr.sources": {"half-made": "half_made_source:Half"}},
            half_made_source=text)  # fmt: skip
    with pytest.raises(PluginError, match="OSError: disk"):
        known_sources["half-made"]
    assert "half-made" not in list(known_sources)


def test_a_package_that_was_imported_before_is_known_as_the_package(
    place: Path, known_sources: Registry[type[Source]]
) -> None:
    text = "import nppr\nclass Early(nppr.Source, kind='imported-early'):\n    perturb = None\n"
    points = {"nppr.sources": {"imported-early": "early_source:Early"}}
    install(place, "early", points, early_source=text)
    early = importlib.import_module("early_source").Early
    assert known_sources["imported-early"] is early
    assert known_sources.origin_of("imported-early") == "early 1.0"
    assert "imported-early" not in known_sources.own()


def test_a_name_that_is_taken_is_left_out_with_a_warning(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = f"{MAKE}thing = Thing()"
    install(
        place,
        "a-things",
        {"nppr.things": {"x": "taking_a:thing", "all": "taking_a:thing"}},
        taking_a=text,
    )
    install(
        place,
        "b-things",
        {"nppr.things": {"x": "taking_b:thing", "mine": "taking_b:thing"}},
        taking_b=text,
    )
    known = things()
    mine = Thing()
    known.add("mine", mine)
    for _ in range(2):
        assert list(known) == ["mine", "x"]
    assert known["mine"] is mine
    assert known.origin_of("x") == "a-things 1.0"
    for (name, module, holder), message in zip(
        [("all", "a", "nppr"), ("mine", "b", "nppr"), ("x", "b", "a-things 1.0")],
        sorted(caplog.messages),
        strict=True,
    ):
        point = f"entry point {name} = taking_{module}:thing (nppr.things) of {module}-things 1.0"
        taken = f"the thing name {name!r} is taken by {holder}. Uninstall one of them."
        assert message == f"{point} is left out: {taken}"


def test_damaged_metadata_cost_a_warning(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    install(place, "good-metadata", {"nppr.things": {"good": "some_module:thing"}})
    install(place, "bad-metadata", {})
    (place / "bad_metadata-1.0.dist-info" / "entry_points.txt").write_text(
        "[nppr.things]\nnothing\n"
    )
    assert [point.name for point in added_points((str(place),))] == ["good"]
    assert "damaged metadata" in caplog.text


def test_metadata_that_are_no_text_cost_a_warning(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(place, "latin", {"nppr.things": {"one": "m:t"}})
    (place / "latin-1.0.dist-info" / "entry_points.txt").write_bytes(b"[nppr.things]\n\xff = a:b\n")
    assert added_points((str(place),)) == ()
    assert "latin-1.0.dist-info has damaged metadata: UnicodeDecodeError" in caplog.text


def test_a_package_without_name_or_version_is_known_by_its_folder(place: Path) -> None:
    for name in ("bare-a", "bare-b"):
        install(place, name, {"nppr.things": {name: "m:t"}})
        (place / f"{name.replace('-', '_')}-1.0.dist-info" / "METADATA").write_text("\n")
    install(place, "good-metadata", {"nppr.things": {"good": "m:t"}})
    origins = {point.name: point.origin for point in added_points((str(place),))}
    folder = place / "bare_a-1.0.dist-info"
    assert origins["bare-a"] == f"{folder} without a version"
    assert origins.keys() == {"bare-a", "bare-b", "good"}


def test_the_first_of_two_versions_on_the_path_counts(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        install(tmp_path / str(number), "same", {"nppr.things": {f"from-{number}": "m:t"}})
    path = tuple(str(tmp_path / str(number)) for number in (2, 1))
    assert [point.name for point in added_points(path)] == ["from-2"]


def test_a_class_may_be_defined_again_in_its_place() -> None:
    known: Registry[type[Thing]] = Registry("class", "nppr.none", f"{__name__}:Thing", classes=True)

    def define() -> type[Thing]:
        class Again(Thing):
            """The same class each time, as in a cell of a notebook."""

        return Again

    first, second = define(), define()
    known.add("again", first)
    known.add("again", second)
    assert known["again"] is second
    with pytest.raises(PluginError, match="taken by nppr"):
        known.add("again", Thing)


def test_sources_of_packages_are_listed_and_left_for_later_without_an_import(place: Path) -> None:
    points = {"nppr.sources": {"not-imported": "not_imported:Noise"}}
    install(place, "not-imported", points, not_imported="raise SystemExit")
    assert "not-imported (from not-imported 1.0)" in describe_sources()
    require_source_names("uniform,not-imported:width=3,preset-of-it", boxed=False)
    with pytest.raises(SpecError, match="Did you mean 'steps'"):
        require_source_names("not-imported,pgd:stepss=3", boxed=False)
    assert "not_imported" not in sys.modules


def test_what_is_measured_by_default_does_not_depend_on_packages() -> None:
    assert "stripes" in sources_in(BUDGET)
    assert "stripes" in split_search("all", BUDGET)[1].split(",")
    assert "stripes" not in default_sources(BUDGET)
    assert SOURCES.origin_of("stripes") == "nppr-stripes 1.0"
    assert EXPORTS.origin_of("table") == DATA_FORMATS.origin_of("json-lines") == "nppr-stripes 1.0"
    assert parse_sources("stripes:width=3", BUDGET)[0].name == "stripes:width=3"


def test_only_a_source_of_its_name_is_accepted(
    place: Path, known_sources: Registry[type[Source]]
) -> None:
    text = "import nppr\nclass Other(nppr.Source, kind='other-name'):\n    perturb = None\n"
    install(
        place,
        "misnamed",
        {"nppr.sources": {"some-name": "misnamed_source:Other"}},
        misnamed_source=text,
    )
    with pytest.raises(
        PluginError, match=r"misnamed 1\.0.*its `kind` must be 'some-name'.*'other-name'"
    ):
        known_sources["some-name"]
    assert "other-name" not in known_sources


def test_a_package_cannot_take_a_suffix_of_ours(place: Path) -> None:
    text = "from nppr.data import DataFormat\nTHING = DataFormat('theirs', suffixes=('.npz',))\n"
    install(place, "their-npz", {"nppr.data": {"theirs": "their_npz:THING"}}, their_npz=text)
    known = DATA_FORMATS.copy()
    assert "npz" in list(known)
    assert "theirs" not in list(known)
    with pytest.raises(PluginError, match=r"their-npz 1\.0.*'\.npz' is taken by nppr"):
        known["theirs"]


def test_a_model_format_is_known_by_its_suffix_or_prefix(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_registries(monkeypatch)
    text = (
        "import torch\nfrom nppr.models.model_formats import LoadedModel, ModelFormat\n"
        "def load(wanted):\n    return LoadedModel(torch.nn.Sequential(torch.nn.Flatten(),"
        " torch.nn.Linear(64, 10)))\n"
        "THING = ModelFormat(load, has_weights=True)\n"
    )
    points = {"nppr.models": {".weird": "weird_models:THING", "weird:": "weird_models:THING"}}
    install(place, "weird-models", points, weird_models=text)
    (place / "m.weird").touch()
    require_model("weird:net")
    data = load_data("digits")
    for model in ("weird:net", str(place / "m.weird")):
        assert nppr.load_classifier(model, data=data).name in ("net", "m")
    with pytest.raises(
        SpecError, match=r"model\.weird, hf:NAME, timm:NAME, torchvision:NAME or weird:NAME"
    ):
        require_model("resnet")


def test_code_of_a_package_that_fails_later_is_named(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "from nppr.data import DataFormat\nfrom nppr.export.documents import Document\n"
        "from nppr.models.model_formats import ModelFormat\n"
        "def fail(*_):\n    raise KeyError('inside')\n"
        "DATA = DataFormat('theirs', fail, fail, suffixes=('.fails',))\n"
        "MODEL = ModelFormat(fail)\nDOCUMENT = Document({'.md': fail})\n"
    )
    points = {
        "nppr.data": {"fails": "fails_later:DATA"},
        "nppr.models": {"fails:": "fails_later:MODEL"},
        "nppr.exports": {"fails": "fails_later:DOCUMENT"},
    }
    install(place, "fails-later", points, fails_later=text)
    copy_registries(monkeypatch)
    (place / "m.fails").touch()
    failed = r"of fails-later 1\.0 failed: KeyError: 'inside' at .*fails_later\.py:5"
    with pytest.raises(PluginError, match=f"the data format 'fails' {failed}"):
        load_data(place / "m.fails")
    with pytest.raises(PluginError, match=f"the model format 'fails:' {failed}"):
        nppr.load_classifier("fails:net")
    (place / "report.json").write_text(made_report()[0].to_json())
    with pytest.raises(PluginError, match=f"the export 'fails' {failed}"):
        write_exports(place, "fails")
    assert not (place / "exports").exists()


def test_a_data_format_that_fails_does_not_hide_the_others(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text = (
        "from nppr.data import DataFormat\n"
        "def fail(*_):\n    raise KeyError('inside')\nDATA = DataFormat('theirs', fail, fail)\n"
    )
    install(
        place, "fails-to-find", {"nppr.data": {"seeks": "fails_to_find:DATA"}}, fails_to_find=text
    )
    copy_registries(monkeypatch)
    for name in ("a", "b"):
        (place / "photos" / name).mkdir(parents=True)
        for number in range(5):
            pixels = np.full((4, 4), 20 * number, np.uint8)
            Image.fromarray(pixels).save(place / "photos" / name / f"{number}.png")
    assert load_data(place / "photos").classes == 2
    assert "the data format 'seeks' of fails-to-find 1.0 failed: KeyError" in caplog.text


def run_nppr(folder: Path, installed: list[Path], *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), *map(str, installed)])
    return subprocess.run(
        [sys.executable, "-m", "nppr", *words], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
    )  # fmt: skip


@pytest.mark.slow
def test_the_command_line_uses_what_a_package_adds(tmp_path: Path, installed: Path) -> None:
    digits = load_data("digits").evaluate
    x, y = digits.batch(np.arange(90))
    rows = (
        json.dumps({"image": (255 * image[0]).round().int().tolist(), "label": int(label)})
        for image, label in zip(x, y, strict=True)
    )
    (tmp_path / "digits.jsonl").write_text("\n".join(rows))
    words = [
        "--data",
        "digits.jsonl",
        "--model",
        "digits-cnn",
        "--draws",
        "3",
        "--eps",
        "0.1",
        "--out",
        "run",
        "--no-page",
    ]
    done = run_nppr(tmp_path, [installed], "assess", *words, "--sources", "uniform,stripes:width=4")
    assert done.returncode == 0, done.stderr
    assert "stripes:width=4" in done.stdout
    done = run_nppr(tmp_path, [installed], "export", "run", "--to", "table")
    assert done.returncode == 0, done.stderr
    assert "stripes:width=4" in (tmp_path / "run" / "exports" / "table.md").read_text()
    shown = run_nppr(tmp_path, [installed], "assess", "--help").stdout
    assert "stripes (from nppr-stripes 1.0)" in " ".join(shown.replace("│", " ").split())
    assert (
        "table (from nppr-stripes 1.0)"
        in run_nppr(tmp_path, [installed], "export", "--help").stdout
    )


@pytest.mark.slow
def test_a_package_that_fails_stops_only_a_run_that_names_it(
    tmp_path: Path,
) -> None:
    place = tmp_path / "packages"
    place.mkdir()
    points = {"nppr.sources": {"broken": "broken_source:Broken"}}
    install(place, "broken-source", points, broken_source="import no_such_module_at_all")
    words = ["--inputs", "30", "--draws", "2", "--no-page"]
    done = run_nppr(tmp_path, [place], "assess", *words, "--sources", "uniform", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.json").is_file()
    line = "entry point broken = broken_source:Broken (nppr.sources) of broken-source 1.0"
    assert " ".join(done.stderr.split()).count(line) == 1
    done = run_nppr(
        tmp_path, [place], "assess", *words, "--sources", "uniform,broken", "--out", "run"
    )
    assert done.returncode == 2
    assert " ".join(done.stderr.split()).count(line) == 1
    assert (tmp_path / "run" / "report.json").is_file()


@pytest.mark.slow
def test_packages_are_not_looked_for_before_a_room_is_used(tmp_path: Path, installed: Path) -> None:
    code = (
        "import sys\nfrom nppr.cli import run\nrun(['--help'])\n"
        "print(sorted({'nppr_stripes', 'torch'} & {*sys.modules}), file=sys.stderr)\n"
        "from nppr.system import registry\nprint(registry.added_points.cache_info(), file=sys.stderr)"
    )
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(installed)])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.stderr.startswith("[]\n")
    assert "misses=0" in done.stderr
