"""`nppr certify` and `nppr doctor`: is it robust enough, and can its numbers be trusted?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import field_validator

from nppr import console
from nppr.cli.app import ExitCode, command
from nppr.cli.gate_command import CODES
from nppr.errors import SpecError
from nppr.noise_sets import NoiseSet, parse_spec
from nppr.options import (
    DISTRIBUTION_OPTION,
    GRADES,
    JSON_OPTION,
    FeatureModelOptions,
    NoisyRunOptions,
    RunOptions,
    option,
    require_one_of,
    require_sources,
)
from nppr.progress import progress_bars
from nppr.sources import ALL, NPPR

if TYPE_CHECKING:
    from nppr.report.model import Flag

ABOUT = {"population": "the population", "test-set": "this test set"}


class CertifyOptions(NoisyRunOptions, FeatureModelOptions):
    """Options of `nppr certify`."""

    source: str = option(
        "uniform", "One source, as in --sources of assess; nppr with --distribution."
    )
    at_least: float = option(0.9, "Robustness to test for.")
    noise_set: str | None = option(
        None,
        "Test it for all noise of a set around the source, KIND:SIZE, such as tv:0.05, ratio:2,"
        " contaminated:0.01 (with --density-ratio), chi2:0.1, kl:0.1 or hellinger:0.01.",
        flag="--set",
    )
    density_ratio: float | None = option(None, "c of the set contaminated. Default: 2.")
    confidence: float = option(0.95, "Confidence of the verdict.")
    about: str = option(
        "population",
        "population: each input is used once. test-set: inputs are drawn with replacement, so draws"
        " do not run out.",
    )
    calls: int = option(100_000, "Classify at most this many images.")
    per_class: bool = option(False, "Also give a verdict for every class.")
    distribution: Path | None = DISTRIBUTION_OPTION
    quiet: bool = option(False, "Show no progress.")
    as_json: bool = JSON_OPTION


@command("""
    nppr certify --source uniform --at-least 0.9
        is robustness at least 90 %? Draw until that is decided
    nppr certify --source uniform --set tv:0.05 --at-least 0.9
        the same under all noise within 5 % of Uniform noise in total variation
    nppr certify --source nppr --distribution runs/label --at-least 0.8
        the same under noise learned by nppr fit
""")
def certify(options: CertifyOptions) -> None:
    """Decide whether robustness is at least a given value, with no more draws than that takes.

    Exit codes: 0 holds, 1 violated, 3 undecided.
    """
    settings = options.run_settings()
    source, folder = options.source, options.distribution
    require_one_of("about", options.about, ABOUT)
    if not 0 < options.at_least < 1:
        raise SpecError(f"`at-least` must lie in (0, 1), got {options.at_least}. Example: 0.9")
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
    require_sources(source, options.budget())
    noise = _one_set(options.noise_set, options.density_ratio)

    from nppr.assessment.certify import certify as decide
    from nppr.assessment.load import load_images, load_models
    from nppr.assessment.prepare import prepare_run
    from nppr.doctor.examine import examine_ready
    from nppr.doctor.flags import Severity
    from nppr.doctor.result_checks import check_distributions
    from nppr.run_settings import require_budget
    from nppr.search.learned_noise import load_learned
    from nppr.sources import Source, parse_sources
    from nppr.tally import Claim

    loaded = load_images(options, settings, options.classes)
    classifier, feature_model = load_models(options, loaded, options)
    chosen: Source
    flags: list[Flag] = []
    if folder is not None:
        given = load_learned(folder, options.budget(), feature_model)
        learned = min(given, key=lambda each: each.width)
        chosen = learned.source
        flags = [*check_distributions([learned.record]), *_flags_of(folder)]
        budget = require_budget(chosen.budget, loaded.name)
        if len(given) > 1 and not (options.quiet or options.as_json):
            console.note(f"{chosen.name}: of {len(given)} learned noises that of the widest set")
    else:
        budget = require_budget(options.budget(), loaded.name)
        (chosen,) = parse_sources(source, budget)
    setup = prepare_run(
        classifier, loaded, budget, settings,
        feature_model=feature_model, batch_size=options.batch_size, device=options.device,
    )  # fmt: skip
    examined = examine_ready(setup.classifier, loaded, seed=options.seed)
    flags += [each for each in examined if each.severity == Severity.SERIOUS]
    with progress_bars(quiet=options.quiet or options.as_json) as (progress, _):
        found = decide(
            chosen,
            setup.classifier,
            loaded.evaluate,
            options.at_least,
            confidence=options.confidence,
            about=Claim(ABOUT[options.about]),
            calls=options.calls,
            seed=options.seed,
            quantise=options.quantise,
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
    from nppr.report.run_files import REPORT, read_report

    places = (each.parent for each in (folder, *folder.parents) if each.name == "distributions")
    report = next(places, folder) / REPORT
    return read_report(report).flags if report.is_file() else ()


class DoctorOptions(RunOptions):
    """Options of `nppr doctor`."""

    fail_below: str | None = option(
        None, "Exit with code 1 where the grade is worse than this one: A, B, C or D."
    )
    as_json: bool = JSON_OPTION

    @field_validator("fail_below")
    @classmethod
    def _require_grade(cls, value: str | None) -> str | None:
        if value is not None:
            require_one_of("fail-below", value, GRADES)
        return value


@command("""
    nppr doctor --model my_model.py:make --data photos/
        can the numbers of this model on these data be trusted?
    nppr doctor --fail-below B
        exit with code 1 where the grade is C or D
""")
def doctor(options: DoctorOptions) -> None:
    """Check a classifier and its data before measuring robustness: warnings and a grade, A to D.

    Examines pixels, labels, copies across the splits, outputs, gradients and clean accuracy.
    docs/flags.md explains each warning and what to do. The exit code is 0 whatever the grade, or 1
    where it is worse than that of --fail-below.
    """
    settings = options.run_settings()

    from nppr.assessment.load import load_images, load_models
    from nppr.doctor import examine, grade

    loaded = load_images(options, settings, options.classes)
    classifier, _ = load_models(options, loaded)
    flags = examine(
        classifier, loaded,
        device=options.device, micro_batch=options.batch_size, seed=options.seed,
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
