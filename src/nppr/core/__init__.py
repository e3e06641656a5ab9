"""Shared vocabulary of the package: budgets, tallies, tasks and random draws."""
