from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from nppr.errors import SpecError
from nppr.models import load_classifier
from nppr.study.graph import ALGORITHM, FitNode, Graph, Node
from nppr.study.plan import plan
from nppr.study.study_file import study_from
from study.toys import toy


def planned(**changes: Any) -> Graph:
    return plan(study_from(toy(**changes)), run_code=True)


def counts(graph: Graph) -> dict[str, int]:
    return {kind: len(nodes) for kind, nodes in graph.by_kind().items()}


def stage_of(node: Node) -> str:
    assert isinstance(node, FitNode)
    return node.stage.name


def test_a_fit_appears_once_for_three_radii_and_two_seeds() -> None:
    graph = planned()
    # independent, label, input and joint: the walk to joint goes through all four
    assert counts(graph) == {"train": 0, "fit": 4, "measure": 18}
    assert len(graph.cells) == 18
    joint = [cell for cell in graph.cells if cell.place.dependency == "joint"]
    assert len(joint) == 6
    assert len({cell.fit for cell in joint}) == 1
    assert len({cell.measure for cell in joint}) == 6


def test_parents_are_fitted_once_for_all_children() -> None:
    everything = ["independent", "label", "input", "joint"]
    graph = planned(grids__0__dependencies=everything, grids__0__components=[2, 3, 5])
    parents = {
        stage_of(node): sorted(stage_of(graph.nodes[need]) for need in node.needs)
        for node in graph.by_kind()["fit"]
    }
    assert len(parents) == 12
    assert parents["independent-2"] == []
    assert parents["label-2"] == ["independent-2"]
    assert parents["joint-2"] == ["input-2", "label-2"]
    assert parents["independent-5"] == ["independent-3"]
    assert parents["joint-5"] == ["input-5", "joint-3", "label-5"]


def test_fits_of_the_paper_have_no_parents() -> None:
    graph = planned(fit__preset="paper")
    assert counts(graph)["fit"] == 2
    assert not any(node.needs for node in graph.by_kind()["fit"])


def test_a_floor_starts_at_the_family_without_one() -> None:
    graph = planned(grids__0__floors=[0.5], grids__0__dependencies=["independent"])
    without, with_floor = graph.by_kind()["fit"]
    assert (stage_of(without), stage_of(with_floor)) == ("independent-2", "independent-2-floor-0.5")
    assert with_floor.needs == (without.hash,)


def test_without_fit_radii_every_radius_is_fitted_and_measured_alone() -> None:
    graph = planned(grids__0={"radii": [0.1, 0.2], "dependencies": ["independent"]})
    assert counts(graph) == {"train": 0, "fit": 2, "measure": 2}
    assert all(cell.place.radius == cell.place.fit_radius for cell in graph.cells)


def test_a_corruption_is_measured_once_for_all_radii() -> None:
    graph = planned(grids__0={"radii": [0.1, 0.2], "sources": ["brightness"]})
    assert len(graph.cells) == 2
    assert counts(graph)["measure"] == 1


def test_features_of_another_model_are_another_fit() -> None:
    entries = [{"name": name, "model": "digits-cnn"} for name in ("cnn", "other")]
    entries[1]["mean"] = "0.5"
    entries[1]["std"] = "0.5"
    content = toy(
        classifiers=entries,
        grids__0__classifiers=["cnn"],
        grids__0__feature_models=["own", "other"],
        grids__0__dependencies=["joint"],
    )
    # independent and label see no features
    assert counts(plan(study_from(content)))["fit"] == 2 + 2 * 2


def two(**grid: Any) -> Graph:
    entries = [{"name": name, "model": "digits-cnn"} for name in ("cnn", "other")]
    entries[1]["mean"], entries[1]["std"] = "0.5", "0.5"
    content = toy(classifiers=entries)
    content["grids"][0] |= {"classifiers": ["cnn"], **grid}
    return plan(study_from(content))


