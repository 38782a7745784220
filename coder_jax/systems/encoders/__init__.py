"""What the systems share that train a BERT."""
