"""A list of mentions in, for each the concept of a dictionary or the reason why there is none."""
