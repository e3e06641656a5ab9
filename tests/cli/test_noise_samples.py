"""`--noise-samples` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nppr.cli import run

from .conftest import Refused

WORDS = ["assess", "--sources", "uniform", "--inputs", "40", "--draws", "16", "--no-page"]
RNG = np.random.default_rng(0)


def save_frames(name: str, frames: int = 12, side: int = 8, std: float = 0.02) -> None:
    np.save(name, 0.5 + std * RNG.normal(size=(frames, side, side)).astype(np.float32))


def test_the_noise_of_frames_is_described_and_measured(capsys: pytest.CaptureFixture[str]) -> None:
    save_frames("frames.npy", frames=30)
    assert run([*WORDS, "--noise-samples", "frames.npy", "--out", "run"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "PR noise-samples 100.0" in printed
    assert "your frames: Your frames look white: read the column white." in printed
    content = json.loads(Path("run/report.json").read_text())
    assert content["noise_samples"]["frames"] == 30
    assert content["settings"]["measure"]["noise_samples"] == "frames.npy"
    assert [each["name"] for each in content["settings"]["sources"]] == ["uniform", "noise-samples"]


def test_other_frames_are_another_run(refused: Refused, capsys: pytest.CaptureFixture[str]) -> None:
    save_frames("frames.npy")
    words = [*WORDS, "--quiet", "--noise-samples", "frames.npy", "--out", "run"]
    assert run(words) == 0
    before = Path("run/per_input.csv").read_bytes()
    assert run(words) == 0
    assert Path("run/per_input.csv").read_bytes() == before
    save_frames("frames.npy", std=0.03)
    capsys.readouterr()
    assert "holds one with another sources" in refused(words)


def test_counts_do_not_depend_on_the_batch_size() -> None:
    save_frames("frames.npy", side=11, std=0.1)
    lines = []
    for size in ("1", "64"):
        words = [*WORDS, "--quiet", "--noise-samples", "frames.npy", "--batch-size", size]
        assert run([*words, "--out", size]) == 0
        lines.append(Path(size, "per_input.csv").read_text())
    assert lines[0] == lines[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--noise-samples", "few.npy"), "`noise-samples` must hold at least 10 frames"),
        (("--noise-samples", "nan.npy"), "`noise-samples` must be finite"),
        (("--noise-samples", "colour.npy"), "the channels of the data, 1, got frames of 8 x 8 x 3"),
        (("--noise-samples", "absent"), "`noise-samples` must be a folder of images"),
        (
            ("--noise-samples", "few.npy", "--transform", "rotate=9"),
            "left out with a transformation",
        ),
        (
            ("--noise-samples", "few.npy", "--data", "table.npz", "--range", "0,1", "--eps", "0.1"),
            "left out with a table",
        ),
        (("--sources", "noise-samples"), "Example: --noise-samples frames/"),
    ],
)
def test_bad_frames_are_one_clear_line(
    words: tuple[str, ...], message: str, refused: Refused
) -> None:
    save_frames("few.npy", frames=9)
    np.save("colour.npy", RNG.random((12, 8, 8, 3)))
    np.save("nan.npy", np.full((12, 8, 8), np.nan))
    np.savez("table.npz", x=RNG.random((40, 64)), y=np.arange(40) % 10)
    Path("flat.py").write_text("import torch\ndef make(): return torch.nn.Linear(64, 10)\n")
    model = ("--model", "flat.py:make") if "table.npz" in words else ()
    assert message in refused([*WORDS, *words, *model, "--quiet"])
