"""Studies: many runs from one file, each computed once, and their tables.

    from nppr.study.plan import plan
    from nppr.study.run_study import run_study
    from nppr.study.study_file import read_study

    study = read_study("study.toml")
    run_study(study, plan(study), workers=2)

Nothing is imported here: a process that works for a study loads what its nodes need and no more.
"""
