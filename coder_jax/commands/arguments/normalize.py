"""The arguments of `python -m coder_jax normalize`, in groups, and what they must be."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from coder_jax.commands.arguments.encoder import (
    add_cache_argument,
    add_dictionary_choices,
    add_model_arguments,
)
from coder_jax.commands.arguments.recall_rank import add_ranker_arguments, check_one_model
from coder_jax.mapping.answers import KINDS
from data_pipeline.files.output_file import check_output
from data_pipeline.files.tables.table import check_table_name
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import tell

if TYPE_CHECKING:
    from coder_jax.mapping.cutoffs import Cutoffs
    from coder_jax.mapping.rule import Rule

MOST_K = 1000
SHOWN_IN_REVIEW = 5
# Letters of more terms would need gigabytes: vectors alone then, if nothing else is asked for.
MOST_TERMS_BY_LETTERS = 2_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "mentions",
        nargs="?",
        default="-",
        metavar="LIST",
        help="table with --column, or text file with one term per line; - is stdin (default)",
    )
    add_table(parser.add_argument_group("the list"))
    add_answers(parser.add_argument_group("answers"))
    add_review(parser.add_argument_group("review"))
    add_dictionary(parser.add_argument_group("dictionary"))
    add_model_arguments(parser.add_argument_group("encoder"), several_models="flags")
    add_ranker_arguments(parser)


def add_table(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--column", metavar="NAME", help="of a table, the column with the terms")
    group.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the coded list: .csv, .tsv, .txt or .xlsx (default: tab-separated, on stdout)",
    )
    group.add_argument(
        "-k",
        type=int,
        help="concepts for each term, a row for each (default: 1, or as many as a term means where "
        "a generator or a ranker tells)",
    )
    group.add_argument(
        "--codes-of",
        metavar="SAB,SAB",
        type=lambda value: value.split(","),
        help="codes of these vocabularies only, such as SNOMEDCT_US,ICD10CM (default: of all)",
    )
    group.add_argument(
        "--prefix", default="", metavar="TEXT", help="before the names of the added columns"
    )
    group.add_argument(
        "--separator", metavar="SIGN", help="between columns (default: found out: comma, ; or tab)"
    )
    group.add_argument(
        "--encoding", metavar="NAME", help="of text, such as latin-1 or cp1252 (default: UTF-8)"
    )
    group.add_argument("--sheet", metavar="NAME", help="of an .xlsx file (default: the first)")


def add_answers(group: argparse._ArgumentGroup) -> None:
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
        help="of all terms of the list, such as DISO or ANAT: only its classes are answers",
    )
    group.add_argument(
        "--min-similarity",
        "--threshold",
        type=float,
        metavar="S",
        help="no answer where the nearest concept is further away, or a class less probable "
        "(default: always one)",
    )
    group.add_argument(
        "--precision",
        type=float,
        metavar="P",
        help="no answer where it is less sure than what makes this share of answers right, such as "
        "0.9; needs cutoffs.json",
    )
    group.add_argument(
        "--language",
        metavar="LANGUAGE",
        help="of the list, such as GER: takes what was measured of this language (default: of all)",
    )
    group.add_argument(
        "--cutoffs",
        type=Path,
        metavar="FILE",
        help="what was measured, from `evaluate --cutoffs` (default: cutoffs.json of the model)",
    )
    group.add_argument(
        "--candidates",
        choices=KINDS,
        help="what is near: by the encoder's vectors, by letters (three-letter pieces, which find "
        "typing errors and names of other languages), or by both joined (default: both; vectors "
        f"where the dictionary has more than {MOST_TERMS_BY_LETTERS:,} terms)",
    )
    group.add_argument(
        "--abbreviations",
        metavar="FILE",
        help="your own, as lines of abbreviation<TAB>words; they are written out before a look-up",
    )


def add_review(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--review",
        type=Path,
        metavar="HTML",
        help="write a page, for a browser without network, on which people accept and reject",
    )
    group.add_argument(
        "--decided",
        type=Path,
        metavar="CSV",
        help="what was decided there, as the page saves it: these terms are coded so, the others "
        "anew",
    )


def add_dictionary(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--dictionary",
        metavar="PATH",
        help="terms to search: a table with the columns term and concept, a dataset folder, or the "
        "MRCONSO.RRF of a release",
    )
    add_dictionary_choices(group, several_words=False)
    group.add_argument(
        "--dictionary-vectors",
        type=Path,
        metavar="NPY",
        help="the vectors of the dictionary, from `python -m coder_jax encode --dictionary`",
    )
    group.add_argument(
        "--retired-cuis",
        metavar="FILE",
        help="MRCUI.RRF, a dataset's retired_cuis.tsv, or a TSV file of old<TAB>new: CUIs of the "
        "dictionary are replaced by what they were merged into",
    )
    add_cache_argument(group)


def check(args: argparse.Namespace) -> None:
    """BadInput for values that no look-up can use."""
    if args.k is not None and not 1 <= args.k <= MOST_K:
        raise BadInput(f"-k is {args.k}; expected 1 to {MOST_K:,} concepts for each term")
    args.shown = max(args.k or 1, SHOWN_IN_REVIEW if args.review else 1)
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
    check_kind(args)
    if args.precision is not None and args.min_similarity is not None:
        raise BadInput("found --precision and --min-similarity; expected one of them")


def check_kind(args: argparse.Namespace) -> None:
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
    check_of_terms(args, "answers are classes")
    check_one_model(args.models, "answers are classes")
    names = [flag for flag in ("review", "decided") if getattr(args, flag) is not None]
    if names and not args.dictionary:
        raise BadInput(
            f"--{names[0]} needs the names of concepts; give --dictionary and --by classes"
        )


def check_of_terms(args: argparse.Namespace, why: str) -> None:
    """BadInput for options of nearest terms, where something else answers, as `why` says."""
    of_terms = ("precision", "candidates", "dictionary_vectors", "cutoffs")
    given = [name for name in of_terms if getattr(args, name) is not None]
    if given:
        raise BadInput(
            f"--{given[0].replace('_', '-')} is for terms of a dictionary, but {why}; leave it "
            "out, or give an encoder as --model, with --by terms and --dictionary"
        )


class Chosen(NamedTuple):
    """How candidates are found, and which are answers."""

    kind: str
    weight: float | None  # of letters
    rule: Rule


def choose(args: argparse.Namespace, terms: int) -> Chosen:
    """The rule of the arguments and of what was measured of the model; said in a line.

    Args:
      args: of `add_arguments`.
      terms: rows of the dictionary.

    Raises:
      BadInput: a precision that was not measured, or was never reached.
    """
    from coder_jax.mapping.cutoffs import Cutoffs
    from coder_jax.mapping.rule import Confidence, Rule
    from coder_jax.models.hf_files import find_folder
    from data_pipeline.files.identity import CUTOFFS

    path = args.cutoffs or find_folder(args.model) / CUTOFFS.file
    measured = Cutoffs.read(path) if args.cutoffs or path.is_file() else None
    least = -1.0 if args.min_similarity is None else args.min_similarity
    wanted = args.candidates or ("vectors" if terms > MOST_TERMS_BY_LETTERS else "both")
    if measured is None or not measured.rules:
        if args.precision is not None:
            raise BadInput(
                f"--precision {args.precision}: found no {path}; expected what was measured on "
                "terms whose concept is known. Measure it: python -m coder_jax evaluate --model "
                f"{args.model} --dictionary {args.dictionary} --benchmark own=TERMS.tsv --cutoffs "
                f"{path} --json results.json, or give --min-similarity"
            )
        return Chosen(wanted, None, Rule(least))
    kind = measured.measured_on.get("candidates")
    if args.candidates not in (None, kind):
        if args.precision is not None:
            raise BadInput(
                f"--candidates {args.candidates}: {path} was measured with {kind}; leave it "
                f"out, or measure anew: `evaluate --cutoffs {path} --candidates {args.candidates}`"
            )
        return Chosen(wanted, None, Rule(least))
    language = args.language if args.language in measured.tables else None
    rule = measured.rules[language or "all"]
    if args.language and language is None:
        there = ", ".join(measured.tables)
        tell(f"{path}: nothing was measured for {args.language} (there is {there}); all is taken")
    if warning := measured.of_another_dictionary(terms):
        tell(f"warning: {warning}")
    sure = 0.0 if args.precision is None else least_confidence(args, measured, language, path)
    return Chosen(str(kind), rule.weight_of_letters, Rule(least, Confidence(*rule[1:]), sure))


def least_confidence(
    args: argparse.Namespace, measured: Cutoffs, language: str | None, path: Path
) -> float:
    """The confidence that makes so many answers right; BadInput if none did."""
    from coder_jax.mapping.cutoffs import cutoff_for

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
