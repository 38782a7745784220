"""Mentions of one concept or several, with their dictionary: folders of arrays."""
