"""Benchmarks: one command each, figures as JSON and a table in README.md."""
