"""Benchmarks of similarity: pairs of terms with scores by people."""
