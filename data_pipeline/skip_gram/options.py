"""The options of a skip-gram training, checked before any file is read."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from data_pipeline.files.buckets import in_bucket
from data_pipeline.process import BadInput

Variant = Literal["words", "names", "names_concepts"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of skip-grams with negative sampling, as in Phan et al. 2019, section 4.

    What the paper leaves open (epochs, rate, sample) has gensim's values.

    Attributes:
      size: numbers in a vector.
      window: words on each side that are context; as in word2vec each time 1 to so many.
      negatives: drawn words for each word and context.
      min_count: of words, names and concepts seen fewer times in the text, none gets a vector.
      epochs: passes over the text.
      rate: of learning at the start; it falls linearly to 0.0001.
      sample: the share of the text above which a frequent word is often passed over.
      seed: of all draws.
      workers: threads. One gives the same vectors each time; several are quicker and do not.
    """

    size: int = 200
    window: int = 6
    negatives: int = 5
    min_count: int = 3
    epochs: int = 5
    rate: float = 0.025
    sample: float = 1e-3
    seed: int = 0
    workers: int = 1

    def validate(self) -> None:
        """Raises BadInput for values that no training can use."""
        least = dict.fromkeys(("size", "window", "negatives", "min_count", "epochs", "workers"), 1)
        for name, bound in (least | {"seed": 0}).items():
            if getattr(self, name) < bound:
                option = f"--{name.replace('_', '-')}"
                raise BadInput(f"{option} {getattr(self, name)}: expected {bound} or more")
        if self.seed >= 2**32:
            raise BadInput(f"--seed {self.seed}: expected less than 2**32")
        if not 0 < self.rate <= 1:
            raise BadInput(f"--rate {self.rate:g}: expected more than 0 and at most 1")
        if not 0 <= self.sample < 1:
            raise BadInput(f"--sample {self.sample:g}: expected 0 (keep all) or more, below 1")


@dataclass(frozen=True, kw_only=True)
class SkipGramOptions:
    """Options of the command; `python -m data_pipeline.skip_gram --help` explains each."""

    text: tuple[Path, ...]
    out: Path
    variant: Variant
    dictionary: Path | None = None
    dictionary_languages: tuple[str, ...] = ()
    semantic_types: tuple[str, ...] = ()
    exclude_concepts: Path | None = None
    stop_names: Path | None = None
    text_field: str = "text"
    annotation_types: tuple[str, ...] = ("Disease", "Chemical")
    settings: Settings = Settings()
    overwrite: bool = False

    def validate(self) -> None:
        """Raises BadInput for values that no training can use."""
        self.settings.validate()
        for option, path in (
            *(("--text", path) for path in self.text),
            ("--dictionary", self.dictionary),
            ("--exclude-concepts", self.exclude_concepts),
            ("--stop-names", self.stop_names),
        ):
            if path is not None and not path.exists():
                raise BadInput(f"{option} {path} does not exist; give an existing file")
        if in_bucket(self.out):
            raise BadInput(
                f"--out: found {self.out}; expected a folder on this machine: copy it there after"
            )
        if len(set(self.text)) < len(self.text):
            raise BadInput("--text: found a file twice; expected each once")
        if self.dictionary is None and (self.dictionary_languages or self.semantic_types):
            raise BadInput(
                "--dictionary-languages and --semantic-types choose names of a --dictionary: give "
                "one, or leave them out"
            )

    def as_json(self) -> dict:
        """The options as JSON values, for the manifest."""
        return json.loads(json.dumps(dataclasses.asdict(self), default=str))
