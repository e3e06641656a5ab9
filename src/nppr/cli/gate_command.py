"""`nppr gate`: the requirements of a policy as a red or green build."""

from __future__ import annotations

import sys

from nppr.cli import console
from nppr.cli.app import ExitCode
from nppr.cli.commands import GateOptions
from nppr.errors import SpecError, mark_controls
from nppr.gate.gate import gate as decide
from nppr.gate.policy import read_policy
from nppr.run.progress import progress_bars
from nppr.system.records import write_whole
from nppr.system.specs import names_code

CODES = {"holds": 0, "violated": 1, "undecided": 3}
"""Exit codes of `nppr certify` and `nppr gate`, by verdict."""


def gate(options: GateOptions) -> None:
    """Decide every requirement of a policy, at one confidence for all of them together.

    It stops once all are decided. Exit codes: 0 all hold, 1 at least one is violated, 2 bad input, 3
    none is violated but at least one is undecided, as is what could not be measured. A requirement
    on NPPR or AR can hold only for the noise or attack found; docs/gate.md states what verdicts mean.
    """
    replaced = options.model_dump(include={"model", "weights", "data", "run", "device"})
    changed = {name: value for name, value in replaced.items() if value is not None}
    policy = read_policy(options.policy, **changed)
    for name in ("model", "feature_model"):
        named = getattr(policy.model, name)
        if named and name not in changed and names_code(named) and not options.run_code:
            raise SpecError(
                f"`run-code` must be given: the policy runs Python code, {named!r}."
                " Read that code, then add --run-code."
            )

    quiet = options.quiet or options.as_json
    with progress_bars(quiet=quiet) as progress:
        found = decide(
            policy,
            name=options.policy.stem,
            out=options.out,
            progress=progress,
        )
    written = {options.junit: found.to_junit, options.markdown: found.to_markdown}
    for path, text in written.items():
        if path is not None:
            write_whole(path, mark_controls(text()))
    if options.as_json:
        sys.stdout.write(found.to_json())
    elif options.quiet:
        console.print_line(found.headline)
    else:
        console.out.print(found.table().to_rich(console.out.width))
        for note in found.notes():
            console.print_line(note)
    raise ExitCode(CODES[found.verdict.value])
