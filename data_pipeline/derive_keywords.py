"""Derive keywords from a dictionary, for `build_mentions --keywords`: words and their kinds, such
as sites and types of procedures, each of which a ranker looks at apart.

Frequent endings of names become types ("syndrome", 切除术); frequent parts that keep to one branch
of the dictionary, such as a chapter of codes, become sites. Look through the words,
take out what is neither, add your own: the file has word<TAB>kind in each line, up to seven kinds
of any name.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from data_pipeline.flags import Flag, run_parsed
from data_pipeline.process import BadInput

_EXAMPLES = """\
examples:
  of Chinese procedures; and how many of the mentions have a keyword:
    python -m data_pipeline.derive_keywords --dictionary code.txt --mentions train.csv \\
        --out words.tsv

  fewer words, each in many names:
    python -m data_pipeline.derive_keywords --dictionary medic.txt --ending-names 50 \\
        --part-names 30 --out words.tsv
"""


@dataclass(frozen=True, kw_only=True)
class KeywordOptions:
    """The options of the command."""

    dictionary: Annotated[
        Path,
        Flag(
            "codes and names, in any form that `python -m data_pipeline.build_mentions` reads",
            "PATH",
        ),
    ]
    out: Annotated[Path, Flag("words and their kinds, .tsv", "FILE")]
    mentions: Annotated[
        Path | None,
        Flag("coded mentions, of which is printed how many have a keyword (default: none)", "FILE"),
    ] = None
    ending_names: Annotated[int, Flag("an ending of at least so many names becomes a type")] = 15
    part_names: Annotated[int, Flag("a part of at least so many names becomes a site")] = 5
    purity: Annotated[
        float,
        Flag("share of a site's names that must be on one branch of the dictionary", "SHARE"),
    ] = 0.6


_COMMON = ("--dictionary", "--out", "--mentions", "--ending-names", "--part-names", "--purity")


def main(argv: list[str] | None = None) -> int:
    """Runs the command; its exit status is that of `run_command`."""
    name = "python -m data_pipeline.derive_keywords"
    return run_parsed(
        name, __doc__, _EXAMPLES, lambda: KeywordOptions, _derive, argv, common=_COMMON
    )


def _derive(options: KeywordOptions) -> int:
    """Writes the file; prints what it holds, and how many names and mentions have a keyword."""
    from data_pipeline.dataset.dictionary import read_entries
    from data_pipeline.files.whole import write_text
    from data_pipeline.sources.corpora import read_gold
    from data_pipeline.terminology.keywords import KeywordVocabulary, derive_keywords, keyword_lines
    from data_pipeline.terminology.mentions import concept_names

    entries = [entry._replace(names=entry.names[:1]) for entry in read_entries(options.dictionary)]
    preferred = concept_names(entries, "names")
    words = derive_keywords(
        preferred.names,
        preferred.branches,
        ending_names=options.ending_names,
        part_names=options.part_names,
        purity=options.purity,
    )
    if not any(words.values()):
        raise BadInput(
            f"{options.dictionary}: found no ending in {options.ending_names} and no part in "
            f"{options.part_names} of its {len(preferred.names):,} names; give smaller "
            "--ending-names and --part-names, or a larger dictionary"
        )
    write_text(options.out, keyword_lines(words))
    keywords = KeywordVocabulary(words)
    strings = {"names": preferred.names}
    if options.mentions is not None:
        strings["mentions"] = [row.mention for row in read_gold(options.mentions).rows]
    lines = [f"{options.out}: " + ", ".join(f"{len(one):,} {kind}s" for kind, one in words.items())]
    for what, some in strings.items():
        matched = [{match.kind for match in keywords.matches(one)} for one in some]
        for number, kind in enumerate(words):
            share = sum(number in one for one in matched) / len(some)
            lines.append(f"{what} with a {kind}: {share:.1%} of {len(some):,}")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
