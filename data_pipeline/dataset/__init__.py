"""The dataset on disk: written, read, and as a dictionary of terms."""
