"""What gives vectors to score: encoders, and files of word and concept vectors."""
