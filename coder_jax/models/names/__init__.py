"""The encoder of names: characters and words through two BiLSTMs."""
