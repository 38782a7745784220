"""Terms to vectors, and vectors to the nearest: `TermEncoder`, files of vectors, exact search."""
