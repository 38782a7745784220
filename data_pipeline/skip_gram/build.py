"""`SkipGramOptions` in, a finished folder of skip-grams out: read, match, train, write."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_pipeline.files.identity import SKIP_GRAMS, is_of_kind
from data_pipeline.files.whole_files import recover_folder
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import tell
from data_pipeline.skip_gram.corpus import (
    Corpus,
    coverage,
    described,
    most_frequent_names,
    write_corpus,
)
from data_pipeline.skip_gram.dictionary import NameDictionary, read_names
from data_pipeline.skip_gram.options import SkipGramOptions
from data_pipeline.skip_gram.sequences import kind_and_string
from data_pipeline.skip_gram.store import (
    ODD_LINES,
    TABLES,
    SkipGrams,
    VectorTable,
    write_skip_grams,
)
from data_pipeline.skip_gram.train import train
from data_pipeline.sources.text.words import rules_hash

MOST_WARNINGS = 10  # that are written out in the manifest


def build_skip_grams(options: SkipGramOptions) -> SkipGrams:
    """Trains what `options` describe, writes the folder, and opens it.

    Raises:
      BadInput: for anything wrong with the input, and for a folder in the way.
    """
    options.validate()
    _check_free(options)
    names = None
    if options.dictionary is not None:
        names = read_names(
            options.dictionary,
            options.dictionary_languages,
            options.semantic_types,
            options.exclude_concepts,
        )
    elif options.exclude_concepts is not None:
        raise BadInput("--exclude-concepts: names of which --dictionary? Give it, too")
    with tempfile.TemporaryDirectory(prefix="skip_gram-") as scratch:
        path = Path(scratch) / "corpus.txt"
        corpus = write_corpus(options, names, path)
        tell(
            f"{corpus.counts['words']:,} words in {corpus.counts['sentences']:,} sentences of "
            f"{corpus.counts['documents']:,} documents; training on "
            f"{corpus.counts['sequences']:,} sequences"
        )
        tokens, vectors = train(path, corpus.tokens, options.settings)
    manifest = _manifest(options, corpus, names)
    return write_skip_grams(options.out, _tables(tokens, vectors, corpus), manifest, corpus.odd)


def _check_free(options: SkipGramOptions) -> None:
    """BadInput if something is at --out that must not be replaced."""
    out = options.out
    recover_folder(out)
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not is_of_kind(out / SKIP_GRAMS.file, SKIP_GRAMS):
        raise BadInput(
            f"--out {out} exists and is no folder of skip-grams; expected a new folder, an empty "
            "one, or one of skip-grams to replace with --overwrite. Give another --out, or move it "
            "away."
        )
    if not options.overwrite:
        raise BadInput(
            f"--out {out} already holds skip-grams; add --overwrite to replace them, or give "
            "another --out"
        )


def _tables(tokens: Sequence[str], vectors: np.ndarray, corpus: Corpus) -> dict[str, VectorTable]:
    """The vectors of tokens, by what these stand for."""
    rows: dict[str, list[int]] = {kind: [] for kind in TABLES}
    strings: dict[str, list[str]] = {kind: [] for kind in TABLES}
    for row, token in enumerate(tokens):
        kind, string = kind_and_string(token)
        rows[kind].append(row)
        strings[kind].append(string)
    counts = np.array([corpus.tokens[token] for token in tokens], np.int64)
    return {
        kind: VectorTable(strings[kind], counts[rows[kind]], vectors[rows[kind]]) for kind in TABLES
    }


def _manifest(
    options: SkipGramOptions, corpus: Corpus, names: NameDictionary | None
) -> dict[str, Any]:
    import gensim

    warnings = corpus.odd[:MOST_WARNINGS]
    if len(corpus.odd) > MOST_WARNINGS:
        more = len(corpus.odd) - MOST_WARNINGS
        warnings.append(f"{more:,} more odd lines, all of them in {ODD_LINES}")
    return {
        "variant": options.variant,
        "word_rules": rules_hash(),
        "text": [described(path) for path in options.text],
        "dictionary": None if names is None else dict(names.record),
        "counts": dict(corpus.counts),
        "coverage": coverage(corpus, names, options.settings.min_count),
        "most_frequent_names": most_frequent_names(corpus.tokens),
        "warnings": warnings,
        "options": options.as_json(),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "gensim": gensim.__version__,
        },
    }


def closing_report(grams: SkipGrams) -> str:
    """What was read, found and learnt, as a table."""
    manifest = grams.manifest
    rows = [(what, f"{count:,}") for what, count in manifest["counts"].items()]
    counts = manifest["coverage"]
    whole = {
        "distinct words with a vector": "distinct words in the text",
        "distinct names with a vector": "distinct names in the text",
        "distinct concepts with a vector": "distinct concepts in the text",
        "words of names with a vector": "words of names of the dictionary",
        "names all of whose words have a vector": "names of the dictionary",
        "names some of whose words have a vector": "names of the dictionary",
        "concepts with a name in the text": "concepts of the dictionary",
        "concepts with two names in the text": "concepts of the dictionary",
    }
    rows.append(("", ""))
    for what, count in counts.items():
        of = counts.get(whole.get(what, ""), 0)
        rows.append((what, f"{count:,} ({count / of:.1%})" if of else f"{count:,}"))
    if frequent := manifest["most_frequent_names"]:
        shown = ", ".join(f"{name} ({count:,})" for name, count in frequent)
        rows += [("", ""), ("most frequent names", shown)]
    width = max(len(what) for what, _ in rows)
    title = f"{manifest['variant']}, {manifest['width']} numbers a vector: {grams.folder}"
    lines = [f"{what:<{width}}  {value}".rstrip() for what, value in rows]
    notes = [f"note: {warning}" for warning in manifest["warnings"]]
    return "\n".join([title, "-" * len(title), *lines, *notes])
