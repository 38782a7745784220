"""Benchmarks: one command each, figures as JSON, and tables in docs/results."""
