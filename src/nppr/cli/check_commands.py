"""`nppr doctor`, `certify` and `gate`: can numbers be trusted, and do requirements hold?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from nppr.cli import console
from nppr.cli.app import ExitCode
from nppr.cli.commands import CertifyOptions, DoctorOptions, GateOptions
from nppr.doctor.flags import grade
from nppr.doctor.model_checks import examine, examine_ready
from nppr.doctor.result_checks import check_distributions
from nppr.errors import SpecError, mark_controls
from nppr.formats import REPORT, names_code
from nppr.gate.decisions import decide_source
from nppr.gate.gate import decide_policy, make_record
from nppr.gate.policy import ABOUT, read_policy
from nppr.report.gate_record import Decision, GateRecord
from nppr.report.model import Flag
from nppr.report.printed_numbers import percent
from nppr.report.run_files import read_report
from nppr.run.assessment_run import AssessmentRun
from nppr.run.progress import progress_bars
from nppr.run.resolve import read_budget, require_budget, require_sources, resolve
from nppr.search.learned_noise import load_learned
from nppr.sources import Source, parse_sources
from nppr.statistics.noise_sets import NoiseSet, parse_spec
from nppr.statistics.sequential import Verdict
from nppr.system.records import write_whole

CODES = {"holds": 0, "violated": 1, "undecided": 3}
"""Exit codes of `nppr certify` and `nppr gate`, by verdict."""


def execute_doctor(options: DoctorOptions) -> None:
    """Run `nppr doctor`."""
    settings = options.measure
    resolved = resolve(
        options.model.model, options.data.data, settings,
        network=options.model, reading=options.data,
    )  # fmt: skip
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


def execute_gate(options: GateOptions) -> None:
    """Run `nppr gate`."""
    replaced = options.model_dump(include={"model", "weights", "data", "run"})
    replaced["device"] = options.execution.device
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
        found = decide_policy(
            policy,
            name=options.policy.stem,
            out=options.execution.out,
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


def execute_certify(options: CertifyOptions) -> None:
    """Run `nppr certify`."""
    settings, stated = options.measure, read_budget(options.budget)
    require_sources(options.source, stated)
    noise_set = _one_set(options.noise_set, options.density_ratio)
    quiet = options.quiet or options.as_json
    resolved = resolve(
        options.model.model, options.data.data, settings, options.budget,
        network=options.model, reading=options.data,
    )  # fmt: skip
    source: Source
    flags: list[Flag] = []
    if options.distribution is not None:
        given = load_learned(options.distribution, stated, resolved.feature_model)
        learned = min(given, key=lambda each: each.width)
        source = learned.source
        budget = require_budget(source.budget, resolved.data.name)
        if noise_set is None:  # a bound around noise is valid however the noise was found
            flags = [*check_distributions([learned.record]), *_flags_of(options.distribution)]
        if len(given) > 1 and not quiet:
            console.note(f"{source.name}: the widest set of {len(given)} learned noises is used")
    else:
        budget = resolved.required_budget()
        (source,) = parse_sources(options.source, budget)
    setup = AssessmentRun.open(resolved, budget, settings, run=options.run)
    loaded = setup.data
    flags += examine_ready(setup.classifier, loaded, seed=settings.seed)
    with progress_bars(quiet=quiet) as progress:
        decision, calls = decide_source(
            source, setup.classifier, loaded.evaluate, options.at_least,
            confidence=settings.confidence, claim=ABOUT[options.about], calls=options.calls,
            seed=settings.seed,
            class_names=loaded.class_names if options.per_class else (),
            flags=flags, noise_set=noise_set, progress=progress,
        )  # fmt: skip
    found = make_record(setup, source.name, settings.confidence, [decision], 1, calls)
    if options.as_json:
        sys.stdout.write(found.to_json())
    else:
        for line in _lines(found):
            console.print_line(line)
    raise ExitCode(CODES[found.verdict.value])


def _lines(found: GateRecord) -> Iterator[str]:
    """Yield the verdict, its evidence with the bounds that apply, and a line for every class."""
    decision = found.decisions[0]
    yield f"{decision.source}: {decision.statement}"
    if decision.low is None or decision.high is None:
        yield decision.why
        return
    low = f"at least {percent(decision.low, 'at-least')} %"
    high = f"at most {percent(decision.high, 'at-most')} %"
    ends = {Verdict.HOLDS: low, Verdict.VIOLATED: high}.get(
        decision.verdict, f"{low}; {high}, each"
    )
    yield (
        f"{_observed(decision)} ({ends} with {100 * found.confidence:g} % confidence at every look),"
        f" {decision.inputs:,} inputs, {found.calls:,} calls: {decision.why}"
    )
    for each in decision.slices:
        yield f"  {each.requirement}: {each.verdict} ({_observed(each)})"


def _observed(decision: Decision) -> str:
    seen = "nothing" if decision.value is None else f"{percent(decision.value)} %"
    return f"{seen} observed in {decision.draws:,} draws"


def _one_set(text: str | None, density_ratio: float | None) -> NoiseSet | None:
    """Return the set of `--set`, which has one size."""
    if text is None:
        return None
    if ":" not in text:
        raise SpecError(f"`set` must be KIND:SIZE, got {text!r}. Example: --set tv:0.05")
    (noise, *more) = parse_spec(text, None if density_ratio is None else f"{density_ratio!r}")
    if more:
        raise SpecError(f"`set` must have one size, got {text!r}. Example: --set tv:0.05")
    return noise


def _flags_of(folder: Path) -> tuple[Flag, ...]:
    """Return the flags of the run that measured this noise; none if it was only fitted."""
    places = (each.parent for each in (folder, *folder.parents) if each.name == "distributions")
    report = next(places, folder) / REPORT
    return read_report(report).flags if report.is_file() else ()
