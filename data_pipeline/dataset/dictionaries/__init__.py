"""What the dictionary of a dataset or a release is read from, and what of it is taken."""
