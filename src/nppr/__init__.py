"""How robust is a classifier at least, when the noise it will meet is unknown?

    import nppr

    report = nppr.assess(model, (images, labels), budget=nppr.Budget.linf("8/255"))
    print(report.table())

Names are loaded when they are first used, so that `import nppr` and `nppr --help` stay quick.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nppr.assess import assess
    from nppr.budget import Budget
    from nppr.classifiers import Classifier, load_classifier
    from nppr.data import Data, from_arrays, load_data
    from nppr.errors import NpprError
    from nppr.learn import learn
    from nppr.measurement import measure
    from nppr.noise import Dependency, Family
    from nppr.noise.distribution import Distribution
    from nppr.report import Report, read_report, read_run
    from nppr.search import SearchSettings, default_settings, paper_settings
    from nppr.search.learned_noise import LearnedNoise, load_learned
    from nppr.sources import CW, PGD, CustomAttack, CustomNoise, Gaussian, Laplace, Learned, Uniform
    from nppr.types import Estimate, Source, Tally

__all__ = [
    "CW",
    "PGD",
    "Budget",
    "Classifier",
    "CustomAttack",
    "CustomNoise",
    "Data",
    "Dependency",
    "Distribution",
    "Estimate",
    "Family",
    "Gaussian",
    "Laplace",
    "Learned",
    "LearnedNoise",
    "NpprError",
    "Report",
    "SearchSettings",
    "Source",
    "Tally",
    "Uniform",
    "assess",
    "default_settings",
    "from_arrays",
    "learn",
    "load_classifier",
    "load_data",
    "load_learned",
    "measure",
    "paper_settings",
    "read_report",
    "read_run",
]

_HOMES = {
    "assess": "nppr.assess",
    "Budget": "nppr.budget",
    "Classifier": "nppr.classifiers",
    "load_classifier": "nppr.classifiers",
    "Data": "nppr.data",
    "from_arrays": "nppr.data",
    "load_data": "nppr.data",
    "Dependency": "nppr.noise",
    "Distribution": "nppr.noise.distribution",
    "Family": "nppr.noise",
    "NpprError": "nppr.errors",
    "SearchSettings": "nppr.search",
    "default_settings": "nppr.search",
    "paper_settings": "nppr.search",
    "learn": "nppr.learn",
    "LearnedNoise": "nppr.search.learned_noise",
    "load_learned": "nppr.search.learned_noise",
    "measure": "nppr.measure",
    "Report": "nppr.report",
    "read_report": "nppr.report",
    "read_run": "nppr.report",
    "CW": "nppr.sources",
    "PGD": "nppr.sources",
    "CustomAttack": "nppr.sources",
    "CustomNoise": "nppr.sources",
    "Gaussian": "nppr.sources",
    "Laplace": "nppr.sources",
    "Learned": "nppr.sources",
    "Uniform": "nppr.sources",
    "Estimate": "nppr.types",
    "Source": "nppr.types",
    "Tally": "nppr.types",
}


class _Package(ModuleType):
    """Keeps `nppr.assess` the function when `nppr.assess` the module is imported."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'nppr' has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # The import system binds a submodule to its package once it is loaded.
        if isinstance(value, ModuleType) and _HOMES.get(name) == value.__name__:
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return __all__


sys.modules[__name__].__class__ = _Package
