import numpy as np
import pytest

from nppr.core.tally import Evaluate, Fit, Select, SplitKind, Tally, require_evaluate
from nppr.errors import SplitError


def tally(kind: type[SplitKind]) -> Tally[SplitKind]:
    return Tally(
        kind=kind,
        indices=np.arange(4),
        labels=np.zeros(4, np.int64),
        clean_correct=np.array([True, True, False, True]),
        correct=np.array([10, 5, 10, 0]),
        draws=10,
        calls=40,
        micro_batch=8,
    )


def test_readings() -> None:
    known = tally(Evaluate)
    assert known.rates.tolist() == [1.0, 0.5, 1.0, 0.0]
    assert known.headline_rates.tolist() == [1.0, 0.5, 0.0]
    assert known.unbroken.tolist() == [True, False, True, False]


def test_only_evaluate_may_be_reported() -> None:
    require_evaluate(tally(Evaluate))  # type: ignore[arg-type]
    for kind in (Fit, Select):
        with pytest.raises(SplitError, match=kind.name):
            require_evaluate(tally(kind))  # type: ignore[arg-type]
