"""The batch of a step: a pure function of dataset, seed and step."""