def test_a_fit_is_reused_for_all_targets() -> None:
    alone, both = two(), two(targets=["own", "other"])
    assert alone.nodes.keys() < both.nodes.keys()
    assert counts(both) == counts(alone) | {"measure": 12 + 12 + 6}
    cells = [cell for cell in both.cells if cell.place.target == "other"]
    assert {cell.place.classifier for cell in cells} == {"cnn"}
    for cell in cells:
        assert cell.fit is not None
        assert cell.fit in alone.nodes
        assert both.nodes[cell.measure].needs == (cell.fit,)
        assert cell.measure not in alone.nodes


def test_a_target_with_other_data_is_refused() -> None:
    content = toy(grids__0__classifiers=["cnn"], grids__0__targets=["other"])
    content["data"].append({"name": "more", "spec": "digits"})
    content["classifiers"][0]["data"] = "digits"
    content["classifiers"].append({"name": "other", "model": "digits-cnn", "data": "more"})
    with pytest.raises(SpecError, match="`targets` must have the data of"):
        plan(study_from(content))


def test_a_classifier_is_trained_once() -> None:
    graph = planned(classifiers__0__training={"epochs": 1}, grids__0__norms=["linf", "l2"])
    assert counts(graph)["train"] == 1


def test_what_a_training_leaves_out_is_the_default_of_the_network() -> None:
    def hashes(**training: Any) -> set[str]:
        return set(planned(classifiers__0__training=training).nodes)

    assert hashes() == hashes(epochs=40, optimiser="adam")
    assert not hashes() & hashes(epochs=41)


BAD_TRAININGS: dict[str, tuple[dict[str, Any], str]] = {
    "model": ({"classifiers__0__model": "digits-cn"}, "Did you mean 'digits-cnn'?"),
    "rate": ({"classifiers__0__training": {"learning_rate": -1.0}}, "`learning-rate` must be"),
    "no data": (
        {"data__0__spec": "no/such", "classifiers__0__training": {"momentum": 2.0}},
        "`momentum` must be",
    ),
}


@pytest.mark.parametrize("case", BAD_TRAININGS)
def test_a_training_that_cannot_be_is_refused_by_the_plan(case: str) -> None:
    changes, said = BAD_TRAININGS[case]
    with pytest.raises(SpecError) as caught:
        planned(**{"classifiers__0__training": {}, **changes})
    assert said in str(caught.value)
    assert str(caught.value).endswith("(In the training of 'cnn'.)")
    assert "\n" not in str(caught.value)


DETERMINING: dict[str, dict[str, Any]] = {
    "inputs": {"data__0__inputs": 29},
    "fit inputs": {"data__0__fit_inputs": 79},
    "subset": {"data__0__seed": 1},
    "normalisation": {"classifiers__0__mean": 0.1, "classifiers__0__std": 0.9},
    "training": {"classifiers__0__training": {"epochs": 1}},
    "calls": {"fit__calls": 4096},
    "kappa": {"fit__kappa": 2.0},
    "preset": {"fit__preset": "paper"},
    "step": {"fit__step_inputs": 32},
    "width": {"fit__hidden_dim": 16},
    "radius of the fit": {"grids__0__fit_radii": [0.25]},
    "norm": {"grids__0__norms": ["l2"]},
    "components": {"grids__0__components": [3]},
    "covariance": {"grids__0__covariances": ["full"]},
    "upsampler": {"grids__0__upsamplers": ["bicubic"]},
    "loss": {"grids__0__losses": ["cross-entropy"]},
    "fit seed": {"grids__0__fit_seeds": [1]},
    "quantise": {"measure__quantise": True},
    "threads": {"measure__threads": 2},
}


@pytest.mark.parametrize("case", DETERMINING)
def test_hashes_of_fits_change_with_what_determines_them(case: str) -> None:
    before = {node.hash for node in planned().by_kind()["fit"]}
    after = {node.hash for node in planned(**DETERMINING[case]).by_kind()["fit"]}
    assert after
    assert not before & after


