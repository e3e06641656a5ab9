"""The machine: files, processes, code of users."""
