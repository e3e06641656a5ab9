"""Files, processes and code of users."""
