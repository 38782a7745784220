"""Map a list of medical terms to the concepts of a dictionary.

A list goes in, and the same list comes out with a concept for each term.

The list is a table (.csv, .tsv, .xlsx) whose column --column holds the terms, or a text file with
one term per line, or stdin. Of a table all columns are kept, and these are added. An .xlsx made of
an .xlsx is a copy of it, with its other sheets and formats. The columns are:

COLUMNS

How a mention is answered:
  1. A string of the dictionary, case and blanks aside, is the answer ("exact"). Where several
     concepts have it, those that write it exactly so come first; if they still are several, the
     status is "tied". An acronym in capitals (ODD) is not the same as a word (odd): that is "near".
  2. Else the empty string, numbers, single letters, placeholders ("n/a", "see attached"), errors
     of a spreadsheet (#REF!) and texts of more than 500 characters have no answer.
  3. A string of the dictionary but for one letter is "misspelt": a letter of a word of six or more
     is missing, wrong or too many, or two are swapped, and the dictionary has that word nowhere.
  4. Else the concept that is nearest by the encoder's vectors and by the letters ("near", or
     "doubtful" where its confidence is below 0.5). --min-similarity leaves out what is too far.
     --precision 0.9 leaves out what is uncertain, so that about nine of ten answers are right. It
     takes the cut-offs that `evaluate --cutoffs` has measured on terms whose concept is known.
  5. Numbers with units, sides, types and grades, Greek letters, and opposites such as acute and
     chronic are compared: a nearest concept that contradicts the mention is passed over for the
     next that does not. Where there is none near, the status is "differs" and the reason says in
     what ("differs: strength"); such an answer never passes --precision. A value that the concept
     lacks is named, too ("lost: side").
  6. "no fever", "rule out pneumonia", "mother had breast cancer", "s/p stroke" have no answer,
     unless a term of the dictionary says so itself: the column context tells why. With --context
     code they get the concept of the name, with the status "in context", never "exact".

People's decisions (--decided) come before all that. They are on a code (--code-column) and a text,
or on the text where the list has no codes; one may name several concepts, a row for each. With
--learn what was accepted is also a name of its concept: other ways of writing it are "learnt".

Brackets are kept: "Hemiplegia (left)" and "Hemiplegia (right)" are two terms. Only a semantic tag
of SNOMED CT at the end, such as "(disorder)", may be missing where the dictionary has such tags.

The dictionary is a table with the columns term and concept, or those that --term-column and
--concept-column name (also language, vocabulary, code, preferred, semantic_type, where there are),
a dataset folder, an ontology (.obo), a folder with an ontology and tables of further names of its
concepts, the MRCONSO.RRF of a UMLS release (whatever its name), a whole release of the UMLS,
RxNorm, SNOMED CT or LOINC, or OMOP's vocabularies from Athena (each a folder or .zip). It may also
be the https:// address of such a file, which is fetched once. Its vectors are kept on this machine:
the second time is quick.

A model with classes (a run of the recipes mlnorm or mlnorm_classes, or its export) needs no
dictionary: the answer is its most probable concept, among those of --semantic-group where all
mentions are of one, in whatever languages it was trained on. Similarity and confidence are its
probability; below --min-similarity there is no answer. With --by classes a --dictionary only tells
the names of the concepts; else it is searched, as above.

A generator (recipe recall), with a --ranker or without, answers with as many concepts as it takes
the mention to mean, a row for each, from the 10 with the nearest names; a mention that is a string
of the dictionary is one concept. Similarity is the score that orders the candidates: without
a ranker about 0.9 for all of them, with one the mean of that and the ranker's probability. The
dictionary may be code<TAB>name, as code.txt of CHIP-2019 is.

A ranker that was trained with --broader answers with the first candidate if that is more probably
the concept than not ("near"); else with the candidate that is most probably broader than what is
meant, if that is more probable than not ("broader"); else not at all. With --cutoffs, a file of
`evaluate --ranker ... --cutoffs FILE`, any ranker answers so, by the measured confidence; with
--precision 0.9 this must be as high as makes 9 of 10 answers right.

Examples:
  python -m coder_jax normalize --model runs/demo/export --dictionary terms.tsv \\
      --column local_term --out coded.csv --review review.html list.csv
  echo "heart attack" | python -m coder_jax normalize --model mine --dictionary terms.tsv
  python -m coder_jax normalize --model runs/demo/export --dictionary terms.tsv \\
      --column local_term --out coded.csv --decided list_decisions.csv list.csv
  python -m coder_jax normalize --model mine --dictionary data/umls --dictionary-sources \\
      SNOMEDCT_US --semantic-types T047,T191 --precision 0.9 -k 3 terms.txt
  python -m coder_jax normalize --model runs/s2 --semantic-group DISO --min-similarity 0.1 \\
      --by classes --dictionary data/fr_all mentions_fr.txt
  python -m coder_jax normalize --model runs/recall --ranker runs/rank --dictionary codes.tsv \\
      mentions.txt
"""

