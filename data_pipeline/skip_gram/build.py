"""The training of skip-grams: corpus, sequences, training with gensim."""

from __future__ import annotations

import hashlib
import logging
import platform
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np

from data_pipeline import process
from data_pipeline.files.identity import SKIP_GRAMS, check_free
from data_pipeline.process import BadInput, Progress, progress_bar, tell
from data_pipeline.skip_gram.names import (
    Annotator,
    NameDictionary,
    Sentence,
    read_names,
    read_stop_names,
)
from data_pipeline.skip_gram.options import Settings, SkipGramOptions, Variant
from data_pipeline.skip_gram.store import (
    ODD_LINES,
    TABLES,
    SkipGramManifest,
    SkipGrams,
    StringVectors,
    write_skip_grams,
)
from data_pipeline.sources.text import Document, TextReader, only_words, rules_hash

# -------------------------------------------------------------------------------------------------
# The sequences of words, names and concepts that a sentence becomes.
#
# Phan et al. 2019, sections 3.1 and 4. SG_W sees the words. SG_S sees a name as one token in place
# of its words. SG_S.C sees a sentence with names twice: the token of each name, and behind it that
# of its concept, stand on the left of the name's words in one sequence and on their right in the
# other, so that both have the words of the name in their window, its neighbours, and each other.

# No word contains ":" or "_", so the token of a name or concept is never that of a word.
_NAME, _CONCEPT = "name:", "concept:"
_WordsOfText = Callable[[Iterable[str]], list[str]]  # of tokens, those that a sequence has


def _name_token(words: Iterable[str]) -> str:
    """The token of a name; names with the same words share it."""
    return _NAME + "_".join(words)


def _concept_token(concept: str) -> str:
    """The token of a concept; its identifier is percent-encoded."""
    return _CONCEPT + quote(concept, safe=":")


def _kind_and_string(token: str) -> tuple[str, str]:
    """The table of a token (words, names or concepts), and the string that the token stands for."""
    if token.startswith(_NAME):
        return "names", token.removeprefix(_NAME).replace("_", " ")
    if token.startswith(_CONCEPT):
        return "concepts", unquote(token.removeprefix(_CONCEPT))
    return "words", token


def _sequences(
    sentence: Sentence, variant: Variant, words_of_text: _WordsOfText = only_words
) -> list[list[str]]:
    """The sequences of a sentence; the first has each word, name and concept as often as the text.

    "names_concepts" has two where there is a name: in the first all names are on the left of their
    words, in the second all on the right. Else there is one. The token of a name is of its words
    without stop words, as all code that looks a name up has it.
    """
    tokens, mentions = sentence
    if variant == "words" or not mentions:
        return [words_of_text(tokens)]
    orders: list[list[str]] = [[]] if variant == "names" else [[], []]
    behind = 0
    for mention in mentions:
        between = words_of_text(tokens[behind : mention.first])
        name = tokens[mention.first : mention.last]
        words = words_of_text(name)
        behind = mention.last
        tags = [_name_token(only_words(name))]
        if variant == "names":
            orders[0] += between + tags
            continue
        if mention.concept:
            tags.append(_concept_token(mention.concept))
        orders[0] += between + tags + words
        orders[1] += between + words + tags
    rest = words_of_text(tokens[behind:])
    return [order + rest for order in orders]


# -------------------------------------------------------------------------------------------------
# The corpus: the sequences that gensim reads, and statistics of them.

_MOST_NAMES = 10  # that are shown


@dataclass(frozen=True)
class _Corpus:
    """Statistics of a corpus.

    Attributes:
      tokens: how often the text has each token of the sequences.
      counts: of documents, sentences, words, sequences, mentions, odd things.
      odd: a line for each odd thing, with its place.
    """

    tokens: Counter[str]
    counts: Counter[str]
    odd: list[str] = field(default_factory=list)


def _write_corpus(options: SkipGramOptions, names: NameDictionary | None, path: Path) -> _Corpus:
    """Writes the sequences of all sentences of the text, one per line.

    Raises:
      BadInput: a file that is no text, or with annotations of other types only; a variant with
        names where none was found.
    """
    annotator = None
    if options.variant != "words":
        annotator = Annotator(names, read_stop_names(options.stop_names))
    words_of_text: _WordsOfText = list if options.keep_stop_words else only_words
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
                process.poll()
                if annotator is None:
                    document = Document(document.text)
                for sentence in (annotator or Annotator(None)).sentences(document):
                    made = _sequences(sentence, options.variant, words_of_text)
                    tokens.update(made[0])
                    counts["sentences"] += 1
                    counts["sequences"] += len(made)
                    counts["words"] += len(words_of_text(sentence.tokens))
                    out.writelines(" ".join(sequence) + "\n" for sequence in made)
    counts.update(reader.counts)
    if annotator is not None:
        counts.update(annotator.counts)
        _check(options, counts, tokens)
    return _Corpus(tokens, counts, reader.odd)


