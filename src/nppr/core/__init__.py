"""What everything is counted in: budgets, tallies, tasks, draws."""
