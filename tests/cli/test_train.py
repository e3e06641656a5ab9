from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nppr.classifiers.training import Method, Optimiser
from nppr.cli import run

QUICK = ["train", "digits-cnn", "--epochs", "1", "--out", "w.safetensors"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_train_writes_weights_and_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*QUICK, "--seed", "3", "--optimiser", "sgd", "--no-flip", "--crop", "0"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "w.safetensors\n"
    assert "epoch 1/1" in printed.err
    assert "% right" in printed.err
    assert "log in w.json" in printed.err
    settings = json.loads(Path("w.json").read_text())["settings"]
    assert (settings["seed"], settings["optimiser"], settings["crop"]) == (3, "sgd", 0)
    assert settings["learning-rate"] == 0.1, "the default of the chosen optimiser"


def test_quiet_prints_the_path_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "digits-cnn", "--epochs", "1", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("digits-cnn.safetensors\n", "")


def test_adversarial_training() -> None:
    attack = ["--method", "pgd", "--norm", "l2", "--eps", "1/2"]
    assert run([*QUICK, *attack, "--attack-steps", "1", "--attack-step", "0.5"]) == 0
    settings = json.loads(Path("w.json").read_text())["settings"]
    assert {name: settings[name] for name in ("method", "norm", "eps")} == {
        "method": "pgd", "norm": "l2", "eps": 0.5,
    }  # fmt: skip
    assert (settings["attack-steps"], settings["attack-step"]) == (1, 0.5)


def test_data_options() -> None:
    parts = ["--fit-inputs", "30", "--select-inputs", "10", "--inputs", "20", "--resize", "10"]
    assert run([*QUICK, *parts]) == 0
    log = json.loads(Path("w.json").read_text())
    assert (log["train"]["inputs"], log["evaluate"]["inputs"]) == (40, 20)


def test_nothing_to_resume_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*QUICK, "--resume"]) == 0
    assert "nothing to resume" in capsys.readouterr().err


BAD = {
    "digitscnn": "Did you mean 'digits-cnn'",
    "digits-cnn --data digts": "Did you mean 'digits'",
    "digits-cnn --method pdg": "Did you mean 'pgd'",
    "digits-cnn --optimiser adamm": "Did you mean 'adam'",
    "digits-cnn --epochs 0": "`epochs` must be a whole number >= 1, got 0",
    "digits-cnn --epochs some": "epochs",
    "digits-cnn --batch-size 0": "`batch-size`",
    "digits-cnn --learning-rate -1": "`learning-rate` must be a number > 0, got -1.0",
    "digits-cnn --learning-rate nan": "`learning-rate`",
    "digits-cnn --weight-decay -1": "`weight-decay`",
    "digits-cnn --momentum 0.5": "Add --optimiser sgd",
    "digits-cnn --optimiser sgd --momentum 1": "`momentum`",
    "digits-cnn --warm-up 1": "`warm-up`",
    "digits-cnn --label-smoothing 2": "`label-smoothing`",
    "digits-cnn --crop -1": "`crop`",
    "digits-cnn --crop 8": "`crop` must be less than the side of the images, 8, got 8",
    "digits-cnn --stem small": "`stem`",
    "digits-cnn --device warp": "`device`",
    "digits-cnn --method pgd": "`eps` must be given with --method pgd",
    "digits-cnn --method pgd --eps 0": "`radius`",
    "digits-cnn --method pgd --eps 0.1 --norm linff": "Did you mean 'linf'",
    "digits-cnn --method pgd --eps 0.1 --attack-steps 0": "`attack-steps`",
    "digits-cnn --method pgd --eps 0.1 --attack-step 0": "`attack-step`",
    "digits-cnn --eps 0.1": "`eps` must be left out with --method standard, got '0.1'",
    "digits-cnn --attack-steps 3": "`attack-steps` must be left out with --method standard",
    "digits-cnn --out notes.txt/w.safetensors": "`out` must be a file that can be written",
    "digits-cnn --out .": "`out` must be a file, got '.', which is a folder",
    "digits-cnn --inputs 0": "`inputs`",
    "digits-cnn --fit-inputs 0": "`fit-inputs`",
    "digits-cnn --no-such-option": "no-such-option",
    "vgg16": "must accept 2 images of shape (1, 8, 8)",
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_input_is_one_clear_line(
    arguments: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("notes.txt").write_text("a file")
    assert run(["train", *arguments.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert BAD[arguments] in printed.err
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt"}


def test_a_diverging_training_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*QUICK, "--optimiser", "sgd", "--learning-rate", "1e30", "--quiet"]) == 2
    printed = capsys.readouterr()
    assert "`learning-rate` must keep the training finite" in printed.err
    assert printed.err.count("\n") == 1
    assert not Path("w.safetensors").exists()


LONG = ["train", "digits-cnn", "--epochs", "6", "--seed", "4"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "w.safetensors"
    assert run([*LONG, "--out", str(path), "--quiet"]) == 0
    return path


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_training_is_resumed_to_the_same_bytes(
    sent: signal.Signals, uninterrupted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real thing: a process that is stopped half-way."""
    checkpoint = Path("cut.checkpoint.safetensors")
    with subprocess.Popen(
        [sys.executable, "-m", "nppr", *LONG, "--out", "cut.safetensors"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        while not checkpoint.exists():
            assert process.poll() is None, "the training ended before it could be interrupted"
            time.sleep(0.01)
        os.kill(process.pid, sent)
        _, err = process.communicate()
    assert not Path("cut.safetensors").exists()
    if sent is signal.SIGINT:
        assert process.returncode == 130
        assert "--resume" in err
        assert "Traceback" not in err
    assert run([*LONG, "--out", "cut.safetensors", "--quiet"]) == 2
    assert "unfinished training" in capsys.readouterr().err
    assert run([*LONG, "--out", "cut.safetensors", "--resume", "--epochs", "7", "--quiet"]) == 2
    assert "another epochs (7 instead of 6)" in capsys.readouterr().err
    assert run([*LONG, "--out", "cut.safetensors", "--resume", "--quiet"]) == 0
    for suffix in (".safetensors", ".json"):
        whole = uninterrupted.with_suffix(suffix).read_bytes()
        assert Path("cut").with_suffix(suffix).read_bytes() == whole
    assert not checkpoint.exists()


def test_a_damaged_checkpoint_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("w.checkpoint.safetensors").write_bytes(b"half a file")
    assert run([*QUICK, "--resume", "--quiet"]) == 2
    printed = capsys.readouterr()
    assert "`resume` must find a whole checkpoint" in printed.err
    assert printed.err.count("\n") == 1
    assert run([*QUICK, "--overwrite", "--quiet"]) == 0



def test_help_loads_no_torch() -> None:
    code = (
        "import sys; from nppr.cli import run; run(['train', '--help']);"
        " assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--label-smoothing" in done.stdout