from __future__ import annotations

import contextlib
import csv
import io
import select
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, NamedTuple

from coder_jax.commands.answering import (
    TERMS_TO_SEARCH,
    AnswerOptions,
    check_rule,
    chosen_abbreviations,
    chosen_context_rules,
    chosen_dictionary,
    make_normalizer,
    rules_of_ranker,
)
from coder_jax.commands.arguments import (
    Fusion,
    RankerOptions,
    check_one_model,
    generators_of,
)
from coder_jax.encoding.vector_files import decode_line, read_some
from coder_jax.mapping.coded_list import (
    CODED_COLUMNS,
    CODED_NUMBERS,
    CODED_PREFIX,
    DECIDED_COLUMNS,
    Decisions,
    check_decisions,
    coded_rows,
    decided,
    decided_rows,
    find_frequencies,
    frequency_of,
    in_words,
    read_decisions,
)
from coder_jax.mapping.context import ContextNormalizer
from data_pipeline import process
from data_pipeline.files.buckets import check_not_input, check_output
from data_pipeline.files.tables import (
    LONGEST_LINE,
    STDOUT,
    TABLE_ENDINGS,
    TERM_COLUMNS,
    begins_as_utf16,
    bounded_lines,
    check_room,
    check_table_name,
    codec_of,
    decoded,
    folded,
    listed,
    read_bytes,
    read_table,
    read_text,
    too_long,
    write_table,
    write_with_columns,
)
from data_pipeline.files.whole import is_stream
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput, did_you_mean, progress_bar, tell

if TYPE_CHECKING:
    from coder_jax.mapping.coded_list import Answer, Decision
    from coder_jax.mapping.normalizer import SameStringNormalizer
    from coder_jax.systems.mlnorm.classifier import ClassNormalizer, ConceptClassifier
    from data_pipeline.dataset.dictionary import Dictionary
    from data_pipeline.files.tables import Table


# -------------------------------------------------------------------------------------------------
# The options of `python -m coder_jax normalize`, and what they must be.

COMMON = (
    *("--model", "--dictionary", "--column", "--out", "--review", "--precision", "-k"),
    *("--decided", "--learn", "--code-column"),
)
_MOST_K = 1000
_SHOWN_IN_REVIEW = 5


