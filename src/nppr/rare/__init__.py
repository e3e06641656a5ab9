"""Rare failures: probabilities of single inputs far below what plain draws can show."""

from nppr.rare.failure_probabilities import (
    FEWEST,
    REPLICATES,
    Combined,
    Rare,
    calls_for,
    combined,
    joined,
    rare_csv,
    rare_failures,
    read_rare,
    write_rare,
)
from nppr.rare.latent_noise import Latent, make_latent
from nppr.rare.splitting import Judge, Levels, Run, Status, run_splitting

__all__ = [
    "FEWEST", "REPLICATES", "Combined", "Judge", "Latent", "Levels", "Rare",
    "Run", "Status", "calls_for", "combined", "joined", "make_latent",
    "rare_csv", "rare_failures", "read_rare", "run_splitting", "write_rare",
]  # fmt: skip
