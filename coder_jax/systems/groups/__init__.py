"""What the systems share that learn from groups of triplets."""
