"""Skip-gram vectors of words, names and concepts, learnt from text."""
