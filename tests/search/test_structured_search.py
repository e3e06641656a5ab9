"""White and stationary cells go through search, files, resume and shards as all others do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import nppr
from helpers import Linear, grouped
from nppr.core.budget import Budget
from nppr.core.tally import Evaluate, IntArray, Metric, Tally
from nppr.data import Data, from_arrays
from nppr.measuring.measurement import measure, probe
from nppr.models import Classifier, PreparedClassifier, prepare
from nppr.noise.distribution import Distribution
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.noise.structures import STRUCTURES
from nppr.noise.upsample import LATENT_CHANNELS
from nppr.run.assessment_run import AssessmentRun
from nppr.run.resolve import Resolved
from nppr.run.shards import share_out
from nppr.search.fitting import FitProgress
from nppr.search.learned_noise import LearnedNoise, load_learned, save_learned
from nppr.search.search import FinishedStage, NoiseSearch, start
from nppr.search.search_settings import SCORES, default_settings, walk
from nppr.settings import Measure, Run
from nppr.sources import Uniform
from nppr.system.worker_pools import WorkerPool

pytestmark = pytest.mark.slow

IMAGE, SIGNAL = (2, 4, 4), (1, 1, 8)
NAMES = [
    f"nppr:{rung}{structure}"
    for structure in (":white", ":stationary", "")
    for rung in ("independent", "label")
]
SMALL = replace(
    default_settings(Family(Dependency.LABEL), calls=2400, inputs=32), per_input_calls=0
)


@dataclass(frozen=True)
class Case:
    """A linear classifier of images or signals in a budget, and data that it is correct on."""

    shape: tuple[int, int, int]
    budget: Budget

    def __str__(self) -> str:
        return f"{'signal' if self.shape == SIGNAL else 'image'} {self.budget}"

    @property
    def model(self) -> nn.Module:
        w = torch.ones(self.shape)
        w[..., self.shape[-1] // 2 :] = -1
        w[..., ::2] *= 1.5
        return Linear(w, -0.5 * float(w.sum()))

    @property
    def data(self) -> Data:
        images = torch.rand(300, *self.shape, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            labels = self.model(images).argmax(1)
        return from_arrays(images, labels, shares=(0.3, 0.4), classes=2)

    def prepare(self, micro_batch: int) -> PreparedClassifier:
        known = Classifier(self.model)
        return prepare(known, probe(self.data.evaluate), classes=2, micro_batch=micro_batch)


CASES = [
    Case(shape, budget)
    for shape in (IMAGE, SIGNAL)
    for budget in (Budget.linf(0.2), Budget.l2(0.2 * float(np.prod(shape)) ** 0.5))
]
cases = pytest.mark.parametrize("case", CASES, ids=str)


@cache
def searched(case: Case, seed: int = 0, seeds: int = 1) -> tuple[LearnedNoise, ...]:
    search = NoiseSearch(
        replace(SMALL, seeds=seeds), case.prepare(16), case.data, case.budget, seed=seed,
        references=(Uniform(case.budget),),
    )  # fmt: skip
    return tuple(search.run())


@cases
def test_every_cell_is_found_and_stays_in_its_set(case: Case) -> None:
    found = searched(case)
    assert [each.source.name for each in found] == NAMES
    for each in found:
        last, own = each.record.search.stages[-1], each.source.distribution.family
        assert last.curve is not None
        assert each.source.admissible == each.record.admissible
        assert each.record.admissible.contains(own.admissible), "noise of a larger set"
        assert np.isfinite(last.loss).all()


@cases
@pytest.mark.parametrize(("seed", "seeds"), [(0, 1), (1, 1), (2, 2)])
def test_a_larger_cell_is_never_above_a_smaller_one(case: Case, seed: int, seeds: int) -> None:
    found = searched(case, seed, seeds)
    values = {
        each.record.admissible: each.record.search.select_value
        for each in found
        if each.record.fit_seed is None
    }
    pairs = [
        (values[small], values[large])
        for small, large in permutations(values, 2)
        if large.contains(small)
    ]
    assert len(values) == 6
    assert len(pairs) == 12
    for before, after in pairs:
        assert before is not None
        assert after is not None
        assert after <= before + 1e-12


def test_the_widest_cell_comes_first() -> None:
    """Commands that take one of several noises take the widest: the last that a search goes to."""
    by_width = sorted(searched(CASES[0]), key=lambda each: each.width)
    assert by_width[0].source.name == "nppr:label"
    places = {each.source.name: number for number, each in enumerate(by_width)}
    for name in ("nppr:independent", "nppr:label"):
        assert places[name] < places[f"{name}:stationary"] < places[f"{name}:white"]


def counted(source: LearnedNoise, case: Case, micro_batch: int) -> IntArray:
    return measure(source.source, case.prepare(micro_batch), case.data.evaluate, draws=17).correct


@cases
def test_the_tally_does_not_depend_on_the_batch_size_or_on_a_file(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nppr.measuring.measurement.NUMBERS_AT_ONCE", 1)
    save_learned(tmp_path, searched(case))
    loaded = load_learned(tmp_path)
    assert [each.source.name for each in loaded] == NAMES
    for before, after in zip(searched(case), loaded, strict=True):
        assert after.record == before.record
        assert after.checksum == before.checksum
        expected = counted(before, case, 64)
        assert np.array_equal(counted(before, case, 1), expected)
        assert np.array_equal(counted(after, case, 64), expected)


def resolved(case: Case) -> Resolved:
    """What the process of a shard loads."""
    return Resolved(case.data, Classifier(case.model), request=partial(resolved, case))


def measured_in_shards(source: LearnedNoise, case: Case, parts: int) -> Tally[Evaluate]:
    ready = replace(resolved(case), prepared=case.prepare(8))
    run = AssessmentRun.open(ready, case.budget, Measure(draws=17))
    run.measure_clean(keep=False)
    run.pool = WorkerPool()
    run.pool.slots = parts
    share_out(run, [run.plan(source.source)])
    return run.tally(run.plan(source.source))


@cases
def test_the_tally_does_not_depend_on_the_number_of_shards(case: Case) -> None:
    for each in searched(case)[:4]:
        whole = counted(each, case, 64)
        for parts in (2, 3):
            tally = measured_in_shards(each, case, parts)
            assert np.array_equal(tally.correct, whole)


SEARCHED_TWICE = replace(
    default_settings(Family(Dependency.LABEL), floors=(0.0, 0.5), calls=1200, inputs=32),
    seeds=2, per_input_calls=0,
)  # fmt: skip


def learned(case: Case, folder: Path, stop_at: int = 0, *, resume: bool = False) -> list[str]:
    """Search with two seeds in a folder, interrupted after so many steps; the stages of all steps."""
    taken: list[str] = []

    def count(state: FitProgress) -> None:
        taken.append(state.stage)
        if len(taken) == stop_at:
            raise KeyboardInterrupt

    nppr.learn(
        case.model, case.data, budget=case.budget, search=SEARCHED_TWICE, progress=count,
        **grouped(out=folder, resume=resume),
    )  # fmt: skip
    return taken


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "distributions").iterdir())}


@cache
def whole(folder: Path) -> tuple[list[str], dict[str, bytes]]:
    return learned(CASES[0], folder), contents(folder)


@pytest.mark.parametrize(
    ("stage", "seed"),
    [*((name.removeprefix("nppr:"), 0) for name in NAMES), ("independent:white", 1), ("label", 1)],
)
def test_an_interrupted_search_ends_in_the_same_bytes(
    stage: str, seed: int, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    steps, expected = whole(tmp_path_factory.getbasetemp() / "structured")
    walks = [number for number, name in enumerate(steps, 1) if name == stage]
    starts = [at for at in walks if at - 1 not in walks]
    assert len(starts) >= 2, "one of each seed"
    with pytest.raises(KeyboardInterrupt):
        learned(CASES[0], tmp_path / "run", starts[seed] + 1)
    again = learned(CASES[0], tmp_path / "run", resume=True)
    assert len(again) == len(steps) - starts[seed] - 1
    assert contents(tmp_path / "run") == expected


@pytest.mark.parametrize("shape", [IMAGE, (1, 1, LATENT_CHANNELS)])
@pytest.mark.parametrize("kept", ["white", "stationary"])
def test_noise_of_a_smaller_structure_that_is_kept_is_not_grown_from(
    kept: str, shape: tuple[int, int, int]
) -> None:
    """Also if its latent vectors are as long as a signal."""
    case = Case(shape, Budget.linf(0.1))
    search = NoiseSearch(SMALL, case.prepare(16), case.data, case.budget)
    inputs, _ = search.find_inputs()
    stages = {stage.name: stage for stage in walk(SMALL, 2, shape)}
    parent, child = stages["independent"], stages["label"]
    fitted = start(parent, None, inputs, shape, 2, 0)
    selected = Distribution(parent.family.with_(structure=kept), shape, 2).eval()
    record = search.complete(replace(stages["independent:white"], steps=1), []).record
    made = start(child, FinishedStage(record, 0.5, None, fitted, selected), inputs, shape, 2, 0)
    assert made.family == child.family
    assert torch.equal(made.mixture.means[0], fitted.mixture.means[0].clamp(-1, 1))


@cases
def test_a_search_by_scores_finds_noise_of_every_structure(case: Case) -> None:
    own = replace(SMALL, method=SCORES, calls=6 * 8 * 64)
    report = nppr.assess(
        case.model, case.data, budget=case.budget, sources="nppr,uniform",
        search=own, measure=Measure(draws=8, inputs=40), run=Run(anyway=True),
    )  # fmt: skip
    assert [rung.name for rung in report.ladder] == NAMES
    assert all(rung.value is not None and 0 <= rung.value <= 1 for rung in report.ladder)


@cache
def assessed() -> nppr.Report:
    case = CASES[0]
    return nppr.assess(
        case.model, case.data, budget=case.budget,
        sources="nppr,uniform,gaussian,patterns,universal:calls=320",
        search=replace(SMALL, per_input_calls=6), measure=Measure(draws=16),
    )  # fmt: skip


def test_an_assessment_measures_every_cell_and_per_input_below() -> None:
    report = assessed()
    assert [rung.name for rung in report.ladder] == [*NAMES, "nppr:per-input"]
    for name in (*NAMES, "nppr:per-input"):
        row = report.headline(name, Metric.NPPR)
        assert row is not None
        assert row.value is not None


def test_the_strongest_rival_of_a_cell_lies_in_its_set() -> None:
    """A fixed pattern is not white and not stationary, so no search of those cells is behind it."""
    noises = {"uniform", "gaussian"}
    strongest = {rung.name: rung.strongest for rung in assessed().ladder}
    assert {strongest[name] for name in NAMES[:4]} <= noises
    assert {strongest[name] for name in NAMES[4:]} <= {*noises, "patterns", "universal:calls=320"}
    flagged = {each.source for each in assessed().flags if each.id == "search-behind"}
    assert not flagged & set(NAMES[:4])


@pytest.mark.parametrize("structure", ["white", "stationary"])
def test_a_search_of_one_structure_has_a_row_for_each_of_its_sets(structure: str) -> None:
    own = default_settings(Family(Dependency.LABEL, structure=structure), calls=512, inputs=32)
    case = CASES[0]
    report = nppr.assess(
        case.model, case.data, budget=case.budget, sources="nppr", search=own,
        measure=Measure(draws=8),
    )  # fmt: skip
    names = [each.name_noise() for each in own.sets]
    assert names == NAMES[: 2 if structure == "white" else 4]
    assert [rung.name for rung in report.ladder] == names
    assert [row.error for row in report.numbers if row.error] == []


def test_every_structure_is_tested() -> None:
    assert {each.rpartition(":")[2] for each in NAMES[:4]} | {"any"} == set(STRUCTURES)
