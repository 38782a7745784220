"""Benchmarks of relations: classification (DDBRC) and link prediction."""
