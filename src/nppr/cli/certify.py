"""`nppr certify`: stop as soon as a question is settled."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from nppr import console
from nppr.cli import options
from nppr.cli.groups import BudgetOptions, DataOptions, ModelOptions, grouped
from nppr.errors import SpecError, unknown

if TYPE_CHECKING:
    from nppr.certify import Certificate

__all__ = ["certify"]

CODES = {"holds": 0, "violated": 1, "undecided": 3}
ABOUT = {"population": "the population", "test-set": "this test set"}

Source = Annotated[
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
        help="population: each input is met once. test-set: inputs are drawn with replacement, so"
        " that the draws do not run out.",
    ),
]
Calls = Annotated[int, typer.Option("--calls", help="Images to classify at most.")]
PerClass = Annotated[bool, typer.Option("--per-class", help="A verdict for every class too.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")]


@grouped
def certify(
    model: ModelOptions,
    data: DataOptions,
    budget: BudgetOptions,
    source: Source = "uniform",
    at_least: AtLeast = 0.9,
    confidence: options.Confidence = 0.95,
    distribution: options.Distribution = None,
    about: About = "population",
    calls: Calls = 100_000,
    per_class: PerClass = False,
    seed: options.Seed = 0,
    quantise: options.Quantise = False,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
    quiet: options.Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Is robustness at least so much? Draws until it is settled, and not longer.

    Exit codes: 0 holds, 1 violated, 3 undecided.
    """
    options.budget_text(budget.norm, budget.eps)
    if about not in ABOUT:
        raise unknown("about", about, ABOUT)
    if not 0 < at_least < 1:
        raise SpecError(f"`at-least` must lie in (0, 1), got {at_least}. Example: 0.9")
    if source.split(":")[0] in ("nppr", "all") and source != "nppr":
        raise SpecError(f"`source` must name one source, got {source!r}. Example: uniform")
    if source != "nppr" and distribution is not None:
        raise SpecError(
            f"`distribution` must be given with --source nppr only, got it with {source!r}."
        )
    if source == "nppr" and distribution is None:
        raise SpecError(
            "`distribution` must be given with --source nppr: the folder that nppr fit has written."
            " Example: --distribution runs/fit"
        )
    from nppr.certify import certify as settle
    from nppr.run import Settings
    from nppr.search.learned_noise import load_learned
    from nppr.setup import limited, set_up, stated_budget
    from nppr.sources import parse_sources
    from nppr.types import Claim, PerturbationSource

    settings = Settings(
        inputs=data.inputs,
        fit_inputs=data.fit_inputs,
        select_inputs=data.select_inputs,
        confidence=confidence,
        seed=seed,
        quantise=quantise,
    )
    loaded = limited(data.load(model.classes), settings)
    classifier, featurer = model.load(loaded)
    stated = budget.parse()
    chosen: PerturbationSource
    if source == "nppr":
        (first, *_) = load_learned(distribution or "", stated, featurer)
        chosen, stated = first.source, stated_budget(first.source.budget, loaded)
    else:
        stated = stated_budget(stated, loaded)
        chosen, *more = parse_sources(source, stated)
        if more:
            raise SpecError(f"`source` must name one source, got {source!r}. Example: uniform")
    ready = set_up(
        classifier,
        loaded,
        stated,
        settings,
        {},
        feature_model=featurer,
        batch_size=batch_size,
        device=device,
    )
    with console.progress_bars(quiet=quiet or as_json) as (progress, _):
        found = settle(
            chosen,
            ready.classifier,
            loaded.evaluate,
            at_least,
            confidence=confidence,
            about=Claim(ABOUT[about]),
            calls=calls,
            seed=seed,
            quantise=quantise,
            class_names=loaded.class_names if per_class else None,
            progress=progress,
        )
    _show(found, as_json=as_json)
    raise typer.Exit(CODES[found.verdict.value])


def _show(found: Certificate, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(found.as_dict(), indent=2) + "\n")
        return
    console.out.print(f"{found.source}: {found.statement}", markup=False, soft_wrap=True)
    console.out.print(
        f"{found.right:,} of {found.draws:,} draws right ({100 * found.low:.1f}-"
        f"{100 * found.high:.1f} % at every look), {found.inputs:,} inputs, {found.calls:,} calls:"
        f" {found.why}",
        markup=False,
        soft_wrap=True,
    )
    for each in found.classes:
        console.out.print(
            f"  {each.name}: {each.verdict.value} ({each.right:,} of {each.draws:,})",
            markup=False,
            soft_wrap=True,
        )
