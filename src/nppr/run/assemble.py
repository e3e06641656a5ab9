"""The report, from what a run found."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from nppr.checks import grade
from nppr.classifiers import Prepared
from nppr.distributed import world
from nppr.report.schema import SCHEMA_VERSION, AtRadius, Flag, Report, Result
from nppr.run.settings import Facts

__all__ = ["assemble"]


def assemble(
    facts: Facts,
    classifier: Prepared,
    results: Sequence[Result],
    distributions: Sequence[dict[str, Any]],
    flags: Sequence[Flag],
    seconds: Mapping[str, float],
    *,
    rare: Sequence[dict[str, Any]],
    precision: dict[str, Any] | None,
    radii: Sequence[AtRadius],
) -> Report:
    """Facts, results and flags with the grade they make, the time it took and the environment."""
    return Report(
        schema_version=SCHEMA_VERSION,
        nppr_version=version("nppr"),
        classifier=facts.classifier,
        data=facts.data,
        budget=facts.budget,
        seed=facts.seed,
        settings=facts.settings,
        results=tuple(results),
        distributions=tuple(distributions),
        flags=tuple(flags),
        grade=asdict(grade(flags)),
        timing={
            "seconds": dict(seconds),
            "total_seconds": round(sum(seconds.values()), 3),
            "images_per_second": round(classifier.images_per_second, 1),
        },
        environment={
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "platform": platform.platform(),
            "device": str(classifier.device),
            "threads": torch.get_num_threads(),
            "ranks": world().size,
            "micro_batch": classifier.micro_batch,
            "form": list(classifier.form),
        },
        rare=tuple(rare),
        precision=precision,
        radii=tuple(radii),
    )
