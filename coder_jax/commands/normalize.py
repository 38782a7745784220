"""Map a list of medical terms to the concepts of a dictionary.

A list goes in, and the same list comes out with a concept for each term.

The list is a table (.csv, .tsv, .xlsx) whose column --column holds the terms, or a text file with
one term per line, or stdin. Of a table all columns are kept, and these are added:

COLUMNS

How a mention is answered:
  1. The empty string, numbers, single letters and placeholders ("n/a", "see attached") never are.
  2. A string of the dictionary, case and blanks aside, is the answer ("exact"). Where several
     concepts have it, those that write it exactly so come first; if they still are several, the
     status is "tied".
  3. Else the concept that is nearest by the encoder's vectors and by the letters ("near").
     --min-similarity leaves out what is too far. --precision 0.9 leaves out so much that of ten
     answers nine are right, as it was measured on terms whose concept is known: `evaluate
     --cutoffs` makes that table.

Brackets are kept: "Hemiplegia (left)" and "Hemiplegia (right)" are two terms. Only a semantic tag
of SNOMED CT at the end, such as "(disorder)", may be missing where the dictionary has such tags.

The dictionary is a table with the columns term and concept (also language, vocabulary, code,
preferred, semantic_type, where there are), a dataset folder, or the MRCONSO.RRF of a release. Its
vectors are kept on this machine: the second time is quick. It may be larger than memory.

A model with classes (a run of the recipes mlnorm or mlnorm_classes, or its export) needs no
dictionary: the answer is its most probable concept, among those of --semantic-group where all
mentions are of one, in whatever languages it was trained on. Similarity and confidence are its
probability; below --min-similarity there is no answer. With --by classes a --dictionary only tells
the names of the concepts; else it is searched, as above.

A generator (recipe recall), with a --ranker or without, answers with as many concepts as it takes
the mention to mean, a row for each, from the 10 with the nearest names; a mention that is a string
of the dictionary is one concept. Similarity is the score by which candidates are ordered: by
distances alone always about .9; with a ranker its probability is half of it. The dictionary may be
code<TAB>name, as code.txt of CHIP-2019 is.

Examples:
  python -m coder_jax normalize --model runs/demo/export --dictionary terms.tsv \\
      --column local_term --out coded.csv --review review.html list.csv
  echo "heart attack" | python -m coder_jax normalize --model coder_eng --dictionary terms.tsv
  python -m coder_jax normalize --model runs/demo/export --dictionary terms.tsv \\
      --column local_term --out coded.csv --decided decisions.csv list.csv
  python -m coder_jax normalize --model coder_eng --dictionary data/umls --dictionary-sources \\
      SNOMEDCT_US --semantic-types T047,T191 --precision 0.9 -k 3 terms.txt
  python -m coder_jax normalize --model runs/s2 --semantic-group DISO --min-similarity 0.1 \\
      --by classes --dictionary data/fr_all mentions_fr.txt
  python -m coder_jax normalize --model runs/recall --ranker runs/rank --dictionary codes.tsv \\
      mentions.txt
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import select
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from coder_jax.commands.arguments import (
    add_cache_argument,
    add_dictionary_choices,
    add_model_arguments,
    add_ranker_arguments,
    check_one_model,
    dictionary_choices,
    generators_of,
    load_encoder,
    ranker_choices,
    warn_of_languages,
)
from coder_jax.encoding.vector_files import decode_line, read_some
from coder_jax.mapping.coded_list import (
    CODED_COLUMNS,
    KINDS,
    check_decisions,
    coded_rows,
    decided,
    in_words,
    read_decisions,
)
from data_pipeline import process
from data_pipeline.files.buckets import check_output
from data_pipeline.files.identity import CUTOFFS
from data_pipeline.files.tables import (
    LONGEST_LINE,
    STDOUT,
    bounded_lines,
    check_table_name,
    listed,
    read_table,
    too_long,
    write_table,
)
from data_pipeline.process import BadInput, progress_bar, tell
from data_pipeline.terminology.cleaning import lookup_rules
from data_pipeline.terminology.retired_cuis import read_retired_cuis

if TYPE_CHECKING:
    from coder_jax.mapping.coded_list import Answer, Decision
    from coder_jax.mapping.confidence import Cutoffs
    from coder_jax.mapping.normalizer import Normalizer, Rule, SameStringNormalizer
    from coder_jax.systems.mlnorm.classifier import ClassNormalizer, ConceptClassifier
    from data_pipeline.dataset.dictionary import Dictionary
    from data_pipeline.files.tables import Table


# -------------------------------------------------------------------------------------------------
# The arguments of `python -m coder_jax normalize`, in groups, and what they must be.

COMMON = (
    *("--model", "--dictionary", "--column", "--out", "-k", "--review", "--decided"),
    *("--precision", "--min-similarity", "--dictionary-languages", "--dictionary-sources"),
    *("--semantic-types", "--codes-of"),
)
_MOST_K = 1000
_SHOWN_IN_REVIEW = 5
# Letters of more terms would need gigabytes: vectors alone then, if nothing else is asked for.
_MOST_TERMS_BY_LETTERS = 2_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "mentions",
        nargs="?",
        default="-",
        metavar="LIST",
        help="table with --column, or text file with one term per line (default: stdin)",
    )
    _add_table(parser.add_argument_group("the list"))
    _add_answers(parser.add_argument_group("answers"))
    _add_review(parser.add_argument_group("review"))
    _add_dictionary(parser.add_argument_group("dictionary"))
    add_model_arguments(parser.add_argument_group("encoder"), several_models="flags")
    add_ranker_arguments(parser)


def _add_table(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--column", metavar="NAME", help="column of the table that has the terms")
    group.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="file to write, .csv, .tsv, .txt or .xlsx (default: tab-separated, on stdout)",
    )
    group.add_argument(
        "-k",
        type=int,
        metavar="N",
        help="concepts for each term, a row for each; a generator or a ranker (recall, rank) gives "
        "as many as the term means (default: 1)",
    )
    group.add_argument(
        "--codes-of",
        metavar="SAB,SAB",
        type=lambda value: value.split(","),
        help="write only codes of these vocabularies, such as SNOMEDCT_US,ICD10CM (default: all)",
    )
    group.add_argument(
        "--prefix",
        default="",
        metavar="TEXT",
        help="put this before the names of the added columns",
    )
    group.add_argument(
        "--separator",
        metavar="SIGN",
        help="sign between columns (default: found in the file: comma, ; or tab)",
    )
    group.add_argument(
        "--encoding",
        metavar="NAME",
        help="encoding of the list, such as latin-1 or cp1252 (default: UTF-8)",
    )
    group.add_argument(
        "--sheet", metavar="NAME", help="sheet of an .xlsx file (default: the first)"
    )


def _add_answers(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--by",
        choices=("terms", "classes"),
        help="answer with the concept of the nearest term of --dictionary, or with the most "
        "probable class of a model that has classes (recipe mlnorm), where --dictionary only tells "
        "the names of concepts (default: terms; classes without --dictionary)",
    )
    group.add_argument(
        "--semantic-group",
        metavar="GROUP",
        help="semantic group of all terms of the list, such as DISO or ANAT: only classes of this "
        "group are answers",
    )
    group.add_argument(
        "--min-similarity",
        type=float,
        metavar="S",
        help="leave terms empty whose nearest concept is less similar, or whose class is less "
        "probable (default: none)",
    )
    group.add_argument(
        "--precision",
        type=float,
        metavar="P",
        help="leave uncertain terms empty, so that about this share of answers is right (0.9 = 9 "
        "of 10); needs a cutoffs.json of `evaluate --cutoffs`",
    )
    group.add_argument(
        "--language",
        metavar="LANGUAGE",
        help="language of the list, such as GER: use the cut-offs that were measured for it "
        "(default: those of all languages)",
    )
    group.add_argument(
        "--cutoffs",
        type=Path,
        metavar="FILE",
        help="cut-offs for --precision, from `evaluate --cutoffs` (default: cutoffs.json of the "
        "model)",
    )
    group.add_argument(
        "--candidates",
        choices=KINDS,
        help="how similar concepts are found: by the encoder's vectors, by letters (three-letter "
        "pieces, which find typing errors and similar names in other languages), or by both "
        f"(default: both; vectors for a dictionary of more than {_MOST_TERMS_BY_LETTERS:,} terms)",
    )
    group.add_argument(
        "--abbreviations",
        metavar="FILE",
        help="write out your own abbreviations before a look-up: lines of abbreviation<TAB>words",
    )


def _add_review(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--review",
        type=Path,
        metavar="HTML",
        help="also write a web page on which people accept or reject answers; it needs no network",
    )
    group.add_argument(
        "--decided",
        type=Path,
        metavar="CSV",
        help="use decisions that the --review page saved; all other terms are mapped again",
    )


def _add_dictionary(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--dictionary",
        metavar="PATH",
        help="terms to search (a table with columns term and concept, a dataset folder or "
        "MRCONSO.RRF)",
    )
    add_dictionary_choices(group, several_words=False)
    group.add_argument(
        "--dictionary-vectors",
        type=Path,
        metavar="NPY",
        help="vectors of the dictionary, made with `encode --dictionary`",
    )
    group.add_argument(
        "--retired-cuis",
        metavar="FILE",
        help="MRCUI.RRF, a dataset's retired_cuis.tsv, or a TSV file of old<TAB>new: CUIs of the "
        "dictionary are replaced by what they were merged into",
    )
    add_cache_argument(group)


def _check(args: argparse.Namespace) -> None:
    """BadInput for values that no look-up can use."""
    if args.k is not None and not 1 <= args.k <= _MOST_K:
        raise BadInput(f"-k is {args.k}; expected 1 to {_MOST_K:,} concepts for each term")
    args.shown = max(args.k or 1, _SHOWN_IN_REVIEW if args.review else 1)
    if args.out is not None:
        check_table_name(args.out, "--out")
        check_output(args.out, "--out", "coded.csv")
    if args.review is not None:
        check_output(args.review, "--review", "review.html")
    if args.min_similarity is not None and not -1 <= args.min_similarity <= 1:
        raise BadInput(f"--min-similarity is {args.min_similarity}; expected -1 to 1")
    if args.precision is not None and not 0 < args.precision < 1:
        raise BadInput(
            f"--precision is {args.precision}; expected a share between 0 and 1, such as 0.9"
        )
    _check_kind(args)
    if args.precision is not None and args.min_similarity is not None:
        raise BadInput("found --precision and --min-similarity; expected one of them")


def _check_kind(args: argparse.Namespace) -> None:
    """BadInput where terms are to be searched and there are none, or options of the other kind."""
    args.by = args.by or ("terms" if args.dictionary else "classes")
    if args.by == "terms":
        if not args.dictionary:
            raise BadInput("--by terms: found no --dictionary; expected the terms to search")
        if args.semantic_group:
            raise BadInput(
                "--semantic-group is for models with classes (--by classes); to search terms of "
                "some semantic types, give --semantic-types"
            )
        return
    _check_of_terms(args, "answers are classes")
    check_one_model(args.models, "answers are classes")
    names = [flag for flag in ("review", "decided") if getattr(args, flag) is not None]
    if names and not args.dictionary:
        raise BadInput(
            f"--{names[0]} needs the names of concepts; give --dictionary and --by classes"
        )


def _check_of_terms(args: argparse.Namespace, why: str) -> None:
    """BadInput for options of nearest terms, where something else answers, as `why` says."""
    of_terms = ("precision", "candidates", "dictionary_vectors", "cutoffs")
    given = [name for name in of_terms if getattr(args, name) is not None]
    if given:
        raise BadInput(
            f"--{given[0].replace('_', '-')} is for terms of a dictionary, but {why}; leave it "
            "out, or give an encoder as --model, with --by terms and --dictionary"
        )


class _Chosen(NamedTuple):
    """How candidates are found, and which are answers."""

    kind: str
    weight: float | None  # of letters
    rule: Rule


def _choose(args: argparse.Namespace, terms: int) -> _Chosen:
    """The rule of the arguments and of what was measured of the model; said in a line.

    Args:
      args: of `add_arguments`.
      terms: rows of the dictionary.

    Raises:
      BadInput: a precision that was not measured, or was never reached.
    """
    from coder_jax.mapping.confidence import Cutoffs
    from coder_jax.mapping.normalizer import Rule
    from coder_jax.models.hf_files import find_folder

    path = args.cutoffs or find_folder(args.model) / CUTOFFS.file
    measured = Cutoffs.read(path) if args.cutoffs or path.is_file() else None
    least = -1.0 if args.min_similarity is None else args.min_similarity
    wanted = args.candidates or ("vectors" if terms > _MOST_TERMS_BY_LETTERS else "both")
    if measured is None or not measured.rules:
        if args.precision is not None:
            raise BadInput(
                f"--precision {args.precision}: found no {path}; expected what was measured on "
                "terms whose concept is known. Measure it: python -m coder_jax evaluate --model "
                f"{args.model} --dictionary {args.dictionary} --benchmark own=TERMS.tsv --cutoffs "
                f"{path} --json results.json, or give --min-similarity"
            )
        return _Chosen(wanted, None, Rule(least))
    kind = measured.candidates
    if args.candidates not in (None, kind):
        if args.precision is not None:
            raise BadInput(
                f"--candidates {args.candidates}: {path} was measured with {kind}; leave it "
                f"out, or measure anew: `evaluate --cutoffs {path} --candidates {args.candidates}`"
            )
        return _Chosen(wanted, None, Rule(least))
    language = args.language if args.language in measured.tables else None
    rule = measured.rules[language or "all"]
    if args.language and language is None:
        there = ", ".join(measured.tables)
        tell(f"{path}: nothing was measured for {args.language} (there is {there}); all is taken")
    if warning := measured.of_another_dictionary(terms):
        tell(f"warning: {warning}")
    sure = 0.0 if args.precision is None else _least_confidence(args, measured, language, path)
    return _Chosen(str(kind), rule.weight_of_letters, Rule(least, rule.confidence, sure))


def _least_confidence(
    args: argparse.Namespace, measured: Cutoffs, language: str | None, path: Path
) -> float:
    """The confidence that makes so many answers right; BadInput if none did."""
    from coder_jax.mapping.confidence import cutoff_for

    table = measured.of(language)
    cutoff = cutoff_for(table, args.precision)
    what = f"of {language}" if language else "of all languages"
    if cutoff is None:
        best = max((row.precision for row in table.rows if row.answered >= 30), default=0.0)
        raise BadInput(
            f"--precision {args.precision}: {path} has no cut-off {what} that reached it on "
            f"{table.mentions:,} terms (the best is {best:.2f}); give less, or train longer"
        )
    row = next(row for row in table.rows if row.cutoff == cutoff)
    tell(
        f"answers from confidence {cutoff:.3f} on: on {table.mentions:,} terms {what} that are no "
        f"strings of the dictionary, {row.precision:.1%} of the answers were right and "
        f"{row.coverage:.1%} had one"
    )
    return cutoff


# -------------------------------------------------------------------------------------------------
# Mentions from a text file or from stdin, one per line, as they come.

_MENTIONS_AT_A_TIME = 4096  # the dictionary is gone through once for so many


@contextmanager
def _open_mentions(path: str) -> Iterator[tuple[BinaryIO, str]]:
    """(binary stream, its name for messages) of a file, or of stdin where `path` is '-'."""
    if path == "-":
        yield sys.stdin.buffer, "stdin"
        return
    try:
        stream = Path(path).open("rb")
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); give a text file") from error
    with stream:
        yield stream, path


def _read_mentions(stream: BinaryIO, name: str) -> Iterator[list[str]]:
    """Mentions some at a time; where the input pauses, those that have come are answered."""
    mentions: list[str] = []
    number = 0
    for line in _read_lines(stream, name):
        if line is not None:
            number += 1
            mention = decode_line(line, name, number)
            if "\t" in mention:
                raise BadInput(
                    f"{name}:{number}: found a tab; expected one mention per line and nothing else "
                    "(cut -f1 keeps the first column)"
                )
            mentions.append(mention)
        if mentions and (line is None or len(mentions) == _MENTIONS_AT_A_TIME):
            yield mentions
            mentions = []
    if mentions:
        yield mentions


def _read_lines(stream: BinaryIO, name: str) -> Iterator[bytes | None]:
    """The lines of a stream, and None whenever the next one must be waited for.

    Raises:
        BadInput: a line is longer than any mention; `name` names the stream.
    """
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # a stream in memory
        yield from bounded_lines(stream, name)
        return
    rest, number = b"", 1
    while True:
        if not select.select([descriptor], [], [], 0)[0]:
            yield None
        content = read_some(descriptor)
        if not content:
            break
        *lines, rest = (rest + content).split(b"\n")
        yield from lines
        number += len(lines)
        if len(rest) > LONGEST_LINE:
            raise too_long(name, number)
    if rest:
        yield rest


# -------------------------------------------------------------------------------------------------
# What answers the mentions of `normalize`: nearest terms, classes, or recall and rank.


def _normalizer_of(
    args: argparse.Namespace,
    dictionary: Dictionary,
    classifier: ConceptClassifier | None,
    abbreviations: dict[str, str],
) -> SameStringNormalizer | ClassNormalizer:
    """What --model, --by and --ranker ask for.

    Args:
      args: of `normalize`.
      dictionary: whose terms are searched, or that names the classes.
      classifier: that answers; None: terms do.
      abbreviations: what they stand for.
    """
    from coder_jax.systems.mlnorm.classifier import ClassNormalizer
    from coder_jax.systems.trained_models import has_stages, staged_normalizer

    least = 0.0 if args.min_similarity is None else args.min_similarity
    if classifier is not None:
        return ClassNormalizer(
            classifier,
            dictionary,
            group=args.semantic_group,
            threshold=least,
            abbreviations=abbreviations,
        )
    if has_stages(args.models, args.ranker):
        _check_of_terms(args, "answers come from a generator or a ranker")
        _check_of_stages(args)
        return staged_normalizer(
            generators_of(args, args.pooling),
            args.ranker,
            dictionary,
            ranker_choices(args)[0],
            threshold=least,
            abbreviations=abbreviations,
            cache=args.cache,
        )
    return _make_normalizer(args, dictionary, abbreviations)


def _check_of_stages(args: argparse.Namespace) -> None:
    """Raise BadInput for what recall and rank cannot do."""
    from coder_jax.systems.recall_rank.candidates import CANDIDATES

    for option, given in (("--review", args.review), ("--decided", args.decided)):
        if given:
            raise BadInput(
                f"{option}: people decide there on one concept for each mention, where recall and "
                f"rank may answer with several; leave {option} out"
            )
    if args.k is not None and args.k > CANDIDATES:
        raise BadInput(
            f"-k {args.k}: found more than the {CANDIDATES} candidates that recall and rank "
            f"choose from, as in the paper; expected at most {CANDIDATES}"
        )


def _load_classes(args: argparse.Namespace) -> ConceptClassifier:
    """The model with classes that --model names."""
    from coder_jax.systems.trained_models import load_classifier, open_model

    if open_model(args.model).kind == "classes":
        return load_classifier(args.model)
    needed = "a model with classes: a run of the recipe mlnorm, or its export"
    if args.dictionary:
        raise BadInput(f"--by classes: {args.model} has no classes; expected {needed}")
    raise BadInput(
        f"--dictionary is missing, and {args.model} has no classes; expected terms to search (a "
        "table with the columns term and concept, a dataset folder, or the MRCONSO.RRF of a "
        f"release), or {needed}"
    )


def _make_normalizer(
    args: argparse.Namespace, dictionary: Dictionary, abbreviations: dict[str, str]
) -> Normalizer:
    """The encoder with the dictionary, and the rule by which it answers."""
    from coder_jax.encoding.encoder import EncodedDictionary
    from coder_jax.encoding.vector_files import TERMS_PER_CHUNK, TermList, read_vectors
    from coder_jax.mapping.candidates import Candidates
    from coder_jax.mapping.normalizer import Normalizer

    args.cleaning = args.cleaning or lookup_rules(dictionary.terms)
    chosen = _choose(args, len(dictionary.terms))
    encoder = load_encoder(args, args.pooling)
    warn_of_languages(encoder, dictionary)
    terms = dictionary.terms
    if args.dictionary_vectors is None:
        encoded = encoder.encode_dictionary(dictionary, progress=True, cache=args.cache)
    else:
        listed = TermList(terms, TERMS_PER_CHUNK)
        assert encoder.weights_hash is not None, "it was loaded from a folder"
        vectors = read_vectors(args.dictionary_vectors, encoder, encoder.weights_hash, listed)
        encoded = EncodedDictionary(terms, dictionary.concepts, vectors, encoder)
    candidates = Candidates(encoder, encoded, chosen.kind, chosen.weight)
    return Normalizer(dictionary, candidates, rule=chosen.rule, abbreviations=abbreviations)


__doc__ = str(__doc__).replace(
    "COLUMNS", "\n".join(f"  {name:15s} {what}" for name, what in CODED_COLUMNS.items())
)


WHEN_ASKED_TO_STOP = "stopping after the rows that are printed"
WHEN_STOPPED = "stopped; the same command starts over, and finds the dictionary's vectors again"


def run(args: argparse.Namespace) -> int:
    from coder_jax.devices.hosts import alone
    from coder_jax.mapping.normalizer import read_abbreviations
    from data_pipeline.dataset.dictionary import Dictionary, read_dictionary

    alone("normalize")
    _check(args)
    with contextlib.ExitStack() as files:
        # ---- all that is given is read and checked before anything is encoded ----
        table = _read_list(args)
        parts: Iterable[list[str]]
        if table is not None:
            parts = [table.frame[args.column].to_list()]
        elif args.mentions == "-":
            parts = _read_text(args, files)  # as they come
        else:
            parts = list(_read_text(args, files))
        decisions = read_decisions(args.decided) if args.decided else {}
        abbreviations = read_abbreviations(args.abbreviations) if args.abbreviations else {}
        classifier = _load_classes(args) if args.by == "classes" else None
        if args.dictionary:
            dictionary = read_dictionary(args.dictionary, **dictionary_choices(args), raw=True)
        else:
            dictionary = Dictionary([], [], args.model)
        if args.retired_cuis:
            dictionary = dictionary.with_successors(read_retired_cuis(args.retired_cuis))
        if args.decided:
            check_decisions(decisions, dictionary, args.decided)

        if classifier is not None:
            dictionary = dictionary.knowing(classifier.concepts)

        # ---- encoder and dictionary ----
        normalizer = _normalizer_of(args, dictionary, classifier, abbreviations)

        # ---- the list ----
        if table is None and args.out is None and args.review is None:
            _print_answers(args, normalizer, parts, decisions)
            return 0
        mentions = [mention for part in parts for mention in part]
        answers = _answers_to(normalizer, mentions, decisions, args.shown)
        _write_coded(args, table, answers, dictionary)
        if args.review:
            _review(args, table, answers, dictionary, decisions)
    return 0


def _read_list(args: argparse.Namespace) -> Table | None:
    """The table of the command line; None where it is text with a term on each line."""
    is_table = Path(args.mentions).suffix.lower() in (".csv", ".tsv", ".xlsx", ".xlsm")
    if args.column is None and not is_table:
        return None
    if args.mentions == "-":
        raise BadInput("--column: found stdin as the list; expected a file: save it as .csv")
    table = read_table(
        Path(args.mentions), separator=args.separator, encoding=args.encoding, sheet=args.sheet
    )
    columns = table.frame.columns
    if args.column is None and len(columns) > 1:
        raise BadInput(
            f"{args.mentions} has the columns {listed(columns)}; say with --column which of them "
            "holds the terms"
        )
    args.column = table.find_column(args.column or columns[0], "--column")
    taken = [args.prefix + name for name in CODED_COLUMNS if args.prefix + name in columns]
    if taken:
        raise BadInput(
            f"{args.mentions} has a column {taken[0]!r} already, which would be added; rename it, "
            "or give --prefix coded_ to have the new ones called coded_concept and so on"
        )
    return table


def _read_text(args: argparse.Namespace, files: contextlib.ExitStack) -> Iterator[list[str]]:
    """Mentions from a text file or from stdin."""
    stream, name = files.enter_context(_open_mentions(args.mentions))
    return _read_mentions(stream, name)


def _print_answers(
    args: argparse.Namespace,
    normalizer: SameStringNormalizer | ClassNormalizer,
    parts: Iterable[list[str]],
    decisions: dict[str, Decision],
) -> None:
    """Prints the rows of mentions as they come."""
    writer = csv.writer(sys.stdout, "excel-tab", lineterminator="\n")
    with contextlib.suppress(BrokenPipeError):  # the reader, such as `head`, has what it wanted
        writer.writerow(["mention", *(args.prefix + name for name in CODED_COLUMNS)])
        for mentions in parts:
            process.poll()
            answers = normalizer.answers(mentions, args.shown)
            for answer in decided(answers, decisions, normalizer.dictionary):
                rows = coded_rows(answer, normalizer.dictionary, args.k, args.codes_of)
                writer.writerows([answer.mention, *row] for row in rows)
            sys.stdout.flush()


def _answers_to(
    normalizer: SameStringNormalizer | ClassNormalizer,
    mentions: list[str],
    decisions: dict[str, Decision],
    k: int,
) -> list[Answer]:
    """The answer to each mention; equal ones are looked up once."""
    distinct = list(dict.fromkeys(mentions))
    found: list[Answer] = []
    with progress_bar(total=len(distinct), unit=" terms", desc="mapping") as bar:
        for first in range(0, len(distinct), _MENTIONS_AT_A_TIME):
            process.poll()
            some = normalizer.answers(distinct[first : first + _MENTIONS_AT_A_TIME], k)
            found += some
            bar.update(len(some))
    of_mention = dict(zip(distinct, decided(found, decisions, normalizer.dictionary), strict=True))
    return [of_mention[mention] for mention in mentions]


def _write_coded(
    args: argparse.Namespace, table: Table | None, answers: list[Answer], dictionary: Dictionary
) -> None:
    """Writes the coded list, and says how much of it has an answer."""
    import polars as pl

    coded = [coded_rows(answer, dictionary, args.k, args.codes_of) for answer in answers]
    fields = [row for rows in coded for row in rows]
    added = pl.DataFrame(
        fields, schema={args.prefix + name: pl.String for name in CODED_COLUMNS}, orient="row"
    )
    frame = pl.DataFrame({"mention": [answer.mention for answer in answers]})
    frame = table.frame if table is not None else frame
    of_row = [row for row, rows in enumerate(coded) for _ in rows]
    whole = pl.concat([frame[of_row], added], how="horizontal")
    write_table(args.out or STDOUT, whole, table.dialect if table is not None else None)
    where = f"; written to {args.out}" if args.out else ""
    tell(f"{len(answers):,} rows: {in_words(answers)}{where}")


def _review(
    args: argparse.Namespace,
    table: Table | None,
    answers: list[Answer],
    dictionary: Dictionary,
    decisions: dict[str, Decision],
) -> None:
    """Writes the page on which people decide."""
    from coder_jax.report.review import write_review

    # A mention is decided once, however often it stands in the list.
    first_row: dict[str, int] = {}
    for row, answer in enumerate(answers):
        first_row.setdefault(answer.mention, row)
    rows = list(first_row.values())
    frame = None if table is None else table.frame.drop(args.column)
    columns = {} if frame is None else {name: frame[name][rows].to_list() for name in frame.columns}
    size = write_review(
        args.review,
        [answers[row] for row in rows],
        dictionary,
        title=Path(args.mentions).name if args.mentions != "-" else "stdin",
        encoder_line=f"Found with {' and '.join(args.models)} "
        + ("in" if args.by == "terms" else "by its classes; names of")
        + f" {dictionary.source}.",
        columns=columns,
        decisions=decisions,
    )
    tell(
        f"to decide: open {args.review} in a browser ({size / 1e6:.1f} MB, {len(rows):,} mentions)"
    )