@dataclass(frozen=True, kw_only=True)
class NormalizeOptions(AnswerOptions, RankerOptions):
    """The options of `normalize`."""

    mentions: Annotated[
        str,
        Flag(
            "table with --column, or text file with one term per line (default: stdin)",
            "LIST",
            name="",
            heading="the list",
        ),
    ] = "-"
    column: Annotated[str | None, Flag("column of the table that has the terms", "NAME")] = None
    out: Annotated[
        Path | None,
        Flag(
            "file to write, .csv, .tsv, .txt or .xlsx (default: tab-separated, on stdout)", "FILE"
        ),
    ] = None
    k: Annotated[
        int | None,
        Flag(
            "concepts for each term, a row for each; a generator or a ranker (recall, rank) gives "
            "as many as the term means (default: 1)",
            name="-k",
        ),
    ] = None
    prefix: Annotated[
        str,
        Flag(
            "put this before the names of the added columns (default: coded_ where the list has a "
            "column of such a name, else nothing)",
            "TEXT",
        ),
    ] = ""
    separator: Annotated[
        str | None,
        Flag(
            "sign between columns (default: found in the file: comma, ;, | or tab); of an .xlsx "
            "list, that of --out coded.csv (default: comma; Excel expects ; where decimals have a "
            "comma)",
            "SIGN",
        ),
    ] = None
    encoding: Annotated[
        str | None,
        Flag(
            "encoding of the list, such as cp1252 (Excel) or latin-1 (default: UTF-8); the other "
            "files are read as UTF-8, and as this where they are not",
            "NAME",
        ),
    ] = None
    sheet: Annotated[
        str | None, Flag("sheet of an .xlsx file (default: the first that is not hidden)", "NAME")
    ] = None
    header_row: Annotated[
        int | None,
        Flag(
            "row of the column names, where titles stand above it (default: the first row that has "
            "the name --column)",
            "N",
            least=1,
        ),
    ] = None
    by: Annotated[
        Literal["terms", "classes"] | None,
        Flag(
            "answer with the concept of the nearest term of --dictionary, or with the most "
            "probable class of a model that has classes (recipe mlnorm), where --dictionary only "
            "tells the names of concepts (default: terms; classes without --dictionary)",
            heading="answers",
        ),
    ] = None
    semantic_group: Annotated[
        str | None,
        Flag(
            "semantic group of all terms of the list, such as DISO or ANAT: only classes of this "
            "group are answers",
            "GROUP",
        ),
    ] = None
    map_files: Annotated[
        tuple[str, ...],
        Flag(
            "also write the mapping as another program reads it: usagi=FILE.csv, stcm=FILE.csv "
            "(OMOP's source_to_concept_map), sssom=FILE.tsv or fhir=FILE.json (ConceptMap, R4); "
            "may be given for each; of a concept's codes those of --codes-of come first",
            "FORMAT=FILE",
            name="--map-file",
            one_word=True,
        ),
    ] = ()
    code_column: Annotated[
        str | None,
        Flag(
            "column of the list that has your own codes, for --map-file; decisions then hold for a "
            "code with its text, not for the text alone (default: sourceCode, if there is one)",
            "NAME",
        ),
    ] = None
    frequency_column: Annotated[
        str | None,
        Flag(
            "column of the list that says how often a term is used: --review begins with the most "
            "frequent, --map-file writes it (default: one called frequency, count, n, Anzahl, ...)",
            "NAME",
        ),
    ] = None
    review: Annotated[
        Path | None,
        Flag(
            "also write a web page on which people accept or reject answers; it needs no network",
            "HTML",
            heading="review",
        ),
    ] = None
    decided: Annotated[
        Path | None,
        Flag(
            "use decisions that the --review page saved, a file of Usagi or SSSOM, or a list that "
            "was coded with decisions; all other terms are mapped again",
            "CSV",
        ),
    ] = None
    learn: Annotated[
        bool,
        Flag(
            "accepted mentions of --decided become names of their concepts in this run, so that "
            "other ways of writing them are found, too (status or reason: learnt); the file of the "
            "dictionary stays as it is"
        ),
    ] = False
    fusion: Annotated[
        Fusion,
        Flag(
            "order candidates by the mean of both scores, or by one of them",
            heading="recall and rank",
        ),
    ] = "mean"

    @property
    def by_classes(self) -> bool:
        """Whether classes answer, not the terms of the dictionary."""
        return self.by == "classes" or not (self.by or self.dictionary)

    @property
    def read(self) -> dict[str, str | Path | None]:
        """What is read, by option."""
        names = (
            *("dictionary", "decided", "abbreviations", "cutoffs", "retired_cuis"),
            *("context_rules", "dictionary_vectors"),
        )
        given = {f"--{name.replace('_', '-')}": getattr(self, name) for name in names}
        return {"the list": self.mentions, **given}

    @property
    def maps(self) -> dict[str, Path]:
        """The files of --map-file by their formats."""
        from coder_jax.mapping.map_files import FORMS

        found: dict[str, Path] = {}
        for argument in self.map_files:
            form, _, path = argument.partition("=")
            if form not in FORMS or not path or form in found:
                raise BadInput(
                    f"--map-file: found {argument!r}; expected FORMAT=FILE, each format "
                    f"once, with one of {', '.join(FORMS)}{did_you_mean(form, FORMS)}"
                )
            found[form] = Path(path)
        return found

    @property
    def shown(self) -> int:
        """Concepts to find for each term."""
        return max(self.k or 1, _SHOWN_IN_REVIEW if self.review else 1)


