"""What a run shows beside its numbers: the worst inputs of some sources, and draws of learned noise."""

from nppr.collect.everything import collect

__all__ = ["collect"]
