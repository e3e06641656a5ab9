"""A policy: requirements in words, and what they are tested on, from a TOML file.

    require = ["PR uniform >= 0.95", "bound tv:0.05 >= 0.9", "grade >= B"]
    model = "digits-cnn"
    eps = 0.1

The other keys are options of `nppr assess`. A mistake is reported in one line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import model_validator

from nppr.core.budget import Budget
from nppr.core.tally import Claim, Direction, Metric
from nppr.doctor.flags import SEVERITY
from nppr.errors import SpecError, unknown
from nppr.noise.admissible_set import AdmissibleSet
from nppr.noise.family import FLOOR_NOISE
from nppr.run.resolve import read_budget
from nppr.settings import (
    GRADE_LETTERS,
    BudgetSettings,
    DataSettings,
    Excerpt,
    Group,
    Measure,
    ModelSettings,
    Run,
    Search,
    build_tree,
    one_of,
    option,
    require_one_of,
    settings_in,
    whole,
)
from nppr.sources import NPPR, parse_sources
from nppr.statistics.noise_sets import NoiseSet, parse_spec
from nppr.system.specs import read_toml

ABOUT = {"population": Claim.POPULATION, "test-set": Claim.TEST_SET}
WORST = "worst"


class Kind(StrEnum):
    """The kinds of quantity that a requirement can limit."""

    LEVEL = "level"
    BOUND = "bound"
    WORST = "worst slice"
    PAIRED = "difference from a baseline"
    GRADE = "grade"
    FLAG = "flag"


TESTED = (Kind.LEVEL, Kind.BOUND, Kind.WORST, Kind.PAIRED)
"""Kinds that draws decide. They share the error."""


@dataclass(frozen=True)
class Requirement:
    """One line of a policy.

    `at_least` is the smallest fraction of correct answers; for a difference, minus the largest loss.
    `source` is written as on a command line. Learned noise has an `admissible` set instead. `name`
    is the column of a worst slice, the letter of a grade, the id of a flag or the folder of a baseline.
    """

    text: str
    kind: Kind
    at_least: float = 0.0
    metric: Metric | None = None
    source: str = ""
    admissible: AdmissibleSet | None = None
    noise_set: NoiseSet | None = None
    name: str = ""

    @property
    def direction(self) -> Direction:
        """What its number is: a search bounds the worst noise from above, a set from below."""
        if self.noise_set is not None:
            return Direction.LOWER_BOUND
        searched = self.metric is not None and self.metric.is_searched
        return Direction.UPPER_BOUND if searched else Direction.ESTIMATE

    @property
    def always_population(self) -> bool:
        """Whether it applies to the population whatever the policy states."""
        return self.metric is Metric.ACCURACY or self.kind is Kind.PAIRED


LEFT_OUT = {
    **dict.fromkeys(
        ("dependency", "structure", "floor"),
        "requirements name rungs and floors. Example: NPPR joint floor 0.5 >= 0.8",
    ),
    "quiet": "it is an option of nppr gate. Example: nppr gate policy.toml --quiet",
}
"""Options of `nppr assess` that a policy must not have, and why."""


MEASURED = (
    "draws", "inputs", "fit_inputs", "select_inputs", "confidence", "seed", "quantise",
    "evaluate_all", "effort",
)  # fmt: skip
"""Settings of `Measure` that a policy may state."""


class Policy(Group):
    """The keys of a policy."""

    require: tuple[str, ...] = option(
        ..., "Requirements, such as 'PR uniform >= 0.95' (docs/gate.md)."
    )
    about: Annotated[str, one_of(ABOUT)] = option(
        "population", "population or test-set, as in nppr certify."
    )
    calls: Annotated[int, whole()] = option(
        100_000, "Classify at most this many images for each source."
    )
    run: Path | None = option(
        None,
        "Folder of nppr assess on the same classifier, data and budget, for grade, flags and learned"
        " noise. Default: they are measured.",
    )
    model: ModelSettings
    data: DataSettings
    budget: BudgetSettings
    search: Annotated[Search, Excerpt(without=("dependency", "structure", "floor"))]
    measure: Annotated[Measure, Excerpt(only=MEASURED)]
    execution: Annotated[Run, Excerpt(only=("device", "batch_size"))]

    @model_validator(mode="after")
    def _require_policy(self) -> Self:
        for key in MEASURING if self.run is not None else ():
            group, name = getattr(self, KEYS[key].group), KEYS[key].name
            if group.is_typed(name):
                raise SpecError(
                    f"`{key}` must be left out of a policy with a run, got"
                    f" {getattr(group, name)!r}: that run is already measured."
                )
        learned = [each.text for each in self.requirements() if each.admissible is not None]
        if self.measure.evaluate_all and learned:
            raise SpecError(
                f"`evaluate-all` must be left out with {learned[0]!r}: learned noise is fitted on"
                " inputs that are not evaluated."
            )
        return self

    def requirements(self) -> tuple[Requirement, ...]:
        """Parse the requirements; `SpecError` if two limit the same quantity."""
        if not self.require:
            raise SpecError(
                "`require` must list at least one requirement, got none."
                " Example: require = ['PR uniform >= 0.95']"
            )
        budget = read_budget(self.budget) or Budget.linf(0.1)
        found = [parse_requirement(text, budget) for text in self.require]
        first: dict[Requirement, Requirement] = {}
        for each in found:
            name = "" if each.kind is Kind.GRADE else each.name
            quantity = replace(each, text="", at_least=0.0, name=name)
            other = first.setdefault(quantity, each)
            if other is not each:
                same = replace(other, text=each.text) == each
                raise SpecError(
                    f"`require` must state each quantity once, got {other.text!r} and {each.text!r}"
                    f"{', which are the same' if same else ''}."
                )
        return tuple(found)


KEYS = settings_in(Policy)
"""The keys of a policy, as the documentation spells them."""

MEASURING = ("draws", "effort", *(key for key, each in KEYS.items() if each.group == "search"))
"""Keys that apply only if the gate measures its own run."""


def read_policy(path: str | Path, **changed: Any) -> Policy:
    """Return the policy in a file; `changed` replaces keys of it."""
    return make_policy(_spelled(read_toml("policy", path)) | _spelled(changed))


def make_policy(keys: Mapping[str, Any]) -> Policy:
    """Return the policy with these keys; the first mistake is an error of one line."""
    return build_tree(Policy, _spelled(keys), " of the policy")


def _spelled(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys that are spelled with hyphens or underscores as the documentation spells them."""
    found: dict[str, Any] = {}
    for given, value in keys.items():
        key = given.replace("_", "-")
        if key in LEFT_OUT:
            raise SpecError(f"`{key}` must be left out of a policy: {LEFT_OUT[key]}")
        if key in found:
            raise SpecError(f"`{key}` must be given once, got both of its spellings.")
        found[key] = value
    return found


