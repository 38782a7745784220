"""Synonyms and concepts that are held out of training, to measure by."""
