"""MLNorm (Wajsbürt, Sarfati and Tannier 2021): a cosine softmax over all concepts."""