OPTIONS = NormalizeOptions


def _check(options: NormalizeOptions) -> None:
    """BadInput for values that no look-up can use."""
    if options.k is not None and not 1 <= options.k <= _MOST_K:
        raise BadInput(f"-k is {options.k}; expected 1 to {_MOST_K:,} concepts for each term")
    if options.out is not None:
        check_table_name(options.out, "--out")
        check_output(options.out, "--out", "coded.csv")
    if options.review is not None:
        check_output(options.review, "--review", "review.html")
    maps = options.maps
    for form, path in maps.items():
        check_output(path, "--map-file", f"{form}=map.csv")
    if options.code_column and not (maps or options.review or options.decided):
        raise BadInput(
            "--code-column: found no --review, --decided or --map-file; expected one of them, as "
            "--out has all columns of the list"
        )
    given = [("--out", options.out), ("--review", options.review)]
    given += [("--map-file", path) for path in maps.values()]
    written: dict[Path, str] = {}
    for option, one in given:
        if one is None or is_stream(one):
            continue
        check_not_input(one, option, options.read)
        if one.resolve() in written:
            raise BadInput(
                f"{option}: found {one}, which {written[one.resolve()]} writes, too; expected a "
                "file for each"
            )
        written[one.resolve()] = option
    check_rule(options)
    if options.learn and options.decided is None:
        raise BadInput("--learn: found no --decided; expected the decisions to learn from")
    _check_kind(options)


def _check_kind(options: NormalizeOptions) -> None:
    """BadInput where terms are to be searched and there are none, or options of the other kind."""
    if not options.by_classes:
        if not options.dictionary:
            raise BadInput(f"--by terms: found no --dictionary; expected {TERMS_TO_SEARCH}")
        if options.semantic_group:
            raise BadInput(
                "--semantic-group is for models with classes (--by classes); to search terms of "
                "some semantic types, give --semantic-types"
            )
        return
    if options.by is None and len(options.models) == 1:
        _check_classes(options)  # or --dictionary was forgotten, which comes first
    _check_of_terms(options, "answers are classes")
    check_one_model(options.models, "answers are classes")
    names = [flag for flag in ("review", "decided") if getattr(options, flag) is not None]
    if names and not options.dictionary:
        raise BadInput(
            f"--{names[0]} needs the names of concepts; give --dictionary and --by classes"
        )


def _check_of_terms(options: NormalizeOptions, why: str) -> None:
    """BadInput for options of nearest terms, where something else answers, as `why` says."""
    of_terms = ["candidates", "dictionary_vectors"]
    if options.by_classes or not options.ranker:  # they are measured of a ranker, too
        of_terms = ["precision", *of_terms, "cutoffs"]
    given = [name for name in of_terms if getattr(options, name) is not None]
    given += ["learn"] if options.learn else []
    if given:
        raise BadInput(
            f"--{given[0].replace('_', '-')} is for terms of a dictionary, but {why}; leave it "
            "out, or give an encoder as --model, with --by terms and --dictionary"
        )


# -------------------------------------------------------------------------------------------------
# Mentions from a text file or from stdin, one per line, as they come.

_MENTIONS_AT_A_TIME = 4096  # the dictionary is gone through once for so many


