"""`nppr doctor`: can the numbers of a classifier be trusted?"""

from __future__ import annotations

import json
import sys

from nppr.cli import console
from nppr.cli.app import ExitCode
from nppr.cli.commands import DoctorOptions
from nppr.doctor.flags import grade
from nppr.doctor.model_checks import examine
from nppr.run.resolve import resolve


def execute_doctor(options: DoctorOptions) -> None:
    """Run `nppr doctor`."""
    settings = options.measure

    resolved = resolve(
        options.model.model,
        options.data.data,
        settings,
        network=options.model,
        reading=options.data,
    )
    classifier, loaded = resolved.classifier, resolved.data
    flags = examine(
        classifier, loaded,
        device=options.run.device, micro_batch=options.run.batch_size, seed=settings.seed,
    )  # fmt: skip
    given = grade(flags)
    if options.as_json:
        content = {
            "grade": given.letter,
            "reason": given.reason,
            "flags": [flag.model_dump(mode="json") for flag in flags],
        }
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
    else:
        console.print_line(
            f"{classifier.name} on {loaded.name}: {len(loaded.evaluate):,} inputs to evaluate"
        )
        for note in loaded.notes:
            console.print_line(f"data: {note}")
        for flag in flags:
            console.print_line(f"{flag.id}: {flag.message}")
        console.print_line(f"grade {given.letter}: {given.reason}")
    if options.fail_below is not None and given.letter > options.fail_below:
        raise ExitCode(1)
