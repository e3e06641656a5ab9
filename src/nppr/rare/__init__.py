"""Rare failures: probabilities of single inputs far below what plain draws can show."""

from nppr.rare.failure_probabilities import (
    Combined,
    Rare,
    combined,
    joined,
    rare_csv,
    rare_failures,
    read_rare,
    write_rare,
)
from nppr.rare.splitting import Status

__all__ = [
    "Combined", "Rare", "Status", "combined", "joined", "rare_csv", "rare_failures", "read_rare",
    "write_rare",
]  # fmt: skip