@contextmanager
def _open_mentions(path: str, encoding: str | None) -> Iterator[tuple[BinaryIO, str]]:
    """(binary stream, its name for messages) of a file, or of stdin where `path` is '-'.

    Text in another encoding, as a file's byte order mark or `encoding` says, is read as a whole.
    """
    name = "stdin" if path == "-" else path
    # Of a pipe nothing may be read twice.
    file = Path(path)
    if encoding is not None:
        content = sys.stdin.buffer.read() if path == "-" else read_bytes(file)
        text = decoded(content, name, codec_of(encoding), "give another --encoding")
    elif file.is_file() and (file.suffix.lower() == ".gz" or begins_as_utf16(file)):
        text = read_text(file)
    else:
        text = None
    if text is not None:
        yield io.BytesIO(text.encode()), name
        return
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
            # Old programs of the Macintosh end lines with \r alone.
            for part in line.rstrip(b"\r\n").split(b"\r"):
                number += 1
                mention = decode_line(part, name, number)
                if "\t" in mention:
                    raise BadInput(
                        f"{name}:{number}: found a tab; expected one mention per line and nothing "
                        "else (cut -f1 keeps the first column)"
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
    options: NormalizeOptions,
    dictionary: Dictionary,
    classifier: ConceptClassifier | None,
    abbreviations: dict[str, str],
    names: list[tuple[str, str]] | None,
) -> SameStringNormalizer | ClassNormalizer:
    """What --model, --by and --ranker ask for.

    Args:
      options: of `normalize`.
      dictionary: whose terms are searched, or that names the classes.
      classifier: that answers; None: terms do.
      abbreviations: what they stand for.
      names: (mention, concept) to learn, of --learn; None without it.
    """
    from coder_jax.systems.mlnorm.classifier import ClassNormalizer
    from coder_jax.systems.trained_models import has_stages, staged_normalizer

    least = 0.0 if options.min_similarity is None else options.min_similarity
    if classifier is not None:
        return ClassNormalizer(
            classifier,
            dictionary,
            group=options.semantic_group,
            threshold=least,
            abbreviations=abbreviations,
        )
    if has_stages(options.models, options.ranker):
        _check_of_terms(options, "answers come from a generator or a ranker")
        _check_of_stages(options)
        by = options.ranking(options.fusion)
        rules = rules_of_ranker(options, len(dictionary.terms), by.fused)
        return staged_normalizer(
            generators_of(options.models, options.pooling, options),
            options.ranker,
            dictionary,
            by,
            threshold=least,
            rules=rules,
            abbreviations=abbreviations,
            cache=not options.no_cache,
        )
    return make_normalizer(options, dictionary, abbreviations, names)


def _check_of_stages(options: NormalizeOptions) -> None:
    """Raise BadInput for what recall and rank cannot do."""
    from coder_jax.systems.recall_rank.candidates import CANDIDATES

    for option, given in (("--review", options.review), ("--decided", options.decided)):
        if given:
            raise BadInput(
                f"{option} is for answers by the nearest term, and here recall and rank answer; "
                f"leave {option} out"
            )
    if options.k is not None and options.k > CANDIDATES:
        raise BadInput(
            f"-k {options.k}: found more than the {CANDIDATES} candidates that recall and rank "
            f"choose from, as in the paper; expected at most {CANDIDATES}"
        )


def _check_classes(options: NormalizeOptions) -> None:
    """Raise BadInput if --model has no classes."""
    from coder_jax.systems.trained_models import open_model

    if open_model(options.model).kind == "classes":
        return
    needed = "a model with classes: a run of the recipe mlnorm, or its export"
    if options.dictionary:
        raise BadInput(f"--by classes: {options.model} has no classes; expected {needed}")
    raise BadInput(
        f"--dictionary is missing, and {options.model} has no classes; expected "
        f"{TERMS_TO_SEARCH}, or {needed}"
    )


def _load_classes(options: NormalizeOptions) -> ConceptClassifier:
    """The model with classes that --model names."""
    from coder_jax.systems.trained_models import load_classifier

    _check_classes(options)
    return load_classifier(options.model)


__doc__ = str(__doc__).replace(
    "COLUMNS",
    "\n".join(f"  {name:15s} {what}" for name, what in (CODED_COLUMNS | DECIDED_COLUMNS).items()),
)


WHEN_ASKED_TO_STOP = "stopping after the rows that are printed"
WHEN_STOPPED = "stopped; the same command starts over, and finds the dictionary's vectors again"


