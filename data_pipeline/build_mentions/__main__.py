"""Builds a folder of mentions, each of one concept or several, and of the dictionary that is
searched for them: what the recall and rank systems train on.

Mentions are tables of two columns (.tsv, .txt, .csv, .xlsx), mention and gold, with a header or
without: CHIP-2019 as it is distributed, or your own; CHIP-CDN (.json); or PubTator (NCBI
disease, BC5CDR). All gold of a mention is meant, not one or the other: "##" joins several, or "|".
Gold may be names of the dictionary or its codes; which of the two is found out. Odd lines are left
out or mended, counted, and named in odd_lines.txt of the folder. Gold that the dictionary lacks is
counted, too: nothing is trained on it, and its mention is scored as one that cannot be right.

The dictionary is code<TAB>name without a header (code.txt of CHIP-2019); a table (.tsv, .csv,
.xlsx) whose header names the columns of terms and of concepts; id|other ids||name|synonym|...
(MEDIC); a dataset of `python -m data_pipeline.build`; or MRCONSO.RRF.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from data_pipeline.process import run_parsed

_EXAMPLES = """\
examples:
  Chinese procedures (CHIP-2019, whose dev and test are the paper's test set); the last 500
  mentions to choose by, as in the code of the paper's authors:
    python -m data_pipeline.derive_keywords --dictionary code.txt --out words.tsv
    python -m data_pipeline.build_mentions --train train.csv --hold-out 500 \\
        --test dev.csv test.csv --dictionary code.txt --keywords words.tsv \\
        --tokenizer bert-base-chinese --out data/chip

  diseases in English text (MEDIC as it comes with BioSyn):
    python -m data_pipeline.build_mentions --train CDR_TrainingSet.PubTator.txt \\
        --dev CDR_DevelopmentSet.PubTator.txt --mention-types Disease --dictionary medic.txt \\
        --tokenizer sentence-transformers/all-MiniLM-L6-v2 --out data/bc5cdr

  your own table of mention and code, several codes joined with |:
    python -m data_pipeline.build_mentions --train coded.xlsx --hold-out 0.1 \\
        --dictionary terms.xlsx --tokenizer MODEL --out data/own
"""
_COMMON = (
    *("--train", "--dictionary", "--out", "--tokenizer", "--dev", "--test", "--hold-out"),
    *("--gold", "--mention-types", "--keywords", "--overwrite"),
)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; its exit status is that of `run_command`."""
    name = "python -m data_pipeline.build_mentions"
    return run_parsed(name, __doc__, _EXAMPLES, add_arguments, _build, argv, common=_COMMON)


def _build(args: argparse.Namespace) -> int:
    """Builds the folder and prints what it holds."""
    # Imported here: what is not installed is then said by name, and --help is quick.
    from data_pipeline.build_mentions.build import MentionOptions, build_mentions, mentions_report

    values = vars(args)
    values["gold_as"] = values.pop("gold")
    for name in ("train", "dev", "test", "mention_types"):
        values[name] = tuple(values[name])
    dataset = build_mentions(MentionOptions(**values))
    print(mentions_report(dataset.manifest, dataset.folder))
    return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of the command."""
    _add_required(parser.add_argument_group("required"))
    _add_mentions(parser.add_argument_group("mentions"))
    _add_strings(parser.add_argument_group("strings"))
    output = parser.add_argument_group("output")
    output.add_argument("--name", default="", help="of the data (default: the dictionary's file)")
    output.add_argument("--release", default="", metavar="NAME", help="of the data")
    output.add_argument("--overwrite", action="store_true", help="replace the mentions at --out")


def _add_required(required: argparse._ArgumentGroup) -> None:
    required.add_argument(
        "--train",
        type=Path,
        nargs="+",
        required=True,
        metavar="FILE",
        help="mentions with gold to train on",
    )
    for name, metavar, what in (
        ("--dictionary", "PATH", "codes and names that are searched for mentions"),
        ("--out", "DIR", "folder to make"),
    ):
        required.add_argument(name, type=Path, required=True, metavar=metavar, help=what)
    required.add_argument(
        "--tokenizer",
        required=True,
        metavar="MODEL",
        help="folder or hub id of the encoder that will be trained",
    )


def _add_mentions(mentions: argparse._ArgumentGroup) -> None:
    for name, what in (("--dev", "mentions to choose by"), ("--test", "mentions to report on")):
        mentions.add_argument(name, type=Path, nargs="+", default=(), metavar="FILE", help=what)
    mentions.add_argument(
        "--hold-out",
        type=float,
        default=0,
        metavar="FRACTION_OR_COUNT",
        help="in place of --dev: the last mentions of --train, a fraction below 1 or a number "
        "(default: none)",
    )
    mentions.add_argument(
        "--distinct",
        action="store_true",
        help="train on each mention with its gold once, however often texts repeat it: an epoch "
        "of NCBI disease is a third as long then (CHIP-2019 repeats none)",
    )
    mentions.add_argument(
        "--gold",
        choices=("names", "codes"),
        help="how gold is written (default: whichever of both the dictionary has more of). Of "
        "names, each distinct one is a concept, however many codes it has; of codes, each is a "
        "concept with all its names",
    )
    mentions.add_argument(
        "--mention-types",
        nargs="+",
        default=(),
        metavar="TYPE",
        help="of PubTator, the types of mentions to take, such as Disease (default: all)",
    )


def _add_strings(strings: argparse._ArgumentGroup) -> None:
    strings.add_argument(
        "--keywords",
        type=Path,
        metavar="FILE",
        help="word<TAB>kind in each line, such as sites and types of procedures, which a ranker "
        "looks at apart; `python -m data_pipeline.derive_keywords` makes one from a dictionary "
        "(default: none)",
    )
    strings.add_argument(
        "--cleaning",
        default="none",
        metavar="RULES",
        help="how strings are cleaned before they are tokenized: none, lookup, mlnorm or paper, "
        "which drops what stands in brackets (default: none)",
    )
    strings.add_argument(
        "--max-length",
        type=int,
        default=64,
        metavar="N",
        help="longest string in tokens, special tokens included (default: 64)",
    )


if __name__ == "__main__":
    sys.exit(main())
