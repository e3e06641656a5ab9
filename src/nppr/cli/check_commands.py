"""`nppr certify` and `nppr doctor`: is it robust enough, and can its numbers be trusted?"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from nppr import console
from nppr.cli.option_flags import grouped
from nppr.errors import SpecError, unknown
from nppr.options import (
    BudgetOptions,
    DataOptions,
    DistributionOptions,
    FeatureModelOptions,
    JsonOptions,
    ModelOptions,
    RunOptions,
    check_sources,
    run_settings,
)
from nppr.sources import ALL, NPPR

CODES = {"holds": 0, "violated": 1, "undecided": 3}
ABOUT = {"population": "the population", "test-set": "this test set"}

SourceName = Annotated[
    str,
    typer.Option(
        "--source", help="One source as in --sources of assess; nppr with --distribution."
    ),
]
AtLeast = Annotated[float, typer.Option("--at-least", help="The robustness in question.")]
About = Annotated[
    str,
    typer.Option(
        "--about",
        help="population: each input is used once. test-set: inputs are drawn with replacement, so"
        " that the draws do not run out.",
    ),
]
Calls = Annotated[int, typer.Option("--calls", help="Images to classify at most.")]
PerClass = Annotated[bool, typer.Option("--per-class", help="A verdict for every class too.")]
Confidence = Annotated[float, typer.Option("--confidence", help="Confidence of the verdict.")]


@grouped
def certify(
    model: ModelOptions,
    data: DataOptions,
    budget: BudgetOptions,
    run: RunOptions,
    printed: JsonOptions,
    features: FeatureModelOptions,
    distribution: DistributionOptions,
    source: SourceName = "uniform",
    at_least: AtLeast = 0.9,
    confidence: Confidence = 0.95,
    about: About = "population",
    calls: Calls = 100_000,
    per_class: PerClass = False,
) -> None:
    """Is robustness at least a given value? Draws until that is decided, and not longer.

    Exit codes: 0 holds, 1 violated, 3 undecided.
    """
    settings = run_settings(data, run)
    if about not in ABOUT:
        raise unknown("about", about, ABOUT)
    if not 0 < at_least < 1:
        raise SpecError(f"`at-least` must lie in (0, 1), got {at_least}. Example: 0.9")
    folder = distribution.distribution
    if (source.split(":")[0] in (NPPR, ALL) and source != NPPR) or "," in source:
        raise SpecError(f"`source` must name one source, got {source!r}. Example: uniform")
    if source != NPPR and folder is not None:
        raise SpecError(
            f"`distribution` must be given with --source nppr only, got it with {source!r}."
        )
    if source == NPPR and folder is None:
        raise SpecError(
            "`distribution` must be given with --source nppr: the folder that nppr fit has written."
            " Example: --distribution runs/fit"
        )
    check_sources(source)

    from nppr.assessment.certify import certify as decide
    from nppr.assessment.load import load_images, load_models
    from nppr.assessment.prepare import prepare_run
    from nppr.assessment.run_settings import require_budget
    from nppr.search.learned_noise import load_learned
    from nppr.sources import Source, parse_sources
    from nppr.tally import Claim

    loaded = load_images(data, settings, model.classes)
    classifier, feature_model = load_models(model, loaded, features)
    stated = budget.budget()
    chosen: Source
    if folder is not None:
        chosen = load_learned(folder, stated, feature_model)[0].source
        stated = require_budget(chosen.budget, loaded.name)
    else:
        stated = require_budget(stated, loaded.name)
        (chosen,) = parse_sources(source, stated)
    setup = prepare_run(
        classifier, loaded, stated, settings,
        feature_model=feature_model, batch_size=run.batch_size, device=run.device,
    )  # fmt: skip
    with console.progress_bars(quiet=run.quiet or printed.as_json) as (progress, _):
        found = decide(
            chosen,
            setup.classifier,
            loaded.evaluate,
            at_least,
            confidence=confidence,
            about=Claim(ABOUT[about]),
            calls=calls,
            seed=run.seed,
            quantise=run.quantise,
            class_names=loaded.class_names if per_class else None,
            progress=progress,
        )
    if printed.as_json:
        sys.stdout.write(json.dumps(found.as_dict(), indent=2) + "\n")
    else:
        for line in found.lines():
            console.print_line(line)
    raise typer.Exit(CODES[found.verdict.value])


@grouped
def doctor(model: ModelOptions, data: DataOptions, run: RunOptions, printed: JsonOptions) -> None:
    """Check a classifier and its data before anything is measured: warnings and a grade, A to D.

    Examines pixels, labels, copies across the splits, outputs, gradients and clean accuracy.
    docs/flags.md explains each warning and what to do. The exit code is 0 whatever the grade.
    """
    settings = run_settings(data, run)

    from nppr.assessment.load import load_images, load_models
    from nppr.doctor import examine, grade

    loaded = load_images(data, settings, model.classes)
    classifier, _ = load_models(model, loaded)
    flags = examine(
        classifier, loaded, device=run.device, micro_batch=run.batch_size, seed=run.seed
    )
    given = grade(flags)
    if printed.as_json:
        content = {
            "grade": given.letter,
            "reason": given.reason,
            "flags": [flag.model_dump(mode="json") for flag in flags],
        }
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
        return
    for flag in flags:
        console.print_line(f"{flag.id}: {flag.message}")
    console.print_line(f"grade {given.letter}: {given.reason}")


EXAMPLES = {
    "certify": """
  nppr certify --source uniform --at-least 0.9
      is robustness at least 90 %? Draws until that is decided (exit code 0, 1 or 3)
  nppr certify --source nppr --distribution runs/label --at-least 0.8
      the same under noise that nppr fit has learned""",
    "doctor": """
  nppr doctor --model my_model.py:make --data photos/
      can the numbers of this model on these data be trusted?""",
}
