from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from nppr.study.engine_local import Workers
from nppr.study.plan import plan
from nppr.study.read import study_from
from nppr.study.work import DONE
from study.toys import log_of, toy


def test_a_worker_that_dies_while_it_is_idle_is_started_again(tmp_path: Path) -> None:
    graph = plan(study_from(toy(grids__0={"radii": [0.1], "sources": ["uniform"]})))
    engine = Workers(str(tmp_path), 1)
    try:
        for node in graph.nodes.values():
            engine.submit(node)
            assert [outcome.status for outcome in engine.wait()] == [DONE]
            os.kill(log_of(tmp_path)[-1]["process"], signal.SIGKILL)
            time.sleep(0.5)  # so that its loss is known
    finally:
        engine.close(interrupted=False)
    assert len({entry["process"] for entry in log_of(tmp_path)}) == 2
