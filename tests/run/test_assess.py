from __future__ import annotations

import inspect
import json
import shutil
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import nppr
from helpers import Broken, Stray, grouped, half_classifier, stated, two_class_data
from nppr.core.tally import Metric
from nppr.data import load_data
from nppr.errors import BudgetError, ClassifierError, DataError, RunFolderError, SpecError
from nppr.measuring.measurement import measure, probe
from nppr.models import load_classifier, prepare
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.report import Report
from nppr.run.assess import _search_settings, count_passes
from nppr.run.progress import Plan
from nppr.search.search_settings import default_settings
from nppr.settings import EFFORTS, NORMAL, Measure
from nppr.sources import ClassicPGD, Source, Uniform
from nppr.sources.base import PASSES_PER_CALL
from nppr.system.specs import EAGER

pytestmark = pytest.mark.slow

BUDGET = nppr.Budget.linf(0.1)
TWELVE = (torch.rand(24, 1, 8, 8), torch.arange(24) % 12)
SMALL = replace(
    default_settings(Family(components=2), calls=384, inputs=32).without_positions(),
    per_class=False, per_input_calls=6,
)  # fmt: skip
FEW: dict[str, Any] = {"inputs": 30, "draws": 20, "fit_inputs": 64, "select_inputs": 40}


def comparable(report: Report) -> dict[str, object]:
    return report.model_dump(exclude={"timing", "environment"})


def test_two_runs_are_equal_but_for_timing_and_environment(tmp_path: Path) -> None:
    reports = []
    for name, batch in (("a", None), ("b", 7)):
        nppr.assess(
            sources="nppr,gaussian,pgd:steps=2",
            search=SMALL,
            **grouped(batch_size=batch, out=tmp_path / name, **FEW),
        )
        content = json.loads((tmp_path / name / "report.json").read_text())
        del content["timing"], content["environment"]
        reports.append(content)
    assert reports[0] == reports[1]
    first, second = ((tmp_path / name / "per_input.csv").read_text() for name in "ab")
    assert first == second


def test_the_seed_matters() -> None:
    values = [
        nppr.assess(
            sources="gaussian:scale=3", measure=nppr.Measure(inputs=60, draws=20, seed=seed)
        )
        .numbers[1]
        .value
        for seed in (0, 1)
    ]
    assert values[0] != values[1]


def test_every_source_has_its_readings_and_ar_is_merged() -> None:
    report = nppr.assess(
        sources="gaussian,uniform,laplace,pgd", measure=nppr.Measure(inputs=60, draws=8)
    )
    rows = [(row.source, row.metric.value, stated(row).method) for row in report.numbers]
    assert rows[0] == ("clean", "accuracy", "clopper-pearson")
    for noise in ("gaussian", "uniform", "laplace"):
        methods = [
            each.method
            for row in report.numbers
            if (row.source, row.metric) == (noise, Metric.PR)
            for each in row.intervals
            if each.lowest_of is None
        ]
        assert methods == ["normal", "bootstrap", "empirical-bernstein", "betting", "hoeffding"]
        assert (noise, "normalised_accuracy", "paired-bootstrap") in rows
    assert ("pgd", "AR", "clopper-pearson") in rows
    assert rows[-1] == ("merged", "AR", "clopper-pearson")
    assert [each.lowest_of for row in report.numbers for each in row.intervals].count(3) == 1
    ar = report.headline("merged", Metric.AR)
    assert ar is not None
    assert ar.value is not None
    values = [row.value for row in report.numbers if row.metric in (Metric.AR, Metric.PR)]
    assert len(values) == 5
    assert all(value is not None and ar.value <= value for value in values)


def test_a_report_carries_its_date_and_the_kind_of_its_task() -> None:
    images, targets = torch.rand(40, 1, 4, 4), torch.rand(40)
    near = nppr.Task(score=lambda outputs, _: 1 + outputs[:, 0].abs(), kind="regression")
    before = datetime.now(UTC).date().isoformat()
    report = nppr.assess(
        half_classifier(),
        (images, targets),
        budget=BUDGET,
        sources="uniform",
        task=near,
        measure=nppr.Measure(draws=4),
    )
    assert before <= str(report.environment.date) <= datetime.now(UTC).date().isoformat()
    assert report.data.task_kind == "regression"


def test_explicit_sources_run_exactly_those() -> None:
    report = nppr.assess(sources="uniform", measure=nppr.Measure(inputs=20, draws=4))
    assert {row.source for row in report.numbers} == {"clean", "uniform"}


