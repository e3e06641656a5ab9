from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from nppr.system.process import hold_back_interrupts, keep_freed_memory, terminate_like_ctrl_c


@pytest.fixture(autouse=True)
def _default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_ctrl_c_waits() -> None:
    with hold_back_interrupts() as interrupt:
        interrupt.raise_if_asked()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupt.raise_if_asked()


def test_the_second_ctrl_c_does_not() -> None:
    with hold_back_interrupts():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_pythons_handler_comes_back_also_after_an_error() -> None:
    with pytest.raises(ValueError, match="some"), hold_back_interrupts():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        raise ValueError("some")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_program_is_kept() -> None:
    met: list[int] = []

    def own(number: int, _: object) -> None:
        met.append(number)

    signal.signal(signal.SIGINT, own)
    with hold_back_interrupts() as interrupt:
        assert signal.getsignal(signal.SIGINT) is own
        signal.raise_signal(signal.SIGINT)
        assert not interrupt.asked
    assert met == [signal.SIGINT]


def test_a_program_that_ignores_the_signal_goes_on_ignoring_it() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with hold_back_interrupts():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_leave_the_handler_alone() -> None:
    seen: list[object] = []

    def work() -> None:
        with hold_back_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


CHURN = """
import resource, sys
import torch
from nppr.system.process import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
torch.set_num_threads(1)
for _ in range(10):
    torch.ones(10 * 2**20)  # 40 MB: above any threshold the C library finds by itself
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.ones(10 * 2**20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(choice: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", CHURN, choice], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_freed_memory_is_not_fetched_page_by_page_again() -> None:
    assert faults("keep") * 10 < faults("leave")


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False


@pytest.fixture
def terminated() -> Iterator[Callable[[], bool]]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield terminate_like_ctrl_c()
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("ctrl_c", [signal.default_int_handler, signal.SIG_IGN], ids=["on", "off"])
def test_sigterm_interrupts_also_where_ctrl_c_is_ignored(
    terminated: Callable[[], bool], ctrl_c: Callable[[int, FrameType | None], None]
) -> None:
    signal.signal(signal.SIGINT, ctrl_c)
    assert not terminated()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert terminated()


@pytest.mark.parametrize("ctrl_c", [signal.default_int_handler, signal.SIG_IGN], ids=["on", "off"])
def test_the_first_sigterm_waits_and_the_second_does_not(
    terminated: Callable[[], bool], ctrl_c: Callable[[int, FrameType | None], None]
) -> None:
    signal.signal(signal.SIGINT, ctrl_c)
    before = signal.getsignal(signal.SIGTERM)
    with hold_back_interrupts() as interrupt:
        signal.raise_signal(signal.SIGTERM)
        assert terminated()
        assert interrupt.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGINT) is ctrl_c


def test_a_program_that_ignores_sigterm_goes_on_ignoring_it() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        terminated = terminate_like_ctrl_c()
        with hold_back_interrupts():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        assert not terminated()
    finally:
        signal.signal(signal.SIGTERM, before)


STOPPED = """
import signal, sys, time
from nppr.cli import main
import nppr.cli
def run():
    try:
        print("ready", flush=True)
        time.sleep(200)
    except KeyboardInterrupt:
        return 130
nppr.cli.run = run
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_sigterm_ends_a_command_like_ctrl_c(number: signal.Signals, code: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(200) == code