def _check(options: SkipGramOptions, counts: Counter[str], tokens: Counter[str]) -> None:
    """Raise BadInput if a variant with names found no names."""
    if any(_kind_and_string(token)[0] == "names" for token in tokens):
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


def _coverage(corpus: _Corpus, names: NameDictionary | None, min_count: int) -> dict[str, int]:
    """How much of the text and the dictionary gets a vector: descriptions and counts."""
    kinds: dict[str, list[int]] = {"words": [], "names": [], "concepts": []}
    for token, count in corpus.tokens.items():
        kinds[_kind_and_string(token)[0]].append(count)
    found = {}
    for kind, counts in kinds.items():
        if counts:
            found[f"distinct {kind} in the text"] = len(counts)
            found[f"distinct {kind} with a vector"] = sum(one >= min_count for one in counts)
    return found | (_of_dictionary(corpus.tokens, names, min_count) if names else {})


def _of_dictionary(tokens: Counter[str], names: NameDictionary, min_count: int) -> dict[str, int]:
    """How many words, names and concepts of the dictionary (excluded names aside) have a vector."""
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
        if tokens[_name_token(words)]:
            seen_names.update(concepts)
    found["concepts of the dictionary"] = len(names.concepts)
    if seen_names:
        found["concepts with a name in the text"] = len(seen_names)
        found["concepts with two names in the text"] = sum(n > 1 for n in seen_names.values())
    return dict(found)


def _most_frequent_names(tokens: Mapping[str, int]) -> list[tuple[str, int]]:
    """The most frequent names of the text; meaningless ones belong on the stop-list."""
    names = [
        (string, count)
        for token, count in tokens.items()
        for kind, string in [_kind_and_string(token)]
        if kind == "names"
    ]
    return sorted(names, key=lambda one: (-one[1], one[0]))[:_MOST_NAMES]


def _described(path: Path) -> dict[str, object]:
    """A file's name, size and SHA-256, for the record."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": digest.hexdigest()}


# -------------------------------------------------------------------------------------------------
# Skip-grams with negative sampling, by gensim (Mikolov et al. 2013; Rehurek and Sojka 2010).

_LEAST_RATE = 1e-4  # of learning, at the end: gensim's


def _train(
    corpus: Path, counts: Mapping[str, int], settings: Settings
) -> tuple[list[str], np.ndarray]:
    """The vectors of all tokens that occur often enough.

    Args:
      corpus: a sequence in each line, tokens with a blank between them.
      counts: how often the text has each token. A text may come in several sequences, so that the
        corpus has tokens more often; what is rare is decided by these counts.
      settings: with one worker, the same arguments give the same vectors to the bit on the same
        machine.

    Returns:
      the tokens, the most frequent first, and their input vectors, float32 [tokens, size].

    Raises:
      BadInput: if no token was seen often enough.
    """
    from gensim.models import Word2Vec
    from gensim.models.callbacks import CallbackAny2Vec
    from gensim.utils import RULE_DISCARD, RULE_KEEP

    if not any(count >= settings.min_count for count in counts.values()):
        raise BadInput(
            f"--min-count {settings.min_count}: the text has no word so often, the most frequent "
            f"{max(counts.values(), default=0)} times; give more text, or a smaller --min-count"
        )

    class Epochs(CallbackAny2Vec):
        """Checks after each epoch whether to stop."""

        def on_epoch_end(self, _: object) -> None:
            process.poll()

    def keep_rare_out(token: str, *_: int) -> int:
        return RULE_KEEP if counts.get(token, 0) >= settings.min_count else RULE_DISCARD

    with progress_bar(total=100 * settings.epochs, desc="skip-grams", unit="%") as bar, _told(bar):
        model = Word2Vec(
            corpus_file=str(corpus),
            sg=1,
            hs=0,
            vector_size=settings.size,
            window=settings.window,
            negative=settings.negatives,
            min_count=1,
            trim_rule=keep_rare_out,
            epochs=settings.epochs,
            alpha=settings.rate,
            min_alpha=_LEAST_RATE,
            sample=settings.sample,
            seed=settings.seed,
            workers=settings.workers,
            callbacks=(Epochs(),),
        )
        bar.update(100 * settings.epochs - bar.n)
    tokens = sorted(model.wv.key_to_index, key=lambda token: (-counts[token], token))
    rows = [model.wv.key_to_index[token] for token in tokens]
    return tokens, np.asarray(model.wv.vectors, np.float32)[rows]


@contextmanager
def _told(bar: Progress) -> Iterator[None]:
    """In the block, gensim's log of its progress moves a bar and is not printed."""

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            form = str(record.msg)
            if form.startswith("EPOCH %i - PROGRESS") and isinstance(record.args, tuple):
                epoch, percent = (float(str(value)) for value in record.args[:2])
                bar.update(max(0, int(100 * epoch + percent) - bar.n))

    logger, listener = logging.getLogger("gensim"), Listener(logging.INFO)
    before = logger.level, logger.propagate
    logger.addHandler(listener)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.setLevel(before[0])
        logger.propagate = before[1]


