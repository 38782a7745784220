"""ModernBERT: its sizes and its network."""
