"""The systems: one module or package for each paper, with its objective."""
