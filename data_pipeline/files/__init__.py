"""Files on disk and in buckets: atomic writes, locks, JSON formats, tables."""
