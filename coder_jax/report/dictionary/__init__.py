"""What there is to see of the terms of a dictionary: maps, neighbours, answers by classes."""
