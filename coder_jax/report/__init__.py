"""The report of a run, as one HTML file without external resources."""
