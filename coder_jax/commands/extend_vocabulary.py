"""Give an encoder the word pieces that the strings of a terminology need: new ones, or no others.

A BERT reads words by pieces of its vocabulary. Words of another language, or of another field, fall
into many short pieces, and a word with a character that the vocabulary lacks becomes [UNK]: on most
English BERTs nearly all Chinese terms are the same string of unknown tokens. New pieces mend that;
their rows of the word table begin at the mean of the rows of the pieces that spelt them until now
(that of a piece of unknown characters is random). Then train: before that, a term with new pieces
has no better vector than before, and often a worse one.

Pieces are learnt by the WordPiece trainer of the library tokenizers, after the encoder's own
normalizer and pre-tokenizer. They join the pieces of the WordPiece model itself, at the end: no old
piece changes its number or its row, and a word that is one piece stays one. A word of several
pieces may be divided otherwise; a new piece is kept only if the words that use it become shorter by
it, all in all. What changes is printed, by language where the source tells it. The language with
most terms gets most pieces: choose with --languages, or extend an extended encoder once more.

OUT opens with transformers, sentence-transformers (where the model did) and coder_jax; its vectors
of terms whose tokens did not change are compared with the model's before it gets its name. It is
what `train --init` and `data_pipeline.build --tokenizer` take. Heads of masked words are left out.
A vocabulary of SentencePiece (XLM-R) or of bytes (RoBERTa, ModernBERT) cannot grow so and is
refused.

--only-used does the opposite: it leaves out the pieces that no term uses. A multilingual encoder
has 250,000 pieces, most of its weights, and a terminology uses a fraction of them. Vectors of the
terms stay the same, memory and the time of a training step fall. Pieces of one character stay, so
that no other string becomes unknown; but other words fall into more pieces. Give all terms and
languages that the encoder will read. For WordPiece (BERT) and SentencePiece (XLM-R).

Examples:
  French and German terms for an English BERT, then a dataset and a run with it:
    python -m coder_jax extend-vocabulary --out pubmedbert_fr_de --pieces 8000 \\
        --model microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract \\
        --terms META/MRCONSO.RRF --languages FRE,GER
    python -m data_pipeline.build ... --tokenizer pubmedbert_fr_de --out data
    bash launch/train.sh --recipe coder_all --names languages --data data \\
        --init pubmedbert_fr_de --out runs/all

  Chinese characters for MiniLM, from a list of one term a line and a folder of mentions:
    python -m coder_jax extend-vocabulary --model sentence-transformers/all-MiniLM-L6-v2 \\
        --terms terms.txt data/chip --characters --min-frequency 1 --out minilm_chinese

  A multilingual encoder with the pieces of eleven languages' terms alone:
    python -m coder_jax extend-vocabulary --only-used --model intfloat/multilingual-e5-small \\
        --terms META/MRCONSO.RRF --out e5_medical
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from coder_jax.commands.arguments import MODEL
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput, tell

if TYPE_CHECKING:
    from coder_jax.export.vocabulary import Extendable, Extended
    from data_pipeline.dataset.vocabulary import WordPieceVocabulary, Words

COMMON = (
    *("--model", "--terms", "--out", "--pieces", "--characters", "--only-used", "--languages"),
    "--min-frequency",
)
_PIECES = 8000
_MOST_PIECES = 1_000_000
_EXAMPLES = 8  # words that become shorter
_PROBES = 64  # terms that the folder is checked with
WHEN_ASKED_TO_STOP = "stopping; nothing is left in --out"


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions:
    """The options of `extend-vocabulary`."""

    model: Annotated[
        str,
        Flag("the encoder: a BERT (WordPiece), or with --only-used also an XLM-R", MODEL),
    ]
    terms: Annotated[
        tuple[Path, ...],
        Flag(
            "strings to learn from; text files of one term a line, tables (term<TAB>CUI, or with a "
            "header that names the columns: .csv, .tsv, .xlsx), MRCONSO.RRF, folders of datasets "
            "or of mentions (of these the names and the training split)",
            "FILE_OR_DATASET",
        ),
    ]
    out: Annotated[Path, Flag("the folder to write", "DIR")]
    pieces: Annotated[
        int | None,
        Flag(
            "most pieces to add; characters that the vocabulary lacks come first, then pieces of "
            f"several characters (default: {_PIECES})"
        ),
    ] = None
    characters: Annotated[
        bool, Flag("add all characters that the vocabulary lacks, and nothing else")
    ] = False
    only_used: Annotated[
        bool,
        Flag(
            "add nothing, but leave out the pieces that no term uses; vectors of the terms stay "
            "the same, and the word table of a multilingual encoder becomes small"
        ),
    ] = False
    min_frequency: Annotated[
        int,
        Flag("fewest occurrences of a character, or of a pair of pieces that become one", least=1),
    ] = 2
    languages: Annotated[
        tuple[str, ...],
        Flag(
            "only terms in these languages, such as FRE,GER; for a dataset, a release or a table "
            "with a column of languages",
            "LANGUAGE",
            commas=True,
        ),
    ] = ()


OPTIONS = VocabularyOptions


def run(options: VocabularyOptions) -> int:
    # Imported here, as they import jax: `--help` stays quick.
    from coder_jax.export.vocabulary import open_extendable, write_extended
    from data_pipeline.dataset.vocabulary import count_words, new_pieces, read_terms

    started = time.monotonic()
    ways = (options.pieces is not None, options.characters, options.only_used)
    if sum(ways) > 1:
        named = zip(ways, ("--pieces", "--characters", "--only-used"), strict=True)
        found = " and ".join(name for given, name in named if given)
        raise BadInput(f"found {found}; expected one of them")
    pieces = _PIECES if options.pieces is None else options.pieces
    if not 1 <= pieces <= _MOST_PIECES:
        raise BadInput(f"--pieces is {pieces}; expected 1 to {_MOST_PIECES:,}")
    encoder = open_extendable(options.model, options.out, only_used=options.only_used)
    terms = read_terms(options.terms, options.languages, encoder.settings.cleaning)
    every = [term for own in terms.values() for term in own]
    probes = every[:: max(len(every) // _PROBES, 1)][:_PROBES]
    facts: dict[str, Any] = {
        "terms of" if options.only_used else "learnt from": ", ".join(
            path.name for path in options.terms
        ),
        "languages": ", ".join(options.languages) or "all",
        "distinct terms": len(every),
    }
    if options.only_used:
        _trim(encoder, every, options.out, probes, facts)
        tell(f"{time.monotonic() - started:.0f} s")
        return 0
    words = count_words(encoder.tokenizer, terms)
    tell(f"{len(every):,} distinct terms with {len(words.words):,} distinct words")
    number = None if options.characters else pieces
    new = new_pieces(
        encoder.tokenizer, encoder.vocabulary, every, words, number, options.min_frequency
    )
    if not new:
        what = "character" if options.characters else "character or piece"
        raise BadInput(
            f"found no {what} that {options.model} lacks and that occurs "
            f"{options.min_frequency} times in {len(every):,} terms: nothing to add; "
            "train the encoder as it is, or give other terms"
        )
    if number is not None and len(new) < number:
        tell(f"the terms have {len(new):,} pieces to add; {number:,} were asked for")
    extended = write_extended(
        encoder,
        new,
        options.out,
        probes=probes,
        facts=facts
        | {
            "characters alone": options.characters,
            "least occurrences": options.min_frequency,
        },
    )
    _print_changes(encoder.vocabulary, encoder.vocabulary.with_pieces(new), words)
    print(_summary(options.out, encoder, new, extended))
    tell(f"{time.monotonic() - started:.0f} s")
    return 0


def _trim(
    encoder: Extendable, terms: list[str], out: Path, probes: list[str], facts: dict[str, Any]
) -> None:
    """Writes the encoder with the pieces that the terms use, and says what became of it."""
    import numpy as np

    from coder_jax.export.vocabulary import write_trimmed
    from data_pipeline.dataset.tokenizer import tokenize_uncut, vocabulary_size
    from data_pipeline.dataset.vocabulary import used_pieces, with_pieces_alone

    kept = used_pieces(encoder.tokenizer, terms, encoder.name)
    before, _ = tokenize_uncut(encoder.tokenizer, terms)
    after, _ = tokenize_uncut(with_pieces_alone(encoder.tokenizer, kept), terms)
    if not np.array_equal(kept[after], before):
        raise RuntimeError("terms have other pieces without those that none of them uses")
    written = write_trimmed(encoder, kept, out, probes=probes, facts=facts)
    worst = ", ".join(f"{name} {value:.1e}" for name, value in written.largest.items())
    rows = encoder.bert.config.vocab_size
    saved = (rows - written.rows) * encoder.bert.config.hidden_size
    print(
        f"{out}: {len(kept):,} of {vocabulary_size(encoder.tokenizer):,} pieces, a word table of "
        f"{rows:,} -> {written.rows:,} rows: {saved / 1e6:,.1f} million weights fewer\n"
        f"all {len(terms):,} terms have the pieces that they had; largest difference of the "
        f"vectors of {written.same:,} terms: {worst}"
    )


def _print_changes(before: WordPieceVocabulary, after: WordPieceVocabulary, words: Words) -> None:
    """Coverage before and after by language; what happens to words; examples."""
    from coder_jax.evaluation.benchmarks import print_table
    from coder_jax.evaluation.results import Row
    from data_pipeline.dataset.vocabulary import changes, coverage, total
    from data_pipeline.sources.term_tables import UNDETERMINED

    both = [coverage(words, one) for one in (before, after)]
    if len(both[0]) > 1:
        both = [one | {"all": total(one.values())} for one in both]
    header = ["language", "", "terms", "unknown tokens", "pieces a word", "tokens a term"]
    rows = []
    for language in both[0]:
        name = "all" if language == UNDETERMINED and len(both[0]) == 1 else language
        for when, one in zip(("before", "after"), both, strict=True):
            cells = [name, when, f"{one[language].terms:,}", *one[language].in_cells()]
            rows.append(Row(cells, ""))
    print_table(header, rows)
    changed = changes(words, before, after)
    longer = changed.counts[changed.saved < 0].sum()
    print(
        f"\n{changed.shorter:,} of {len(words.words):,} distinct words have fewer pieces or are no "
        f"longer unknown; {changed.longer:,} have more pieces ({longer:,} of "
        f"{changed.counts.sum():,} occurrences)"
    )
    shown = set()
    for language in words.languages:
        for word, old, new in changed.examples(language, max(_EXAMPLES // len(words.languages), 1)):
            if word not in shown:
                print(f"  {word}: {' '.join(old)} -> {' '.join(new)}")
            shown.add(word)


def _summary(out: Path, encoder: Extendable, new: list[str], extended: Extended) -> str:
    """What was written, in lines."""
    old = encoder.vocabulary
    characters = sum(len(piece.removeprefix(old.prefix)) == 1 for piece in new)
    differences = ", ".join(f"{name} {worst:.1e}" for name, worst in extended.largest.items())
    lines = [
        f"\n{out}: {len(new):,} new pieces, {characters:,} of them single characters; "
        f"{old.size:,} -> {old.size + len(new):,} entries, a word table of "
        f"{encoder.bert.config.vocab_size:,} -> {extended.rows:,} rows",
        f"{extended.drawn:,} new rows begin at random, for want of any old piece; the others at "
        "the mean of the rows of their old pieces",
        f"{extended.same:,} terms of the check have the same tokens as before; largest difference "
        f"of their vectors: {differences}",
    ]
    if encoder.left_out:
        lines.append(f"left out, as no part of an encoder: {', '.join(encoder.left_out)}")
    return "\n".join(lines)
