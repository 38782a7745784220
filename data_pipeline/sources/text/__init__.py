"""Text: documents of sentences, and the one rule by which names and text become words."""
