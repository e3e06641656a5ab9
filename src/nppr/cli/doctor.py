"""`nppr doctor`: can the numbers of this classifier on these data be trusted?"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from nppr import console
from nppr.cli import options
from nppr.cli.groups import DataOptions, ModelOptions, grouped

__all__ = ["doctor"]

Seed = Annotated[int, typer.Option("--seed", help="Seed of subsets and of images of noise.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print grade and flags as JSON.")]


@grouped
def doctor(
    model: ModelOptions,
    data: DataOptions,
    seed: Seed = 0,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
    as_json: AsJson = False,
) -> None:
    """Check a classifier and its data before anything is measured: warnings and a grade, A to D.

    Looks at pixels, labels, copies across the parts, outputs, gradients, and accuracy without noise.
    docs/flags.md says what each warning means and what to do. The exit code is 0 whatever the grade.
    """
    from nppr.checks import examine, grade
    from nppr.run import Settings
    from nppr.setup import limited

    settings = Settings(
        inputs=data.inputs,
        fit_inputs=data.fit_inputs,
        select_inputs=data.select_inputs,
        seed=seed,
    )
    loaded = limited(data.load(model.classes), settings)
    classifier, _ = model.load(loaded)
    flags = examine(classifier, loaded, device=device, micro_batch=batch_size, seed=seed)
    given = grade(flags)
    if as_json:
        told = [flag.model_dump(mode="json") for flag in flags]
        content = {"grade": given.letter, "reason": given.reason, "flags": told}
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
        return
    for flag in flags:
        console.out.print(f"{flag.id}: {flag.message}", markup=False, soft_wrap=True)
    console.out.print(f"grade {given.letter}: {given.reason}", markup=False, soft_wrap=True)
