"""`nppr gate`: the requirements of a policy as a red or green build."""

from __future__ import annotations

import sys
from pathlib import Path

from nppr import console
from nppr.cli.app import ExitCode, command
from nppr.errors import SpecError, without_controls
from nppr.options import DEVICE_OPTION, JSON_OPTION, Options, option
from nppr.progress import progress_bars

CODES = {"holds": 0, "violated": 1, "undecided": 3}
"""Exit codes of `nppr certify` and `nppr gate`, by verdict."""


class GateOptions(Options):
    """Options of `nppr gate`."""

    policy: Path = option(
        ..., "The policy: a TOML file with requirements and options.", flag="POLICY"
    )
    junit: Path | None = option(None, "Write the verdicts as JUnit XML.")
    markdown: Path | None = option(None, "Write a summary for a pull request.")
    model: str | None = option(None, "Model instead of the policy's, as in nppr assess.")
    weights: str | None = option(None, "Weights instead of the policy's, as in nppr assess.")
    data: str | None = option(None, "Data instead of the policy's, as in nppr assess.")
    run: Path | None = option(
        None, "Run folder instead of the policy's, for grade, flags and learned noise."
    )
    out: Path | None = option(
        None,
        "Folder for the run that is measured for grade, flags and learned noise. Default: not kept.",
    )
    run_code: bool = option(
        False, "Allow the policy to run the Python code that it names as models."
    )
    device: str | None = DEVICE_OPTION
    quiet: bool = option(False, "Print nothing but the outcome, in one line.")
    as_json: bool = JSON_OPTION


@command("""
    nppr gate policy.toml --junit gate.xml --markdown gate.md
        decide the requirements of a policy and write the verdicts for CI
    nppr gate policy.toml --weights new.safetensors
        the same policy for other weights
""")
def gate(options: GateOptions) -> None:
    """Decide every requirement of a policy, at one confidence for all of them together.

    It stops once all are decided. Exit codes: 0 all hold, 1 at least one is violated, 2 bad input, 3
    none is violated but at least one is undecided, as is what could not be measured. A requirement
    on NPPR or AR can hold only for the noise or attack found; docs/gate.md states what verdicts mean.
    """
    from nppr.assessment.policy import read_policy
    from nppr.specs import names_code

    replaced = options.model_dump(include={"model", "weights", "data", "run", "device"})
    changed = {name: value for name, value in replaced.items() if value is not None}
    policy = read_policy(options.policy, **changed)
    for name in ("model", "feature_model"):
        named = getattr(policy, name)
        if named and name not in changed and names_code(named) and not options.run_code:
            raise SpecError(
                f"`run-code` must be given: the policy runs Python code, {named!r}."
                " Read that code, then add --run-code."
            )

    from nppr.assessment.gate import gate as decide
    from nppr.records import write_whole

    quiet = options.quiet or options.as_json
    with progress_bars(quiet=quiet) as (progress, on_search):
        found = decide(
            policy,
            name=options.policy.stem,
            out=options.out,
            progress=progress,
            on_search=on_search,
        )
    written = {options.junit: found.to_junit, options.markdown: found.to_markdown}
    for path, text in written.items():
        if path is not None:
            write_whole(path, without_controls(text()))
    if options.as_json:
        sys.stdout.write(found.to_json())
    elif options.quiet:
        console.print_line(found.headline)
    else:
        console.out.print(found.table().to_rich(console.out.width))
        for note in found.notes():
            console.print_line(note)
    raise ExitCode(CODES[found.verdict.value])
