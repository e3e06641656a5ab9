import sys

import pytest

from nppr.data import load_data
from nppr.errors import DataError


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"package datasets.*pip install 'nppr\[hf\]'"):
        load_data("hf:cifar10")
