"""What trained generators and rankers answer: candidates, scores, and both together."""
