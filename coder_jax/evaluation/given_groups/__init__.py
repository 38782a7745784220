"""Benchmarks of normalization whose mentions have a semantic group that is given."""
