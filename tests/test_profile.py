"""The profile of Hypothesis, which `conftest.py` registers once."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=1)
@given(st.just(0.3))
def test_a_busy_machine_fails_no_property(seconds: float) -> None:
    time.sleep(seconds)  # longer than the limit that Hypothesis has by itself