_VALUE = r" ?>= ?(?P<value>[\d.]+)(?P<percent> ?%)?"
_OF = (
    r"(?:(?P<metric>accuracy|PR|AR|NPPR|corruption)\b ?)?(?P<source>(?!>=|not )\S+)?"
    r"(?: floor (?P<floor>\S+))?"
)
_POINTS = r" (?:percentage )?points?(?: \(paired\))?"
FORMS = {
    "PR": (Kind.LEVEL, _OF + _VALUE, "PR uniform >= 0.95"),
    "AR": (Kind.LEVEL, _OF + _VALUE, "AR pgd >= 0.3"),
    "NPPR": (Kind.LEVEL, _OF + _VALUE, "NPPR independent floor 0.5 >= 0.8"),
    "corruption": (Kind.LEVEL, _OF + _VALUE, "corruption jpeg >= 0.9"),
    "accuracy": (Kind.LEVEL, _OF + _VALUE, "accuracy >= 0.95"),
    "bound": (
        Kind.BOUND,
        rf"bound (?P<set>\S+)(?: around {_OF})?{_VALUE}",
        "bound tv:0.05 around uniform >= 0.9",
    ),
    WORST: (Kind.WORST, rf"worst (?P<name>\S+)(?: under {_OF})?{_VALUE}", "worst class >= 0.7"),
    "grade": (Kind.GRADE, r"grade ?>= ?(?P<name>\S+)", "grade >= B"),
    "no": (Kind.FLAG, r"no flag (?P<name>\S+)", "no flag gradient-masking"),
    "not": (
        Kind.PAIRED,
        rf"(?:{_OF} )?not worse than (?P<name>.+?) by more than (?P<value>[\d.]+){_POINTS}",
        "PR uniform not worse than runs/main by more than 1 point",
    ),
}
"""The forms of requirements by their first word: kind, pattern and example."""


