"""Text in; the corpus of sequences that gensim reads, and what is in it, out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import progress_bar
from data_pipeline.skip_gram.dictionary import NameDictionary, read_stop_names
from data_pipeline.skip_gram.mentions import Annotator
from data_pipeline.skip_gram.options import SkipGramOptions
from data_pipeline.skip_gram.sequences import kind_and_string, sequences
from data_pipeline.sources.text.documents import Document, TextReader
from data_pipeline.sources.text.words import only_words

MOST_NAMES = 10  # that are shown
AT_ONCE = 1 << 20  # bytes of a file that is hashed


@dataclass(frozen=True)
class Corpus:
    """What was written.

    Attributes:
      tokens: how often the text has each token of the sequences.
      counts: of documents, sentences, words, sequences, mentions, odd things.
      odd: a line for each odd thing, with its place.
    """

    tokens: Counter[str]
    counts: Counter[str]
    odd: list[str] = field(default_factory=list)


def write_corpus(options: SkipGramOptions, names: NameDictionary | None, path: Path) -> Corpus:
    """Writes the sequences of all sentences of the text, one a line.

    Raises:
      BadInput: a file that is no text, or with annotations of other types only; a variant with
        names where none was found.
    """
    annotator = None
    if options.variant != "words":
        annotator = Annotator(names, read_stop_names(options.stop_names))
    tokens: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    total = sum(file.stat().st_size for file in options.text)
    with (
        path.open("w", encoding="utf-8") as out,
        progress_bar(total=total, desc="reading text", unit="B", unit_scale=True) as bar,
    ):
        reader = TextReader(options.text_field, options.annotation_types, bar.update)
        for file in options.text:
            for document in reader.documents(file):
                stopping.poll()
                if annotator is None:
                    document = Document(document.text)
                for sentence in (annotator or Annotator(None)).sentences(document):
                    made = sequences(sentence, options.variant)
                    tokens.update(made[0])
                    counts["sentences"] += 1
                    counts["sequences"] += len(made)
                    counts["words"] += len(only_words(sentence.tokens))
                    out.writelines(" ".join(sequence) + "\n" for sequence in made)
    counts.update(reader.counts)
    if annotator is not None:
        counts.update(annotator.counts)
        _check(options, counts, tokens)
    return Corpus(tokens, counts, reader.odd)


def _check(options: SkipGramOptions, counts: Counter[str], tokens: Counter[str]) -> None:
    """BadInput if a variant that has names found none."""
    if any(kind_and_string(token)[0] == "names" for token in tokens):
        return
    types = sorted(
        one.removeprefix("annotations: ") for one in counts if one.startswith("annotations: ")
    )
    if types and not set(types) & set(options.annotation_types):
        raise BadInput(
            f"--annotation-types {' '.join(options.annotation_types)}: the text has none of these; "
            f"expected some of {', '.join(types)}"
        )
    where = f"no name of {options.dictionary} in it" if options.dictionary else "no annotated name"
    raise BadInput(
        f"--text {options.text[0]}: found {counts['sentences']:,} sentences and {where}; expected "
        "names: give text with annotations (PubTator), a --dictionary whose names the text has, or "
        "--variant words"
    )


def coverage(corpus: Corpus, names: NameDictionary | None, min_count: int) -> dict[str, int]:
    """How much of the text and of the dictionary gets a vector, as counts with their meaning."""
    kinds: dict[str, list[int]] = {"words": [], "names": [], "concepts": []}
    for token, count in corpus.tokens.items():
        kinds[kind_and_string(token)[0]].append(count)
    found = {}
    for kind, counts in kinds.items():
        if counts:
            found[f"distinct {kind} in the text"] = len(counts)
            found[f"distinct {kind} with a vector"] = sum(one >= min_count for one in counts)
    return found | (_of_dictionary(corpus.tokens, names, min_count) if names else {})


def _of_dictionary(tokens: Counter[str], names: NameDictionary, min_count: int) -> dict[str, int]:
    """Of the names that are not excluded, how many words, names and concepts have a vector."""
    found: Counter[str] = Counter()
    seen_names: Counter[str] = Counter()
    for name, concepts in names.concepts_of.items():
        words = only_words(name.split())
        known = sum(tokens[word] >= min_count for word in words)
        found["words of names of the dictionary"] += len(words)
        found["words of names with a vector"] += known
        found["names of the dictionary"] += 1
        found["names all of whose words have a vector"] += known == len(words)
        found["names some of whose words have a vector"] += known > 0
        if tokens[f"name:{'_'.join(words)}"]:
            seen_names.update(concepts)
    found["concepts of the dictionary"] = len(names.concepts)
    if seen_names:
        found["concepts with a name in the text"] = len(seen_names)
        found["concepts with two names in the text"] = sum(n > 1 for n in seen_names.values())
    return dict(found)


def most_frequent_names(tokens: Mapping[str, int]) -> list[tuple[str, int]]:
    """The names that the text has most often: one that means nothing is for the stop-list."""
    names = [
        (string, count)
        for token, count in tokens.items()
        for kind, string in [kind_and_string(token)]
        if kind == "names"
    ]
    return sorted(names, key=lambda one: (-one[1], one[0]))[:MOST_NAMES]


def described(path: Path) -> dict[str, object]:
    """A file's name, size and SHA-256, for the record."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(AT_ONCE):
            digest.update(piece)
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": digest.hexdigest()}
