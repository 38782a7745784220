"""Skip-grams of words, of names and of concepts: text in, a folder of vectors out."""
