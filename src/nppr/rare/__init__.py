"""Rare failures: failure probabilities of single inputs far below the reach of plain draws."""

from nppr.rare.failure_probabilities import (
    CombinedFailures,
    Rare,
    add_rare_failures,
    estimate_rare_failures,
    format_rare_csv,
    join_rare,
    read_rare,
    write_rare,
)
from nppr.rare.splitting import Status

__all__ = [
    "CombinedFailures",
    "Rare",
    "Status",
    "add_rare_failures",
    "estimate_rare_failures",
    "format_rare_csv",
    "join_rare",
    "read_rare",
    "write_rare",
]  # fmt: skip
