"""Concepts and synonyms held out of training, for evaluation."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from data_pipeline.files.tables import CONCEPT_SEPARATOR, read_text
from data_pipeline.process import BadInput
from data_pipeline.sources.corpora import mention_rows
from data_pipeline.sources.text import words_of
from data_pipeline.terminology.cleaning import Strings, clean
from data_pipeline.terminology.terminology import Terminology

# -------------------------------------------------------------------------------------------------
# Synonyms taken out of a terminology before training, for an evaluation of the encoder.
#
# One term of each chosen concept becomes a mention whose concept is to be found among the terms
# that stay. The choice is a stateless hash of the concept's identifier and a seed: it does not
# depend on the order of the rows, and other filters change it only where they change a concept's
# terms.

_MENTIONS, _DICTIONARY = "mentions.tsv", "dictionary.tsv"
_TERMS_AT_ONCE = 1 << 20  # compared with the mentions


def hold_out(
    terminology: Terminology, amount: float, seed: int, languages: Sequence[str] = ()
) -> tuple[Terminology, pl.DataFrame]:
    """Holds out one term in each requested language of some concepts.

    A term can be held out if it is not the first (preferred) one of its concept, is in the language
    that is asked for, and its string, case aside, occurs nowhere else in the terminology: so the
    mention has one right answer, and comparing strings does not find it.

    Args:
      terminology: with all its terms.
      amount: for each language a fraction (0 < amount < 1) of the concepts that have such a term,
        or a count of them.
      seed: another seed chooses other concepts and terms.
      languages: some of `terminology.languages`; none: the first of them.
    Returns:
      the terminology without the held-out terms (each concept keeps one or more), and the table of
      mentions: mention, CUI, language (strings) and concept (int32), language by language and in
      the order of the concepts.
    Raises BadInput if fewer concepts than `amount` have such a term, or no term has the language.
    """
    unknown = sorted(set(languages) - set(terminology.languages))
    if unknown:
        raise BadInput(
            f"--hold-out-languages {' '.join(unknown)}: no term that is kept is in it; expected "
            f"some of {' '.join(terminology.languages)}"
        )
    eligible = _eligible_terms(terminology)
    mentions = pl.concat(
        _chosen(terminology, eligible, language, amount, seed)
        for language in dict.fromkeys(languages or terminology.languages[:1])
    )
    kept = terminology.terms.join(
        mentions.select("concept", "term"),
        on=["concept", "term"],
        how="anti",
        maintain_order="left",
    )
    report = terminology.report | {
        "terms held out": mentions.height,
        "terms kept": kept.height,
    }
    kept = _without_strings(kept, mentions["term"])
    without = dataclasses.replace(terminology, terms=kept, report=report)
    return without, mentions.select("CUI", "language", "concept", mention="term")


def _chosen(
    terminology: Terminology, eligible: pl.DataFrame, language: str, amount: float, seed: int
) -> pl.DataFrame:
    """The terms of a language that are held out: concept, term, CUI, language."""
    number = terminology.languages.index(language)
    eligible = eligible.filter(pl.col("language") == number).select("concept", "term")
    concepts = eligible["concept"].unique(maintain_order=True)
    count = _count(amount, len(concepts), language)
    cuis = terminology.cuis.gather(concepts)
    hashes = np.array([_hash_of(cui, seed) for cui in cuis], np.uint64)
    chosen = pl.DataFrame({"concept": concepts, "CUI": cuis, "hash": hashes})
    chosen = chosen.sort("hash", "CUI").head(count)
    # The same hash chooses the term, by bits on which the order above does not depend.
    return (
        eligible.join(chosen, on="concept")
        .sort("concept", "term")
        .with_columns(
            place=pl.int_range(pl.len()).over("concept"),
            several=pl.len().over("concept"),
            language=pl.lit(language),
        )
        .filter(pl.col("place") == (pl.col("hash") & 0xFFFFFFFF) % pl.col("several"))
        .select("concept", "term", "CUI", "language")
    )


def _without_strings(terms: pl.DataFrame, mentions: pl.Series) -> pl.DataFrame:
    """The terms without those source strings that are mentions, apart from case and blanks.

    Cleaned anew, a cleaned term may become another one ("Pain-NOS", "pain nos", "pain"), so that
    the strings of a term that stays may hold the mention that goes.
    """

    def alike(strings: Strings) -> Strings:
        return clean(strings, "none").str.to_lowercase()

    is_mention = alike(pl.element()).is_in(alike(mentions).to_list())
    kept = pl.col("strings").list.eval(pl.when(~is_mention).then(pl.element()))
    return pl.concat(part.with_columns(kept) for part in terms.iter_slices(_TERMS_AT_ONCE))


def write_heldout(
    folder: Path,
    terminology: Terminology,
    mentions: pl.DataFrame,
    dictionary_terms: int,
    seed: int,
    tested: pl.DataFrame | None = None,
) -> dict[str, int]:
    """Writes mentions.tsv (mention, CUI) and dictionary.tsv (term, CUI), both with a header.

    Of several languages mentions.tsv has the column language, too.

    The dictionary holds all remaining terms of the held-out concepts and of those of `tested`,
    other mentions (`mention_table`) that are to be looked up in it; then whole other concepts, in
    the order of their hash, up to `dictionary_terms` rows. `terminology` is the one that `hold_out`
    returned. Returns the row counts of the two files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    per_concept = np.diff(terminology.term_start())
    is_asked = np.zeros(len(per_concept), bool)
    is_asked[mentions["concept"].to_numpy()] = True
    held_out = int(per_concept[is_asked].sum())
    if tested is not None:
        is_asked[terminology.concepts_of(tested["CUI"])] = True
    needed = int(per_concept[is_asked].sum())
    room = dictionary_terms - needed
    if room < 0:
        raise BadInput(
            f"--heldout-dictionary {dictionary_terms:,}: the concepts of held-out terms have "
            f"{held_out:,} terms, those of --exclude-terms {needed - held_out:,} more. Give "
            f"{needed:,} or more, or hold out less."
        )
    others = np.flatnonzero(~is_asked)
    if per_concept[others].sum() > room:
        hashes = np.array(
            [_hash_of(cui, seed) for cui in terminology.cuis.gather(others)], np.uint64
        )
        others = others[np.argsort(hashes, kind="stable")]
        others = others[np.cumsum(per_concept[others]) <= room]
    is_listed = is_asked
    is_listed[others] = True
    in_dictionary = pl.Series(is_listed[terminology.terms["concept"].to_numpy()])
    dictionary = terminology.terms.filter(in_dictionary).select(
        "term", CUI=terminology.cuis.gather(terminology.terms["concept"].filter(in_dictionary))
    )
    several = ["language"] if mentions["language"].n_unique() > 1 else []
    _write_tsv(mentions.select("mention", "CUI", *several), folder / _MENTIONS)
    _write_tsv(dictionary, folder / _DICTIONARY)
    return {"mentions": mentions.height, "dictionary": dictionary.height}


