"""Studies: many fits and measurements from one file, each computed once, and their tables.

    from nppr.study.plan import plan
    from nppr.study.read import read_study
    from nppr.study.run import run_study

    spec = read_study("study.toml")
    run_study(spec, plan(spec), workers=2)

Nothing is imported here: a process that works for a study loads what its nodes need and no more.
"""

from __future__ import annotations

__all__: list[str] = []
