"""The command line as a whole: help, errors before PyTorch is loaded, exit codes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from helpers import ends_within
from nppr.cli import COMMANDS, run
from nppr.errors import VanishedError, WriteError
from nppr.settings import Panel

from .conftest import Refused


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run([command, "--help"]) == 0
    return capsys.readouterr().out


def panels_of(text: str) -> dict[str, list[str]]:
    """The flags in each panel of a help text, in order."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if title := re.match(r"╭─ (\w+) ─", line):
            flags = found.setdefault(title[1], [])
        elif flag := re.match(r"│ (--[a-z-]+)", line):
            flags.append(flag[1])
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_readable_in_80_columns(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(command, capsys)
    assert max(map(len, text.splitlines())) <= 80
    assert text.split("\n")[1].startswith(f" Usage: nppr {command} [OPTIONS]")
    assert "<bool>" not in text
    order = [each.value for each in Panel]
    panels = [each for each in panels_of(text) if each != "Arguments"]
    assert panels == sorted(panels, key=order.index)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_the_examples_of_the_command_unwrapped(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, examples = help_of(command, capsys).partition(" Examples:")
    lines = [line.rstrip() for line in examples.splitlines() if line.strip()]
    shown = {line.split()[1] for line in lines if line.startswith(" nppr ")}
    assert command in shown
    assert shown <= {command, "fit"}, "evaluate shows where its distributions come from"
    assert all(line.startswith((" nppr ", "     ")) for line in lines), "a line was wrapped"


def test_assess_shows_few_everyday_options_first(capsys: pytest.CaptureFixture[str]) -> None:
    panels = panels_of(help_of("assess", capsys))
    assert list(panels) == [each.value for each in Panel]
    everyday = panels[Panel.EVERYDAY.value]
    assert len(everyday) <= 20
    assert everyday[0] == "--model"
    assert {"--data", "--eps", "--sources", "--draws", "--out", "--json"} <= set(everyday)


def test_every_option_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [flag for each in panels_of(help_of("assess", capsys)).values() for flag in each]
    assert len(flags) == len(set(flags))
    assert {"--floor", "--preset", "--precision", "--page", "--quantise"} <= set(flags)


def test_no_arguments_show_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    shown = re.findall(r"^│ ([a-z]+)  ", capsys.readouterr().out, re.MULTILINE)
    assert tuple(shown) == COMMANDS


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert re.fullmatch(r"nppr \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["stuff"], "No such command 'stuff'. Did you mean 'study'? See: nppr --help"),
        (["assess", "--drws", "3"], "No such option: --drws (Possible options: --draws,"),
        (["report"], "Missing argument 'RUN'. See: nppr report --help"),
        (["fit", "--kappa", "x"], "`kappa` must be a number, got 'x'."),
        (["fit", "--seed", "9" * 5000], "`seed` must be a value in range, got"),
        (["fit", "--fit-calls", "1.5"], "`fit-calls` must be a whole number, got '1.5'."),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_mistakes_of_the_command_line(words: list[str], expected: str, refused: Refused) -> None:
    assert expected in refused(words)


STUDY = """
name = "toy"
data = [{ name = "digits", spec = "digits", inputz = 30 }]
classifiers = [{ name = "cnn", model = "digits-cnn" }]
grids = [{ radii = [0.1], sources = ["uniform"] }]
"""


MISTAKES = {
    **{f"{name} --help": "Usage: nppr" for name in COMMANDS},
    "assess --help": "--sources",
    "train --help": "--label-smoothing",
    "assess --drws 3": "No such option: --drws",
    "assess --draws many": "`draws` must be a whole number, got 'many'",
    "assess --draws 0": "`draws` must be a whole number >= 1, got 0",
    "assess --effort quik": "Did you mean 'quick'?",
    "assess --eps wide": "`eps` must be a number",
    "assess --floor 2": "`floor` must",
    "assess --model resnet81": "Did you mean 'resnet18'?",
    "assess --weights none.pt": "`weights` must be a file, got 'none.pt'",
    "assess --data nowhere": "`data` must be one of digits, got 'nowhere'",
    "fit --feature-model none.onnx": "`feature-model` must be a file, got 'none.onnx'",
    "doctor --model none.py:f": "`model` must name a file, got 'none.py'",
    "fit --dependency lable": "Did you mean 'label'?",
    "certify --about tset-set": "Did you mean 'test-set'?",
    "assess --sources gausian": "Did you mean 'gaussian'?",
    "assess --sources pgd:stepss=3": "Did you mean 'steps'?",
    "assess --sources pgd:steps=few": "`steps of pgd` must be a whole number, got 'few'",
    "assess --sources nppr:floor=1": "`nppr` must have no options in --sources",
    "assess --transform rotate=9 --sources laplace": "`sources` must fit the budget, got 'laplace'",
    "evaluate --sources pgd-21": "Did you mean 'pgd-20'?",
    "certify --source nppr:x=1": "`source` must name one source, got 'nppr:x=1'",
    "certify --source unifrom": "Did you mean 'uniform'?",
    "bound --reference unifrm": "Did you mean 'uniform'?",
    "compare here there": "`run` must be the folder of a run, got 'here'",
}
"""Words of a command, and what is printed before PyTorch is loaded."""

LATER = {"study wrong.toml": "Did you mean 'inputs'?"}
"""The same for what a study says, before data are loaded."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("commands", "unloaded"), [(MISTAKES, "torch._C"), (LATER, "sklearn")], ids=["early", "late"]
)
def test_mistakes_are_reported_before_anything_slow_is_loaded(
    commands: dict[str, str], unloaded: str, tmp_path: Path
) -> None:
    (tmp_path / "wrong.toml").write_text(STUDY)
    code = (
        "import sys; from nppr.cli import run\n"
        f"for words in {list(commands)!r}:\n"
        "    code = run(words.split())\n"
        "    assert code == (0 if '--help' in words else 2), words\n"
        f"    assert {unloaded!r} not in sys.modules, words\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    for expected in commands.values():
        assert expected in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["assess"], "; finished work is kept: add --resume to continue"),
        (["study", "toy.toml"], "; finished work is kept: the same command continues"),
        (["doctor"], ""),
    ],
    ids=["assess", "study", "doctor"],
)
def test_ctrl_c_is_one_line_and_exit_code_130(
    words: list[str],
    kept: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("nppr.run.resolve.load_data", interrupt)
    monkeypatch.setattr("nppr.cli.study_command.read_study", interrupt)
    assert run(words) == 130
    assert tuple(capsys.readouterr()) == ("", f"error: interrupted{kept}\n")


@pytest.mark.parametrize(
    "options",
    [
        "assess --classes 1000000000",
        "assess --seed 18446744073709551616",
        "assess --eps 1e308",
        "assess --norm l2 --eps 1e308",
        "assess --eps 5e-324",
        "assess --precision 5e-324",
        "assess --resize 100000",
        "assess --batch-size 9223372036854775807",
        "assess --draws 1000000000000",
        "assess --sources pgd:steps=999999999999999999999",
        "assess --sources pgd:restarts=999999999999999999999",
        "assess --sources universal:calls=999999999999",
        "assess --fit-seeds 300000",
        "assess --components 1000000000",
        "assess --hidden-dim 1000000000",
        "assess --rare --rare-calls 10000000000000000000000",
        "bound --patterns 100000000000",
        "bracket --eps 0.25 --sigma 1e308",
        "bracket --eps 0.25 --sigma 0.25 --search-calls 10000000000000",
        "train digits-cnn --epochs 999999999999",
        "train digits-cnn --method pgd --eps 0.1 --attack-steps 999999999999",
        "doctor --seed 18446744073709551616",
    ],
)
def test_what_cannot_end_or_fit_into_memory_is_refused(
    options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = options.split()
    folder = ["--out", str(tmp_path / "x")] if given[0] != "doctor" else []
    assert run([*given, *folder]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"must (be at most|lie)", line)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(28, "No space left on device", "a/b"), "'a/b' No space left on device"),
        (MemoryError(), "memory ran out"),
        (WriteError("`out` is full."), "Finished work is kept: add --resume to continue."),
        (VanishedError("`out` has vanished."), "error: `out` has vanished.\n"),
    ],
)
def test_a_machine_that_lacks_something_is_one_line(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("nppr.cli.measure_commands._measure", fail)
    assert run(["assess"]) == 2
    shown = capsys.readouterr().err
    assert line in shown
    assert shown.count("\n") == 1


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["assess", "--sources", "a\x1b[2Jb"]) == 2
    assert "\x1b[2J" not in capsys.readouterr().err


RUN_ON = "assess --eps 0.1 --out o --data"


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("f.npz", f"{RUN_ON} f.npz"),
        ("f.npz", f"{RUN_ON} f.npz --range 0,1"),
        ("f.zip", f"{RUN_ON} f.zip"),
        ("f.tar.gz", f"{RUN_ON} f.tar.gz"),
        ("f.parquet", f"{RUN_ON} f.parquet"),
        ("photos/a/1.png", f"{RUN_ON} photos"),
        ("mnist/train-images-idx3-ubyte", f"{RUN_ON} mnist"),
        ("f.csv", f"{RUN_ON} digits --slices f.csv"),
        ("f.parquet", f"{RUN_ON} digits --slices f.parquet"),
        ("f.txt", f"{RUN_ON} digits --class-order f.txt"),
        ("f.toml", "gate f.toml"),
        ("f.toml", "study f.toml --plan"),
        ("f.py", "doctor --model f.py"),
        ("f.pt", "doctor --model f.pt"),
        ("f.safetensors", "evaluate --distribution f.safetensors --out o"),
        ("r/report.json", "report r"),
        ("o/run.json", f"{RUN_ON} digits"),
    ],
)
def test_a_fifo_is_refused_and_not_waited_for(file: str, words: str, refused: Refused) -> None:
    for folder in ("photos/a", "photos/b", "mnist", "r", "o"):
        Path(folder).mkdir(parents=True)
    for number in range(4):
        for name in "ab":
            Image.new("L", (8, 8)).save(f"photos/{name}/{number}.png")
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        Path("mnist", f"{name}-ubyte").touch()
    Path(file).unlink(missing_ok=True)
    os.mkfifo(file)
    with ends_within(60):
        message = refused(words.split())
    assert Path(file).name in message


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no endless file here")
@pytest.mark.parametrize(
    "words",
    [f"{RUN_ON} digits --slices /dev/zero", f"{RUN_ON} digits --class-order /dev/zero",
     "gate /dev/zero", "study /dev/zero --plan"],
)  # fmt: skip
def test_a_device_is_refused_unread(words: str, refused: Refused) -> None:
    assert "/dev/zero" in (message := refused(words.split()))
    assert "a device, not a regular file" in message


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        ("assess --inputs 20 --draws 4 --sources uniform --no-page", 0, "report.json"),
        ("assess --draws -1", 2, ""),
    ],
    ids=["run", "mistake"],
)
def test_messages_that_nobody_can_take_do_not_end_a_command(
    words: str, code: int, printed: str
) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "nppr", *words.split()],
            stdout=subprocess.PIPE,
            stderr=full,
            check=False,
        )
    assert done.returncode == code
    assert printed in done.stdout.decode()
