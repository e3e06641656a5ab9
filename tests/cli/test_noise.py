from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nppr.cli import run

FIT = ["--components", "2", "--fit-calls", "3000", "--fit-inputs", "200", "--select-inputs", "80"]
MEASURE = ["--no-page", "--inputs", "40", "--draws", "16"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def results(path: str) -> dict[str, float]:
    content = json.loads(Path(path).read_text())
    return {row["source"]: row["value"] for row in reversed(content["results"])}


def test_fit_then_evaluate_here_and_at_another_radius(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", *FIT, "--out", "f"]) == 0
    printed = capsys.readouterr()
    assert "nppr:floor=0.5: chosen: " in printed.out
    assert "f/distributions" in printed.out
    assert run(["evaluate", "--distribution", "f", *MEASURE, "--out", "a"]) == 0
    assert run(["evaluate", "--distribution", "f/distributions/nppr.safetensors", *MEASURE,
                "--sources", "uniform", "--eps", "0.3", "--out", "b"]) == 0  # fmt: skip
    near, far = results("a/report.json"), results("b/report.json")
    assert set(near) == {
        "clean",
        "nppr",
        "nppr or noise",
        "nppr:floor=0.5",
        "nppr:floor=0.5 or noise",
    }
    assert set(far) == {"clean", "uniform", "nppr"}  # nothing was compared on select out there
    assert far["nppr"] < near["nppr"]
    assert "realised std" in capsys.readouterr().out


def test_assess_fits_what_it_then_measures() -> None:
    assert (
        run(["assess", "--sources", "nppr,pgd", "--floor", "0", *FIT, *MEASURE, "--out", "a"]) == 0
    )
    content = json.loads(Path("a/report.json").read_text())
    assert [made["source"] for made in content["distributions"]] == ["nppr"]
    made = content["distributions"][0]
    assert made["fit"]["fit_calls"] <= 3000
    assert {"entropy_ratio", "effective_components", "realised_std", "share_at_edge"} <= set(
        made["diagnostics"]
    )
    values = results("a/report.json")
    assert values["merged"] <= min(values["nppr"], values["pgd"])
    assert Path("a/distributions/nppr.safetensors").exists()


def test_fits_of_several_seeds_all_have_a_row() -> None:
    assert run(["assess", "--sources", "nppr", "--floor", "0", "--fit-seeds", "2", *FIT, *MEASURE,
                "--out", "a"]) == 0  # fmt: skip
    content = json.loads(Path("a/report.json").read_text())
    names = [made["source"] for made in content["distributions"]]
    assert names[0] == "nppr"
    assert len(names) == 2
    assert names[1].startswith("nppr:fit-seed=")
    first, second = (made["fit"]["select_value"] for made in content["distributions"])
    assert first <= second
    seeds = content["distributions"][0]["fit_seeds"]
    values = results("a/report.json")
    assert seeds["values"] == {name: values[name] for name in names}
    assert seeds["minimum"] == min(seeds["values"].values())


def test_the_spectrum_ends_at_uniform_noise(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["spectrum", *FIT, *MEASURE, "--floor", "0,0.5,1", "--json", "--quiet",
                "--out", "s"]) == 0  # fmt: skip
    entries = json.loads(capsys.readouterr().out)
    assert [entry["floor"] for entry in entries] == [0, 0.5, 1]
    assert entries[2]["value"] == results("s/report.json")["uniform"]
    assert entries[1]["realised_std"] < entries[2]["realised_std"]
    assert run(["spectrum", *FIT, *MEASURE, "--floor", "0,1", "--out", "t"]) == 0
    assert "realised std" in capsys.readouterr().out


def test_the_papers_preset_chooses_nothing() -> None:
    assert run(["assess", "--preset", "paper", "--fit-calls", "6000", "--fit-inputs", "100",
                "--sources", "nppr", *MEASURE, "--out", "p"]) == 0  # fmt: skip
    (made,) = json.loads(Path("p/report.json").read_text())["distributions"]
    assert made["rule"] == "weights"
    assert made["family"]["covariance"] == "full"
    assert made["family"]["upsampler"] == "bicubic"
    assert made["fit"]["select_value"] is None
    assert len(made["fit"]["stages"]) == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--dependency lable", "`dependency`"),
        ("--components 0", "`components`"),
        ("--covariance lowrank:0", "`covariance`"),
        ("--covariance ful", "`covariance`"),
        ("--upsampler cubic", "`upsampler`"),
        ("--latent-dim 5", "`latent-dim`"),
        ("--grid 0 --upsampler bicubic", "`grid`"),
        ("--min-std 0", "`min-std`"),
        ("--floor 2", "`floor`"),
        ("--floor x", "`floor`"),
        ("--floor 0,0", "`floor`"),
        ("--fit-calls 0", "`fit-calls`"),
        ("--fit-draws 0", "`fit-draws`"),
        ("--fit-seeds 0", "`fit-seeds`"),
        ("--preset papr", "`preset`"),
        ("--loss hinge", "`loss`"),
        ("--kappa nan", "`kappa`"),
    ],
)
def test_bad_options_are_one_line(
    arguments: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fit", *arguments.split()]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {named}")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("evaluate", "`distribution`"),
        ("evaluate --distribution nowhere", "`distribution`"),
        ("assess --sources nppr:floor=1", "`nppr`"),
        ("assess --sources npr", "`source`"),
    ],
)
def test_bad_names_are_one_line(
    arguments: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments.split()) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {named} must")
    assert printed.err.count("\n") == 1


def test_a_killed_fit_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "nppr", "fit", "--quiet", "--components", "2", "--floor", "0",
        "--fit-calls", "12000", "--fit-inputs", "200", "--select-inputs", "80",
    ]  # fmt: skip
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*command, "--out", "killed"], env=settings)
    done = tmp_path / "killed" / "fit" / "0-independent.done.safetensors"
    deadline = time.monotonic() + 90
    while not done.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed" / "distributions").exists()
    for arguments in (["--out", "killed", "--resume"], ["--out", "whole"]):
        subprocess.run([*command, *arguments], env=settings, check=True)
    name = "distributions/nppr.safetensors"
    assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