def run(options: NormalizeOptions) -> int:
    import polars as pl

    from coder_jax.mapping.map_files import check_concepts

    _check(options)
    with contextlib.ExitStack() as files:
        # ---- all that is given is read and checked before anything is encoded ----
        table, column, options = _read_list(options)
        code_column = _code_column(options.code_column, table, column)
        frequency_column = _frequency_column(options, table, (column, code_column))
        parts: Iterable[list[str]]
        if table is not None:
            table.tell_of_dates(*filter(None, (column, code_column)))
            parts = [table.frame[column].to_list()]
        elif options.mentions == "-":
            parts = _read_text(options, files)  # as they come
        else:
            parts = list(_read_text(options, files))
        decisions = Decisions({})
        if options.decided:
            decisions = read_decisions(
                options.decided,
                options.encoding,
                column=column or "mention",
                code_column=code_column,
                prefix=options.prefix,
            )
        abbreviations = chosen_abbreviations(options, options.encoding)
        rules = chosen_context_rules(options, options.encoding)
        classifier = _load_classes(options) if options.by_classes else None
        dictionary = chosen_dictionary(options, options.encoding)
        if options.dictionary:
            check_concepts(options.maps, dictionary)
        check_decisions(decisions, dictionary)
        if classifier is not None:
            dictionary = dictionary.knowing(classifier.concepts)
        at_once = bool(table is not None or options.out or options.review or options.map_files)
        mentions = [mention for part in parts for mention in part] if at_once else []
        if options.out and options.out.suffix.lower() == ".xlsx" and not is_stream(options.out):
            given = pl.DataFrame({"mention": mentions}) if table is None else table.frame
            check_room(given, options.k or 1)
        codes: list[str | None] = [None] * len(mentions)
        if table is not None and code_column is not None:
            codes = table.frame[code_column].to_list()
        local = list(zip(mentions, codes, strict=True))
        said = [decisions.on(*one) for one in local]

        # ---- encoder and dictionary ----
        normalizer = ContextNormalizer(
            _normalizer_of(
                options,
                dictionary,
                classifier,
                abbreviations,
                decisions.names(local) if options.learn else None,
            ),
            rules,
            options.context,
        )

        # ---- the list ----
        if not at_once:
            _print_answers(options, normalizer, parts, decisions)
            return 0
        decisions.tell_unused(local)
        answers = decided(_answers_to(normalizer, mentions, options.shown), said, dictionary)
        mapped = _CodedList(table, column, code_column, frequency_column, answers, said)
        _write_coded(options, mapped, dictionary)
        if options.map_files:
            _write_maps(options, mapped, dictionary)
        if options.review:
            _review(options, options.review, mapped, dictionary)
    return 0


class _CodedList(NamedTuple):
    """A list with its answers; the columns are names of those of the table."""

    table: Table | None
    column: str
    code_column: str | None
    frequency_column: str | None
    answers: list[Answer]
    decisions: list[Decision | None]

    @property
    def others(self) -> dict[str, list[str]]:
        """The columns of the list, but for that of the terms."""
        return (
            {}
            if self.table is None
            else self.table.frame.drop(self.column).to_dict(as_series=False)
        )


def _read_list(options: NormalizeOptions) -> tuple[Table | None, str, NormalizeOptions]:
    """The table of the command line, its column, and the options with the prefix that it needs;
    None where a text has a term on each line.
    """
    is_table = options.mentions.lower().removesuffix(".gz").endswith(TABLE_ENDINGS)
    if options.column is None and not is_table:
        for name in ("separator", "sheet", "header_row"):
            if getattr(options, name) is not None:
                raise BadInput(
                    f"--{name.replace('_', '-')}: found a list without columns; expected a table: "
                    "give --column, too, or leave it out"
                )
        return None, "", options
    if options.mentions == "-":
        raise BadInput("--column: found stdin as the list; expected a file: save it as .csv")
    table = read_table(
        Path(options.mentions),
        separator=options.separator,
        encoding=options.encoding,
        sheet=options.sheet,
        header_row=options.header_row,
        column=options.column,
    )
    columns = table.frame.columns
    if options.column is None and len(columns) > 1:
        raise BadInput(
            f"{options.mentions} has the columns {listed(columns)}; say with --column which of "
            "them holds the terms"
        )
    column = table.find_column(options.column or columns[0], "--column")
    is_guessed = options.column is None and options.header_row is None
    if is_guessed and column.strip().lower() not in TERM_COLUMNS:
        tell(
            f"{options.mentions}: the first row, {column!r}, is taken for the header; if it is a "
            "term, write a header above it"
        )
    taken = _taken(options, columns)
    if taken and not options.prefix and not _OF_CODED <= {folded(name) for name in columns}:
        options = replace(options, prefix=CODED_PREFIX)
        tell(
            f"{options.mentions} has a column {taken!r} itself, so the added ones are called "
            f"{CODED_PREFIX}concept and so on (--prefix {CODED_PREFIX})"
        )
        taken = _taken(options, columns)
    if taken:
        raise BadInput(
            f"{options.mentions} has a column {taken!r} already, and one of this name (in any "
            "case) would be added; give the list as it was before it was coded, or another "
            "--prefix to have the new ones called so, as in --prefix again_"
        )
    return table, column, options


