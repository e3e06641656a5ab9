from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nppr.core.budget import Budget
from nppr.core.tally import Metric
from nppr.data import load_data
from nppr.errors import DataError, FitError, RunFolderError, SpecError
from nppr.measuring.measurement import measure
from nppr.models import load_classifier
from nppr.models.zoo import shipped_weights
from nppr.noise.rungs import Dependency
from nppr.report.run_files import read_run
from nppr.search.learned_noise import load_learned
from nppr.search.search import FinishedStage, NoiseSearch
from nppr.search.search_settings import Stage
from nppr.settings import Measure
from nppr.sources.learned import Learned
from nppr.sources.per_input_noise import PerInputNoise
from nppr.study.graph import Node
from nppr.study.node_work import NodeCache
from nppr.study.plan import plan
from nppr.study.resources import identify_data, load_source
from nppr.study.run_study import run_study
from nppr.study.study_file import DataEntry, study_from
from study.toys import log_of, run_toy, texts_of, times_done, toy

pytestmark = pytest.mark.slow

TRAINED = {
    "name": "own",
    "model": "digits-cnn",
    "feature_model": "cnn",
    "training": {"epochs": 2, "learning_rate": 0.01},
}


def content(**changes: Any) -> dict[str, Any]:
    """Two classifiers, one of them trained, with features of the other."""
    made = toy(**{"grids__0__radii": [0.1, 0.2], **changes})
    made["classifiers"].append(TRAINED)
    return made


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that was run in one process."""
    folder = tmp_path_factory.mktemp("study")
    ended = run_toy(content(), folder)
    assert not ended.failures
    assert ended.ran == 1 + 8 + 24
    return folder


def test_all_formats_are_written(finished: Path) -> None:
    texts = texts_of(finished / "out")
    assert sorted(texts) == sorted(
        [f"{name}.{end}" for name in ("main", "orders") for end in ("csv", "json", "md", "tex")]
        + ["manifest.json", "study.html", "study.json", "study.md"]
    )
    known = json.loads(texts["study.json"])
    (table,) = known["tables"]
    assert table["columns"] == ["0.1", "0.2", "entropy ratio"]
    assert len(table["entries"]) == 6
    assert all(entry["ours"][0]["seeds"] == 2 for entry in table["entries"])
    assert known["orders"]["summary"] in texts["study.md"]
    assert known["orders"]["fitted_apart"] is False
    assert len(known["orders"]["pairs"]) == 2
    assert "<h2>Nested pairs</h2>" in texts["study.html"]
    assert texts["study.html"].count(" nested pairs (") == 1
    assert f"Machine: nppr {known['machine']['nppr']}" in texts["study.html"]
    assert '<th scope="col" class="n">entropy ratio</th>' in texts["study.html"]
    assert known["spec"]["grids"][0]["seeds"] == [0, 1]
    assert known["spec"]["grids"][0]["fit_seeds"] == [0]


def test_tables_of_an_earlier_run_are_removed_and_other_files_stay(
    finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run_toy(content(), finished, out=out)
    (out / "mine.md").write_text("kept")
    renamed = content(tables__0__name="other", grids__0__dependencies=["joint"])
    assert run_toy(renamed, finished, out=out).ran == 0
    names = [f"other.{end}" for end in ("csv", "json", "md", "tex")]
    assert sorted(texts_of(out)) == [
        "manifest.json",
        "mine.md",
        *names,
        "study.html",
        "study.json",
        "study.md",
    ]


@pytest.mark.parametrize("name", ["main.tex", "orders.csv", "study.json", "manifest.json"])
def test_files_that_no_study_has_written_are_never_replaced(
    finished: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text('{"tables": [{"name": "mine"}]}')
    (tmp_path / "mine.csv").write_text("precious")
    with pytest.raises(RunFolderError, match="`out` must be a new or empty folder") as caught:
        run_toy(content(), finished, out=tmp_path)
    assert "\n" not in str(caught.value)
    assert texts_of(tmp_path) == {name: '{"tables": [{"name": "mine"}]}', "mine.csv": "precious"}


def test_tables_of_an_earlier_run_are_not_removed_through_links(
    finished: Path, tmp_path: Path
) -> None:
    out, mine = tmp_path / "out", tmp_path / "mine.csv"
    run_toy(content(), finished, out=out)
    mine.write_text("precious")
    (out / "main.csv").unlink()
    (out / "main.csv").symlink_to(mine)
    run_toy(content(tables__0__name="other"), finished, out=out)
    assert mine.read_text() == "precious"
    assert not (out / "main.csv").is_symlink()


def test_a_graph_that_was_planned_without_its_code_is_not_run(tmp_path: Path) -> None:
    code = "import torch\n\ndef make():\n    return torch.nn.Flatten()\n"
    (tmp_path / "mine.py").write_text(code)
    named = f"{tmp_path / 'mine.py'}:make"
    with pytest.raises(SpecError, match="--run-code") as caught:
        run_toy(toy(classifiers__0__model=named), tmp_path)
    assert named in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_numbers_are_those_of_the_library(finished: Path) -> None:
    from nppr import assess

    data = load_data("digits").limit(inputs=30, fit_inputs=80, select_inputs=30, seed=0)
    report = assess(
        "digits-cnn",
        data,
        budget=Budget.linf(0.2),
        sources="uniform",
        measure=Measure(draws=2, seed=1),
    )
    (row,) = [row for row in report.numbers if row.metric.value == "normalised_accuracy"]
    spec = study_from(content())
    (cell,) = [
        cell
        for cell in plan(spec).cells
        if cell.place.classifier == "cnn"
        and cell.place.source == "uniform"
        and cell.place.radius == "0.2"
        and cell.seed == 1
    ]
    run = read_run(finished / "cache" / cell.measure / "run").report
    assert [each.value for each in run.numbers if each.metric is row.metric] == [row.value]


def test_a_fit_is_measured_on_another_target_with_the_features_it_was_fitted_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nppr.search.selection.BETTER_BY", -1e9)  # noise that sees features is kept
    entries = [{"name": "cnn", "model": "digits-cnn"}, {"name": "dim", "model": "digits-cnn"}]
    entries[1] |= {"mean": "0.3", "std": "0.5"}
    calls = {"fit__calls": 12_288}  # enough to be lower than its parent
    made = toy(classifiers=entries, data__0__inputs=200, grids__0__sources=[], **calls)
    made["grids"][0] |= {
        "classifiers": ["cnn"],
        "targets": ["own", "dim"],
        "dependencies": ["joint"],
        "radii": [0.15],
    }
    made["tables"][0] |= {"rows": ["classifier", "target"]}
    assert not run_toy(made, tmp_path).failures
    spec = study_from(made)
    (cell,) = [c for c in plan(spec).cells if c.place.target == "dim" and c.seed == 1]
    assert cell.fit is not None
    data = load_data("digits").limit(inputs=200, fit_inputs=80, select_inputs=30, seed=0)
    cache, cnn = tmp_path / "cache", load_classifier("digits-cnn", data=data)
    (learned,) = load_learned(cache / cell.fit, Budget.linf(0.15), cnn)
    noise, found = learned.source, learned.source.distribution
    dim = load_classifier("digits-cnn", data=data, mean=(0.3,), std=(0.5,))
    assert found.features
    own = Learned(Budget.linf(0.15), found)  # sees the features of what it is measured on
    wanted, elsewhere, others = (
        measure(source, model, data.evaluate, classes=10, draws=2, seed=1)
        for source, model in ((noise, dim), (noise, cnn), (own, dim))
    )
    lines = read_run(cache / cell.measure / "run").report.per_input
    np.testing.assert_array_equal(lines["correct"], wanted.correct)
    assert (elsewhere.correct != wanted.correct).any()
    assert (others.correct != wanted.correct).any()
    (table,) = json.loads((tmp_path / "out" / "study.json").read_text())["tables"]
    assert [entry["labels"] for entry in table["entries"]] == [["cnn", "cnn"], ["cnn", "dim"]]


def test_per_input_is_that_of_the_library_and_below_what_it_starts_from(tmp_path: Path) -> None:
    grid = {
        "dependencies": ["joint", "per-input"],
        "radii": [0.1],
        "fit_radii": [0.1],
        "seeds": [1],
    }
    made = toy(grids=[{**grid, "components": [2]}], fit__per_input_calls=8)
    assert not run_toy(made, tmp_path).failures
    joint, own = plan(study_from(made)).cells
    assert joint.fit == own.fit is not None
    data = load_data("digits").limit(inputs=30, fit_inputs=80, select_inputs=30, seed=0)
    (learned,) = load_learned(tmp_path / "cache" / own.fit, Budget.linf(0.1), None)
    noise = PerInputNoise(learned.source, 8)
    wanted = measure(noise, load_classifier("digits-cnn"), data.evaluate, draws=2, seed=1)
    runs = [read_run(tmp_path / "cache" / cell.measure / "run").report for cell in (joint, own)]
    np.testing.assert_array_equal(runs[1].per_input["correct"], wanted.correct)
    above, below = (next(r.value for r in run.numbers if r.metric is Metric.NPPR) for run in runs)
    assert below is not None
    assert above is not None
    assert below < above
    orders = json.loads((tmp_path / "out" / "orders.json").read_text())
    assert [(pair["smaller"], pair["larger"]) for pair in orders] == [
        ("joint, K = 2", "per-input, K = 2")
    ]


def test_a_rerun_computes_nothing(finished: Path, tmp_path: Path) -> None:
    before = len(log_of(finished / "cache"))
    ended = run_toy(content(), finished, out=tmp_path / "again")
    assert ended.ran == 0
    assert len(log_of(finished / "cache")) == before
    assert texts_of(tmp_path / "again") == texts_of(finished / "out")


def test_a_changed_setting_computes_only_what_changed(finished: Path, tmp_path: Path) -> None:
    ended = run_toy(content(grids__0__sources=["laplace"]), finished, out=tmp_path)
    assert ended.ran == 2 * 2 * 2  # classifiers, radii, seeds
    assert max(times_done(finished / "cache").values()) == 1


def test_damaged_results_are_computed_again_and_said(finished: Path, tmp_path: Path) -> None:
    nodes = plan(study_from(content())).by_kind()
    fit, measure = nodes["fit"][0], nodes["measure"][-1]
    (stage,) = (finished / "cache" / fit.hash / "fit").glob("*.safetensors")
    stage.write_bytes(stage.read_bytes()[:-100])
    record = finished / "cache" / measure.hash / "node.json"
    record.write_text(record.read_text()[:100])
    ended = run_toy(content(), finished, out=tmp_path)
    assert ended.ran == 1 + 1
    assert len(ended.notes) == 2
    assert all("computed again" in note for note in ended.notes)
    assert texts_of(tmp_path) == texts_of(finished / "out")


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        ("measure", "run/run.json"),
        ("measure", "run/report.json"),
        ("fit", "fit/0-independent-2.0.state.safetensors"),
        ("fit", "fit/0-independent-2.done.safetensors"),
    ],
)
def test_what_an_interrupted_node_left_is_not_trusted(
    tmp_path: Path, kind: str, left: str, caplog: pytest.LogCaptureFixture
) -> None:
    small = toy(
        grids__0={"radii": [0.1], "dependencies": ["independent"], "components": [2]},
        tables=[],
    )
    (node,) = plan(study_from(small)).by_kind()[kind]
    file = tmp_path / "cache" / node.hash / left
    file.parent.mkdir(parents=True)
    file.write_bytes(b"{half of")
    ended = run_toy(small, tmp_path)
    assert not ended.failures
    assert ended.ran == 2
    notes = [note for note in ended.notes if "started again" in note]
    assert bool(notes) == (kind == "measure")
    assert ("that stage is fitted again" in caplog.text) == (kind == "fit")


@pytest.mark.parametrize("gone", [False, True], ids=["changed", "gone"])
def test_damaged_weights_of_a_training_are_made_again(
    finished: Path, tmp_path: Path, gone: bool
) -> None:
    shutil.copytree(finished / "cache", tmp_path / "cache")
    (train,) = plan(study_from(content())).by_kind()["train"]
    weights = tmp_path / "cache" / train.hash / "weights.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-4] + bytes(4))
    if gone:
        weights.unlink()
    more = {"grids__0__dependencies": [], "measure__draws": 3, "tables": []}
    ended = run_toy(content(**more), tmp_path)
    assert not ended.failures
    assert weights.read_bytes() == whole
    assert ended.ran == 1 + 8


def test_weights_that_changed_since_the_plan_are_no_result(tmp_path: Path) -> None:
    shipped = shipped_weights("digits-cnn")
    assert shipped is not None
    file = tmp_path / "weights.safetensors"
    file.write_bytes(shipped.read_bytes())
    small = toy(
        classifiers__0__weights=str(file),
        grids__0={"radii": [0.1], "sources": ["uniform"]},
    )
    spec = study_from(small)
    graph = plan(spec)
    file.write_bytes(shipped.read_bytes()[:-4] + bytes(4))
    ended = run_study(spec, graph, cache=tmp_path / "cache", out=tmp_path / "out")
    assert "changed since the study was planned. Run the same command again" in ended.failures[0]
    assert not run_toy(small, tmp_path).failures


def test_data_that_changed_since_the_plan_are_no_result(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    file = tmp_path / "data.npz"

    def write() -> None:
        images = generator.random((60, 1, 8, 8)).astype(np.float32)
        np.savez(file, x=images, y=np.arange(60) % 10)

    write()
    source = identify_data(DataEntry(name="mine", spec=str(file)))
    assert len(load_source(source).evaluate)
    write()
    load_source.cache_clear()  # as in another process
    with pytest.raises(DataError, match="changed since the study was planned"):
        load_source(source)


def test_a_failed_node_takes_only_its_dependants_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = NoiseSearch.complete

    def failing(search: NoiseSearch, stage: Stage, *rest: Any) -> FinishedStage:
        if stage.family.dependency is Dependency.INPUT:
            raise FitError("the loss is NaN")
        return real(search, stage, *rest)

    monkeypatch.setattr(NoiseSearch, "complete", failing)
    ended = run_toy(toy(), tmp_path)
    failed = [each for each in ended.failures if "skipped" not in each]
    assert failed == ["fit cnn, linf 0.2, none, input-2: the loss is NaN"]
    skipped = ended.failures[1:]
    assert len(skipped) == 1 + 6  # joint, and what is measured of it
    assert all("skipped, it needs fit cnn" in each for each in skipped)
    table = json.loads((tmp_path / "out" / "study.json").read_text())["tables"][0]
    known = {tuple(entry["labels"]): entry["ours"][0] for entry in table["entries"]}
    assert known["cnn", "nppr", "independent"] is not None
    assert known["cnn", "uniform", ""] is not None
    assert known["cnn", "nppr", "joint"] is None


def test_a_full_disk_stops_with_one_line_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = toy(grids__0={"radii": [0.1, 0.2], "sources": ["uniform", "gaussian"]})
    real = NodeCache.finish
    written: list[str] = []

    def full(cache: NodeCache, node: Node, *rest: Any, **more: Any) -> Any:
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(node.hash)
        return real(cache, node, *rest, **more)

    monkeypatch.setattr(NodeCache, "finish", full)
    with pytest.raises(RunFolderError, match="make space and run the same command again") as caught:
        run_toy(small, tmp_path)
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    ended = run_toy(small, tmp_path)
    assert (ended.cached, ended.ran) == (2, 2)


def test_absent_data_are_said_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r"missing: data 'digits' at no/such/folder.*--set NAME=PATH"
    ):
        run_toy(toy(data__0__spec="no/such/folder"), tmp_path)
    assert not (tmp_path / "cache").exists()


def test_bad_places_and_numbers(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="`cache` must be a folder"):
        run_toy(toy(), tmp_path, cache=tmp_path / "file" / "cache")
    with pytest.raises(RunFolderError, match="`out` must be a folder"):
        run_toy(toy(), tmp_path, out=tmp_path / "file")
    assert not log_of(tmp_path / "cache")
    with pytest.raises(SpecError, match="`workers` must be a whole number"):
        run_toy(toy(), tmp_path, workers=0)


def test_the_spread_over_fit_seeds_and_the_papers_preset(tmp_path: Path) -> None:
    small = toy(
        fit={"preset": "paper", "epochs": 1, "draws": 1},
        grids__0={"fit_radii": [0.2], "dependencies": ["label"], "fit_seeds": [0, 1]},
    )
    ended = run_toy(small, tmp_path)
    assert not ended.failures
    ((entry, _),) = ended.tables[0].numbers
    assert entry is not None
    assert entry.fit_seeds == 2


def test_figures_of_the_learned_noise_are_files_of_the_study(tmp_path: Path) -> None:
    grid = {"radii": [0.2], "fit_radii": [0.2], "dependencies": ["label"], "components": [2]}
    small = toy(grids__0={**grid, "sources": ["uniform"]})
    ended = run_toy(small, tmp_path, figures=("svg",))
    assert not ended.failures
    (folder,) = (ended.out / "figures").iterdir()
    names = {path.stem for path in folder.iterdir()}
    assert names >= {"contours", "tsne", "means", "covariances", "weights"}
    listed = json.loads((ended.out / "manifest.json").read_text())["files"]
    assert {f"figures/{folder.name}/{name}.svg" for name in names} <= set(listed)
    again = run_toy(small, tmp_path)
    assert again.ran == 0
    assert not list(folder.iterdir()), "a study without figures replaces one with figures"
