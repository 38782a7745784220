"""The QUAERO corpus: French mentions whose semantic group is given, scored by P, R and F1."""