SAME: dict[str, dict[str, Any]] = {
    "names": {
        "name": "other",
        "title": "x",
        "classifiers__0__name": "c",
        "classifiers__0__label": "d",
    },
    "tables": {"tables": []},
    "draws": {"measure__draws": 3},
    "confidence": {"measure__confidence": 0.9},
    "seeds": {"grids__0__seeds": [5]},
    "radii": {"grids__0__radii": [0.05]},
    "sources": {"grids__0__sources": ["gaussian"]},
    "expected": {"data__0__expected": {"fit": 7}},
}


@pytest.mark.parametrize("case", SAME)
def test_hashes_of_fits_do_not_change_with_the_rest(case: str) -> None:
    before = {node.hash for node in planned().by_kind()["fit"]}
    assert {node.hash for node in planned(**SAME[case]).by_kind()["fit"]} == before


@pytest.mark.parametrize(
    "changes",
    [
        {"measure__draws": 3},
        {"measure__confidence": 0.9},
        {"grids__0__seeds": [5]},
        {"grids__0__radii": [0.05]},
        {"fit__calls": 4096, "grids__0__sources": ["gaussian"]},
    ],
    ids=["draws", "confidence", "seed", "radius", "everything"],
)
def test_hashes_of_measurements_change_with_what_determines_them(changes: dict[str, Any]) -> None:
    before = {node.hash for node in planned().by_kind()["measure"]}
    assert not before & {node.hash for node in planned(**changes).by_kind()["measure"]}


def test_hashes_change_with_the_bytes_of_weights_and_not_with_their_place(tmp_path: Path) -> None:
    from nppr.models.zoo import shipped_weights

    shipped = shipped_weights("digits-cnn")
    assert shipped is not None
    content = shipped.read_bytes()
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(content)

    def hashes(path: Path) -> set[str]:
        return set(planned(classifiers__0__weights=str(path)).nodes)

    own = set(planned().nodes)
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two") == own
    (tmp_path / "two").write_bytes(content[:-4] + b"\0\0\0\0")
    assert not hashes(tmp_path / "two") & own


NETWORKS = """
import torch
from torch import nn

def made(seed, width):
    torch.manual_seed(seed)
    layers = nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10)
    return nn.Sequential(nn.Flatten(), *layers)

def small():
    return made(0, 8)

def large():
    return made(1, 16)
"""


def test_two_networks_of_one_file_are_not_the_same(tmp_path: Path) -> None:
    file = tmp_path / "networks.py"
    file.write_text(NETWORKS)

    def hashes(function: str) -> set[str]:
        return set(planned(classifiers__0__model=f"{file}:{function}").nodes)

    small = hashes("small")
    assert small == hashes("small")
    assert not small & hashes("large")


def test_weights_that_a_file_loads_by_itself_determine_the_hash(tmp_path: Path) -> None:
    (tmp_path / "seed.txt").write_text("1")
    file = tmp_path / "networks.py"
    seed = f"int(Path({str(tmp_path / 'seed.txt')!r}).read_text())"
    text = NETWORKS.replace("made(0, 8)", f"made({seed}, 8)")
    file.write_text(f"from pathlib import Path\n{text}")
    before = planned(classifiers__0__model=f"{file}:small").nodes
    (tmp_path / "seed.txt").write_text("2")
    assert not before.keys() & planned(classifiers__0__model=f"{file}:small").nodes.keys()


@pytest.mark.parametrize("weights", [False, True])
def test_files_beside_a_model_determine_the_hash(tmp_path: Path, weights: bool) -> None:
    file, beside = tmp_path / "networks.py", tmp_path / "sizes_of_layers.py"
    text = NETWORKS.replace("made(0, 8)", "made(0, sizes_of_layers.SIZE)")
    file.write_text(f"import sizes_of_layers\n{text}")
    beside.write_text("SIZE = 8\n")
    changes: dict[str, Any] = {"classifiers__0__model": f"{file}:small"}
    if weights:
        torch.save(load_classifier(f"{file}:small").tensors(), tmp_path / "w.pt")
        changes["classifiers__0__weights"] = str(tmp_path / "w.pt")
    before = planned(**changes).nodes
    assert before.keys() == planned(**changes).nodes.keys()
    beside.write_text("SIZE = 4 + 4\n")
    assert not before.keys() & planned(**changes).nodes.keys()


