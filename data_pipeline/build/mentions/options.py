"""Everything that decides what a folder of mentions holds, checked before any file is read."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.cleaning.rules import CLEANING
from data_pipeline.terminology.mention_set import GoldAs


@dataclass(frozen=True, kw_only=True)
class MentionOptions:
    """Options of a build; `python -m data_pipeline.build_mentions --help` explains each.

    Attributes:
      train, dev, test: files of mentions with their gold, one after the other; of dev and test
        there may be none.
      dictionary: what is searched for them.
      tokenizer: folder or hub id of the encoder's.
      out: folder to make.
      keywords: file of word<TAB>kind; None: no token has a kind.
      gold_as: how gold is written; None: whichever of both the dictionary has more of.
      mention_types: of PubTator, the types that are taken; none: all.
      distinct: leave out mentions of train that come again with the same gold.
      hold_out: the last mentions of train that become dev: a fraction (< 1) or a count; 0: none.
      cleaning: name of a rule set of `clean.CLEANING`.
      max_length: longest string in tokens, special tokens included.
      name, release: of the data; "": from the dictionary's file.
      overwrite: replace a folder of mentions that is already at `out`.
    """

    train: tuple[Path, ...]
    dictionary: Path
    tokenizer: str | Path
    out: Path
    dev: tuple[Path, ...] = ()
    test: tuple[Path, ...] = ()
    keywords: Path | None = None
    gold_as: GoldAs | None = None
    mention_types: tuple[str, ...] = ()
    distinct: bool = False
    hold_out: float = 0
    cleaning: str = "none"
    max_length: int = 64
    name: str = ""
    release: str = ""
    overwrite: bool = False

    def validate(self) -> None:
        """Raises BadInput for values that no build can use."""
        if self.cleaning not in CLEANING:
            raise BadInput(f"--cleaning {self.cleaning}: expected one of {', '.join(CLEANING)}")
        if self.max_length < 3:
            raise BadInput(
                f"--max-length {self.max_length}: expected 3 or more ([CLS], a piece, [SEP])"
            )
        if self.hold_out < 0 or self.hold_out > 1 and self.hold_out != int(self.hold_out):
            raise BadInput(
                f"--hold-out {self.hold_out}: expected a fraction below 1, or a number of mentions"
            )
        if self.hold_out and self.dev:
            raise BadInput("--hold-out and --dev: found both; expected one of them")
        files = {split: getattr(self, split) for split in ("train", "dev", "test")}
        files |= {"dictionary": (self.dictionary,), "keywords": (self.keywords,)}
        for option, paths in files.items():
            for path in paths:
                if path is not None and not path.exists():
                    raise BadInput(f"--{option} {path} does not exist; give an existing file")

    def as_json(self) -> dict[str, Any]:
        """The options as JSON values, for the manifest."""
        return json.loads(json.dumps(dataclasses.asdict(self), default=str))
