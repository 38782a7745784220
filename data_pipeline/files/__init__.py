"""Files: written whole or not at all, locked, in buckets, rows of text."""