# -------------------------------------------------------------------------------------------------
# The command's work: read, match, train, write.

_MOST_WARNINGS = 10  # that are written out in the manifest


def build_skip_grams(options: SkipGramOptions) -> SkipGrams:
    """Trains what `options` describe, writes the folder, and opens it.

    Raises:
      BadInput: for anything wrong with the input, and for a folder in the way.
    """
    options.validate()
    check_free(options.out, SKIP_GRAMS, "skip-grams", overwrite=options.overwrite)
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
        corpus = _write_corpus(options, names, path)
        tell(
            f"{corpus.counts['words']:,} words in {corpus.counts['sentences']:,} sentences of "
            f"{corpus.counts['documents']:,} documents; training on "
            f"{corpus.counts['sequences']:,} sequences"
        )
        tokens, vectors = _train(path, corpus.tokens, options.settings)
    manifest = _manifest(options, corpus, names)
    return write_skip_grams(options.out, _tables(tokens, vectors, corpus), manifest, corpus.odd)


def _tables(
    tokens: Sequence[str], vectors: np.ndarray, corpus: _Corpus
) -> dict[str, StringVectors]:
    """The vectors of tokens, in one table for each kind (words, names, concepts)."""
    rows: dict[str, list[int]] = {kind: [] for kind in TABLES}
    strings: dict[str, list[str]] = {kind: [] for kind in TABLES}
    for row, token in enumerate(tokens):
        kind, string = _kind_and_string(token)
        rows[kind].append(row)
        strings[kind].append(string)
    counts = np.array([corpus.tokens[token] for token in tokens], np.int64)
    return {
        kind: StringVectors(strings[kind], counts[rows[kind]], vectors[rows[kind]])
        for kind in TABLES
    }


def _manifest(
    options: SkipGramOptions, corpus: _Corpus, names: NameDictionary | None
) -> SkipGramManifest:
    import gensim

    warnings = corpus.odd[:_MOST_WARNINGS]
    if len(corpus.odd) > _MOST_WARNINGS:
        more = len(corpus.odd) - _MOST_WARNINGS
        warnings.append(f"{more:,} more odd lines, all of them in {ODD_LINES}")
    return SkipGramManifest(
        variant=options.variant,
        word_rules=rules_hash(),
        text=[_described(path) for path in options.text],
        dictionary=None if names is None else dict(names.record),
        counts=dict(corpus.counts),
        coverage=_coverage(corpus, names, options.settings.min_count),
        most_frequent_names=_most_frequent_names(corpus.tokens),
        warnings=warnings,
        options=options.as_json(),
        versions={
            "python": platform.python_version(),
            "numpy": np.__version__,
            "gensim": gensim.__version__,
        },
        width=1,  # these three are told when the tables are written
        rows={},
        content_hash="",
    )


def skip_gram_report(grams: SkipGrams) -> str:
    """What was read, found and learnt, as a table."""
    manifest = grams.manifest
    rows = [(what, f"{count:,}") for what, count in manifest.counts.items()]
    counts = manifest.coverage
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
    if frequent := manifest.most_frequent_names:
        shown = ", ".join(f"{name} ({count:,})" for name, count in frequent)
        rows += [("", ""), ("most frequent names", shown)]
    width = max(len(what) for what, _ in rows)
    title = f"{manifest.variant}, {manifest.width} numbers a vector: {grams.folder}"
    lines = [f"{what:<{width}}  {value}".rstrip() for what, value in rows]
    notes = [f"note: {warning}" for warning in manifest.warnings]
    return "\n".join([title, "-" * len(title), *lines, *notes])
