from __future__ import annotations

from pathlib import Path

import pytest

from nppr import learn
from nppr.noise import Dependency, Family
from nppr.errors import RunFolderError
from nppr.search import default_settings
from nppr.search.fitting import FitProgress

SMALL = default_settings(Family(Dependency.JOINT, components=2), calls=2048, inputs=64)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "distributions").iterdir())}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    learn(fit=SMALL, fit_inputs=200, select_inputs=80, out=folder, overwrite=True)
    return contents(folder)


@pytest.mark.parametrize("stage", ["independent", "input", "joint, floor 0.5"])
def test_an_interrupted_fit_ends_in_the_same_bytes(
    stage: str, whole: dict[str, bytes], tmp_path: Path
) -> None:
    def interrupt(state: FitProgress) -> None:
        if state.stage == stage and state.step == max(1, state.steps - 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(fit=SMALL, fit_inputs=200, select_inputs=80, out=tmp_path / "run", on_fit=interrupt)
    assert not (tmp_path / "run" / "distributions").exists()
    steps: list[str] = []
    learn(
        fit=SMALL, fit_inputs=200, select_inputs=80, out=tmp_path / "run", resume=True,
        on_fit=lambda state: steps.append(f"{state.stage} {state.step}"),
    )  # fmt: skip
    assert f"{stage} 1" not in steps  # it went on, it did not start again
    assert contents(tmp_path / "run") == whole


def test_the_micro_batch_of_measuring_does_not_change_a_fit(
    whole: dict[str, bytes], tmp_path: Path
) -> None:
    learn(fit=SMALL, fit_inputs=200, select_inputs=80, out=tmp_path / "run", batch_size=7)
    assert contents(tmp_path / "run") == whole


def test_damaged_states_are_refused_in_one_line(tmp_path: Path) -> None:
    def interrupt(state: FitProgress) -> None:
        if state.stage == "input":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(fit=SMALL, fit_inputs=200, select_inputs=80, out=tmp_path, on_fit=interrupt)
    for path in (tmp_path / "fit").iterdir():
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(RunFolderError, match="`resume` must find whole files") as caught:
            learn(fit=SMALL, fit_inputs=200, select_inputs=80, out=tmp_path, resume=True)
        assert "\n" not in str(caught.value)
        path.write_bytes(content)
