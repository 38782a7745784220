"""Encoding of terms and exact search of nearest vectors: `TermEncoder`, files of vectors,
search.
"""
