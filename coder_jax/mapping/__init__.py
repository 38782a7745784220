"""Mapping of mentions to a dictionary's concepts, with a reason where there is no answer."""
