"""Build a folder of mentions, each of one concept or several, and of the dictionary that is
searched for them: what the recall and rank systems train on.

Mentions are tables of two columns (.tsv, .txt, .csv, .xlsx), the mention and its gold (the right
concepts), with a header or without: CHIP-2019 as it is distributed, or your own; CHIP-CDN (.json);
or PubTator (NCBI disease, BC5CDR). All gold of a mention is meant, not one or the other: "##" joins
several, or "|". Gold may be names of the dictionary or its codes; which of the two is found out.
Odd lines are left out or mended, counted, and named in odd_lines.txt of the folder. Gold that the
dictionary lacks is counted, too: nothing is trained on it, and its mention is scored as one that
cannot be right.

A dictionary that is a dataset with relations also says which concepts are broader than others, if
gold is codes; a ranker may learn that (`train --recipe rank --broader`).

The dictionary is code<TAB>name without a header (code.txt of CHIP-2019); a table (.tsv, .csv,
.xlsx) whose header names the columns of terms and of concepts; id|other ids||name|synonym|...
(MEDIC); a dataset of `python -m data_pipeline.build`; or MRCONSO.RRF.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from data_pipeline.flags import run_parsed

if TYPE_CHECKING:
    from data_pipeline.build_mentions.build import MentionOptions

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

  held-out names of a dataset, whose concepts have broader ones:
    python -m data_pipeline.build_mentions --train data/mondo/heldout/mentions.tsv --hold-out 0.1 \\
        --dictionary data/mondo --tokenizer MODEL --out data/mondo_mentions

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
    return run_parsed(name, __doc__, _EXAMPLES, _options, _build, argv, common=_COMMON)


def _options() -> type[MentionOptions]:
    # Imported here: what is not installed is then said by name.
    from data_pipeline.build_mentions.build import MentionOptions

    return MentionOptions


def _build(options: MentionOptions) -> int:
    """Builds the folder and prints what it holds."""
    from data_pipeline.build_mentions.build import build_mentions, mentions_report

    dataset = build_mentions(options)
    print(mentions_report(dataset.manifest, dataset.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
