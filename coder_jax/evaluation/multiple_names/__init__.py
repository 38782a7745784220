"""Mentions of one concept or several: scores of sets of concepts, baselines, the paper's tables."""