def test_modules_callables_and_tensors() -> None:
    data = two_class_data(60)
    module = half_classifier().train()

    def model(x: Tensor) -> Tensor:
        logits: Tensor = module(x)
        return logits

    reports = [
        nppr.assess(
            known, data, budget=BUDGET, sources="gaussian,pgd", measure=nppr.Measure(draws=8)
        )
        for known in (module, model)
    ]
    assert reports[0].numbers == reports[1].numbers
    assert reports[0].classifier.fingerprint != reports[1].classifier.fingerprint
    assert module.training
    images, labels = torch.rand(20, 1, 4, 4), torch.arange(20) % 2
    pair = nppr.assess(
        module, (images, labels), budget=BUDGET, sources="uniform", measure=nppr.Measure(draws=4)
    )
    assert pair.data.inputs.model_dump() == {"fit": 10, "select": 4, "evaluate": 6}


def test_a_source_that_fails_leaves_the_others_their_results(tmp_path: Path) -> None:
    sources: list[Source] = [
        nppr.Uniform(BUDGET),
        Broken(BUDGET, 0.0, name="broken"),
        Stray(BUDGET, 0.5, name="outside"),
        nppr.Gaussian(BUDGET),
    ]
    out = tmp_path / "run"
    report = nppr.assess(
        budget=BUDGET,
        sources=sources,
        measure=nppr.Measure(inputs=20, draws=4),
        run=nppr.Run(out=out),
    )
    errors = {row.source: row.error for row in report.numbers if row.error}
    assert set(errors) == {"broken", "outside"}
    assert errors["broken"] == "this source is broken"
    assert "must stay within linf 0.1" in str(errors["outside"])
    assert report.headline("gaussian", Metric.PR) is not None
    saved = nppr.read_report(out / "report.json")
    assert saved.numbers == report.numbers


def test_resume_after_an_interrupt_equals_an_uninterrupted_run(tmp_path: Path) -> None:
    made: dict[str, Any] = {**FEW, "search": SMALL, "sources": "nppr,gaussian,laplace"}
    whole = nppr.assess(**grouped(out=tmp_path / "whole", **made))

    def interrupt(state: object) -> None:
        if getattr(state, "source", "") == "laplace":
            raise KeyboardInterrupt

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        nppr.assess(progress=interrupt, **grouped(out=out, **made))
    assert not (out / "report.json").exists()
    measured: list[object] = []
    again = nppr.assess(
        progress=lambda state: measured.append(getattr(state, "source", None)),
        **grouped(out=out, resume=True, **made),
    )
    assert comparable(again) == comparable(whole)
    assert "gaussian" not in measured


