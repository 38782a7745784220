"""The report of a run: an encoder, terms and scores in; one HTML file that needs no other out."""
