"""Benchmarks of normalization: mentions looked up in a dictionary."""
