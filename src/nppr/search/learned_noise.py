"""Learned noise: a source with the record of how it was found, and its file.

NAME.safetensors is self-contained: tensors, budget, admissible set, normalisation and features of the
classifier, classes, the history of the search. Nothing in it is run or unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from nppr.core.budget import Budget
from nppr.core.tally import IntArray
from nppr.errors import DistributionError, NpprError
from nppr.models import Classifier
from nppr.noise.distribution import Distribution
from nppr.search.search_record import (
    FORMAT,
    BudgetRecord,
    DistributionRecord,
    LawRecord,
    LearnedNoiseRecord,
)
from nppr.sources.learned import Learned
from nppr.system.records import (
    UNREADABLE,
    compute_checksum,
    read_record,
    shorten_error,
    write_record,
)

SUFFIX = ".safetensors"
SEEN = "seen"


@dataclass(frozen=True, eq=False)
class LearnedNoise:
    """A learned source with the record of how it was found.

    `seen` are the digests of the inputs it was fitted and selected on, `(N,)`.
    """

    source: Learned
    record: LearnedNoiseRecord
    seen: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))

    def with_known(self, features: Mapping[int, Tensor] | None) -> LearnedNoise:
        """Return the noise with known features of inputs, by dataset index."""
        return replace(self, source=replace(self.source, known=features))

    def was_compared(self, fingerprint: str) -> bool:
        """Whether it was compared with reference noises on this classifier and in this budget."""
        classifier = self.record.classifier
        return (
            self.record.search.references is not None
            and self._fitted_in == BudgetRecord.of(self.source.budget)
            and classifier is not None
            and classifier.fingerprint == fingerprint
        )

    @property
    def _fitted_in(self) -> BudgetRecord:
        """Its budget without the hash of a function, which a run has compared."""
        return self.record.budget.model_copy(update={"fingerprint": None})

    @property
    def width(self) -> tuple[bool, float, int, int]:
        """Sorts by the width of the admissible set, the widest first and repeated searches last."""
        floor, structure, depth = self.record.admissible.place
        return (self.record.fit_seed is not None, floor, -structure, -depth)

    @property
    def winner(self) -> str | None:
        """The reference noise that was worse than the family on select, or None."""
        return self.record.winner

    @property
    def checksum(self) -> str:
        """A hash of all tensors and of the record, which its file holds."""
        return compute_checksum(self.source.distribution.state_dict(), self.record)

    def describe(self) -> DistributionRecord:
        """Its entry in the report."""
        known = DistributionRecord.model_fields
        return DistributionRecord(**{name: getattr(self.record, name) for name in known})


def save_learned(
    folder: Path,
    learned: Sequence[LearnedNoise],
    before: Callable[..., None] | None = None,
) -> list[Path]:
    """Write each distribution to a file under its name.

    `before` is given the paths before they are written.
    """
    paths = [folder / (each.source.name.replace(":", "_") + SUFFIX) for each in learned]
    if before:
        before(*paths)
    for path, each in zip(paths, learned, strict=True):
        state = each.source.distribution.state_dict()
        write_record(path, {**state, SEEN: torch.tensor(each.seen)}, each.record)
    return paths


def load_learned(
    path: str | Path, budget: Budget | None = None, feature_model: Classifier | None = None
) -> list[LearnedNoise]:
    """The distribution at a path, or all in a folder, for a budget (by default their own)."""
    place = Path(path)
    paths = [place if place.suffix == SUFFIX else Path(f"{place}{SUFFIX}")]
    if place.is_dir():
        inner = place / "distributions"  # of a run's folder
        paths = sorted((inner if inner.is_dir() else place).glob(f"*{SUFFIX}"))
        if not paths:
            raise DistributionError(
                f"`distribution` must be a folder with distributions, got {str(path)!r} with none."
                " Example: --distribution runs/fit"
            )
    learned = []
    for each in paths:
        distribution, record, seen = read_distribution(each)
        _require_same_domain(each, record, budget)
        source = Learned(
            budget or _budget(record),
            distribution,
            feature_model,
            record.dependency,
            record.fit_seed,
            structure=record.structure,
        )
        learned.append(LearnedNoise(source, record, seen))
    # Files are in the order of their names, a ladder is not.
    return sorted(learned, key=lambda each: each.record.admissible.place)


def read_distribution(path: Path) -> tuple[Distribution, LearnedNoiseRecord, IntArray]:
    """The distribution in a file, with its record and the digests of the inputs it has seen."""
    try:
        tensors, content = read_record(path)
        if content.get("format") != FORMAT:
            raise ValueError(f"it has format {content.get('format')}, this version reads {FORMAT}")
        record = LearnedNoiseRecord.model_validate(content)
        seen = tensors.pop(SEEN).numpy()
        if seen.dtype != np.int64 or seen.ndim != 1:
            raise ValueError(f"its digests are {seen.dtype} {seen.shape}, not whole numbers")
        distribution = build_distribution(record, tensors)
    except ValidationError as error:
        wrong = error.errors()[0]
        field = ".".join(str(each) for each in wrong["loc"])
        raise _unreadable(path, f"field {field!r}: {wrong['msg']}") from error
    except (NpprError, *UNREADABLE) as error:
        raise _unreadable(path, shorten_error(error)) from error
    return distribution, record, seen


def law_of(distribution: Distribution) -> LawRecord:
    """Return the record from which `build` makes this distribution again, beside its tensors."""
    return LawRecord(
        family=distribution.family,
        rule=distribution.rule,
        shape=distribution.shape,
        classes=distribution.classes,
        features=distribution.features,
    )


def build_distribution(law: LawRecord, tensors: Mapping[str, Tensor]) -> Distribution:
    """A distribution from its tensors; the caller's random numbers are left alone."""
    with torch.random.fork_rng(devices=[]):
        distribution = Distribution(law.family, law.shape, law.classes, law.features)
    distribution.load_state_dict(dict(tensors))
    if not all(bool(torch.isfinite(value).all()) for value in tensors.values()):
        raise ValueError("its tensors hold NaN or infinite numbers")
    chosen = distribution.chosen
    if not bool(((chosen >= 0) & (chosen < law.family.components)).all()):
        raise ValueError("it chooses components it does not have")
    distribution.rule = law.rule
    return distribution.eval()


def _budget(record: LearnedNoiseRecord) -> Budget:
    """The budget it was fitted in."""
    return Budget.parse(record.budget.transform or record.budget.norm, record.budget.radius)


def _require_same_domain(path: Path, record: LearnedNoiseRecord, budget: Budget | None) -> None:
    """Raise `DistributionError` unless noise of this record has a meaning in the budget."""
    own = record.budget.transform
    wanted = own if budget is None else budget.transform and budget.transform.spec
    if wanted != own:
        raise DistributionError(
            f"`distribution` must be noise of this budget, got {str(path)!r}, which was learned in"
            f" {record.budget}. Give {f'--transform {own}' if own else '--norm and --eps'}, or neither."
        )
    if budget is None:
        try:
            _budget(record)
        except NpprError as error:
            if own is None:
                raise _unreadable(path, shorten_error(error)) from error
            raise DistributionError(
                f"`budget` must be given for {str(path)!r}: it was learned with the transformation"
                f" {own}, a function of your own. Example: load_learned(path, Budget.box(transform))"
            ) from error


def _unreadable(path: Path, reason: str) -> DistributionError:
    return DistributionError(
        f"`distribution` must be a file written by nppr fit, got {str(path)!r}, which cannot be read:"
        f" {reason}. Example: --distribution runs/fit/distributions/nppr_joint.safetensors"
    )
