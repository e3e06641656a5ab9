from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("nppr", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("nppr")
"""A busy machine is no fault: no test by Hypothesis has a limit of time."""


@pytest.fixture(autouse=True, scope="session")
def _interruptible() -> Iterator[None]:
    """A job in the background may start with Ctrl-C ignored; tests and their processes need it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


LONGEST = ("test_campaigns.py", "test_gate_command.py", "test_rough_gradients.py")
"""Files that begin first, so that no process is left alone with them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST)
