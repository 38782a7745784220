"""The systems: one paper, one room, with its objective on the vectors of a group."""
