"""Which triplets and terms a step takes: a file for each kind of draw."""
