"""`nppr assess`, `fit`, `evaluate`, `spectrum` and `bound`: what they print, write and refuse."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nppr
from nppr.cli import run
from nppr.core.tally import Metric
from nppr.data import load_data
from nppr.models.zoo import shipped_weights
from nppr.report import read_report
from nppr.report.number import Number, split_intervals
from nppr.report.printed_numbers import percent
from nppr.sources import Bound, Uniform

from .conftest import Refused

pytestmark = pytest.mark.slow

QUICK = ["--no-page", "--inputs", "30", "--draws", "8"]
ASSESS = ["assess", *QUICK, "--sources", "uniform,pgd:steps=2"]
FIT = ["--components", "2", "--fit-calls", "600", "--fit-inputs", "64", "--select-inputs", "20"]


CELLS = [
    *(
        f"nppr:{rung}:{structure}"
        for structure in ("white", "stationary")
        for rung in ("independent", "label")
    ),
    "nppr:independent", "nppr:label", "nppr:joint",
]  # fmt: skip
"""The cells of fitted noise of images, in the order of rows."""


def rows_of(folder: str | Path) -> list[Number]:
    return list(nppr.read_report(Path(folder, "report.json")).numbers)


def values_of(folder: str) -> dict[str, float | None]:
    """The headline value of every row, by its name."""
    return {row.name: row.value for row in reversed(rows_of(folder))}


class TestAssess:
    def test_prints_a_table_and_writes_the_run(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run([*ASSESS, "--out", "out"]) == 0
        printed = capsys.readouterr()
        assert "uniform" in printed.out
        assert printed.out.splitlines()[-1] == "out/report.json"
        assert (
            "30 inputs to evaluate (900 to fit, 300 to select), sources uniform, pgd:steps=2: about"
            in (printed.err)
        )
        assert {path.name for path in Path("out").iterdir()} == {
            "blocks", "evidence.safetensors", "lock", "manifest.json", "per_input.csv", "report.json",
            "run.json",
        }  # fmt: skip
        assert run([*ASSESS, "--out", "out", "--quiet"]) == 0
        assert tuple(capsys.readouterr()) == ("out/report.json\n", "")
        assert run([*ASSESS, "--out", "out", "--quiet", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["settings"]["measure"]["draws"] == 8

    def test_the_default_folder_belongs_to_the_numbers(self) -> None:
        words = [*ASSESS[:-1], "uniform", "--quiet"]
        for more in ([], ["--batch-size", "7"], ["--confidence", "0.95"], ["--seed", "1"]):
            assert run([*words, *more]) == 0
        assert len(list(Path("runs").iterdir())) == 2

    def test_another_run_in_the_folder_is_kept(self, refused: Refused) -> None:
        words = [*ASSESS, "--out", "out", "--quiet"]
        nppr.assess(
            sources="uniform",
            measure=nppr.Measure(inputs=20, draws=4),
            run=nppr.Run(out=Path("out")),
        )
        before = Path("out/report.json").read_text()
        assert "--overwrite" in refused(words)
        assert Path("out/report.json").read_text() == before
        assert run([*words, "--overwrite"]) == 0

    def test_overwrite_leaves_a_folder_that_is_not_of_a_run_alone(self, refused: Refused) -> None:
        plot = Path("mine/figures/plot.png")
        plot.parent.mkdir(parents=True)
        plot.write_text("precious")
        error = refused([*ASSESS, "--out", "mine", "--overwrite"])
        assert "'mine' holds figures and no run.json" in error
        assert [path for path in Path("mine").rglob("*") if path.is_file()] == [plot]

    def test_overwrite_removes_no_models_behind_a_link(self, tmp_path: Path) -> None:
        models = tmp_path / "models"
        models.mkdir()
        (models / "mine.safetensors").write_text("precious")
        assert run([*ASSESS, "--out", "out", "--quiet"]) == 0
        Path("out/fit").symlink_to(models)
        assert run([*ASSESS, "--out", "out", "--seed", "1", "--overwrite", "--quiet"]) == 0
        assert (models / "mine.safetensors").read_text() == "precious"

    def test_writes_its_page(self, refused: Refused, capsys: pytest.CaptureFixture[str]) -> None:
        words = [*ASSESS[:1], *ASSESS[2:], "--out", "a"]
        assert run([*words, "--figures", "svg"]) == 0
        assert "page: a/report.html" in capsys.readouterr().err
        page = Path("a/report.html").read_text()
        assert "Robustness of digits-cnn on digits" in page
        assert list(Path("a/figures").glob("*.svg"))
        assert run(["report", "a", "--out", "again.html"]) == 0
        assert Path("again.html").read_text() == page

    def test_a_page_that_cannot_be_rendered_costs_no_number(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = [*ASSESS, "--out", "a", "--quiet"]
        assert run(words) == 0
        Path("a/figures").write_text("in the way")
        capsys.readouterr()
        assert run([*words, "--figures", "svg"]) == 1
        printed = capsys.readouterr()
        assert printed.out == "a/report.json\n"
        assert "the page could not be rendered" in printed.err
        assert printed.err.endswith(": File exists. Try: nppr report a\n")
        assert Path("a/report.json").exists()

    def test_a_failed_source_gives_exit_code_1(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def fail(*_: object) -> None:
            raise ValueError("this source\nis broken")

        monkeypatch.setattr(Uniform, "perturb", fail)
        assert run([*ASSESS, "--out", "a"]) == 1
        printed = capsys.readouterr()
        assert "error: source 'uniform' failed: this source is broken\n" in printed.err
        assert "pgd:steps=2" in values_of("a")

    def test_precision_is_reached(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["assess", "--no-page", "--sources", "uniform", "--eps", "0.3"]
        assert run([*words, "--precision", "0.04", "--out", "out"]) == 0
        assert "precision: every PR and NPPR is within ±" in capsys.readouterr().out
        report = nppr.read_report("out/report.json")
        assert report.precision is not None
        assert report.precision.reached
        assert report.settings.measure.draws == 16
        assert set(report.precision.widths) == {"uniform"}
        assert report.precision.widths["uniform"].half_width <= 0.04

    def test_rare_failures_are_reported(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["assess", "--no-page", "--inputs", "20", "--draws", "4", "--sources", "gaussian"]
        assert run([*words, "--rare", "--rare-calls", "11000", "--out", "out"]) == 0
        assert "gaussian: splitting followed 2 of" in capsys.readouterr().out
        assert len(Path("out/rare.csv").read_text().splitlines()) == 3

    def test_other_radii_have_the_numbers_of_their_own_runs(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["assess", *QUICK, "--sources", "gaussian,pgd:steps=2,jpeg"]
        assert run([*words, "--radii", "0.2, 0.05", "--out", "all"]) == 0
        assert "at radius 0.05, 95 % confidence: gaussian " in capsys.readouterr().out
        found = nppr.read_report("all/report.json").other_radii
        for radius in ("0.05", "0.2"):
            assert run([*words, "--eps", radius, "--out", radius, "--quiet"]) == 0
            alone = {
                (row.name, row.metric, row.value, row.intervals[:1]) for row in rows_of(radius)
            }
            there = [row for row in found if row.radius == float(radius)]
            assert there
            for row in there:
                assert (row.name, row.metric, row.value, row.intervals[:1]) in alone

    def test_the_papers_preset_chooses_nothing(self) -> None:
        words = ["assess", "--sources", "nppr", *QUICK, "--fit-inputs", "64", "--quiet"]
        assert run([*words, "--preset", "paper", "--fit-calls", "4000", "--out", "p"]) == 0
        (made,) = nppr.read_report("p/report.json").distributions
        assert made.rule == "weights"
        assert (made.family.covariance, made.family.upsampler) == ("full", "trainable")
        assert made.search.select_value is None
        assert len(made.search.stages) == 1

    def test_searches_with_several_seeds_all_have_a_row(self) -> None:
        words = ["assess", "--sources", "nppr", "--floor", "0", "--dependency", "label"]
        words += ["--fit-seeds", "2", *FIT, "--fit-calls", "2048", *QUICK, "--quiet"]
        assert run([*words, "--out", "a"]) == 0
        *_, first, second = nppr.read_report("a/report.json").distributions
        assert first.name == "nppr:label"
        assert second.name.startswith("nppr:label:fit-seed=")
        assert first.search.select_value is not None
        assert second.search.select_value is not None
        assert first.search.select_value <= second.search.select_value
        assert first.search.fit_calls <= 2048
        assert {first.name, second.name} <= values_of("a").keys()


def test_learned_noise_is_evaluated_here_and_at_another_radius(
    learned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["evaluate", "--distribution", str(learned), *QUICK, "--out", "a"]) == 0
    assert "joint" in capsys.readouterr().out
    one = ["--distribution", str(learned / "distributions" / "nppr_joint.safetensors")]
    assert (
        run(["evaluate", *one, *QUICK, "--sources", "uniform", "--eps", "0.6", "--out", "b"]) == 0
    )
    near, far = values_of("a"), values_of("b")
    alone = [row.name for row in rows_of("a") if not row.with_references]
    assert list(dict.fromkeys(alone)) == ["clean", *CELLS, *(f"{each}:floor=0.5" for each in CELLS)]
    compared = {
        (row.learned.rung, row.learned.floor)
        for row in rows_of("a")
        if row.learned and row.with_references
    }
    assert compared == {(rung, 0.0) for rung in ("independent", "label", "joint")}
    plain = [row.name for row in rows_of("b") if row.metric is not Metric.BOUND]
    assert list(dict.fromkeys(plain)) == ["clean", "uniform", "nppr:joint"], "nothing was compared"
    assert near["nppr:joint"] is not None
    assert far["nppr:joint"] is not None
    assert far["nppr:joint"] < near["nppr:joint"]


def test_fit_prints_what_was_chosen_and_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", *FIT, "--dependency", "independent", "--floor", "0", "--out", "f"]) == 0
    *found, _, last = capsys.readouterr().out.splitlines()
    cells = [name for name in CELLS if "independent" in name]
    for line, name in zip(found, cells, strict=True):
        assert line.startswith(f"{name}: chosen: ")
    assert last == "f/distributions"
    files = {file.name for file in Path("f/distributions").iterdir()}
    assert files == {f"{name.replace(':', '_')}.safetensors" for name in cells}


def test_draws_follow_from_the_number_of_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nppr.settings.default_draws", lambda inputs, _: inputs // 4)
    words = ["--sources", "uniform", "--inputs", "40", "--no-page", "--out", "few"]
    assert run(["assess", *words]) == 0
    assert {row.draws for row in rows_of("few") if row.metric is Metric.PR} == {10}


def test_the_spectrum_ends_at_uniform_noise(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["spectrum", *FIT, *QUICK, "--dependency", "independent", "--out", "s"]
    assert run([*words, "--floor", "0,0.5,1", "--json", "--quiet"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["floor"] for entry in entries] == [0, 0.5, 1]
    assert entries[2]["value"] == values_of("s")["uniform"]
    assert entries[1]["realised_std"] < entries[2]["realised_std"]
    assert run([*words, "--floor", "0,0.5,1"]) == 0
    assert "realised std" in capsys.readouterr().out


class TestBound:
    QUICK = (
        "bound", "--no-page", "--inputs", "40", "--draws", "20", "--eps", "0.3", "--patterns", "0",
    )  # fmt: skip
    NAMES = (
        "noise_set", "density_ratio", "size", "draws", "test_set", "population", "estimate",
    )  # fmt: skip

    def entries(self, words: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
        assert run([*self.QUICK, *words.split(), "--json", "--quiet"]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        found: list[dict[str, Any]] = json.loads(printed.out)
        return found

    def test_json_and_table_have_the_numbers_of_the_report(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        entries = self.entries("--out b", capsys)
        assert [entry["density_ratio"] for entry in entries] == [1, 2, 5, 10]
        for entry in entries:
            assert tuple(entry) == self.NAMES
            assert entry["draws"] == 20
            assert min(entry["test_set"], entry["population"]) >= 0
            assert max(entry["test_set"], entry["population"]) <= entry["estimate"] <= 1
        for name in self.NAMES[4:]:
            values = [entry[name] for entry in entries]
            assert values == sorted(values, reverse=True)
        assert entries[0]["estimate"] > entries[-1]["estimate"]
        rows = [row for row in rows_of("b") if row.source != "clean"]
        ratios = [row.bound.density_ratio for row in rows if row.bound]
        assert ratios == [c for c in (1, 2, 5, 10) for _ in range(2)]
        assert [row.direction for row in rows] == ["lower bound", "estimate"] * 4
        shown = [entry[name] for entry in entries for name in self.NAMES[4:]]
        assert [part.value for row in rows for part in split_intervals(row)] == shown
        assert run([*self.QUICK, "--out", "b"]) == 0
        printed = capsys.readouterr().out
        lines = [line.split() for line in printed.splitlines()]
        for entry in entries:
            forms = {True: "percent", False: "at-least"}  # an estimate is rounded to nearest
            shares = [percent(entry[name], forms["estimate" in name]) for name in self.NAMES[4:]]
            assert [f"{entry['density_ratio']:g}", *shares] in lines
        text = " ".join(printed.split())
        assert "of uniform noise; the bounds of a column hold together, 95 % confidence" in text
        assert "In 64 dimensions 10 times is 1.037 times per coordinate" in text
        assert printed.splitlines()[-1] == "b/report.json"

    def test_shared_patterns_and_other_sets_are_beside_it(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (entry,) = self.entries("--set tv:0.05 --patterns 64 --out b", capsys)
        assert (entry["noise_set"], entry["density_ratio"], entry["size"]) == ("tv", None, 0.05)
        assert (entry["draws"], entry["patterns"]) == (20, 64)
        assert entry["shared_population"] < entry["shared_test_set"] < entry["shared_estimate"]
        rows = [row for row in rows_of("b") if row.source != "clean"]
        assert [row.bound and row.bound.sees_input for row in rows] == [True] * 2 + [False] * 2
        words = [*self.QUICK, "--set", "tv:0.05", "--patterns", "64", "--out", "b", "--resume"]
        assert run(words) == 0
        assert "does not see it" in capsys.readouterr().out

    def test_no_bound_is_below_that_of_a_larger_set(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Noise that does not see the input is among the noise that may; 64 patterns show little."""
        entries = self.entries("--density-ratio 2,10 --patterns 64 --out b", capsys)
        for entry in entries:
            assert entry["shared_test_set"] >= entry["test_set"] > 0
            assert entry["shared_population"] >= entry["population"]
        (alone,) = self.entries("--density-ratio 10 --patterns 64 --out c", capsys)
        (own,) = self.entries("--density-ratio 10 --out d", capsys)
        assert alone["shared_test_set"] == alone["test_set"] <= own["test_set"]

    def test_no_size_is_below_that_of_noise_that_may_see_the_input(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = self.entries("--set ratio --at-least 0.6 --patterns 64 --out b", capsys)
        ratios = {(each["sees_input"], each["claim"]): each["density_ratio"] for each in found}
        for claim in ("this test set", "the population"):
            assert ratios[False, claim] >= ratios[True, claim]

    def test_the_largest_set_for_a_level(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = self.entries("--set tv --at-least 0.6 --patterns 64 --out b", capsys)
        assert [(each["sees_input"], each["claim"]) for each in found] == [
            (sees, claim) for sees in (True, False) for claim in ("this test set", "the population")
        ]
        assert all(each["at_least"] == 0.6 and 0 < each["size"] < 0.4 for each in found[::2])
        (again,) = self.entries(f"--set tv:{found[0]['size']} --out c", capsys)
        assert again["test_set"] >= 0.6

    def test_a_ratio_of_1_is_pr_under_the_reference(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (entry,) = self.entries("--density-ratio 1 --reference laplace --out b", capsys)
        words = ["assess", *self.QUICK[1:-2], "--sources", "laplace", "--out", "a", "--quiet"]
        assert run(words) == 0
        pr = values_of("a")["laplace"]
        assert pr is not None
        assert pr < 1
        assert entry["estimate"] == pytest.approx(pr, abs=1e-12)

    def test_a_seed_gives_the_same_numbers_whatever_the_batch(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        first = self.entries("--density-ratio 2 --batch-size 3 --out a", capsys)
        assert first == self.entries("--density-ratio 2 --batch-size 64 --out b", capsys)
        assert first != self.entries("--density-ratio 2 --seed 1 --out c", capsys)

    def test_a_failure_is_explained(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def fail(*_: object) -> None:
            raise ValueError("this source is broken")

        monkeypatch.setattr(Bound, "perturb", fail)
        assert run([*self.QUICK, "--out", "b"]) == 1
        assert "failed: this source is broken" in capsys.readouterr().err


REFUSED = {
    "assess --eps -0.1": "`eps` must be a number > 0, got '-0.1'",
    "assess --eps nan": "`eps`",
    "assess --eps 8/0": "`eps`",
    "assess --eps 8": "`eps` must be at most 1",
    "assess --norm lnf": "Did you mean 'linf'",
    "assess --norm l2": "`eps` must be given",
    "assess --seed -1": "`seed`",
    "assess --classes -3": "`classes`",
    "assess --classes 7": "`classes` must be at least the 10",
    "assess --classes 12": "must fit DigitsCNN",
    "assess --device meta": "`device`",
    "assess --device warp": "`device`",
    "assess --features nothing": "`features`",
    "assess --stem small": "`stem`",
    "assess --feature-model resnet20": "`weights` must be given for 'resnet20'",
    "assess --feature-weights w.safetensors": "`feature-weights` must be given with --feature-model",
    "assess --data nowhere/at/all": "`data`",
    "assess --data digts": "Did you mean 'digits'",
    "assess --model digitscnn": "Did you mean 'digits-cnn'",
    "assess --model missing.pt2": "does not exist",
    "assess --model nothing.py:make": "does not exist",
    "assess --weights missing.safetensors": "does not exist",
    "assess --weights notes.txt": "must be a safetensors file",
    "assess --sources gausian": "Did you mean 'gaussian'",
    "assess --sources npr": "`source` must",
    "assess --sources pgd:stepss=3": "Did you mean 'steps'",
    "assess --sources nppr:floor=1": "`nppr` must",
    "assess --per-input-calls -1": "`per-input-calls` must be 0 (off) or a whole number from 5",
    "assess --per-input-calls 1": "from 5 to 100,000, got 1",
    "assess --fit-calls 100000000000000": "`fit-calls` must be at most 10,000,000,000",
    "assess --per-input-calls many": "per-input-calls",
    "assess --dependency label --per-input-calls 20": "must be given with --dependency per-input",
    "assess --preset paper --per-input-calls 20": "`per-input-calls` must be",
    "assess --preset paper --dependency per-input": "`dependency` must be one of",
    "assess --fit-calls -5": "`fit-calls` must be a whole number >= 1, got -5",
    "assess --fit-calls 10": "`fit-calls` must be at least one step, 256 calls, got 10",
    "fit --fit-calls 0": "`fit-calls` must be a whole number >= 1, got 0",
    "assess --draws 0": "`draws`",
    "assess --inputs 0": "`inputs`",
    "assess --confidence nan": "`confidence` must lie in (0, 1), got nan",
    "assess --batch-size 0": "`batch-size`",
    "assess --mean a,b": "`mean` must be numbers separated by commas, got 'a,b'",
    "assess --mean 0.1,0.2": "1 or 1 numbers",
    "assess --std 0": "`std`",
    "assess --out notes.txt": "`out`",
    "assess --figures gif": "`figures` must be svg, png or pdf",
    "assess --rare-calls 9000": "`rare-calls` must be given with --rare",
    "assess --rare --rare-calls 9": "`rare-calls` must be a whole number >= 5500, got 9",
    "assess --rare --sources pgd": "`rare` must be given with noise",
    "assess --precision 0": "`precision` must lie in [1e-05, 0.5), got 0",
    "assess --radii 0.05,x": "`radii` must be a number",
    "assess --radii 0.1,1/10": "`radii` must be different",
    "assess --radii 0.2 --only-merged": "`radii` must be given without `only-merged`",
    "assess --radii 0.05,7": "`radii` must be at most 1",
    "fit --dependency lable": "`dependency`",
    "fit --components 0": "`components`",
    "fit --covariance lowrank:0": "`covariance`",
    "fit --covariance ful": "`covariance`",
    "fit --upsampler cubic": "`upsampler`",
    "fit --latent-dim 5": "`latent-dim`",
    "fit --correlation-length 99": "`correlation-length` must be at most the shorter side, 8 pixels",
    "fit --grid 0 --upsampler bicubic": "`grid`",
    "fit --min-std 0": "`min-std`",
    "fit --floor 2": "`floor`",
    "fit --floor x": "`floor`",
    "fit --floor 0,0": "`floor`",
    "fit --fit-draws 0": "`fit-draws`",
    "fit --fit-seeds 0": "`fit-seeds`",
    "fit --preset papr": "Did you mean 'paper'",
    "fit --loss hinge": "`loss`",
    "fit --kappa nan": "`kappa`",
    "fit --draws 5": "No such option: --draws",
    "evaluate": "`distribution` must be given",
    "evaluate --distribution nowhere": "`distribution` must",
    "bound --reference unifrm": "`reference` must be one of gaussian, laplace, uniform",
    "bound --reference pgd": "`reference` must be one of gaussian, laplace, uniform",
    "bound --density-ratio 2,0.9": "`density-ratio` must be a number from 1 to 1e+09, got 0.9",
    "bound --density-ratio 2,2.0": "`density-ratio` must name every number once",
    "bound --density-ratio two": "`density-ratio` must be one or more numbers, got 'two'",
    "bound --density-ratio 1,,2": "`density-ratio` must be one or more numbers",
    "bound --density-ratio 1:2": "`density-ratio` must hold numbers",
    "bound --density-ratio inf": "`density-ratio` must be a number from 1",
    "bound --set tvv": "Did you mean 'tv'",
    "bound --set tv:1": "`size of tv` must be a number >= 0 and < 1, got 1. Example: 0.05",
    "bound --set kl:-1": "`size of kl` must be a number from 0",
    "bound --set tv --at-least 1.5": "`at-least` must lie in (0, 1), got 1.5",
    "bound --patterns -1": "`patterns` must be a whole number >= 0, got -1",
    "bound --confidence 0.5": "`confidence` must be at least 0.75",
    "bound --sources uniform": "No such option: --sources",
}


@pytest.mark.parametrize("words", REFUSED)
def test_bad_input_is_one_clear_line(words: str, tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "notes.txt").write_text("not weights")
    assert REFUSED[words] in refused(words.split())
    assert (tmp_path / "runs").exists() <= words.startswith("fit")


SLOW = ["assess", "--no-page", "--sources", "gaussian,pgd:steps=2", "--draws", "400"]
SLOW += ["--inputs", "60", "--batch-size", "4", "--quiet", "--out"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted") / "whole"
    assert run([*SLOW, str(folder)]) == 0
    return folder


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_is_resumed_to_the_same_report(
    sent: signal.Signals, refused: Refused, uninterrupted: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "nppr", *SLOW, "cut"], stderr=subprocess.PIPE, text=True
    ) as process:
        while not list(Path("cut/blocks").glob("gaussian*")):
            assert process.poll() is None, "the run ended before it could be interrupted"
            time.sleep(0.01)
        os.kill(process.pid, sent)
        _, err = process.communicate()
    assert not Path("cut/report.json").exists()
    said = {signal.SIGINT: (130, 1), signal.SIGKILL: (-signal.SIGKILL, 0)}[sent]
    assert (process.returncode, err.count("\n")) == said
    assert err.count("--resume") == said[1]
    assert "--resume" in refused([*SLOW, "cut"])
    assert run([*SLOW, "cut", "--resume"]) == 0
    assert rows_of("cut") == rows_of(uninterrupted)
    whole = uninterrupted / "per_input.csv"
    assert Path("cut/per_input.csv").read_bytes() == whole.read_bytes()


def test_sigterm_ends_a_background_job_which_ignores_ctrl_c() -> None:
    """A shell starts a job that way: `nppr ... &` in a script."""
    words = ["assess", "--no-page", "--sources", "gaussian,pgd:steps=2", "--draws", "4000"]
    words += ["--inputs", "60", "--batch-size", "4", "--quiet", "--out", "cut"]
    script = 'trap "" INT; exec "$0" -m nppr "$@"'
    with subprocess.Popen(
        ["sh", "-c", script, sys.executable, *words], stderr=subprocess.PIPE, text=True
    ) as process:
        while not list(Path("cut/blocks").glob("gaussian*")):
            assert process.poll() is None, "the run ended before it could be interrupted"
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGINT)
        time.sleep(0.1)
        assert process.poll() is None, "the shell did not let the job ignore Ctrl-C"
        os.kill(process.pid, signal.SIGTERM)
        _, err = process.communicate(timeout=200)
    assert process.returncode == 143
    assert err == "error: interrupted; finished work is kept: add --resume to continue\n"
    assert not Path("cut/report.json").exists()
    assert not list(Path("cut").rglob("*.partial"))


def test_a_killed_search_resumes_to_the_same_bytes() -> None:
    words = ["fit", "--quiet", *FIT, "--fit-calls", "9000", "--floor", "0", "--out"]
    done = Path("killed/fit/0-independent.done.safetensors")
    with subprocess.Popen([sys.executable, "-m", "nppr", *words, "killed"]) as process:
        while not done.exists():
            assert process.poll() is None, "the search ended before it could be killed"
            time.sleep(0.01)
        process.kill()
    assert not Path("killed/distributions").exists()
    assert run([*words, "killed", "--resume"]) == 0
    assert run([*words, "whole"]) == 0
    files = [path.name for path in Path("whole/distributions").iterdir()]
    assert len(files) == len(CELLS)
    for name in files:
        killed, whole = (Path(place, "distributions", name) for place in ("killed", "whole"))
        assert killed.read_bytes() == whole.read_bytes()


def test_evaluate_takes_model_and_data_from_the_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = load_data("digits").evaluate.batch(np.arange(60))
    np.savez(tmp_path / "mine.npz", x=arrays[0].numpy(), y=arrays[1].numpy())
    weights = shipped_weights("digits-cnn")
    fit = [
        "fit",
        "--data",
        "mine.npz",
        "--weights",
        str(weights),
        "--eps",
        "0.1",
        "--fit-calls",
        "768",
    ]
    assert (
        run([*fit, "--dependency", "independent", "--floor", "0", "--out", "fit", "--quiet"]) == 0
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for number, place in enumerate(("../fit", "../fit/distributions/nppr_independent.safetensors")):
        words = ["--distribution", place, "--draws", "4", "--out", f"run{number}", "--no-page"]
        assert run(["evaluate", *words]) == 0
        assert "as in the fit: --model digits-cnn --data" in capsys.readouterr().err
        report = read_report(f"run{number}/report.json")
        assert report.data.name == "mine.npz"
        assert report.classifier.weights == Path(str(weights)).name
    typed = ["--distribution", "../fit", "--draws", "4", "--data", "digits", "--inputs", "20"]
    assert run(["evaluate", *typed, "--out", "other", "--no-page"]) == 0
    assert read_report("other/report.json").data.name == "digits"


def test_evaluate_runs_no_code_that_a_folder_names(learned: Path, refused: Refused) -> None:
    folder = shutil.copytree(learned, "copy")
    held = json.loads((Path(folder) / "run.json").read_text())
    held["specs"]["model"] = "evil.py:make"
    (Path(folder) / "run.json").write_text(json.dumps(held))
    message = refused(["evaluate", "--distribution", "copy"])
    assert (
        "`model` must be given: this noise was learned for 'evil.py:make', Python code" in message
    )


def test_a_finished_run_says_that_it_is_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("it is measured again")

    words = ["assess", "--inputs", "20", "--draws", "4", "--sources", "uniform", "--out", "run"]
    assert run([*words, "--no-page"]) == 0
    assert "finished before" not in capsys.readouterr().err
    first = read_report("run/report.json").numbers
    monkeypatch.setattr(Uniform, "perturb", forbidden)
    assert run([*words, "--no-page"]) == 0
    printed = capsys.readouterr().err
    assert "finished before, in run: it is read; --overwrite computes it again" in printed
    assert read_report("run/report.json").numbers == first
    assert run([*words, "--no-page", "--overwrite"]) == 1
    assert "it is measured again" in capsys.readouterr().err


def test_a_model_of_ones_own_without_data_is_told_of_the_digits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("my_model.py").write_text("def make():\n    raise ValueError('loaded')\n")
    words = ["assess", "--model", "my_model.py:make", "--eps", "0.1"]
    assert run(words) == 2
    told, error = capsys.readouterr().err.splitlines()
    assert told.startswith("--data is not given: my_model.py:make is assessed on digits")
    assert "loaded" in error
    assert run([*words, "--data", "digits"]) == 2
    assert "--data is not given" not in capsys.readouterr().err
