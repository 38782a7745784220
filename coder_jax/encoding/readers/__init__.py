"""What reads terms: a BERT with its tokenizer, or an encoder of names with its words."""