def test_a_plan_runs_code_only_where_that_is_allowed(tmp_path: Path) -> None:
    file, mark = tmp_path / "networks.py", tmp_path / "was run"
    file.write_text(f"{NETWORKS}\nopen({str(mark)!r}, 'w').close()\n")
    study = study_from(toy(classifiers__0__model=f"{file}:small"))
    assert plan(study).nodes
    assert not mark.exists()
    plan(study, run_code=True)
    assert mark.exists()


def test_work_with_a_classifier_trained_here_needs_its_training() -> None:
    graph = planned(classifiers__0__training={"epochs": 1})
    (train,) = graph.by_kind()["train"]
    others = [node for node in graph.nodes.values() if node is not train]
    assert others
    assert {node.needs[0] for node in others} == {train.hash}


def test_workers_use_the_kind_of_device_that_was_planned_with() -> None:
    for node in planned().nodes.values():
        assert node.device == node.identity()["device"]


def test_hashes_change_with_the_version_of_the_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    before = planned().nodes
    monkeypatch.setitem(ALGORITHM, "fit", ALGORITHM["fit"] + 1)
    after = planned().nodes
    same = {before[hash_].kind for hash_ in before.keys() & after.keys()}
    assert same == {"measure"}  # only noise that was not fitted is as before


def test_too_many_nodes() -> None:
    with pytest.raises(SpecError, match=r"at most 21 nodes, got more\. Add --yes"):
        plan(study_from(toy()), most=21)
    assert len(plan(study_from(toy()), most=22).nodes) == 22
    assert len(plan(study_from(toy()), most=None).nodes) == 22


def test_absent_data_and_weights_are_named_and_the_rest_is_planned() -> None:
    graph = planned(
        data__0__spec="no/such/folder",
        data__0__expected={"fit": 100, "select": 30, "evaluate": 40},
        classifiers__0__weights="no/such.safetensors",
    )
    assert counts(graph)["fit"] == 4
    assert graph.missing == [
        "data 'digits' at no/such/folder",
        "weights of 'cnn' (digits-cnn) at no/such.safetensors",
    ]


@pytest.mark.parametrize("path", ["~nobody-of-this-name/x", "a" * 300])
def test_paths_that_no_file_can_have_are_missing(path: str) -> None:
    graph = planned(
        data__0__spec=path,
        data__0__expected={"fit": 100, "select": 30, "evaluate": 40},
        classifiers__0__weights=path,
    )
    assert graph.missing == [f"data 'digits' at {path}", f"weights of 'cnn' (digits-cnn) at {path}"]
    assert planned(
        classifiers__0__model=f"{path}.pt2",
        classifiers__0__weights=None,
    ).missing == [f"the model of 'cnn' at {path}.pt2"]


def test_per_input_starts_from_the_fit_of_joint_noise() -> None:
    graph = planned(grids__0__dependencies=["per-input"], grids__0__sources=[])
    assert counts(graph) == {"train": 0, "fit": 4, "measure": 6}
    joint = {node.hash for node in graph.by_kind()["fit"] if stage_of(node) == "joint-2"}
    assert {cell.fit for cell in graph.cells} == joint
    assert {cell.place.dependency for cell in graph.cells} == {"per-input"}
    both = planned(grids__0__dependencies=["joint", "per-input"], grids__0__sources=[])
    assert counts(both) == {"train": 0, "fit": 4, "measure": 12}


def test_calls_of_every_input_are_part_of_a_per_input_measurement_alone() -> None:
    own = {"grids__0__dependencies": ["joint", "per-input"], "grids__0__sources": []}
    few, many = (
        {(c.place.dependency, c.measure) for c in planned(fit__per_input_calls=n, **own).cells}
        for n in (5, 6)
    )
    assert {rung for rung, _ in few & many} == {"joint"}
    assert {rung for rung, _ in few ^ many} == {"per-input"}
