from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nppr.ranks import World, first, gathered, ranks, share, span, together, world
from ranks import LOST, commands, exchanges, fitting, measuring, run_ranks, stray

KILLED = -9


def test_one_process_is_the_first_of_one_and_exchanges_nothing() -> None:
    assert world() == World(0, 1)
    with ranks() as known:
        assert known.is_first
    assert gathered("own") == ["own"]
    assert first(lambda: 3) == 3
    assert share([2, 1]) == [0, 1]
    assert list(span(3)) == [0, 1, 2]
    with pytest.raises(ValueError, match="as it is"), together():
        raise ValueError("as it is")


def test_processes_that_torchrun_did_not_start_stay_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster may set the same variables for its own ends."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "2")
    with ranks() as known:
        assert known == World(0, 1)


@pytest.mark.slow
def test_ranks_exchange_and_share_their_errors(tmp_path: Path) -> None:
    ended = run_ranks(3, tmp_path, exchanges)
    assert ended.codes == [0, 0, 0], ended.err
    assert [found["share"] for found in ended.results] == [[0], [1, 3, 5], [2, 4, 6]]
    assert [found["span"] for found in ended.results] == [[0, 1], [2, 3], [4, 5, 6]]
    for found in ended.results:
        assert found["gathered"] == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
        assert found["joined"] == [[1, 1], [-1, -1], [2, 2], [2, 2], [-1, -1]]
        assert found["first"] == "only 0"
        assert found["one"] == ["ValueError", "from 2"]
        assert found["unknown"][1].endswith("strange")
        assert found["in first"].startswith("integer division")
        assert "rank 2 has another versions torch than rank 0" in found["different"]
        assert found["still together"] == [0, 1, 2]


def results(folder: Path) -> dict[str, Any]:
    """A report without what may differ between two runs."""
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    for name in ("timing", "environment"):
        del report[name]
    return report


def same_run(one: Path, many: Path) -> None:
    assert results(one) == results(many)
    files = [path for kind in ("*.csv", "distributions/*") for path in one.glob(kind)]
    assert files
    for path in files:
        assert path.read_bytes() == (many / path.relative_to(one)).read_bytes(), path


ASSESS = ["assess", "--no-page", "--sources", "nppr,uniform,pgd,universal:calls=1280",
          "--inputs", "31", "--draws", "20", "--fit-calls", "600", "--components", "2", "--floor", "0",
          "--fit-inputs", "150", "--select-inputs", "60", "--per-input-calls", "6",
          "--batch-size", "16", "--quiet"]  # fmt: skip


