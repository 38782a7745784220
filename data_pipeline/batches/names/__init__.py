"""Batches of names as words and characters, with vectors of words and targets."""
