"""The page on which people decide on a coded list, one offline HTML file: list and terms in it."""
