"""The command that builds a dataset from a terminology."""
