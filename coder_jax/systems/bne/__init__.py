"""BNE: names from words and characters (Phan, Sun, Tay 2019)."""
