"""Learns vectors of words, names and concepts from text: what BNE begins with.

Text is JSON lines (.jsonl) with a field "text", and if need be "cuis" and "names" of what it is
about; PubTator; an OBO ontology, whose definitions are read; or plain text with a blank line
between documents. Each may be packed (.gz). Odd lines are left out, counted, and named in
odd_lines.txt.

Names are those that PubTator annotates, those of what a text is about, and those of a dictionary,
found by longest match of whole words. Case does not count, but a name of one word that the
dictionary writes in capitals alone (AIDS) is matched in capitals only. Text and names become words
by one rule.

  words           a vector for each word (the paper's SG_W)
  names           and for each name, which stands as one token in place of its words (SG_S)
  names_concepts  and for each concept: each sentence with names comes twice, the name and its
                  concept on the left of the name's words, then on their right (SG_S.C)

The same command with one worker gives the same bytes; --workers 2 takes half the time and does not.
Look at the most frequent names that are printed: one that means nothing is for --stop-names.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from data_pipeline.process import run_parsed
from data_pipeline.skip_gram.options import VARIANTS, Settings, SkipGramOptions

_EXAMPLES = """\
examples:
  words alone, of any text:
    python -m data_pipeline.skip_gram --text abstracts.jsonl.gz notes.txt --variant words \\
        --out vectors/sgw

  names and concepts of a dataset, without those on which an encoder will be measured:
    python -m data_pipeline.skip_gram --text abstracts.jsonl.gz hp.obo \\
        --dictionary data/diseases --dictionary-languages ENG --variant names_concepts \\
        --exclude-concepts heldout_concepts.txt --workers 2 --out vectors/sgsc

  abstracts with annotated names, as PubTator has them, and no dictionary:
    python -m data_pipeline.skip_gram --text CDR_TrainingSet.PubTator.txt \\
        --variant names_concepts --out vectors/cdr
"""
_SETTINGS = {
    "size": "numbers in a vector",
    "window": "most words on each side that are context",
    "negatives": "drawn words for each word and context",
    "min_count": "words, names and concepts that the text has fewer times get no vector",
    "epochs": "passes over the text",
    "rate": "of learning at the start; it falls to 0.0001",
    "sample": "share of the text above which a frequent word is often passed over; 0: none is",
    "seed": "of all draws",
    "workers": "threads; one gives the same vectors each time, several are quicker and do not",
}

_COMMON = (
    *("--text", "--variant", "--out", "--dictionary", "--dictionary-languages"),
    *("--exclude-concepts", "--stop-names", "--size", "--epochs", "--workers", "--overwrite"),
)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; its exit status is that of `run_command`."""
    name = "python -m data_pipeline.skip_gram"
    return run_parsed(name, __doc__, _EXAMPLES, add_arguments, _build, argv, common=_COMMON)


def _build(args: argparse.Namespace) -> int:
    """Makes the folder and prints what it holds."""
    # Imported here: what is not installed is then said by name, and --help is quick.
    from data_pipeline.skip_gram.build import build_skip_grams, skip_gram_report

    values = vars(args)
    settings = Settings(**{name: values.pop(name) for name in _SETTINGS})
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    grams = build_skip_grams(SkipGramOptions(**{**values, **lists}, settings=settings))
    print(skip_gram_report(grams))
    return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of the command."""
    required = parser.add_argument_group("required")
    required.add_argument(
        "--text", type=Path, nargs="+", required=True, metavar="FILE", help="files of text"
    )
    required.add_argument(
        "--variant",
        choices=VARIANTS,
        required=True,
        help="what gets a vector (--help-all explains)",
    )
    required.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    text = parser.add_argument_group("text")
    text.add_argument(
        "--text-field",
        default="text",
        metavar="NAME",
        help="of JSON lines, the field with the text (default: text)",
    )
    text.add_argument(
        "--annotation-types",
        nargs="+",
        default=["Disease", "Chemical"],
        metavar="TYPE",
        help="of PubTator, the types of names to take (default: Disease Chemical)",
    )
    _add_names(parser.add_argument_group("names"))
    training = parser.add_argument_group("training")
    for name, what in _SETTINGS.items():
        default = getattr(Settings, name)
        metavar = "X" if isinstance(default, float) else "N"
        training.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(default),
            default=default,
            metavar=metavar,
            help=f"{what} (default: {default})",
        )
    output = parser.add_argument_group("output")
    output.add_argument("--overwrite", action="store_true", help="replace the folder at --out")


def _add_names(names: argparse._ArgumentGroup) -> None:
    names.add_argument(
        "--dictionary",
        type=Path,
        metavar="PATH",
        help="names and concepts: a dataset of `python -m data_pipeline.build`, MRCONSO.RRF, a "
        "table, or MEDIC's id|ids||name|synonym; any form that `python -m "
        "data_pipeline.build_mentions` reads (default: annotated names alone)",
    )
    names.add_argument(
        "--dictionary-languages",
        nargs="+",
        default=[],
        metavar="LANGUAGE",
        help="of a dataset or a release, names in these languages, such as ENG (default: all)",
    )
    names.add_argument(
        "--semantic-types",
        nargs="+",
        default=[],
        metavar="TYPE",
        help="of these, concepts of these types, such as T047 (default: all)",
    )
    names.add_argument(
        "--exclude-concepts",
        type=Path,
        metavar="FILE",
        help="concepts that are held out, one a line or in a column CUI: none of their names is "
        "matched, even where another concept has it, too (default: none)",
    )
    names.add_argument(
        "--stop-names",
        type=Path,
        metavar="FILE",
        help='names that are not matched, one a line, beside "disease", "condition" and such',
    )


if __name__ == "__main__":
    sys.exit(main())