_OF_CODED = {"concept", "matchedterm", "status", "rank"}  # columns of a list that was coded


def _taken(options: NormalizeOptions, columns: Iterable[str]) -> str | None:
    """A column of the list that has the name of an added one.

    Spreadsheets, databases and readers of decisions take Code and code for one name.
    """
    added = {name.casefold() for name in _added(options)}
    return next((name for name in columns if name.strip().casefold() in added), None)


def _read_text(options: NormalizeOptions, files: contextlib.ExitStack) -> Iterator[list[str]]:
    """Mentions from a text file or from stdin."""
    stream, name = files.enter_context(_open_mentions(options.mentions, options.encoding))
    return _read_mentions(stream, name)


def _print_answers(
    options: NormalizeOptions,
    normalizer: ContextNormalizer,
    parts: Iterable[list[str]],
    decisions: Decisions,
) -> None:
    """Prints the rows of mentions as they come."""
    writer = csv.writer(sys.stdout, "excel-tab", lineterminator="\n")
    seen: set[tuple[str, None]] = set()
    with contextlib.suppress(BrokenPipeError):  # the reader, such as `head`, has what it wanted
        writer.writerow(["mention", *_added(options)])
        for mentions in parts:
            process.poll()
            answers = normalizer.answers(mentions, options.shown)
            if decisions.of:
                seen |= {(mention, None) for mention in mentions}
            said = [decisions.on(mention, None) for mention in mentions]
            answers = decided(answers, said, normalizer.dictionary)
            for answer, decision in zip(answers, said, strict=True):
                rows = _rows_of(options, answer, decision, normalizer.dictionary)
                writer.writerows([answer.mention, *row] for row in rows)
            sys.stdout.flush()
        decisions.tell_unused(seen)


def _answers_to(normalizer: ContextNormalizer, mentions: list[str], k: int) -> list[Answer]:
    """The answer to each mention; equal ones are looked up once."""
    distinct = list(dict.fromkeys(mentions))
    found: list[Answer] = []
    with progress_bar(total=len(distinct), unit=" terms", desc="mapping") as bar:
        for first in range(0, len(distinct), _MENTIONS_AT_A_TIME):
            process.poll()
            some = normalizer.answers(distinct[first : first + _MENTIONS_AT_A_TIME], k)
            found += some
            bar.update(len(some))
    of_mention = dict(zip(distinct, found, strict=True))
    return [of_mention[mention] for mention in mentions]


def _added(options: NormalizeOptions) -> list[str]:
    """The names of the columns that are added to the list."""
    names = [*CODED_COLUMNS, *(DECIDED_COLUMNS if options.decided else ())]
    return [options.prefix + name for name in names]


def _rows_of(
    options: NormalizeOptions, answer: Answer, decision: Decision | None, dictionary: Dictionary
) -> list[list[str]]:
    """The fields of `_added` for one mention, with a row for each concept."""
    rows = coded_rows(answer, dictionary, options.k, options.codes_of or None)
    if not options.decided:
        return rows
    more = decided_rows(answer, decision, len(rows))
    return [row + said for row, said in zip(rows, more, strict=True)]


