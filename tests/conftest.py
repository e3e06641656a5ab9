from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from torch import Tensor

from installed_package import install_the_package_of_the_page
from nppr.models import prepare_classifier

settings.register_profile("nppr", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("nppr")
"""A busy machine is no fault: no test by Hypothesis has a limit of time."""


_INSTALLED = tempfile.TemporaryDirectory()
install_the_package_of_the_page(Path(_INSTALLED.name))
sys.path.append(_INSTALLED.name)
"""The package of docs/extending.md is installed for all tests: the contract test finds its source."""


@pytest.fixture(scope="session")
def installed() -> Path:
    """The folder of the installed package, for the search path of other processes."""
    return Path(_INSTALLED.name)


@pytest.fixture(autouse=True, scope="session")
def _interruptible() -> Iterator[None]:
    """A job in the background may start with Ctrl-C ignored; tests and their processes need it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="session")
def _without_waiting_for_the_disk() -> Iterator[None]:
    """No test cuts the power; `system/test_records.py` watches that files are synchronised."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _short_timings() -> Iterator[None]:
    """The speed of a form or a micro-batch changes no count: a tenth of the time is enough."""
    best_times = prepare_classifier._best_times

    def shorter(
        passes: Sequence[Callable[[], Tensor]],
        least: int = 3,
        most: int = 20,
        enough: float = 0.24,
    ) -> list[float]:
        return best_times(passes, least, most, enough / 10)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare_classifier, "_best_times", shorter)
        yield


LONGEST = (
    "test_shards.py", "test_campaigns.py", "test_guides.py", "test_measure_commands.py",
    "test_scheduler.py", "test_workers.py", "test_search.py", "test_contract.py",
    "test_assess.py", "test_check_commands.py", "test_study_command.py", "test_registry.py",
    "test_transformed_run.py", "test_examples.py", "test_theory.py", "test_gate.py",
    "test_learn.py", "test_precision.py", "test_command_line.py", "test_report_commands.py",
    "test_rough_gradients.py", "test_training_loop.py", "test_page.py",
)  # fmt: skip
"""Files that begin first, the longest of them at the front: short files then fill both processes."""


def pytest_configure(config: pytest.Config) -> None:
    """Without this pytest-xdist begins with the files that have the most tests."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
