"""Derives a vocabulary of keywords from a dictionary: words and their kinds, each of which a ranker
looks at apart.

Frequent endings of names become types ("syndrome", 切除术); frequent parts that keep to one branch
of the dictionary, such as a chapter of codes, become sites. Look through the words,
take out what is neither, add your own: the file has word<TAB>kind in each line, up to seven kinds
of any name.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from data_pipeline.process import BadInput, run_parsed

_EXAMPLES = """\
examples:
  of Chinese procedures; and how many of the mentions have a keyword:
    python -m data_pipeline.derive_keywords --dictionary code.txt --mentions train.csv \\
        --out words.tsv

  fewer words, each in many names:
    python -m data_pipeline.derive_keywords --dictionary medic.txt --ending-names 50 \\
        --part-names 30 --out words.tsv
"""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; its exit status is that of `run_command`."""
    name = "python -m data_pipeline.derive_keywords"
    common = ("--dictionary", "--out", "--mentions", "--ending-names", "--part-names", "--purity")
    return run_parsed(name, __doc__, _EXAMPLES, add_arguments, _derive, argv, common=common)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of the command."""
    parser.add_argument(
        "--dictionary",
        type=Path,
        required=True,
        metavar="PATH",
        help="codes and names, in any form that `python -m data_pipeline.build_mentions` reads",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="words and their kinds, .tsv"
    )
    parser.add_argument(
        "--mentions",
        type=Path,
        metavar="FILE",
        help="mentions with gold: how many of them have a keyword is printed (default: none)",
    )
    parser.add_argument(
        "--ending-names",
        type=int,
        default=15,
        metavar="N",
        help="fewest names with an ending that becomes a type (default: 15)",
    )
    parser.add_argument(
        "--part-names",
        type=int,
        default=5,
        metavar="N",
        help="fewest names with a part that becomes a site (default: 5)",
    )
    parser.add_argument(
        "--purity",
        type=float,
        default=0.6,
        metavar="SHARE",
        help="least share of a site's names on one branch of the dictionary (default: 0.6)",
    )


def _derive(args: argparse.Namespace) -> int:
    """Writes the file; prints what it holds, and how many names and mentions have a keyword."""
    from data_pipeline.dataset.dictionary import read_entries
    from data_pipeline.files.whole import written_whole
    from data_pipeline.sources.corpora import read_gold
    from data_pipeline.terminology.keywords import KeywordVocabulary, derive_keywords, keyword_lines
    from data_pipeline.terminology.mentions import concept_names

    entries = [entry._replace(names=entry.names[:1]) for entry in read_entries(args.dictionary)]
    preferred = concept_names(entries, "names")
    words = derive_keywords(
        preferred.names,
        preferred.branches,
        ending_names=args.ending_names,
        part_names=args.part_names,
        purity=args.purity,
    )
    if not any(words.values()):
        raise BadInput(
            f"{args.dictionary}: found no ending in {args.ending_names} and no part in "
            f"{args.part_names} of its {len(preferred.names):,} names; give smaller "
            "--ending-names and --part-names, or a larger dictionary"
        )
    with written_whole(args.out) as unfinished:
        unfinished.write_text(keyword_lines(words), encoding="utf-8")
    keywords = KeywordVocabulary(words)
    strings = {"names": preferred.names}
    if args.mentions is not None:
        strings["mentions"] = [row.mention for row in read_gold(args.mentions).rows]
    lines = [f"{args.out}: " + ", ".join(f"{len(one):,} {kind}s" for kind, one in words.items())]
    for what, some in strings.items():
        matched = [{match.kind for match in keywords.matches(one)} for one in some]
        for number, kind in enumerate(words):
            share = sum(number in one for one in matched) / len(some)
            lines.append(f"{what} with a {kind}: {share:.1%} of {len(some):,}")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
