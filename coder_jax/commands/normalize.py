"""Map a list of terms to the concepts of a dictionary: a list in, the same list coded.

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
probability; below --threshold there is no answer. With --by classes a --dictionary only tells
the names of the concepts; else it is searched, as above.

A generator (recipe recall), with a --ranker or without, answers with as many concepts as it takes
the mention to mean, a row for each, from the 10 with the nearest names; a mention that is a string
of the dictionary is one concept. Similarity is the score by which candidates are ordered: by
distances alone always about .9; with a ranker its probability is half of it. The dictionary may be
code<TAB>name, as code.txt of CHIP-2019 is.

Examples:
  python -m coder_jax normalize --model runs/demo/export --dictionary terms.tsv \\
      --column local_term --out coded.csv --review review.html list.csv
  python -m coder_jax normalize --model runs/demo/export --dictionary terms.tsv \\
      --column local_term --out coded.csv --decided decisions.csv list.csv
  python -m coder_jax normalize --model coder_eng --dictionary data/umls --dictionary-sources \\
      SNOMEDCT_US --semantic-types T047,T191 --precision 0.9 -k 3 terms.txt
  python -m coder_jax normalize --model runs/s2 --semantic-group DISO --threshold 0.1 \\
      --by classes --dictionary data/fr_all mentions_fr.txt
  python -m coder_jax normalize --model runs/recall --ranker runs/rank --dictionary codes.tsv \\
      mentions.txt
  echo "heart attack" | python -m coder_jax normalize --model coder_eng --dictionary terms.tsv
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from coder_jax.commands.arguments.encoder import dictionary_choices
from coder_jax.commands.arguments.normalize import add_arguments, check
from coder_jax.commands.mention_lines import MENTIONS_AT_A_TIME, open_mentions, read_mentions
from coder_jax.commands.normalizers import load_classes, normalizer_of
from coder_jax.mapping.coded import COLUMNS, coded_rows, in_words
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import progress_bar, tell

if TYPE_CHECKING:
    from coder_jax.mapping.answers import Answer
    from coder_jax.mapping.decisions import Decision
    from coder_jax.mapping.normalizer import SameStringNormalizer
    from coder_jax.systems.mlnorm.prediction.class_normalizer import ClassNormalizer
    from data_pipeline.dataset.dictionary import Dictionary
    from data_pipeline.files.tables.table import Table

__doc__ = str(__doc__).replace(
    "COLUMNS", "\n".join(f"  {name:15s} {what}" for name, what in COLUMNS.items())
)

__all__ = ["WHEN_ASKED_TO_STOP", "WHEN_STOPPED", "add_arguments", "run"]

WHEN_ASKED_TO_STOP = "stopping after the rows that are printed"
WHEN_STOPPED = "stopped; the same command starts over, and finds the dictionary's vectors again"


def run(args: argparse.Namespace) -> int:
    from coder_jax.devices.place import alone
    from coder_jax.mapping.abbreviations import read_abbreviations
    from coder_jax.mapping.decisions import check_decisions, read_decisions
    from data_pipeline.dataset.dictionary import Dictionary, read_dictionary
    from data_pipeline.terminology.retired_cuis import read_retired_cuis

    alone("normalize")
    check(args)
    with contextlib.ExitStack() as files:
        # ---- all that is given is read and checked before anything is encoded ----
        table = read_list(args)
        parts: Iterable[list[str]]
        if table is not None:
            parts = [table.frame[args.column].to_list()]
        elif args.mentions == "-":
            parts = read_lines(args, files)  # as they come
        else:
            parts = list(read_lines(args, files))
        decisions = read_decisions(args.decided) if args.decided else {}
        abbreviations = read_abbreviations(args.abbreviations) if args.abbreviations else {}
        classifier = load_classes(args) if args.by == "classes" else None
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
        normalizer = normalizer_of(args, dictionary, classifier, abbreviations)

        # ---- the list ----
        if table is None and args.out is None and args.review is None:
            print_answers(args, normalizer, parts, decisions)
            return 0
        mentions = [mention for part in parts for mention in part]
        answers = answers_to(normalizer, mentions, decisions, args.shown)
        write_coded(args, table, answers, dictionary)
        if args.review:
            review(args, table, answers, dictionary, decisions)
    return 0


def read_list(args: argparse.Namespace) -> Table | None:
    """The table of the command line; None where it is text with a term on each line."""
    from data_pipeline.files.tables.table import listed, read_table

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
    taken = [args.prefix + name for name in COLUMNS if args.prefix + name in columns]
    if taken:
        raise BadInput(
            f"{args.mentions} has a column {taken[0]!r} already, which would be added; rename it, "
            "or give --prefix coded_ to have the new ones called coded_concept and so on"
        )
    return table


def read_lines(args: argparse.Namespace, files: contextlib.ExitStack) -> Iterator[list[str]]:
    """Mentions from a text file or from stdin."""
    stream, name = files.enter_context(open_mentions(args.mentions))
    return read_mentions(stream, name)


def print_answers(
    args: argparse.Namespace,
    normalizer: SameStringNormalizer | ClassNormalizer,
    parts: Iterable[list[str]],
    decisions: dict[str, Decision],
) -> None:
    """Prints the rows of mentions as they come."""
    from coder_jax.mapping.decisions import decided

    writer = csv.writer(sys.stdout, "excel-tab", lineterminator="\n")
    with contextlib.suppress(BrokenPipeError):  # the reader, such as `head`, has what it wanted
        writer.writerow(["mention", *(args.prefix + name for name in COLUMNS)])
        for mentions in parts:
            stopping.poll()
            answers = normalizer.answers(mentions, args.shown)
            for answer in decided(answers, decisions, normalizer.dictionary):
                rows = coded_rows(answer, normalizer.dictionary, args.k, args.codes_of)
                writer.writerows([answer.mention, *row] for row in rows)
            sys.stdout.flush()


def answers_to(
    normalizer: SameStringNormalizer | ClassNormalizer,
    mentions: list[str],
    decisions: dict[str, Decision],
    k: int,
) -> list[Answer]:
    """The answer to each mention; equal ones are looked up once."""
    from coder_jax.mapping.decisions import decided

    distinct = list(dict.fromkeys(mentions))
    found: list[Answer] = []
    with progress_bar(total=len(distinct), unit=" terms", desc="mapping") as bar:
        for first in range(0, len(distinct), MENTIONS_AT_A_TIME):
            stopping.poll()
            some = normalizer.answers(distinct[first : first + MENTIONS_AT_A_TIME], k)
            found += some
            bar.update(len(some))
    of_mention = dict(zip(distinct, decided(found, decisions, normalizer.dictionary), strict=True))
    return [of_mention[mention] for mention in mentions]


def write_coded(
    args: argparse.Namespace, table: Table | None, answers: list[Answer], dictionary: Dictionary
) -> None:
    """Writes the coded list, and says how much of it has an answer."""
    import polars as pl

    from data_pipeline.files.tables.table import STDOUT, write_table

    coded = [coded_rows(answer, dictionary, args.k, args.codes_of) for answer in answers]
    fields = [row for rows in coded for row in rows]
    added = pl.DataFrame(
        fields, schema={args.prefix + name: pl.String for name in COLUMNS}, orient="row"
    )
    frame = pl.DataFrame({"mention": [answer.mention for answer in answers]})
    frame = table.frame if table is not None else frame
    of_row = [row for row, rows in enumerate(coded) for _ in rows]
    whole = pl.concat([frame[of_row], added], how="horizontal")
    write_table(args.out or STDOUT, whole, table.dialect if table is not None else None)
    where = f"; written to {args.out}" if args.out else ""
    tell(f"{len(answers):,} rows: {in_words(answers)}{where}")


def review(
    args: argparse.Namespace,
    table: Table | None,
    answers: list[Answer],
    dictionary: Dictionary,
    decisions: dict[str, Decision],
) -> None:
    """Writes the page on which people decide."""
    from coder_jax.report.review.write import write_review

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
