"""Benchmarks: each is a command that writes JSON and a table for README.md."""
