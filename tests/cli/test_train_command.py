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

from .conftest import Refused

QUICK = ["train", "digits-cnn", "--epochs", "1", "--fit-inputs", "200", "--select-inputs", "50"]
QUICK += ["--out", "w.safetensors"]


def test_train_writes_weights_and_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*QUICK, "--seed", "3", "--optimiser", "sgd", "--no-flip", "--crop", "0"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "w.safetensors\n"
    assert "epoch 1/1" in printed.err
    assert "% of the evaluate split classified correctly" in printed.err
    log = json.loads(Path("w.json").read_text())
    settings = log["settings"]
    assert (settings["seed"], settings["optimiser"], settings["crop"]) == (3, "sgd", 0)
    assert settings["learning-rate"] == 0.1, "the default of the chosen optimiser"
    assert log["train"]["inputs"] == 250
    assert run(["doctor", "--weights", "w.safetensors", "--inputs", "20"]) == 0


def test_quiet_prints_the_path_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "digits-cnn", "--epochs", "1", "--fit-inputs", "100", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("digits-cnn.safetensors\n", "")


def test_adversarial_training() -> None:
    attack = ["--method", "pgd", "--norm", "l2", "--eps", "1/2"]
    assert run([*QUICK, *attack, "--attack-steps", "1", "--attack-step", "0.5"]) == 0
    settings = json.loads(Path("w.json").read_text())["settings"]
    chosen = {"method": "pgd", "norm": "l2", "eps": 0.5, "attack-steps": 1, "attack-step": 0.5}
    assert chosen.items() <= settings.items()


def test_training_with_noise() -> None:
    assert run([*QUICK, "--method", "gaussian", "--sigma", "0.25"]) == 0
    settings = json.loads(Path("w.json").read_text())["settings"]
    assert {"method": "gaussian", "sigma": 0.25}.items() <= settings.items()


def test_nothing_to_resume_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
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
    "digits-cnn --method pgd --eps 0": "`eps`",
    "digits-cnn --method pgd --eps 0.1 --norm linff": "Did you mean 'linf'",
    "digits-cnn --method pgd --eps 0.1 --attack-steps 0": "`attack-steps`",
    "digits-cnn --method pgd --eps 0.1 --attack-step 0": "`attack-step`",
    "digits-cnn --eps 0.1": "`eps` must be left out with --method standard, got '0.1'",
    "digits-cnn --attack-steps 3": "`attack-steps` must be left out with --method standard",
    "digits-cnn --method gaussian": "`sigma` must be given with --method gaussian. Example:",
    "digits-cnn --method gaussian --sigma 0": "`sigma` must be a number > 0, got 0. Example:",
    "digits-cnn --method gaussian --sigma nan": "`sigma` must be a number > 0, got nan",
    "digits-cnn --method gaussian --sigma 0.1 --eps 0.1": "`eps` must be left out with --method g",
    "digits-cnn --sigma 0.1": "`sigma` must be left out with --method standard, got 0.1. Add",
    "digits-cnn --method pgd --eps 0.1 --sigma 0.1": "`sigma` must be left out with --method pgd",
    "digits-cnn --out notes.txt/w.safetensors": "`out` must be a file that can be written",
    "digits-cnn --out .": "`out` must be a file, got '.', which is a folder",
    "digits-cnn --inputs 0": "`inputs`",
    "digits-cnn --fit-inputs 0": "`fit-inputs`",
    "digits-cnn --no-such-option": "no-such-option",
    "vgg16": "must accept 2 images of shape (1, 8, 8)",
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_input_is_one_clear_line(arguments: str, tmp_path: Path, refused: Refused) -> None:
    Path("notes.txt").write_text("a file")
    assert BAD[arguments] in refused(["train", *arguments.split()])
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt"}


def test_a_diverging_training_is_one_clear_line(refused: Refused) -> None:
    words = [*QUICK, "--optimiser", "sgd", "--learning-rate", "1e30", "--quiet"]
    assert "`learning-rate` must keep the training finite" in refused(words)
    assert not Path("w.safetensors").exists()


def test_a_damaged_checkpoint_is_named(refused: Refused) -> None:
    Path("w.checkpoint.safetensors").write_bytes(b"half a file")
    assert "`resume` must find a complete checkpoint" in refused([*QUICK, "--resume", "--quiet"])
    assert run([*QUICK, "--overwrite", "--quiet"]) == 0


@pytest.mark.slow
def test_an_interrupted_training_is_resumed_to_the_same_bytes(
    refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    long = ["train", "digits-cnn", "--epochs", "5", "--seed", "4", "--quiet", "--out"]
    assert run([*long, "whole.safetensors"]) == 0
    capsys.readouterr()
    checkpoint = Path("cut.checkpoint.safetensors")
    with subprocess.Popen(
        [sys.executable, "-m", "nppr", *long, "cut.safetensors"], stderr=subprocess.PIPE, text=True
    ) as process:
        while not checkpoint.exists():
            assert process.poll() is None, "the training ended before it could be interrupted"
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    assert err.count("\n") == 1
    assert "--resume" in err
    assert not Path("cut.safetensors").exists()
    assert "unfinished training" in refused([*long, "cut.safetensors"])
    other = refused([*long, "cut.safetensors", "--resume", "--epochs", "7"])
    assert "epochs 7 instead of 5" in other
    assert run([*long, "cut.safetensors", "--resume"]) == 0
    for suffix in (".safetensors", ".json"):
        whole = Path("whole").with_suffix(suffix).read_bytes()
        assert Path("cut").with_suffix(suffix).read_bytes() == whole
    assert not checkpoint.exists()
