"""How badly can unknown noise hurt a classifier, and what robustness can you rely on?

    import nppr

    report = nppr.assess(model, (images, labels), budget=nppr.Budget.linf("8/255"))
    print(report.table())

Names are loaded when they are first used, so that `import nppr` and `nppr --help` stay quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nppr.core.budget import Budget
    from nppr.core.tally import Estimate, Tally
    from nppr.core.task import Task
    from nppr.core.transformations import CustomTransform
    from nppr.data import Data, from_arrays, load_data
    from nppr.errors import ModelUnavailableError, NpprError
    from nppr.measuring.measurement import measure
    from nppr.models import Classifier, load_classifier
    from nppr.models.formats.array_models import ArrayModel
    from nppr.noise.distribution import Distribution
    from nppr.noise.family import Family
    from nppr.noise.rungs import Dependency
    from nppr.report import Report, read_report, read_run
    from nppr.run.assess import assess, learn
    from nppr.search.learned_noise import LearnedNoise, load_learned
    from nppr.search.search_settings import SearchSettings, default_settings, paper_settings
    from nppr.settings import Measure, Run, Search
    from nppr.sources import CW, PGD, Gaussian, Laplace, Source, Uniform
    from nppr.sources.custom import CustomAttack, CustomNoise
    from nppr.sources.learned import Learned

_HOMES = {
    "nppr.run.assess": ("assess", "learn"),
    "nppr.core.budget": ("Budget",),
    "nppr.models": ("Classifier", "load_classifier"),
    "nppr.models.formats.array_models": ("ArrayModel",),
    "nppr.data": ("Data", "from_arrays", "load_data"),
    "nppr.errors": ("ModelUnavailableError", "NpprError"),
    "nppr.measuring.measurement": ("measure",),
    "nppr.noise.distribution": ("Distribution",),
    "nppr.noise.family": ("Family",),
    "nppr.noise.rungs": ("Dependency",),
    "nppr.report": ("Report", "read_report", "read_run"),
    "nppr.search.learned_noise": ("LearnedNoise", "load_learned"),
    "nppr.search.search_settings": ("SearchSettings", "default_settings", "paper_settings"),
    "nppr.settings": ("Measure", "Run", "Search"),
    "nppr.sources": ("CW", "PGD", "Gaussian", "Laplace", "Source", "Uniform"),
    "nppr.sources.custom": ("CustomAttack", "CustomNoise"),
    "nppr.sources.learned": ("Learned",),
    "nppr.core.tally": ("Estimate", "Tally"),
    "nppr.core.task": ("Task",),
    "nppr.core.transformations": ("CustomTransform",),
}
"""Public names by the module they are loaded from."""

__all__ = [
    "CW", "PGD", "ArrayModel", "Budget", "Classifier", "CustomAttack", "CustomNoise", "CustomTransform",
    "Data", "Dependency", "Distribution", "Estimate", "Family", "Gaussian", "Laplace", "Learned",
    "LearnedNoise", "Measure", "ModelUnavailableError", "NpprError", "Report", "Run", "Search",
    "SearchSettings", "Source",
    "Tally", "Task", "Uniform", "assess", "default_settings", "from_arrays", "learn", "load_classifier",
    "load_data", "load_learned", "measure", "paper_settings", "read_report", "read_run",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("nppr")
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'nppr' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
