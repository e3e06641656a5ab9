"""An engine on a Ray cluster; the cache must be a folder that all its machines share."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

from nppr.errors import SpecError
from nppr.study.graph import Node
from nppr.study.work import FAILED, Outcome, perform

__all__ = ["RayCluster"]

MOST_RETRIES = 3
SECONDS = 3.0
"""How long an address may take to answer."""
CHECK_SECONDS = 15.0
"""How long Ray's own check may take, in a process of its own."""
HEALTH_CHECK = (sys.executable, "-m", "ray.scripts.scripts", "health-check")


class RayCluster:
    """Nodes as tasks of Ray: one that loses its worker is run again.

    Without an address a cluster of `workers` processes is started on this machine.
    """

    def __init__(self, cache: str, address: str | None, workers: int | None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
        try:
            import ray
        except ImportError as error:
            raise SpecError(
                "`ray` must be installed for --ray. Install it with: pip install 'nppr[ray]'"
            ) from error
        self._ray: Any = ray
        self._cache = cache
        if address is not None:
            _require_answer(address)
        own = {} if address else {"num_cpus": workers, "include_dashboard": False}
        try:
            self._ray.init(
                address=address or "local", log_to_driver=False, logging_level="ERROR", **own
            )
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            why = " ".join(str(error).split())[:160]
            raise SpecError(
                f"`ray` must be a cluster that answers, got {address!r}: {why}"
            ) from error
        processors = int(self._ray.cluster_resources().get("CPU", 1))
        self.slots = min(workers or processors, max(1, processors))
        self._task: Any = self._ray.remote(num_cpus=1, max_retries=MOST_RETRIES)(perform)
        self._busy: dict[Any, Node] = {}

    def submit(self, node: Node) -> None:
        self._busy[self._task.remote(node, self._cache)] = node

    def wait(self) -> list[Outcome]:
        done, _ = self._ray.wait(list(self._busy), num_returns=1)
        outcomes: list[Outcome] = []
        for reference in done:
            node = self._busy.pop(reference)
            try:
                outcomes.append(self._ray.get(reference))
            except self._ray.exceptions.RayError as error:
                why = f"its worker was lost {1 + MOST_RETRIES} times: {str(error).splitlines()[0]}"
                outcomes.append(Outcome(node.hash, FAILED, error=why))
        return outcomes

    def close(self, *, interrupted: bool) -> None:
        if interrupted:
            for reference in self._busy:
                self._ray.cancel(reference)
        self._ray.shutdown()


def _require_answer(address: str) -> None:
    """Find out in seconds whether anybody listens, before Ray waits for minutes."""
    if address == "auto":
        return
    place = address.removeprefix("ray://")
    host, colon, port = place.rpartition(":")
    if not colon or not port.isdigit():
        raise SpecError(f"`ray` must be an address, got {address!r}. Example: --ray 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS).close()
        if place == address:  # a ray:// address speaks another language
            subprocess.run(
                [*HEALTH_CHECK, "--address", place],
                check=True,
                timeout=CHECK_SECONDS,
                capture_output=True,
            )
    except (OSError, OverflowError, subprocess.SubprocessError) as error:
        told = isinstance(error, subprocess.SubprocessError)
        why = "what listens there is not Ray" if told else error
        raise SpecError(
            f"`ray` must be a cluster that answers, got {address!r}: {why}. Start one with:"
            " ray start --head"
        ) from error
