"""Batches of mentions: with names of their concepts and of others, or with candidates."""
