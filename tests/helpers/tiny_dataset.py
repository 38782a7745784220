"""A dataset in memory, small enough to look through, with all that a real one has."""

import hashlib
from pathlib import Path

import numpy as np

from data_pipeline.dataset.store import Counts, Manifest, TokenizerOfData, TripletDataset


def tiny_dataset(
    *, concepts: int, triplets: int, relations: int = 5, vocabulary: int = 100, seed: int = 0
) -> TripletDataset:
    """Random concepts with 1 to 6 terms of 3 to 12 tokens, and distinct random triplets."""
    rng = np.random.default_rng(seed)
    terms = rng.integers(1, 7, concepts)
    lengths = rng.integers(3, 13, terms.sum())
    # Half of the concepts head triplets, so that draws meet concepts without any.
    pairs = rng.permutation(concepts // 2 * concepts)[:triplets]
    heads, tails = np.sort(pairs) // concepts, np.sort(pairs) % concepts
    tables = {
        "tokens": rng.integers(1, vocabulary, lengths.sum()).astype(np.int32),
        "relations": rng.integers(0, relations, triplets).astype(np.int32),
    }
    types = rng.integers(0, 3, concepts)  # of a concept: none, one, or two
    return TripletDataset(
        folder=Path("tiny"),
        manifest=Manifest(
            name="tiny",
            release="1",
            cleaning="none",
            content_hash=hashlib.sha256(f"seed {seed}".encode()).hexdigest(),
            fingerprint="0" * 64,
            languages=["ENG"],
            vocabularies=["TINY"],
            relations=[f"RO|r{i}" for i in range(relations)],
            semantic_types=[f"T{i}" for i in range(4)],
            counts=Counts(
                concepts=concepts,
                terms=int(terms.sum()),
                tokens=int(lengths.sum()),
                triplets=triplets,
                concept_types=int(types.sum()),
                term_vocabularies=int(terms.sum()),
                cut_terms=0,
                unknown_terms=0,
                longest_term_tokens=int(lengths.max()),
                concepts_with_synonyms=int((terms > 1).sum()),
                triplets_with_synonyms=int(((terms[heads] > 1) & (terms[tails] > 1)).sum()),
                terms_by_language={"ENG": int(terms.sum())},
            ),
            report={},
            warnings=[],
            held_out=None,
            tokenizer=TokenizerOfData(
                name="tiny",
                hash="0" * 64,
                max_length=12,
                vocab_size=vocabulary,
            ),
            shards=[],
        ),
        term_start=np.concatenate([[0], np.cumsum(terms)]).astype(np.int64),
        token_start=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        heads=heads.astype(np.int32),
        tails=tails.astype(np.int32),
        term_language=np.zeros(terms.sum(), np.uint8),
        type_start=np.concatenate([[0], np.cumsum(types)]).astype(np.int64),
        types=rng.integers(0, 4, types.sum()).astype(np.int32),
        **tables,
    )
