"""Benchmarks of concepts: similarity of medical concepts (MCSM), case studies."""