def parse_requirement(text: str, budget: Budget) -> Requirement:
    """Parse a requirement, with sources of a budget.

    >>> found = parse_requirement("NPPR label floor 0.5 >= 80 %", Budget.linf(0.1))
    >>> found.admissible.name_noise(), found.at_least
    ('nppr:label:floor=0.5', 0.8)
    """
    words = " ".join(text.split())
    first = words.partition(" ")[0]
    paired = " not worse than " in f" {words}"
    if first not in FORMS and not paired:
        raise unknown("first word of a requirement", first, FORMS)
    kind, pattern, example = FORMS["not" if paired else first]
    match = re.fullmatch(pattern, words)
    if match is None:
        raise SpecError(f"`require` must be of the form {example!r}, got {words!r}.")
    given = {name: found for name, found in match.groupdict().items() if found is not None}
    made = Requirement(words, kind, name=given.get("name", ""))
    if kind is Kind.GRADE:
        require_one_of("grade", made.name, GRADE_LETTERS)
        if made.name == GRADE_LETTERS[-1]:
            raise SpecError(f"`grade` must be better than {made.name}, which every run has.")
    if kind not in TESTED:
        return replace(made, name=find_flag(made.name)) if kind is Kind.FLAG else made
    value = _number(given["value"], words)
    if kind is Kind.PAIRED:
        made = replace(made, at_least=-value / 100)
    else:
        made = replace(made, at_least=value / 100 if "percent" in given else value)
        if not 0 < made.at_least < 1:
            raise SpecError(
                f"`require` must ask for a fraction in (0, 1), got {words!r}. Example: {example}"
            )
    return _with_source(_with_set(made, given), given, budget)


def find_flag(name: str) -> str:
    """Return the id of a flag, from the id or from a word that only one id has.

    >>> find_flag("masking")
    'gradient-masking'
    """
    near = [each for each in SEVERITY if name in each.split("-")]
    if name not in SEVERITY and len(near) != 1:
        raise unknown("flag", name, SEVERITY)
    return name if name in SEVERITY else near[0]


def _with_set(made: Requirement, given: dict[str, str]) -> Requirement:
    if made.kind is not Kind.BOUND:
        return made
    sets = parse_spec(given["set"])
    if ":" not in given["set"] or len(sets) > 1:
        raise SpecError(
            f"`bound` must name a set and one size, got {given['set']!r}. Example: bound tv:0.05 >= 0.9"
        )
    return replace(made, noise_set=sets[0])


def _with_source(made: Requirement, given: dict[str, str], budget: Budget) -> Requirement:
    """Return the requirement with its source (the noise of the floor by default) or learned noise."""
    metric = Metric(given["metric"]) if "metric" in given else None
    source = given.get("source", "")
    if metric is Metric.ACCURACY:
        if source or made.kind is Kind.WORST:
            raise SpecError(
                f"`accuracy` must be without noise and slices, got {made.text!r}."
                " Example: accuracy >= 0.95"
            )
        return replace(made, metric=metric)
    if metric is Metric.NPPR:
        if made.kind is Kind.PAIRED:
            raise SpecError(
                "`NPPR` must not be compared with a baseline: each is an upper bound that a search of"
                f" its own found, got {made.text!r}. Example: {FORMS['not'][2]}"
            )
        floor = _number(given.get("floor", "0"), made.text)
        return replace(made, metric=metric, admissible=AdmissibleSet.parse(source, floor))
    if "floor" in given:
        raise SpecError(
            f"`floor` must be given with NPPR only, got {made.text!r}. Example: {FORMS['NPPR'][2]}"
        )
    if metric is not None and not source:
        raise SpecError(f"`{metric}` must name a source, got {made.text!r}. Example: PR uniform")
    if source.split(":")[0] == NPPR:
        raise SpecError(
            f"`require` must name a source that is measured by its name, got {source!r} in"
            f" {made.text!r}. Learned noise: NPPR joint >= 0.5"
        )
    (noise,) = parse_sources(source.replace(",", " ") or FLOOR_NOISE, budget)
    if metric not in (None, noise.metric):
        raise SpecError(
            f"`{metric}` must name a source that gives {metric}, got {noise.name!r} in {made.text!r},"
            f" which gives {noise.metric}."
        )
    return replace(made, metric=noise.metric, source=noise.name)


def _number(text: str, words: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SpecError(f"`require` must have numbers, got {text!r} in {words!r}.") from None