def _write_coded(options: NormalizeOptions, mapped: _CodedList, dictionary: Dictionary) -> None:
    """Writes the coded list, and says how much of it has an answer."""
    import polars as pl

    table, answers = mapped.table, mapped.answers
    coded = [
        _rows_of(options, *one, dictionary) for one in zip(answers, mapped.decisions, strict=True)
    ]
    fields = [row for rows in coded for row in rows]
    schema = dict.fromkeys(_added(options), pl.String)
    added = pl.DataFrame(fields, schema=schema, orient="row")
    of_row = [row for row, rows in enumerate(coded) for _ in rows]
    out = options.out or STDOUT
    if table is not None:
        numbers = [options.prefix + name for name in CODED_NUMBERS]
        write_with_columns(out, table, of_row, added, numbers)
    else:
        mentions = pl.DataFrame({"mention": [answers[row].mention for row in of_row]})
        write_table(out, pl.concat([mentions, added], how="horizontal"))
    where = f"; written to {options.out}" if options.out else ""
    tell(f"{len(answers):,} rows: {in_words(answers)}{where}")


def _code_column(name: str | None, table: Table | None, column: str) -> str | None:
    """The column of the list that has its codes; None where it has none."""
    from coder_jax.mapping.map_files import SOURCE_CODE

    if name is None:
        others = [] if table is None else table.frame.columns
        return SOURCE_CODE if SOURCE_CODE in others and column != SOURCE_CODE else None
    if table is None:
        raise BadInput("--code-column: found a list without columns; expected a table")
    found = table.find_column(name, "--code-column")
    if found == column:
        raise BadInput(
            f"--code-column {name}: found the column of the terms; expected one of their codes, or "
            "leave it out: without codes the text counts"
        )
    return found


def _frequency_column(
    options: NormalizeOptions, table: Table | None, taken: tuple[str | None, ...]
) -> str | None:
    """The column of the list that says how often each term is used; None where it has none.

    `taken` are those of the terms and of the codes.
    """
    if table is None or not (options.review or options.map_files):
        if options.frequency_column is not None:
            raise BadInput(
                "--frequency-column: found no --review or --map-file, or a list without columns; "
                "expected a table, and one of them"
            )
        return None
    columns = table.frame.to_dict(as_series=False)
    columns = {name: values for name, values in columns.items() if name not in taken}
    if options.frequency_column is None:
        found = find_frequencies(columns)
        if found is not None:
            tell(f"the column {found!r} says how often a term is used (--frequency-column)")
        return found
    found = table.find_column(options.frequency_column, "--frequency-column")
    values = columns.get(found, [])
    if all(frequency_of(one) is None for one in values):
        what = "no number" if found in columns else "the column of the terms or their codes"
        raise BadInput(f"--frequency-column {found}: found {what}; expected how often each is used")
    return found


def _write_maps(options: NormalizeOptions, mapped: _CodedList, dictionary: Dictionary) -> None:
    """Writes the mapping in the files of other programs."""
    from coder_jax.mapping.map_files import local_terms, write_map

    answers = mapped.answers
    packed = options.mentions.removesuffix(".gz")
    name = Path(packed).stem if packed != "-" else "local"
    mentions = [answer.mention for answer in answers]
    terms = local_terms(name, mentions, mapped.others, mapped.code_column, mapped.frequency_column)
    for form, path in options.maps.items():
        said, codes_of = mapped.decisions, options.codes_of
        write_map(form, path, answers, dictionary, terms, said, codes_of=codes_of)
        tell(f"{form}: written to {path}")


def _review(
    options: NormalizeOptions, out: Path, mapped: _CodedList, dictionary: Dictionary
) -> None:
    """Writes the page on which people decide."""
    from coder_jax.report.review import write_review

    columns = mapped.others
    codes = columns.pop(mapped.code_column) if mapped.code_column is not None else None
    frequencies = None
    if mapped.frequency_column is not None:
        counts = map(frequency_of, columns.pop(mapped.frequency_column))
        frequencies = [1 if one is None else one for one in counts]
    size, rows = write_review(
        out,
        mapped.answers,
        dictionary,
        title=Path(options.mentions).name if options.mentions != "-" else "stdin",
        encoder_line=f"Found with {' and '.join(options.models)} "
        + ("by its classes; names of" if options.by_classes else "in")
        + f" {dictionary.source}.",
        columns=columns,
        codes=codes,
        frequencies=frequencies,
        decisions=mapped.decisions,
    )
    tell(f"to decide: open {out} in a browser ({size / 1e6:.1f} MB, {rows:,} mentions)")