def test_emptied_files_of_an_unfinished_run_are_made_again(tmp_path: Path) -> None:
    made: dict[str, Any] = {**FEW, "search": SMALL, "sources": "nppr,gaussian,laplace"}
    whole = nppr.assess(**grouped(out=tmp_path / "whole", **made))

    def interrupt(state: object) -> None:
        if getattr(state, "source", "").startswith("nppr:label"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nppr.assess(progress=interrupt, **grouped(out=tmp_path / "run", **made))
    out = tmp_path / "run"
    (_, block), fits = sorted((out / "blocks").iterdir())[:2], sorted((out / "fit").iterdir())
    assert fits
    for emptied in ([out / "run.json"], [out / "manifest.json", block, *fits]):
        copy = tmp_path / f"without-{emptied[0].stem}"
        shutil.copytree(out, copy)
        for path in emptied:
            (copy / path.relative_to(out)).write_bytes(b"")
        assert comparable(nppr.assess(**grouped(out=copy, resume=True, **made))) == comparable(
            whole
        )


def test_another_callable_does_not_resume_a_run(tmp_path: Path) -> None:
    data = two_class_data(40)

    def inverted(x: Tensor) -> Tensor:
        return -half_classifier().forward(x)

    nppr.assess(
        lambda x: half_classifier()(x),
        data,
        budget=BUDGET,
        sources="uniform",
        measure=nppr.Measure(draws=4),
        run=nppr.Run(out=tmp_path),
    )
    with pytest.raises(RunFolderError, match="fingerprint"):
        nppr.assess(
            inverted,
            data,
            budget=BUDGET,
            sources="uniform",
            measure=nppr.Measure(draws=4),
            run=nppr.Run(out=tmp_path, resume=True),
        )


def test_features_are_described() -> None:
    report = nppr.assess(sources="uniform", measure=nppr.Measure(inputs=20, draws=4))
    features = report.classifier.features
    assert features is not None
    assert (features.number, features.model) == (256, "digits-cnn")
    layer = nppr.load_classifier("digits-cnn", features="body.0")
    other = nppr.assess(
        sources="uniform", feature_model=layer, measure=nppr.Measure(inputs=20, draws=4)
    )
    features = other.classifier.features
    assert features is not None
    assert (features.layer, features.number) == ("body.0", 32 * 64)
    data = two_class_data(20)
    plain = nppr.assess(
        half_classifier(), data, budget=BUDGET, sources="uniform", measure=nppr.Measure(draws=4)
    )
    assert plain.classifier.features is None
    with pytest.raises(ClassifierError, match="--feature-model"):
        nppr.assess(half_classifier(), data, budget=BUDGET, feature_model=half_classifier())


def test_every_option_of_a_source_is_recorded() -> None:
    report = nppr.assess(sources="uniform:scale=0.5,pgd", measure=nppr.Measure(inputs=20, draws=4))
    assert {each.name: each.options for each in report.settings.sources} == {
        "uniform:scale=0.5": {"scale": 0.5},
        "pgd": {"steps": 10, "step": 1.0, "restarts": 1, "random_start": True},
    }


def test_the_plan_comes_before_anything_runs() -> None:
    seen: list[Any] = []
    nppr.assess(
        sources="uniform,pgd:steps=2",
        progress=seen.append,
        measure=nppr.Measure(inputs=20, draws=4),
    )
    plan, *others = seen
    assert isinstance(plan, Plan)
    assert not any(isinstance(each, Plan) for each in others)
    assert plan.inputs == 20
    assert plan.sources == ("uniform", "pgd:steps=2")
    assert plan.seconds > 0


def test_misclassified_inputs_are_set_aside_after_the_limit() -> None:
    report = nppr.assess(sources="uniform", measure=nppr.Measure(inputs=300, draws=4))
    clean = report.numbers[0]
    pr = report.headline("uniform", Metric.PR)
    assert pr is not None
    assert clean.inputs == 300
    assert clean.value is not None
    assert pr.inputs == round(clean.value * 300) < 300


def test_quantise_and_confidence_are_settings() -> None:
    report = nppr.assess(
        sources="uniform", measure=nppr.Measure(inputs=20, draws=4, quantise=True, confidence=0.8)
    )
    assert report.settings.measure.quantise is True
    assert {row.confidence for row in report.numbers} == {0.8}


ATTACKS = "pgd:steps=5,uniform:scale=3,cw:steps=3,pgd:steps=7,gaussian"


def test_only_merged_is_the_merged_ar_of_a_full_run_for_fewer_calls(tmp_path: Path) -> None:
    whole, quick = (
        nppr.assess(
            sources=ATTACKS,
            measure=nppr.Measure(inputs=60, draws=20, only_merged=only),
            run=nppr.Run(out=tmp_path / str(only)),
        )
        for only in (False, True)
    )
    full, merged = (each.headline("merged", Metric.AR) for each in (whole, quick))
    assert full is not None
    assert merged is not None
    assert full.value is not None
    assert 0 < full.value < 1
    assert (merged.value, merged.intervals) == (full.value, full.intervals)
    assert merged.inputs == full.inputs
    assert merged.calls < full.calls
    assert [row.source for row in quick.numbers if row.metric is Metric.AR] == ["merged"]
    # What is not an attack is measured in full.
    for noise in ("uniform:scale=3", "gaussian"):
        assert quick.headline(noise, Metric.PR) == whole.headline(noise, Metric.PR)
    assert quick.settings.measure.only_merged is True


def test_only_merged_of_one_attack_is_its_ar() -> None:
    attack = nppr.assess(sources="pgd", measure=nppr.Measure(inputs=60, draws=4)).headline(
        "pgd", Metric.AR
    )
    report = nppr.assess(sources="pgd", measure=nppr.Measure(inputs=60, draws=4, only_merged=True))
    assert [row.source for row in report.numbers] == ["clean", "merged"]
    assert attack is not None
    assert report.numbers[1].value == attack.value


def test_only_merged_resumes(tmp_path: Path) -> None:
    def run(out: str, resume: bool = False, stop: str = "") -> Report:
        def interrupt(state: object) -> None:
            if stop and getattr(state, "source", "") == stop:
                raise KeyboardInterrupt

        return nppr.assess(
            sources="pgd:steps=5,cw:steps=3,uniform",
            progress=interrupt,
            measure=nppr.Measure(inputs=60, draws=8, only_merged=True),
            run=nppr.Run(out=tmp_path / out, resume=resume),
        )

    whole = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("parts", stop="pgd:steps=5")
    assert comparable(run("parts", resume=True)) == comparable(whole)


def test_clean_correct_inputs_are_counted_even_if_every_source_fails() -> None:
    report = nppr.assess(
        budget=BUDGET,
        sources=[Broken(BUDGET, 0.0, name="broken")],
        measure=nppr.Measure(inputs=20, draws=4),
    )
    clean = next(row for row in report.numbers if row.metric is Metric.ACCURACY)
    assert clean.value
    assert f"{round(20 * clean.value)} of them" in report.table()


def test_a_source_alone_is_not_a_list() -> None:
    with pytest.raises(SpecError, match=r"`sources` must be a text or a list, got Uniform"):
        nppr.assess(budget=BUDGET, sources=nppr.Uniform(BUDGET))  # type: ignore[arg-type]


def test_sources_are_texts_and_objects_in_one_list() -> None:
    mixed = nppr.assess(
        budget=BUDGET,
        sources=["uniform, pgd-3", nppr.Gaussian(BUDGET), "brightness", nppr.CW(BUDGET, steps=2)],
        measure=nppr.Measure(inputs=20, draws=4),
    )
    text = nppr.assess(
        sources="uniform,pgd-classic:steps=3,brightness,gaussian,cw:steps=2",
        measure=nppr.Measure(inputs=20, draws=4),
    )
    named = {row.source for row in mixed.numbers}
    assert named == {
        "clean", "uniform", "pgd-classic:steps=3", "gaussian", "brightness", "cw:steps=2", "merged",
    }  # fmt: skip
    for row in mixed.numbers:
        assert row in text.numbers


def test_corruptions_are_not_merged() -> None:
    """They know no budget, so what they break is no adversarial example."""
    report = nppr.assess(
        sources="pgd:steps=1,salt-and-pepper:severity=5", measure=nppr.Measure(inputs=60, draws=4)
    )
    assert report.headline("merged", Metric.AR) is None
    share = report.headline("salt-and-pepper:severity=5", Metric.CORRUPTION)
    assert share is not None
    assert share.value is not None
    assert report.settings.sources[1].options == {"severity": 5, "constants": "cifar-c"}
    more = nppr.assess(
        sources="pgd:steps=1,uniform,salt-and-pepper:severity=5:constants=imagenet-c",
        measure=nppr.Measure(inputs=60, draws=4),
    )
    worse = more.headline("salt-and-pepper:severity=5:constants=imagenet-c", Metric.CORRUPTION)
    merged, pgd = more.headline("merged", Metric.AR), more.headline("pgd:steps=1", Metric.AR)
    assert worse is not None
    assert merged is not None
    assert pgd is not None
    assert worse.value is not None
    assert merged.value is not None
    assert worse.value < merged.value <= (pgd.value or 0)


def test_stress_is_reported_with_its_ratio() -> None:
    report = nppr.assess(
        sources="stress:q=1+100,uniform", measure=nppr.Measure(inputs=60, draws=20)
    )
    values = {(row.name, row.metric): row.value for row in report.numbers if "stress" in row.source}
    assert list(values) == [
        ("stress:q=1", Metric.STRESS),
        ("stress:q=1", Metric.NORMALISED_STRESS),
        ("stress:q=100", Metric.STRESS),
        ("stress:q=100", Metric.NORMALISED_STRESS),
    ]
    raw, ratio, raw_100, ratio_100 = (value or 0.0 for value in values.values())
    assert 0 < raw < raw_100
    assert raw / ratio == pytest.approx(raw_100 / ratio_100)  # the loss without noise
    assert report.table()


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"draws": 0}, SpecError, "`draws`"),
        ({"draws": 2.5}, SpecError, "`draws`"),
        ({"inputs": 2.5}, SpecError, "`inputs`"),
        ({"seed": -1}, SpecError, "`seed`"),
        ({"budget": "0.1"}, BudgetError, "must be a Budget"),
        ({"budget": nppr.Budget.linf(8)}, BudgetError, "at most 1"),
        ({"inputs": 0}, SpecError, "`inputs`"),
        ({"confidence": 1.0}, SpecError, "`confidence`"),
        ({"sources": []}, SpecError, "`sources`"),
        ({"sources": ["uniform", "uniform"]}, SpecError, "'uniform' twice"),
        ({"sources": ["nppr", "nppr"]}, SpecError, "'nppr' twice"),
        ({"sources": ["unifrom", nppr.PGD(BUDGET)]}, SpecError, "Did you mean 'uniform'"),
        ({"sources": [nppr.Uniform(nppr.Budget.linf(0.2))]}, BudgetError, "linf 0.2"),
        ({"data": two_class_data()}, BudgetError, "must be stated"),
        ({"data": TWELVE, "budget": BUDGET}, DataError, r"outputs .* 0\.\.9, got 0\.\.11"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        nppr.assess(**grouped(**arguments))


@pytest.mark.slow
@pytest.mark.parametrize("precision", [None, 0.05])
def test_a_classifier_that_guesses_stops_after_its_clean_answers(precision: float | None) -> None:
    seen: list[Any] = []
    with pytest.raises(ClassifierError, match=r"better than guessing.*--weights.*--anyway"):
        nppr.assess(
            nppr.load_classifier("digits-cnn", weights="random", data=nppr.load_data("digits")),
            sources="nppr,uniform",
            progress=seen.append,
            measure=nppr.Measure(precision=precision),
        )
    assert isinstance(seen[0], Plan)
    assert {each.source for each in seen[1:]} <= {"clean"}
    report = nppr.assess(
        nppr.load_classifier("digits-cnn", weights="random", data=nppr.load_data("digits")),
        sources="uniform",
        measure=nppr.Measure(inputs=40, draws=2),
        run=nppr.Run(anyway=True),
    )
    assert report.headline("uniform", Metric.PR) is not None
    assert "near-chance" in [flag.id for flag in report.flags]


def test_without_a_clean_correct_input_a_source_has_no_number() -> None:
    data = two_class_data(20)
    inverted = half_classifier()
    with torch.no_grad():
        inverted.w.neg_()
    report = nppr.assess(
        inverted,
        data,
        budget=BUDGET,
        sources="uniform",
        measure=nppr.Measure(draws=4),
        run=nppr.Run(anyway=True),
    )
    assert report.numbers[0].value == 0.0
    assert "at least one clean-correct input" in str(report.numbers[1].error)


@pytest.mark.slow
def test_the_search_can_be_set_plainly() -> None:
    report = nppr.assess(
        sources="nppr",
        search=nppr.Search(dependency="label", floor=(0.5,), calls=4096),
        measure=nppr.Measure(inputs=30, draws=8),
    )
    assert [rung.name for rung in report.ladder] == [
        f"nppr:{rung}{structure}:floor=0.5"
        for structure in (":white", ":stationary", "")
        for rung in ("independent", "label")
    ]
    assert report.settings.search is not None
    assert report.settings.search.calls == 4096
    with pytest.raises(SpecError, match="`dependency` must be one of"):
        nppr.assess(
            sources="nppr", search=nppr.Search(dependency="lable"), measure=nppr.Measure(inputs=10)
        )


@pytest.mark.parametrize("effort", EFFORTS)
def test_a_report_says_that_its_run_was_quick(effort: str) -> None:
    report = nppr.assess(sources="uniform", effort=effort, measure=nppr.Measure(inputs=40))
    draws = next(row.draws for row in report.numbers if row.metric is Metric.PR)
    assert draws == {"quick": 16, "normal": 100, "thorough": 400}[effort]
    assert report.settings.measure.effort == effort
    assert ("quick-run" in [flag.id for flag in report.flags]) == (effort == "quick")
    assert report.environment.engine == EAGER  # every effort is exact unless an engine is asked for


def test_the_arguments_are_few() -> None:
    assert len(inspect.signature(nppr.assess).parameters) <= 14


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"components": 3, "covariance": "lowrank:2"},
            {"components": 3, "covariance": "lowrank:2"},
        ),
        ({"upsampler": "bicubic", "grid": 2}, {"upsampler": "bicubic", "grid": 2}),
        ({"upsampler": "trainable", "latent_dim": 5}, {"latent_dim": 5}),
        ({"hidden_dim": 9, "label_dim": 3, "min_std": 0.2}, {"hidden_dim": 9, "min_std": 0.2}),
        ({"loss": "cross-entropy"}, {"loss": "cross-entropy"}),
        ({"kappa": 0.5, "draws": 2}, {"kappa": 0.5, "draws": 2}),
        ({"seeds": 2, "method": "gradients"}, {"seeds": 2, "method": "gradients"}),
        ({"preset": "paper"}, {"preset": "paper"}),
        ({"per_input_calls": 6}, {"per_input_calls": 6}),
    ],
)
def test_a_group_becomes_all_settings_of_a_search(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    made = nppr.Search(**given).resolve(900)
    found = {**asdict(made.family), **asdict(made.recipe), **vars(made)}
    assert {name: found[name] for name in expected} == expected


def test_without_arguments_the_search_is_that_of_the_command_line() -> None:
    assert _search_settings(None, 900, NORMAL) == nppr.Search().resolve(900)


def test_a_wrong_setting_of_the_search_is_named() -> None:
    with pytest.raises(SpecError, match="`calls` must be a whole number, got 'many'"):
        nppr.Search(calls="many")  # type: ignore[arg-type]


def test_all_of_a_pair_of_tensors_can_be_evaluated() -> None:
    images, labels = torch.rand(20, 1, 4, 4), torch.arange(20) % 2
    settings: dict[str, Any] = {"budget": BUDGET, "draws": 2, "sources": "uniform"}
    divided = nppr.assess(half_classifier(), (images, labels), **grouped(**settings))
    whole = nppr.assess(
        half_classifier(), (images, labels), **grouped(evaluate_all=True, **settings)
    )
    assert dict(divided.data.inputs) == {"fit": 10, "select": 4, "evaluate": 6}
    assert dict(whole.data.inputs) == {"fit": 0, "select": 0, "evaluate": 20}
    assert whole.per_input["index"].tolist() == list(range(20))
    with pytest.raises(
        SpecError, match="`evaluate-all` must be given with sources that need no fit"
    ):
        nppr.assess(
            half_classifier(),
            (images, labels),
            budget=BUDGET,
            measure=nppr.Measure(evaluate_all=True),
        )


def test_the_passes_of_sources_are_those_they_take() -> None:
    data = load_data("digits").limit(inputs=50)
    ready = prepare(load_classifier("digits-cnn"), probe(data.evaluate), classes=10)
    settings = Measure(draws=20)
    alone = count_passes(data, settings, [], None)
    for source in (Uniform(BUDGET), ClassicPGD(BUDGET, steps=5)):
        work = count_passes(data, settings, [source], None)
        counted = work.plain + work.guided - alone.plain - alone.guided
        calls = measure(source, ready, data.evaluate, draws=20).calls
        least = calls if source.cost == 1 else PASSES_PER_CALL * 0.5 * calls
        assert least <= counted <= 3.5 * calls
        assert (work.guided > alone.guided) == (source.cost > 1)


@pytest.mark.slow
@pytest.mark.parametrize("rung", [Dependency.INDEPENDENT, Dependency.JOINT])
def test_the_passes_of_a_search_are_those_it_takes(rung: Dependency) -> None:
    data = load_data("digits").limit(inputs=20, fit_inputs=200, select_inputs=60)
    search = default_settings(Family(rung), floors=(0.0, 0.5), calls=3072, inputs=64)
    search = replace(search, per_input_calls=0)
    found = nppr.learn("digits-cnn", data, budget=BUDGET, search=search)
    stages = {stage.stage: stage for each in found for stage in each.record.search.stages}
    taken = sum(
        PASSES_PER_CALL * stage.fit_calls + stage.forward_calls for stage in stages.values()
    )
    work = count_passes(data, Measure(draws=4), [], search)
    counted = work.fits + work.judged
    assert 0.6 * taken <= counted <= 1.6 * taken


def test_every_rung_and_radius_is_counted() -> None:
    data = load_data("digits").limit(inputs=50)
    search = default_settings(Family(Dependency.LABEL), floors=(0.0, 0.5), calls=3072)
    own = replace(search, per_input_calls=20)
    none = replace(search, per_input_calls=0)
    settings = Measure(draws=20)
    alone, with_own = (count_passes(data, settings, [], each) for each in (none, own))
    assert with_own.plain - alone.plain == 2 * 50 * 20
    assert with_own.guided > alone.guided
    further = count_passes(data, settings.with_(radii=("0.2",)), [Uniform(BUDGET)], None)
    assert further.plain - count_passes(data, settings, [Uniform(BUDGET)], None).plain == 50 * 20
