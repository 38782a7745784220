"""Processes: exit status, signals, bad input."""
