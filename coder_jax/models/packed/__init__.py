"""What encoders of packed rows share: pooling, dropout that packing does not change, probes."""
