"""Datasets on disk: their writer and reader, and dictionaries of terms."""
