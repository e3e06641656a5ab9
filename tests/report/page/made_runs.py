"""Runs made by hand, without a classifier: every kind of number, any number of classes, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nppr.core.tally import Estimate, Evaluate, Metric, Tally
from nppr.noise import Dependency, Family, Rule
from nppr.noise.structures import STATIONARY, WHITE
from nppr.report import Report
from nppr.report.evidence import Evidence, NoiseLook, Worst, write_evidence
from nppr.report.model import (
    SCHEMA_VERSION,
    DataRecord,
    Environment,
    Flag,
    Grade,
    RareRecord,
    Rung,
    SettingsRecord,
    SourceRecord,
    SplitSizes,
    Timing,
)
from nppr.report.number import (
    AttackSubject,
    BoundSubject,
    CleanSubject,
    LearnedSubject,
    MergedSubject,
    NoiseSubject,
    Number,
    Subject,
    join_intervals,
)
from nppr.report.per_input import PerInput, per_input_of
from nppr.run.make_numbers import make_number
from nppr.search import SearchSettings
from nppr.search.search_record import (
    BudgetRecord,
    ClassifierRecord,
    Diagnostics,
    DistributionRecord,
    ReferenceChoice,
    SearchConditions,
    SearchCurve,
    SearchRecord,
    StageRecord,
)
from nppr.settings import Measure
from nppr.statistics.estimates import (
    estimate_accuracy,
    estimate_adversarial,
    estimate_normalised,
    estimate_prob_acc,
    estimate_probabilistic,
)
from nppr.statistics.lower_bounds import PerInputDraws, estimate_bounds_jointly
from nppr.statistics.noise_sets import parse_sets

MARKUP = "<script>alert(1)</script>"
RADIUS = 8 / 255
BUDGET = BudgetRecord(norm="linf", radius=RADIUS, text="8/255")
BOUND = "bound:ratio=1+10"
SEARCH = SearchSettings()
CONDITIONS = SearchConditions(
    fit_inputs=900, select_inputs=300, seed=0, quantise=False, fingerprint="ab12"
)
NOISE = {"gaussian": 0.85, "uniform": 0.9}
LEARNED = {0.0: 0.15, 0.5: 0.6}
RARE = RareRecord(
    source="nppr:joint", unbroken=9, followed=1, found=0, below=1, out_of_calls=0, particles=100,
    replicates=4, calls=4000, largest=4.4e-7, median=1e-7, added=1e-8,
    independent_draws=400, limit=0.00746,
)  # fmt: skip


def name_of(floor: float, rung: Dependency = Dependency.JOINT) -> str:
    """The name of learned noise."""
    return f"nppr:{rung.value}" + (f":floor={floor:g}" if floor else "")


def tally_of(mean: float, inputs: int, classes: int, draws: int, seed: int) -> Tally[Evaluate]:
    """A tally with about this fraction of correct draws; every seventh input is wrong when clean."""
    generator = np.random.default_rng(seed)
    rates = generator.beta(2 * mean + 0.05, 2 * (1 - mean) + 0.05, inputs)
    return Tally(
        kind=Evaluate,
        indices=np.arange(inputs) * 3,
        labels=np.arange(inputs) % classes,
        clean_correct=np.arange(inputs) % 7 != 6,
        correct=generator.binomial(draws, rates),
        draws=draws,
        calls=inputs * draws,
        micro_batch=64,
    )


def make_numbers(
    estimates: Sequence[Estimate], source: str, *, tally: str | None = "", **facts: Any
) -> list[Number]:
    """Estimates as numbers of one source; `facts` are further fields of their subject."""
    tally = source if tally == "" else tally
    made = [make_number(made_subject(source, each, **facts), each, tally) for each in estimates]
    return join_intervals(made)


def made_subject(source: str, estimate: Estimate | None = None, **facts: Any) -> Subject:
    """The subject of this source, by its name."""
    facts = {"radius": RADIUS, **facts}
    if estimate is not None and estimate.noise_set is not None:
        names = ("noise_set", "density_ratio", "size", "sees_input")
        own = {name: getattr(estimate, name) for name in names}
        return BoundSubject(source=source, **own, **facts)
    if source == "nppr":
        return LearnedSubject(**facts)
    if source == "clean":
        return CleanSubject()
    if source == "merged":
        return MergedSubject(**facts)
    if source.startswith("pgd"):
        return AttackSubject(source=source, **facts)
    return NoiseSubject(source=source, fixed=source in NOISE, **facts)


def failed(
    source: str, metric: Metric, error: str, flags: tuple[str, ...] = (), **facts: Any
) -> Number:
    """The number of a source that could not be measured."""
    subject = made_subject(source, radius=None, **facts)
    return Number(subject=subject, metric=metric, confidence=0.95, error=error, flags=flags)


def made_report(
    inputs: int = 120,
    classes: int = 10,
    *,
    only: str = "all",
    names: Sequence[str] = (),
    radii: bool = False,
) -> tuple[Report, PerInput]:
    """A report and its inputs; `only` is all, noise, attack, bound, clean or failed."""
    clean = tally_of(1.0, inputs, classes, 1, seed=0)
    clean = replace(clean, correct=clean.clean_correct.astype(np.int64))
    rows = make_numbers([estimate_accuracy(clean, 0.95)], "clean", radius=None)
    tallies: dict[str, Tally[Evaluate]] = {}
    if only in ("all", "noise", "failed"):
        for seed, (name, mean) in enumerate(NOISE.items(), start=1):
            tallies[name] = tally_of(mean, inputs, classes, 20, seed)
            rows += make_numbers(_read(tallies[name], Metric.PR), name)
    if only in ("all", "attack"):
        tallies["pgd"] = tally_of(0.05, inputs, classes, 1, seed=3)
        ar = estimate_adversarial(tallies["pgd"], 0.95)
        rows += make_numbers([ar, estimate_normalised(tallies["pgd"], 0.95, Metric.AR)], "pgd")
        rows += make_numbers([ar], "merged", tally=None)
    if only in ("all", "bound"):
        tallies[BOUND] = tally_of(0.97, inputs, classes, 20, seed=4)
        bounds = estimate_bounds_jointly(
            PerInputDraws(tallies[BOUND]), parse_sets("ratio", ratios="1+10"), 0.95
        )
        rows += make_numbers(bounds, BOUND, reference="laplace")
    if only == "all":
        rows += _learned_rows(tallies, inputs, classes)
    if only == "failed":
        rows.append(failed("nppr", Metric.NPPR, "the fit got <b>nothing</b> to fit."))
    report = _report(rows, inputs, classes, tuple(names), radii=radii, learned=only == "all")
    return report, per_input_of(tallies, 0.95)


def _read(tally: Tally[Evaluate], metric: Metric) -> list[Estimate]:
    return [
        *estimate_probabilistic(tally, 0.95, metric),
        estimate_normalised(tally, 0.95, metric),
        *estimate_prob_acc(tally, 0.95, metric),
    ]


def _learned_rows(tallies: dict[str, Tally[Evaluate]], inputs: int, classes: int) -> list[Number]:
    rows = []
    for seed, (floor, mean) in enumerate(LEARNED.items(), start=5):
        name = name_of(floor)
        tallies[name] = tally_of(mean, inputs, classes, 20, seed)
        facts: dict[str, Any] = {"floor": floor, "rung": Dependency.JOINT, "tally": name}
        rows += make_numbers(_read(tallies[name], Metric.NPPR), "nppr", **facts)
        union = estimate_probabilistic(tallies[name], 0.95, Metric.NPPR)
        rows += make_numbers(union, "nppr", with_references=True, **facts)
    return rows


RUNGS = {
    Dependency.INDEPENDENT: 0.2,
    Dependency.LABEL: 0.1,
    Dependency.JOINT: 0.0,
    Dependency.PER_INPUT: -0.1,
}
"""The rungs of a whole ladder, and how far they are above `joint`."""


def moved_by(row: Number, above: float) -> Number:
    """The number and its intervals moved up, within 0 and 1."""

    def moved(x: float | None) -> float:
        return min(1.0, max(0.0, (x or 0.0) + above))

    intervals = [
        each.model_copy(update={"low": moved(each.low), "high": moved(each.high)})
        for each in row.intervals
    ]
    return row.with_intervals(*intervals).model_copy(update={"value": moved(row.value)})


CELLS = {
    (Dependency.INDEPENDENT, WHITE): 0.6,
    (Dependency.LABEL, WHITE): 0.55,
    (Dependency.INDEPENDENT, STATIONARY): 0.4,
    (Dependency.LABEL, STATIONARY): 0.35,
}
"""Cells of restricted structures, and how far they are above `joint`."""


def with_structures(report: Report) -> Report:
    """The report of a whole ladder at floor 0 with cells of white and stationary noise."""
    whole = with_ladder(report)
    kept = [row for row in whole.numbers if not (row.learned and row.learned.floor)]
    joint = report.headline("nppr:joint", Metric.NPPR)
    assert joint is not None
    rungs = [rung for rung in whole.ladder if not rung.floor]
    for (rung, structure), above in CELLS.items():
        name = f"nppr:{rung}:{structure}"
        moved = moved_by(joint, above).with_subject(rung=rung, structure=structure)
        kept.append(moved.model_copy(update={"tally": name}))
        update = {"name": name, "dependency": rung, "structure": structure, "value": moved.value}
        rungs.append(rungs[0].model_copy(update=update))
    return whole.model_copy(update={"numbers": tuple(kept), "ladder": tuple(rungs)})


def with_ladder(report: Report) -> Report:
    """The report with every rung at both floors, and what is known of their searches."""
    learned = [row for row in report.numbers if row.learned]
    rows = [row for row in report.numbers if row not in learned]
    rungs = []
    for rung, above in RUNGS.items():
        for floor in LEARNED:
            name = name_of(floor, rung)
            own = [row for row in learned if row.learned and row.learned.floor == floor]
            moved = [
                moved_by(row, above).with_subject(rung=rung).model_copy(update={"tally": name})
                for row in own
            ]
            rows += moved
            own_input = rung is Dependency.PER_INPUT
            rungs.append(
                Rung(
                    name=name, dependency=rung, floor=floor, value=moved[0].value or 0.0,
                    calls=20 if own_input else 2560,
                    curve=SearchCurve(
                        restarts=(0.5, 0.6) if rung is Dependency.INDEPENDENT else (0.5,),
                        rounds=(0.5, 0.4), calls=20 if own_input else 2560, flat=False,
                    ),
                    fit=None if own_input else 0.3, select_inputs=100,
                    strongest=None if floor else "gaussian",
                    strongest_value=None if floor else 0.85,
                    smaller_radius=0.55 if floor and not own_input else None,
                )
            )  # fmt: skip
    return report.model_copy(update={"numbers": tuple(rows), "ladder": tuple(rungs)})


def won_by(noise: str, report: Report) -> Report:
    """The report with a reference noise that was worse than the learned noise of the smallest floor."""
    own = report.headline(noise, Metric.PR)
    rows = tuple(
        row.model_copy(
            update={
                "tally": noise,
                **({"value": own.value, "intervals": own.intervals} if own else {}),
            }
        )
        if row.with_references and row.learned and not row.learned.floor
        else row
        for row in report.numbers
    )
    first, *others = report.distributions
    choice = ReferenceChoice(winner=noise, select_values={"family": 0.2, noise: 0.1})
    search = first.search.model_copy(update={"references": choice})
    made = (first.model_copy(update={"search": search}), *others)
    return report.model_copy(update={"numbers": rows, "distributions": made})


def _report(
    rows: list[Number],
    inputs: int,
    classes: int,
    names: tuple[str, ...],
    *,
    radii: bool,
    learned: bool,
) -> Report:
    others = [row for row in rows if row.metric in (Metric.PR, Metric.AR, Metric.NPPR)]
    smaller = tuple(row.with_subject(radius=2 / 255) for row in others)
    sources = [
        SourceRecord(
            name=name,
            kind=name,
            metric=Metric.PR,
            options={"scale": 1.0},
            fixed=True,
            reference=True,
        )
        for name in NOISE
    ]
    options: dict[str, bool | int | float | str] = {"ratio": "1+10", "reference": "laplace"}
    sources.append(SourceRecord(name=BOUND, kind="bound", metric=Metric.BOUND, options=options))
    return Report(
        schema_version=SCHEMA_VERSION,
        nppr_version="0.1.0",
        classifier=ClassifierRecord(
            name="resnet20", weights=None, mean=None, std=None, fingerprint="ab12", features=None
        ),
        data=DataRecord(
            name="pictures", classes=classes, class_names=names, shape=(3, 8, 8), split=None,
            resize=None, inputs=SplitSizes(fit=900, select=300, evaluate=inputs),
            fingerprint="cd34",
        ),
        budget=BUDGET,
        seed=0,
        settings=SettingsRecord(
            sources=tuple(sources), search=SEARCH if learned else None,
            measure=Measure(draws=20, radii=("2/255",) if radii else ()),
        ),
        numbers=tuple(rows),
        other_radii=smaller if radii else (),
        distributions=tuple(_made(floor) for floor in LEARNED) if learned else (),
        flags=(Flag(id="approximate-interval", source="nppr:joint", message="fewer than 400 inputs"),),
        grade=Grade(letter="B", reason="the numbers hold, with notes (approximate-interval)"),
        timing=Timing(
            seconds={"clean": 0.014, "a/b~c": 1.25}, total_seconds=1234.567, images_per_second=880.25
        ),
        environment=Environment(
            date="2026-01-31", python="3.11",
            torch="2.7", numpy="2.1", platform="linux", device="cpu", threads=1,
            micro_batch=64, form=("folded", "channels_last"),
        ),
    )  # fmt: skip


def _made(floor: float) -> DistributionRecord:
    stage = StageRecord(
        stage="joint", rung=Dependency.JOINT, selected="joint", dependency=Dependency.JOINT,
        components=7, floor=floor,
        select_values={"joint": 0.2}, fit_calls=2560, forward_calls=128, loss=(3.0, 2.0, 1.0),
        running_pr=(0.9, 0.5, 0.3),
    )  # fmt: skip
    search = SearchRecord(
        selected="joint, largest weight", select_value=0.1625, stages=(stage,), fit_calls=7936,
        references=ReferenceChoice(winner=None, select_values={"family": 0.1625}),
        forward_calls=1824, settings=SEARCH, conditions=CONDITIONS,
    )  # fmt: skip
    return DistributionRecord(
        name=name_of(floor),
        fit_seed=None,
        budget=BUDGET,
        family=Family(floor=floor),
        rule=Rule.WEIGHTS,
        features=64,
        search=search,
        diagnostics=Diagnostics(
            entropy_ratio=0.0871, max_weight=0.9439, min_weight=0.001, std_weight=0.3,
            effective_components=1.3851, realised_std=0.1841, share_at_edge=0.4541, scale=0.9997,
            floor=floor,
        ),
    )  # fmt: skip


def made_evidence(number: int = 8, classes: int = 10, side: int = 8, channels: int = 3) -> Evidence:
    """Pictures of the worst inputs under `nppr:joint` and `pgd`."""
    generator = torch.Generator().manual_seed(0)
    clean = torch.rand(number, channels, side, side, generator=generator)
    delta = torch.randn(number, channels, side, side, generator=generator).tanh()
    perturbed = (clean + RADIUS * delta).clamp(0, 1)
    labels = torch.arange(number) % classes
    return Evidence(
        tuple(
            Worst(
                source=source,
                indices=torch.arange(number) * 3,
                labels=labels,
                taken_for=(labels + 1) % classes,
                rates=torch.linspace(0, 0.3, number),
                clean=(255 * clean).byte(),
                delta=delta.half(),
                perturbed=(255 * perturbed).byte(),
            )
            for source in ("pgd", "nppr:joint")
        ),
        looks=tuple(
            NoiseLook(
                source=source,
                index=torch.tensor(3),
                label=torch.tensor(0),
                taken_for=torch.tensor(1 % classes),
                clean=(255 * clean[0]).byte(),
                perturbed=(255 * perturbed[0]).byte(),
                sample=delta[0].half(),
                spectrum=torch.zeros(side, side),
                histogram=torch.full((33,), 1 / 33),
                span=torch.tensor(1.0),
            )
            for source in ("gaussian", "nppr:joint")
        ),
    )


def write_run(folder: Path, report: Report, per_input: PerInput, evidence: Evidence | None) -> Path:
    """A run folder with these files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(report.to_json(), encoding="utf-8")
    (folder / "per_input.csv").write_text(per_input.to_csv(), encoding="utf-8", newline="")
    if evidence is not None:
        write_evidence(folder, evidence)
    return folder
