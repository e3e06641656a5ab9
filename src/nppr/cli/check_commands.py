"""`nppr certify` and `nppr doctor`: is it robust enough, and can its numbers be trusted?"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from nppr.cli import console
from nppr.cli.app import ExitCode
from nppr.cli.commands import ABOUT_TEXTS, CertifyOptions, DoctorOptions
from nppr.cli.gate_command import CODES
from nppr.core.tally import Claim
from nppr.doctor import examine, grade
from nppr.doctor.examine import examine_ready
from nppr.doctor.flags import Severity
from nppr.doctor.result_checks import check_distributions
from nppr.errors import SpecError
from nppr.gate.certify import certify as decide
from nppr.report.model import Flag
from nppr.report.run_files import REPORT, read_report
from nppr.run.prepare import prepare_run
from nppr.run.progress import progress_bars
from nppr.run.resolve import require_budget, require_sources, resolve, stated_budget
from nppr.search.learned_noise import load_learned
from nppr.sources import ALL, NPPR, Source, parse_sources
from nppr.statistics.noise_sets import NoiseSet, parse_spec


def certify(options: CertifyOptions) -> None:
    """Decide whether robustness is at least a given value, with no more draws than that takes.

    Exit codes: 0 holds, 1 violated, 3 undecided.
    """
    settings = options.measure
    source, folder, stated = options.source, options.distribution, stated_budget(options.budget)
    if (source.split(":")[0] in (NPPR, ALL) and source != NPPR) or "," in source:
        raise SpecError(f"`source` must name one source, got {source!r}. Example: uniform")
    if source != NPPR and folder is not None:
        raise SpecError(
            f"`distribution` must be given with --source nppr only, got it with {source!r}."
        )
    if source == NPPR and folder is None:
        raise SpecError(
            "`distribution` must be given with --source nppr: the folder written by nppr fit."
            " Example: --distribution runs/fit"
        )
    require_sources(source, stated)
    noise = _one_set(options.noise_set, options.density_ratio)

    resolved = resolve(
        options.model.model, options.data.data, settings, options.budget,
        network=options.model, reading=options.data,
    )  # fmt: skip
    chosen: Source
    flags: list[Flag] = []
    if folder is not None:
        given = load_learned(folder, stated, resolved.feature_model)
        learned = min(given, key=lambda each: each.width)
        chosen = learned.source
        flags = [*check_distributions([learned.record]), *_flags_of(folder)]
        budget = require_budget(chosen.budget, resolved.data.name)
        if len(given) > 1 and not (options.quiet or options.as_json):
            console.note(f"{chosen.name}: of {len(given)} learned noises that of the widest set")
    else:
        budget = resolved.required_budget()
        (chosen,) = parse_sources(source, budget)
    setup = prepare_run(resolved, budget, settings, run=options.run)
    loaded = setup.data
    examined = examine_ready(setup.classifier, loaded, seed=settings.seed)
    flags += [each for each in examined if each.severity == Severity.SERIOUS]
    with progress_bars(quiet=options.quiet or options.as_json) as progress:
        found = decide(
            chosen,
            setup.classifier,
            loaded.evaluate,
            options.at_least,
            confidence=settings.confidence,
            about=Claim(ABOUT_TEXTS[options.about]),
            calls=options.calls,
            seed=settings.seed,
            quantise=settings.quantise,
            class_names=loaded.class_names if options.per_class else None,
            flags=flags,
            noise=noise,
            progress=progress,
        )
    if options.as_json:
        sys.stdout.write(json.dumps(found.as_dict(), indent=2) + "\n")
    else:
        for line in found.lines():
            console.print_line(line)
    raise ExitCode(CODES[found.verdict.value])


def _one_set(text: str | None, density_ratio: float | None) -> NoiseSet | None:
    """The set of `--set`, of one size."""
    if text is None:
        return None
    if ":" not in text:
        raise SpecError(f"`set` must be KIND:SIZE, got {text!r}. Example: --set tv:0.05")
    (noise, *more) = parse_spec(text, None if density_ratio is None else f"{density_ratio!r}")
    if more:
        raise SpecError(f"`set` must have one size, got {text!r}. Example: --set tv:0.05")
    return noise


def _flags_of(folder: Path) -> tuple[Flag, ...]:
    """What the run that measured learned noise found about it; nothing where it was only fitted."""
    places = (each.parent for each in (folder, *folder.parents) if each.name == "distributions")
    report = next(places, folder) / REPORT
    return read_report(report).flags if report.is_file() else ()


def doctor(options: DoctorOptions) -> None:
    """Check a classifier and its data before measuring robustness: warnings and a grade, A to D.

    Examines pixels, labels, copies across the splits, outputs, gradients and clean accuracy.
    docs/flags.md explains each warning and what to do. The exit code is 0 whatever the grade, or 1
    where it is worse than that of --fail-below.
    """
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
