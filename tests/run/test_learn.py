from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import nppr
from helpers import half_classifier, stated
from nppr.core.budget import Budget
from nppr.core.tally import Claim, Evaluate, Metric
from nppr.data import Data, Split, from_arrays, load_data
from nppr.doctor.flags import FITTED_ON
from nppr.errors import BudgetError, DistributionError, NoFitDataError, RunFolderError
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.run.progress import Plan
from nppr.search.fitting import FitProgress
from nppr.search.search_settings import default_settings

pytestmark = pytest.mark.slow

SMALL = replace(
    default_settings(Family(), calls=512, inputs=32).without_positions(),
    per_input_calls=0,
)
BUDGET = Budget.linf(0.1)


def halves(shares: tuple[float, float] = (0.4, 0.3)) -> Data:
    images = torch.rand(120, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    labels = (images[..., :2].sum((1, 2, 3)) <= images[..., 2:].sum((1, 2, 3))).long()
    return from_arrays(images, labels, shares=shares)


def test_without_features_the_noise_may_see_the_label_only() -> None:
    seen: list[FitProgress] = []
    found = nppr.learn(
        half_classifier(), halves(), budget=BUDGET, progress=seen.append, search=SMALL
    )
    assert {each.stage for each in seen} == {"independent", "label"}
    assert [each.source.name for each in found] == ["nppr:independent", "nppr:label"]
    assert not any(each.source.distribution.family.dependency.sees_input for each in found)
    report = nppr.assess(
        half_classifier(),
        halves(),
        budget=BUDGET,
        sources="nppr",
        search=SMALL,
        measure=nppr.Measure(draws=4),
    )
    assert "no-features" in {flag.id for flag in report.flags}
    text = report.table(200)
    assert "the class (label)" in text
    assert [rung.dependency for rung in report.ladder] == ["independent", "label"]
    page = report.to_html().split('id="admissible"')[1].split("</section>")[0]
    assert "<strong>label</strong>: the noise may depend on the true label." in page
    assert "<strong>joint</strong> was asked for; the smaller set was searched" in page
    assert "may depend on the input" not in text + page


def test_a_model_with_features_has_no_such_flag() -> None:
    report = nppr.assess(
        sources="nppr", search=SMALL, measure=nppr.Measure(fit_inputs=100, inputs=20, draws=4)
    )
    assert "no-features" not in {flag.id for flag in report.flags}


def test_the_batch_size_does_not_change_what_is_learned() -> None:
    first, second = (
        nppr.learn(
            search=SMALL,
            measure=nppr.Measure(fit_inputs=100, select_inputs=40),
            run=nppr.Run(batch_size=size),
        )[0]
        for size in (None, 5)
    )
    assert first.record == second.record
    other = second.source.distribution.state_dict()
    for name, value in first.source.distribution.state_dict().items():
        assert torch.equal(value, other[name])


def test_learned_noise_gives_the_same_numbers_later(tmp_path: Path) -> None:
    learned = nppr.learn(
        search=SMALL,
        measure=nppr.Measure(fit_inputs=100, select_inputs=40),
        run=nppr.Run(out=tmp_path / "fit"),
    )
    together = nppr.assess(
        sources="nppr",
        search=SMALL,
        measure=nppr.Measure(fit_inputs=100, select_inputs=40, inputs=25, draws=4),
    )
    for known in (learned, nppr.load_learned(tmp_path / "fit")):
        later = nppr.assess(
            sources="", distributions=known, measure=nppr.Measure(inputs=25, draws=4)
        )
        rows = [
            [(row.value, row.intervals) for row in report.numbers if row.source == "nppr"]
            for report in (together, later)
        ]
        assert rows[0] == rows[1] != []


def test_inputs_that_noise_was_fitted_on_are_no_sample_of_the_population() -> None:
    data = load_data("digits")
    some = data.limit(inputs=25, fit_inputs=60, select_inputs=40)
    noise = nppr.learn(search=SMALL, data=some)
    again = Split(Evaluate, some.fit.images, some.fit.indices, some.fit.labels)
    mixed = replace(some, evaluate=again)
    flagged = {}
    for known in (some, mixed):
        report = nppr.assess(
            data=known, sources="uniform", distributions=noise, measure=nppr.Measure(draws=4)
        )
        flagged[known.evaluate is again] = {
            flag.source: flag.message for flag in report.flags if flag.id == FITTED_ON
        }
        claims = {
            each.claim
            for row in report.numbers
            if row.metric is Metric.NPPR
            for each in row.intervals
        }
        assert (Claim.POPULATION in claims) == (known.evaluate is not again)
        uniform = report.headline("uniform", Metric.PR)
        assert uniform is not None
        assert stated(uniform).claim is Claim.POPULATION
    assert flagged[False] == {}
    assert flagged[True].keys() == {each.source.name for each in noise}
    assert all("60 of the evaluated inputs" in message for message in flagged[True].values())


def test_noise_for_images_of_another_shape_is_one_clear_line_and_costs_no_other_row() -> None:
    label = replace(SMALL, family=Family(Dependency.LABEL))
    noise = nppr.learn(half_classifier(), halves(), budget=BUDGET, search=label)
    report = nppr.assess(
        sources="uniform", distributions=noise, measure=nppr.Measure(inputs=20, draws=4)
    )
    for each in noise:
        (row,) = [row for row in report.numbers if row.name == each.source.name]
        assert row.value is None
        assert row.error is not None
        assert "perturbs images of shape (1, 4, 4), got (1, 8, 8)" in row.error
        assert "\n" not in row.error
    uniform = report.headline("uniform", Metric.PR)
    assert uniform is not None
    assert uniform.value is not None


@pytest.mark.parametrize("wrong", ["select", "fit"])
def test_a_split_without_a_clean_correct_input_costs_the_search_only(wrong: str) -> None:
    data = halves()
    split = getattr(data, wrong)
    label = replace(SMALL, family=Family(Dependency.LABEL))
    report = nppr.assess(
        half_classifier(),
        replace(data, **{wrong: replace(split, labels=1 - split.labels)}),
        budget=BUDGET,
        sources="nppr,uniform",
        search=label,
        measure=nppr.Measure(draws=4),
    )
    (row,) = [row for row in report.numbers if row.metric is Metric.NPPR]
    assert row.error is not None
    assert f"the {wrong} split must hold at least one clean-correct input" in row.error
    uniform = report.headline("uniform", Metric.PR)
    assert uniform is not None
    assert uniform.value is not None


def test_a_short_search_is_announced_before_it_starts() -> None:
    events: list[object] = []
    for calls in (128, 3 * 40 * 4):
        small = replace(
            default_settings(Family(), calls=calls, inputs=4).without_positions(),
            per_input_calls=0,
        )
        nppr.assess(
            sources="nppr",
            progress=events.append,
            search=small,
            measure=nppr.Measure(inputs=10, draws=2, fit_inputs=20, select_inputs=20),
        )
    plans = [each for each in events if isinstance(each, Plan)]
    assert plans[0].warning is not None
    assert "--fit-calls 128 is too few for this search, which needs 480" in plans[0].warning
    assert plans[1].warning is None


def test_another_runs_folder_is_safe(tmp_path: Path) -> None:
    nppr.learn(
        search=SMALL, measure=nppr.Measure(fit_inputs=100), run=nppr.Run(out=tmp_path / "fit")
    )
    with pytest.raises(RunFolderError, match="seed"):
        nppr.learn(
            search=SMALL,
            measure=nppr.Measure(fit_inputs=100, seed=1),
            run=nppr.Run(out=tmp_path / "fit", resume=True),
        )


def test_data_that_cannot_be_split_are_refused() -> None:
    label = default_settings(Family(Dependency.LABEL, components=2), calls=1024, inputs=64)
    with pytest.raises(NoFitDataError, match="fit split"):
        nppr.learn(half_classifier(), halves((0.0, 0.0)), budget=BUDGET, search=label)


def test_the_budget_is_stated() -> None:
    with pytest.raises(BudgetError, match="must be stated"):
        nppr.learn(half_classifier(), halves(), search=SMALL)


@pytest.mark.parametrize(
    ("sources", "letter", "reason"),
    [
        ("uniform,pgd", "C", "headline-missing"),
        ("uniform,nppr", "C", "headline-missing"),
        ("pgd,nppr", "D", "nothing-measured"),
        ("uniform", "B", "few-draws"),
    ],
)
def test_a_run_without_its_headline_is_not_graded_well(
    sources: str, letter: str, reason: str
) -> None:
    """A model that gives no gradients, as an ONNX file does."""
    model = half_classifier()

    def answers(images: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = model(images)
        return found

    search = replace(SMALL, method="gradients")  # by itself it would be searched by scores
    report = nppr.assess(
        answers,
        halves(),
        budget=BUDGET,
        sources=sources,
        search=search,
        measure=nppr.Measure(draws=4),
    )
    assert report.grade.letter == letter
    assert reason in report.grade.reason
    assert f"{reason}: " in report.table(200)


def test_noise_that_was_compared_with_an_unknown_one_is_refused() -> None:
    search = default_settings(Family(Dependency.INDEPENDENT), calls=512).without_positions()
    (found,) = nppr.learn(
        search=replace(search, per_input_calls=0),
        measure=nppr.Measure(fit_inputs=64, select_inputs=20),
    )
    compared = found.record.search.references
    assert compared is not None
    made = found.record.search.model_copy(
        update={"references": compared.model_copy(update={"winner": "mine"})}
    )
    crafted = replace(found, record=found.record.model_copy(update={"search": made}))
    with pytest.raises(DistributionError, match="'nppr:independent' names 'mine'"):
        nppr.assess(
            distributions=[crafted], sources="uniform", measure=nppr.Measure(inputs=10, draws=2)
        )