@pytest.mark.slow
def test_torchrun_gives_the_report_of_one_process(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    started = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    ended = subprocess.run(
        [*started, "-m", "nppr", *ASSESS, "--out", str(two)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"{two}/report.json\n"
    assert "Traceback" not in ended.stderr
    alone = run_ranks(1, tmp_path, commands, [[*ASSESS, "--out", str(one)]])
    assert alone.results == [[0]], alone.err
    same_run(one, two)
    assert json.loads((two / "report.json").read_text())["environment"]["ranks"] == 2


@pytest.mark.slow
def test_fit_and_evaluate_and_fewer_inputs_than_ranks(tmp_path: Path) -> None:
    lines = [
        ["fit", "--dependency", "input", "--components", "2", "--fit-calls", "600", "--floor", "0",
         "--batch-size", "16", "--quiet", "--out", "FOLDER/fit"],
        ["evaluate", "--no-page", "--distribution", "FOLDER/fit", "--inputs", "2", "--draws", "3",
         "--eps", "0.2", "--batch-size", "16", "--quiet", "--out", "FOLDER/evaluated"],
    ]  # fmt: skip
    for size in (1, 3):
        folder = tmp_path / str(size)
        own = [[word.replace("FOLDER", str(folder)) for word in line] for line in lines]
        ended = run_ranks(size, tmp_path, commands, own)
        assert ended.results == [[0, 0]] * size, ended.err
        assert ended.out[0].count("\n") == 2
        assert ended.out[1:] == [""] * (size - 1)
    same_run(tmp_path / "1" / "evaluated", tmp_path / "3" / "evaluated")
    for path in (tmp_path / "1" / "fit" / "distributions").iterdir():
        assert path.read_bytes() == (tmp_path / "3/fit/distributions" / path.name).read_bytes()


@pytest.mark.slow
def test_killed_measurements_go_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    kept = tmp_path / "kept.safetensors"
    whole = run_ranks(1, tmp_path / "whole", measuring, str(tmp_path / "whole.safetensors"), 31)
    (expected,) = whole.results
    assert expected["seen"] == expected["calls"] == 31 * 40
    killed = run_ranks(3, tmp_path / "killed", measuring, str(kept), 31, 200)
    assert killed.codes[2] == KILLED
    assert set(killed.codes[:2]) == {LOST}, killed.err
    assert sorted(path.name for path in tmp_path.glob("kept*")) == [
        "kept.rank1.safetensors", "kept.rank2.safetensors", "kept.safetensors",
    ]  # fmt: skip
    again = run_ranks(2, tmp_path / "again", measuring, str(kept), 31)
    assert [path.name for path in tmp_path.glob("kept*")] == ["kept.safetensors"]
    for found in again.results:
        assert found["correct"] == expected["correct"]
        assert found["calls"] == expected["calls"]
        assert np.allclose(found["features"], expected["features"], rtol=1e-5)
    # Nothing that was finished is measured again, and what is left is divided.
    left = sum(found["seen"] for found in again.results)
    assert 0 < left < 31 * 40 / 2
    assert max(found["seen"] for found in again.results) < 0.7 * left
    alone = run_ranks(1, tmp_path / "alone", measuring, str(kept), 31)
    assert alone.results[0]["seen"] == 0


@pytest.mark.slow
def test_killed_fits_go_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    whole = run_ranks(1, tmp_path / "a", fitting, str(tmp_path / "whole"), False)
    both = run_ranks(2, tmp_path / "b", fitting, str(tmp_path / "both"), False)
    assert max(both.results) < 0.65 * whole.results[0]  # forms are tried on both
    killed = run_ranks(2, tmp_path / "c", fitting, str(tmp_path / "cut"), False, 800)
    assert killed.codes == [LOST, KILLED], killed.err
    assert list((tmp_path / "cut" / "fit").glob("*.state.safetensors"))
    again = run_ranks(1, tmp_path / "d", fitting, str(tmp_path / "cut"), True)
    assert again.codes == [0], again.err
    for path in (tmp_path / "whole" / "distributions").iterdir():
        for other in ("both", "cut"):
            assert (
                path.read_bytes() == (tmp_path / other / "distributions" / path.name).read_bytes()
            )


@pytest.mark.slow
def test_an_error_on_one_rank_is_raised_on_all(tmp_path: Path) -> None:
    one, two = run_ranks(1, tmp_path, stray), run_ranks(2, tmp_path, stray)
    assert two.codes == [0, 0], two.err
    assert two.results == one.results * 2
    assert two.results[0][0] == "input 3 cannot be had"


@pytest.mark.slow
def test_ranks_with_different_data_end_at_once_with_one_line(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((40, 1, 8, 8), dtype=np.float32)
    for rank in (0, 1):
        place = tmp_path / f"rank{rank}-of-2"
        place.mkdir()
        np.savez(place / "data.npz", x=images / (1 + rank), y=np.arange(40) % 10)
    lines = [
        ["assess", "--data", "data.npz", "--eps", "0.1", "--sources", "uniform"],
        ["assess", "--sources", "unifrom"],
        ["train", "digits-cnn"],
    ]
    ended = run_ranks(2, tmp_path, commands, lines)
    assert ended.results == [[2, 2, 2], [2, 2, 2]], ended.err
    errors = ended.err[0].splitlines()
    assert len(errors) == 3, errors
    assert "rank 1 has another data fingerprint, fit split, select split than" in errors[0]
    assert "'unifrom'" in errors[1]
    assert "got 'train'" in errors[2]
    assert ended.err[1] == ended.out[1] == ""
