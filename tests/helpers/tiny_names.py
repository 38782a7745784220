"""A small dataset of names with synonyms, and random vectors of its words, names and concepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tiny_bert import write_tokenizer

from data_pipeline.build_dataset.build import build_dataset
from data_pipeline.build_dataset.options import BuildOptions
from data_pipeline.skip_gram.store import (
    SkipGramManifest,
    SkipGrams,
    StringVectors,
    write_skip_grams,
)
from data_pipeline.sources.text import rules_hash, words_of

SITES = "heart lung limb renal cardiac pulmonary".split()
KINDS = "attack failure pain disease".split()
WIDTH = 12


def names_of() -> list[tuple[str, str]]:
    """(concept, name): 24 concepts of one to four names; two share a name, one has it twice."""
    rows = []
    for site in SITES:
        for kind in KINDS:
            concept = f"C{len({one for one, _ in rows}):02d}"
            names = [f"{site} {kind}", f"{kind} of the {site}", f"acute {kind} ({site})"]
            rows += [(concept, name) for name in names[: 1 + len(rows) % 4]]
    last = rows[-1][0]
    more = ["Heart attack, NOS", "attack, heart", "a very long name of some nine words in all"]
    return (
        rows
        + [(last, name) for name in more]
        + [*(("C99", name) for name in ("heart attack", "acute", "mi-2"))]
    )


def tiny_names(folder: Path, **options: Any) -> Path:
    """The folder of the dataset."""
    table, tokenizer, out = folder / "names.tsv", folder / "tokenizer", folder / "names"
    lines = ["concept\tname\tlanguage", *(f"{one}\t{name}\tENG" for one, name in names_of())]
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    tokenizer.mkdir()
    write_tokenizer(tokenizer)
    build_dataset(
        BuildOptions(
            source=table,
            tokenizer=tokenizer,
            out=out,
            seed=4,
            **({"hold_out": 4, "cleaning": "none"} | options),
        )
    )
    return out


def tiny_vectors(
    out: Path, variant: str = "names_concepts", width: int = WIDTH, unknown: str = "acute"
) -> SkipGrams:
    """Random vectors of all words but one, and of some names and concepts."""
    rng = np.random.default_rng(0)
    words = {word: None for _, name in names_of() for word in words_of(name) if word != unknown}
    names = [" ".join(words_of(name)) for _, name in names_of()][::3]
    tables = {"words": list(words), "names": [], "concepts": []}
    if variant == "names_concepts":
        tables |= {"names": list(dict.fromkeys(names)), "concepts": ["C02", "C07", "C99"]}
    made = {
        kind: StringVectors(
            strings,
            np.full(len(strings), 3, np.int64),
            rng.normal(0, 0.5, (len(strings), width)).astype(np.float32),
        )
        for kind, strings in tables.items()
    }
    return write_skip_grams(out, made, skip_gram_manifest(variant))


def skip_gram_manifest(variant: str, word_rules: str | None = None) -> SkipGramManifest:
    """What `write_skip_grams` completes."""
    rules = word_rules or rules_hash()
    return SkipGramManifest(variant=variant, word_rules=rules, width=1, rows={}, content_hash="")
