"""Shards: the counts of one process, whatever the division and whatever stops."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nppr
from helpers import half_classifier, two_class_data
from nppr.core.budget import Budget
from nppr.core.tally import Progress
from nppr.errors import RunFolderError, RunStopped, SpecError, VanishedError
from nppr.measuring.blocks import Blocks, FileStore, GrowingStore
from nppr.report import Report
from nppr.run import shards
from nppr.run.assessment_run import PlannedMeasurement
from nppr.run.shards import measure_shard
from nppr.settings import Measure, Run
from nppr.sources import Uniform
from nppr.sources.custom import CustomNoise
from nppr.system.specs import BFLOAT16
from nppr.system.worker_pools import WorkerPool
from run.deadly_noise import deadly

BUDGET = Budget.linf(0.1)
SEARCH = nppr.Search(calls=256, components=2, per_input_calls=6).resolve(60).without_positions()
SMALL: dict[str, Any] = {"inputs": 150, "fit_inputs": 60, "select_inputs": 40, "draws": 8}


class TwoHere(WorkerPool):
    """Two shards, one after the other in this process."""

    slots = 2


@pytest.fixture
def two_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nppr.run.assessment_run.open_pool", lambda *_: TwoHere())


def same(one: Report, other: Report) -> bool:
    left = {"timing", "environment"}
    return one.model_dump(exclude=left) == other.model_dump(exclude=left)


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "all kinds": (
        "uniform,pgd:steps=2,universal:calls=320,bound,nppr",
        {**SMALL, "radii": ["0.05"]},
    ),
    "merged": ("uniform,pgd:steps=2,cw:steps=3", {**SMALL, "only_merged": True}),
    "precision": ("uniform,pgd:steps=2", {"inputs": 500, "precision": 0.02}),
    "engine": ("uniform", {"draws": 16, "engine": BFLOAT16}),
}


def assessed(case: str, **run: Any) -> Report:
    sources, settings = CASES[case]
    return nppr.assess(
        budget=Budget.linf(0.2), sources=sources, search=SEARCH, measure=Measure(**settings),
        run=Run(batch_size=16, **run),
    )  # fmt: skip


@cache
def alone(case: str) -> Report:
    """The report of one process."""
    return assessed(case, workers=1)


@pytest.mark.slow
@pytest.mark.usefixtures("two_here")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("folder", ["run", None])
def test_a_run_in_shards_has_the_same_report(
    case: str, folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    shared = assessed(case, workers=2, out=tmp_path / folder if folder else None)
    assert same(shared, alone(case))
    assert shared.per_input.to_csv() == alone(case).per_input.to_csv()


def test_parts_cover_all_inputs_in_whole_batches() -> None:
    single = PlannedMeasurement(Uniform(BUDGET), "uniform", 10, 4, 0)
    assert [single.rows(part, 3).tolist() for part in range(3)] == [
        [0, 1, 2], [3, 4, 5, 6], [7, 8, 9],
    ]  # fmt: skip
    batched = PlannedMeasurement(_Batched(BUDGET), "batched", 70, 4, 0)
    sizes = [len(batched.rows(part, 3)) for part in range(3)]
    assert sizes == [16, 32, 22]


class _Batched(Uniform):
    inputs_at_once = 16


@pytest.mark.parametrize("first", [0, 1])
def test_a_contradiction_in_one_shard_discards_screened_counts_of_the_others(first: int) -> None:
    exact, screened = Blocks.discarded(3), Blocks.none(3)
    screened.audit = np.tile(np.array([4, 1, 0, 0]), (3, 1))
    for each in (exact, screened):
        each.finished[:], each.correct[:] = 1, 5
    parts = [(exact, np.arange(3)), (screened, np.arange(3, 6))]
    store = GrowingStore(np.arange(6), 6)
    for held, rows in (parts[first], parts[1 - first]):
        shards._merge_into(store, held, rows, 6)
    merged = store.load(6)
    assert merged is not None
    assert merged.finished.tolist() == [1, 1, 1, 0, 0, 0]
    assert merged.correct.tolist() == [5, 5, 5, 0, 0, 0]
    assert merged.must_be_exact
    assert not merged.is_contradicted


@pytest.mark.usefixtures("two_here")
class TestStopping:
    @pytest.fixture
    def lost(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Shards whose process is lost."""
        numbers = [1]

        def measure(packed: bytes, part: int, parts: int) -> dict[str, float]:
            if part in numbers:
                raise ProcessLookupError("lost")
            return measure_shard(packed, part, parts)

        monkeypatch.setattr(shards, "measure_shard", measure)
        return numbers

    def run(self, out: Path, **more: Any) -> Report:
        return nppr.assess(
            half_classifier(), two_class_data(60), BUDGET, sources="uniform,pgd:steps=2",
            measure=Measure(draws=4), run=Run(out=out, **more),
        )  # fmt: skip

    def test_a_lost_shard_costs_its_inputs_only(self, tmp_path: Path, lost: list[int]) -> None:
        whole = self.run(tmp_path / "whole")
        with pytest.raises(RunStopped) as stopped:
            self.run(tmp_path / "run", workers=2)
        assert str(stopped.value).startswith("1 of 2 shards could not be measured, shard 2: ")
        assert "\n" not in str(stopped.value)
        done = [
            FileStore(path, identity).load(60)
            for path, identity in self.files(tmp_path / "run")
            if not path.name.startswith("clean")
        ]
        assert len(done) == 2
        for blocks in done:
            assert blocks is not None
            assert blocks.finished[:30].all()
            assert not blocks.finished[30:].any()
        assert not (tmp_path / "run" / "shards").exists()
        lost.clear()
        assert same(self.run(tmp_path / "run", resume=True), whole), "by one process"

    def test_a_folder_that_was_removed_is_not_continued(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def remove(packed: bytes, part: int, parts: int) -> dict[str, float]:
            shutil.rmtree(tmp_path / "run")
            return measure_shard(packed, part, parts)

        monkeypatch.setattr(shards, "measure_shard", remove)
        with pytest.raises(VanishedError, match=r"vanished\. Run it again"):
            self.run(tmp_path / "run", workers=2)
        assert not (tmp_path / "run").exists()

    def test_another_division_continues(self, tmp_path: Path, lost: list[int]) -> None:
        whole = self.run(tmp_path / "whole")
        with pytest.raises(RunStopped):
            self.run(tmp_path / "run", workers=2)
        lost.clear()
        TwoHere.slots = 3
        try:
            assert same(self.run(tmp_path / "run", workers=3, resume=True), whole)
        finally:
            TwoHere.slots = 2

    def test_shards_that_nobody_merged_are_used(
        self, tmp_path: Path, lost: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As after the process of the run was killed."""
        whole = self.run(tmp_path / "whole")
        with monkeypatch.context() as patch, pytest.raises(RunStopped):
            patch.setattr(shards._Sharing, "_merge", lambda _: None)
            self.run(tmp_path / "run", workers=2)
        assert list((tmp_path / "run" / "shards" / "1-of-2").glob("*.safetensors"))
        lost.append(0)
        lost.remove(1)
        with pytest.raises(RunStopped, match="shard 1: "):  # of three parts, two are left to do
            TwoHere.slots = 3
            try:
                self.run(tmp_path / "run", workers=3, resume=True)
            finally:
                TwoHere.slots = 2
        lost.clear()
        assert same(self.run(tmp_path / "run", resume=True), whole)
        assert not (tmp_path / "run" / "shards").exists()

    def test_a_shard_of_another_run_is_refused(self, tmp_path: Path, lost: list[int]) -> None:
        with pytest.raises(RunStopped):
            self.run(tmp_path / "run", workers=2)
        path = tmp_path / "run" / "shards" / "2-of-2" / "uniform.safetensors"
        path.parent.mkdir(parents=True)
        FileStore(path, "another run").save(Blocks.none(30), now=True)
        lost.clear()
        with pytest.raises(
            RunFolderError, match="`resume` must find blocks of this run"
        ) as refused:
            self.run(tmp_path / "run", workers=2, resume=True)
        assert str(path) in str(refused.value)

    def test_progress_is_that_of_all_shards(self, tmp_path: Path) -> None:
        told: list[Progress] = []
        nppr.assess(
            half_classifier(), two_class_data(60), BUDGET, sources="uniform",
            measure=Measure(draws=4), run=Run(out=tmp_path / "run", workers=2),
            progress=lambda state: told.append(state) if isinstance(state, Progress) else None,
        )  # fmt: skip
        assert (told[-1].source, told[-1].done, told[-1].total) == ("uniform", 240, 240)

    def test_objects_that_cannot_be_sent_are_one_line(self) -> None:
        shown: list[object] = []
        own = CustomNoise(BUDGET, lambda x, _, n: 0 * x[:, None].repeat(1, n, 1, 1, 1), label="own")
        with pytest.raises(SpecError, match="`workers` must be left out for objects") as refused:
            nppr.assess(
                half_classifier(), two_class_data(60), BUDGET,
                sources=[own], run=Run(workers=2), measure=Measure(draws=4), progress=shown.append,
            )  # fmt: skip
        assert shown == [], "nothing is measured before"
        assert "\n" not in str(refused.value)

    @staticmethod
    def files(folder: Path) -> Iterator[tuple[Path, str]]:
        from nppr.system.records import read_record

        for path in sorted((folder / "blocks").glob("*.safetensors")):
            yield path, str(read_record(path)[1]["identity"])


def test_a_cluster_needs_a_folder() -> None:
    with pytest.raises(SpecError, match="`ray` must be given with `out`"):
        nppr.assess(sources="uniform", run=Run(ray="auto"))


@pytest.mark.slow
@pytest.mark.parametrize("when", ["once", "always"])
def test_a_killed_worker_costs_its_shard_only(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = tmp_path / "deadly"
    monkeypatch.setenv("NPPR_TEST_DEADLY", str(trigger))
    monkeypatch.setenv("NPPR_TEST_OWNER", str(os.getpid()))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))

    def run(name: str, **more: Any) -> Report:
        return nppr.assess(
            budget=BUDGET, sources=[Uniform(BUDGET), CustomNoise(BUDGET, deadly)],
            measure=Measure(inputs=40, draws=4), run=Run(out=tmp_path / name, **more),
        )  # fmt: skip

    whole = run("whole")
    trigger.write_text(when)
    if when == "once":
        assert same(run("run", workers=2), whole)
        return
    with pytest.raises(RunStopped, match="its process was lost 3 times"):
        run("run", workers=2)
    trigger.unlink()
    assert same(run("run", resume=True), whole)


@pytest.mark.slow
def test_ctrl_c_keeps_what_shards_have_finished(tmp_path: Path) -> None:
    words = (
        "assess --sources uniform,gaussian,laplace --draws 6000 --inputs 100 --batch-size 64"
        " --workers 2 --no-page --quiet --out run"
    )
    command = [sys.executable, "-m", "nppr", *words.split()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    started = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    place = tmp_path / "run" / "shards" / "2-of-2"
    until = time.monotonic() + 120
    while not list(place.glob("*.safetensors")) and time.monotonic() < until:
        time.sleep(0.1)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=120)
    assert started.returncode == 130
    assert said == "error: interrupted; finished work is kept: add --resume to continue\n"
    assert not place.exists(), "what is finished is in the run's own blocks"
    kept = next((tmp_path / "run" / "blocks").glob("uniform-*.safetensors"))
    from safetensors.numpy import load_file

    assert int(np.sum(load_file(kept)["finished"])) > 0


@pytest.mark.slow
def test_a_cluster_measures_the_same(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    here = Run(out=tmp_path / "here", batch_size=16)
    there = here.with_(out=tmp_path / "ray", ray="local", workers=2)
    found = [
        nppr.assess(sources="uniform,pgd:steps=2", measure=Measure(inputs=40, draws=4), run=each)
        for each in (here, there)
    ]
    assert same(*found)
