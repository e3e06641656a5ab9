"""A run under a transformation: its report, evidence, page, figures, radii and files."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import nppr
from helpers import grouped
from nppr.errors import BudgetError, DistributionError, SpecError
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.report import read_run
from nppr.report.figures import figures_of
from nppr.report.page.render import page_of
from nppr.search.search_settings import default_settings
from nppr.sources import Uniform
from nppr.sources.custom import CustomNoise

pytestmark = pytest.mark.slow
BUDGET = nppr.Budget.box("rotate=30,exposure=-1:0")
SEARCH = default_settings(Family(Dependency.LABEL), floors=(0.0, 0.5), calls=1024)
SHORT = default_settings(Family(Dependency.INDEPENDENT), floors=(0.0,), calls=512)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run") / "box"
    nppr.assess(
        budget=BUDGET,
        sources="nppr,uniform,scan,bound",
        search=SEARCH,
        measure=nppr.Measure(inputs=80, draws=16, radii=("0.5",)),
        run=nppr.Run(out=place),
    )
    return place


def test_the_report_states_the_ranges(folder: Path) -> None:
    budget = read_run(folder).report.budget
    assert budget.transform == "rotate=-30:30,exposure=-1:0"
    assert [str(each) for each in budget.parameters] == ["rotate ±30 deg", "exposure -1 to 0 stops"]
    assert str(budget) == BUDGET.text == "rotate ±30 deg, exposure -1 to 0 stops"


def test_smaller_ranges_are_safer(folder: Path) -> None:
    report = read_run(folder).report
    small = {row.name: row.value for row in report.other_radii if row.metric.value in ("AR", "PR")}
    assert {"uniform", "scan"} <= small.keys()
    for name, value in small.items():
        whole = next(row.value for row in report.numbers if row.name == name)
        assert value is not None
        assert whole is not None
        assert value > whole


def test_every_number_of_a_strip_and_profile_is_measured(folder: Path) -> None:
    evidence = read_run(folder).evidence
    assert evidence is not None
    (profile,), (strip,) = evidence.profiles, evidence.strips
    assert profile.correct.shape == profile.tried.shape == (2, 16)
    assert bool((profile.correct <= profile.tried).all())
    # Both parameters are uniform over all bins, so that each profile's mean is PR under Uniform.
    uniform = next(
        row for row in read_run(folder).report.numbers if row.source == "uniform" and row.value
    )
    means = (profile.correct / profile.tried).mean(1)
    assert means.tolist() == pytest.approx([uniform.value] * 2, abs=0.06)
    low, high = torch.tensor([[-30.0, -1.0], [30.0, 0.0]])
    assert bool(((strip.parameters >= low - 1e-4) & (strip.parameters <= high + 1e-4)).all())
    assert bool((strip.taken_for[:, 2] == strip.labels).all())  # at the best parameters
    assert evidence.worst
    for worst in evidence.worst:
        assert worst.parameters.shape == (len(worst.indices), 2)


def test_the_page_speaks_of_parameters(folder: Path) -> None:
    run = read_run(folder)
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page_of(run.report, None, run.evidence)))
    for words in (
        "rotate ±30 deg",
        "the worst law of the parameters found",
        "under every law of the parameters whose density is at most",
        "conditions that know nothing of the input",
        "at the worst, the median and the best of the parameters tried",
    ):
        assert words in text, words
    assert "pixel value changes" not in text
    assert "sensor noise" not in text


def test_its_figures_are_those_of_parameters(folder: Path) -> None:
    run = read_run(folder)
    drawn = {each.id: each for each in figures_of(run.report, None, run.evidence)}
    assert {"parameters", "failures", "radii"} <= set(drawn)
    assert not {"contours", "tsne", "covariances"} & set(drawn)
    assert "rotate: most," in drawn["failures"].alt


@pytest.mark.parametrize("box", ["rotate=20", "rotate=20,blur=1,exposure=0.5"])
def test_one_and_many_parameters_are_drawn(box: str, tmp_path: Path) -> None:
    nppr.assess(
        budget=nppr.Budget.box(box),
        sources="nppr,uniform",
        search=SHORT,
        measure=nppr.Measure(inputs=30, draws=8),
        run=nppr.Run(out=tmp_path / "run"),
    )
    run = read_run(tmp_path / "run")
    drawn = {each.id: each for each in figures_of(run.report, None, run.evidence)}
    assert {"parameters", "failures"} <= set(drawn)


def test_learned_laws_belong_to_their_ranges(folder: Path) -> None:
    again = nppr.load_learned(folder)
    assert {each.source.budget for each in again} == {BUDGET}
    assert nppr.load_learned(folder, BUDGET.at(0.5))[0].source.budget.radius == 0.5
    for other in (nppr.Budget.linf(0.1), nppr.Budget.box("rotate=20,exposure=-1:0")):
        with pytest.raises(DistributionError, match="must be noise of this budget"):
            nppr.load_learned(folder, other)


def test_a_law_of_your_own_needs_its_function(tmp_path: Path) -> None:
    def gain(images: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        return (images * theta[:, :, None, None]).clamp(0, 1)

    budget = nppr.Budget.box(nppr.CustomTransform({"gain": (0.3, 1.0)}, gain, neutral=(1.0,)))
    found = nppr.learn(budget=budget, search=SHORT, run=nppr.Run(out=tmp_path / "fit"))
    assert found
    with pytest.raises(DistributionError, match="a function of your own"):
        nppr.load_learned(tmp_path / "fit")
    (first, *_) = nppr.load_learned(tmp_path / "fit", budget)
    report = nppr.assess(
        budget=budget, distributions=[first], sources=(), measure=nppr.Measure(inputs=30, draws=8)
    )
    assert report.numbers[1].value is not None


def test_sources_that_perturb_pixels_are_refused() -> None:
    def mine(x: torch.Tensor, y: torch.Tensor, draws: int) -> torch.Tensor:  # noqa: ARG001
        return x[:, None].expand(1, draws, *x.shape[1:])

    noise = CustomNoise(BUDGET, mine)
    with pytest.raises(BudgetError, match="'mine', which perturbs pixels"):
        nppr.assess(budget=BUDGET, sources=[noise], measure=nppr.Measure(inputs=10))
    with pytest.raises(SpecError, match="'laplace', which needs added noise"):
        nppr.assess(budget=BUDGET, sources="laplace", measure=nppr.Measure(inputs=10))
    with pytest.raises(BudgetError, match="`saturation` must be left out"):
        nppr.assess(
            budget=nppr.Budget.box("saturation=0.5"),
            sources="uniform",
            measure=nppr.Measure(inputs=10),
        )


def test_an_interrupted_run_resumes_with_the_same_counts(tmp_path: Path) -> None:
    settings = {"inputs": 40, "budget": BUDGET, "search": SHORT, "draws": 8}
    whole = nppr.assess(sources="nppr,uniform,scan", **grouped(out=tmp_path / "a", **settings))

    def stop(progress: object) -> None:
        if getattr(progress, "source", "") == "scan":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nppr.assess(
            sources="nppr,uniform,scan", progress=stop, **grouped(out=tmp_path / "b", **settings)
        )
    again = nppr.assess(
        sources="nppr,uniform,scan", **grouped(out=tmp_path / "b", resume=True, **settings)
    )
    assert [row.value for row in again.numbers] == [row.value for row in whole.numbers]


def test_the_uniform_law_is_uniform_in_the_ranges() -> None:
    data = nppr.load_data("digits").limit(inputs=50)
    x, y = data.evaluate.batch(np.arange(50))
    from nppr.core.random_draws import DrawBlock

    draws = DrawBlock(0, "evaluate", tuple(range(50)), 0, 16, torch.device("cpu"))
    delta = Uniform(BUDGET).perturb(None, x, y, draws)  # type: ignore[arg-type]
    theta = BUDGET.parameters(delta).flatten(0, 1).double()
    for column, (low, high) in enumerate(((-30.0, 30.0), (-1.0, 0.0))):
        places = ((theta[:, column] - low) / (high - low)).sort().values
        assert float((places - torch.linspace(0, 1, len(places))).abs().max()) < 0.06
