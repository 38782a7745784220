"""Whole concepts taken out of a terminology before training, to measure what of concepts that it
has never seen an encoder learned: which of their names belong together.

The choice is a stateless hash of the concept's identifier and a seed, as that of synonyms is.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import polars as pl

from data_pipeline.files.rows import read_text
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.text.words import words_of
from data_pipeline.terminology.heldout.synonyms import hash_of, without_strings, write_tsv
from data_pipeline.terminology.terminology import Terminology

CONCEPTS = "concepts.tsv"


def hold_out_concepts(
    terminology: Terminology, count: int, seed: int, phrases: Path | None = None
) -> tuple[Terminology, pl.DataFrame]:
    """Takes whole concepts out: their terms, codes, types and relations.

    A concept can be held out if it has two terms or more, and no other concept has one of its
    terms, case aside: so no training sees them.

    Args:
      terminology: with all its terms.
      count: of the concepts.
      seed: another seed chooses other concepts.
      phrases: a file of phrases, one a line or in the first column of a table with tabs: only terms
        with the words of one of these (`sources.text.words`) count, and are returned. (Phan et al.
        2019, section 4.1, take those of PubMed Phrases.)
    Returns:
      the terminology without the concepts, numbered anew; and term and CUI (strings) of theirs,
      of terms that differ in case alone the first.
    Raises BadInput if fewer concepts than `count` can be held out.
    """
    alike = pl.col("term").str.to_lowercase()
    terms = terminology.terms.select("concept", "term", alike=alike)
    shared = terms.unique(["concept", "alike"]).group_by("alike").len().filter(pl.col("len") > 1)
    is_shared = terms.join(shared, on="alike", how="semi")["concept"].unique()
    pool = terms.filter(~pl.col("concept").is_in(is_shared.implode()))
    pool = pool.unique(["concept", "alike"], keep="first", maintain_order=True)
    if phrases is not None:
        known = {" ".join(words_of(line.split("\t")[0])) for line in read_text(phrases).split("\n")}
        pool = pool.filter([" ".join(words_of(term)) in known for term in pool["term"]])
    pool = pool.filter(pl.len().over("concept") > 1)
    concepts = pool["concept"].unique(maintain_order=True).to_numpy()
    if not 1 <= count <= len(concepts):
        among = f", of which {phrases} has two" if phrases else ""
        raise BadInput(
            f"--hold-out-concepts {count:,}: found {len(concepts):,} concepts that can be held out "
            f"(with two terms or more that no other concept has{among}); expected 1 to so many"
        )
    hashes = np.array([hash_of(cui, seed) for cui in terminology.cuis.gather(concepts)], np.uint64)
    held = concepts[np.argsort(hashes, kind="stable")[:count]]
    pool = pool.filter(pl.col("concept").is_in(held.tolist()))
    names = pool.select("term", CUI=terminology.cuis.gather(pool["concept"]))
    return _without_concepts(terminology, held), names


def _without_concepts(terminology: Terminology, held: np.ndarray) -> Terminology:
    """The terminology without some of its concepts; the others keep their order."""
    stays = np.ones(len(terminology.cuis), bool)
    stays[held] = False
    number = (np.cumsum(stays) - 1).astype(np.int32)

    def rows(table: pl.DataFrame) -> pl.DataFrame:
        kept = table.filter(pl.Series(stays[table["concept"].to_numpy()]))
        return kept.with_columns(concept=pl.Series(number[kept["concept"].to_numpy()]))

    gone = terminology.terms.filter(pl.Series(~stays[terminology.terms["concept"].to_numpy()]))
    terms = rows(terminology.terms)
    is_edge = stays[terminology.heads] & stays[terminology.tails]
    types = np.diff(terminology.type_start)
    cuis = terminology.cuis.filter(pl.Series(stays))
    return dataclasses.replace(
        terminology,
        cuis=cuis,
        successors=terminology.successors.filter(pl.col("cui").is_in(cuis.implode())),
        terms=without_strings(terms, gone["term"]),
        codes=rows(terminology.codes),
        heads=number[terminology.heads[is_edge]],
        relations=terminology.relations[is_edge],
        tails=number[terminology.tails[is_edge]],
        type_start=np.concatenate([[0], np.cumsum(types[stays])]).astype(np.int64),
        types=terminology.types[np.repeat(stays, types)],
        report=terminology.report
        | {
            "concepts held out": len(held),
            "terms of concepts held out": gone.height,
            "triplets of concepts held out": int((~is_edge).sum()),
            "terms kept": terms.height,
        },
    )


def write_heldout_concepts(folder: Path, names: pl.DataFrame) -> dict[str, int]:
    """Writes concepts.tsv (term, CUI), with a header; returns how many of each it has."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tsv(names, folder / CONCEPTS)
    return {"concepts": names["CUI"].n_unique(), "terms": names.height}