def mention_table(path: Path) -> pl.DataFrame:
    """The mention and CUI of each row of a file of mentions; a row with several CUIs gives several.

    Raises BadInput as `mention_rows`.
    """
    rows = [
        (mention, cui)
        for mention, joined in mention_rows(path)
        for cui in joined.split(CONCEPT_SEPARATOR)
    ]
    return pl.DataFrame(rows, schema={"mention": pl.String, "CUI": pl.String}, orient="row")


def _eligible_terms(terminology: Terminology) -> pl.DataFrame:
    terms = terminology.terms
    concept = terms["concept"].to_numpy()
    is_preferred = np.concatenate([[True], concept[1:] != concept[:-1]])
    return (
        terms.with_columns(
            is_preferred=pl.Series(is_preferred),
            is_unique=pl.col("term").str.to_lowercase().is_unique(),
        )
        .filter(~pl.col("is_preferred") & pl.col("is_unique"))
        .select("concept", "term", "language")
    )


def _count(amount: float, eligible: int, language: str) -> int:
    if amount <= 0 or (amount > 1 and amount != int(amount)):
        raise BadInput(
            f"--hold-out {amount:g}: expected a fraction between 0 and 1, or a whole number; "
            "leave it out to set nothing aside"
        )
    count = int(amount) if amount >= 1 else round(amount * eligible)
    if not 1 <= count <= eligible:
        raise BadInput(
            f"--hold-out {amount:g} asks for {count:,} concepts; {eligible:,} have a term that can "
            f"be held out (not the preferred one, in {language}, in one concept only)"
        )
    return count


def _hash_of(cui: str, seed: int) -> int:
    """The hash by which concepts are ordered: the first ones are taken."""
    digest = hashlib.blake2b(f"{seed}:{cui}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _write_tsv(table: pl.DataFrame, path: Path) -> None:
    """Writes a table of cleaned terms as TSV."""
    # Cleaned terms contain neither tabs nor line breaks, so nothing needs quotes.
    table.write_csv(path, separator="\t", quote_style="never")


# -------------------------------------------------------------------------------------------------
# Whole concepts taken out of a terminology before training. They measure whether an encoder knows
# which names belong together, of concepts that it has never seen.
#
# The choice is a stateless hash of the concept's identifier and a seed, as that of synonyms is.

_CONCEPTS = "concepts.tsv"


def hold_out_concepts(
    terminology: Terminology, count: int, seed: int, phrases: Path | None = None
) -> tuple[Terminology, pl.DataFrame]:
    """Holds out whole concepts: their terms, codes, types and relations.

    A concept can be held out if it has two terms or more, and no other concept has one of its
    terms, case aside: so no training sees them.

    Args:
      terminology: with all its terms.
      count: of the concepts.
      seed: another seed chooses other concepts.
      phrases: a file of phrases, one a line or in the first column of a table with tabs: only terms
        with the words of one of these (`sources.text`) count, and are returned. (Phan et al.
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
    hashes = np.array([_hash_of(cui, seed) for cui in terminology.cuis.gather(concepts)], np.uint64)
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
        terms=_without_strings(terms, gone["term"]),
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
    """Writes concepts.tsv (term, CUI) with a header; returns the numbers of terms and concepts."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_tsv(names, folder / _CONCEPTS)
    return {"concepts": names["CUI"].n_unique(), "terms": names.height}
