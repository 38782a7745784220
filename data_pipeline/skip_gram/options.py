"""The options of a skip-gram training, checked before any file is read."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from data_pipeline.files.buckets import in_bucket
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput

Variant = Literal["words", "names", "names_concepts"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of skip-grams with negative sampling, as in Phan et al. 2019, section 4.

    What the paper leaves open (epochs, rate, sample) has gensim's values.
    """

    size: Annotated[int, Flag("numbers in a vector", heading="training")] = 200
    window: Annotated[int, Flag("most words on each side that are context")] = 6
    negatives: Annotated[
        int, Flag("random words that each pair of word and context is trained against")
    ] = 5
    min_count: Annotated[
        int,
        Flag("words, names and concepts that the text has fewer times get no vector"),
    ] = 3
    epochs: Annotated[int, Flag("passes over the text")] = 5
    rate: Annotated[float, Flag("learning rate at the start; it falls to 0.0001")] = 0.025
    sample: Annotated[
        float,
        Flag("a word that is more than this share of the text is often passed over; 0: none is"),
    ] = 1e-3
    seed: Annotated[int, Flag("for all random draws")] = 0
    workers: Annotated[
        int,
        Flag("threads (with one the vectors are the same each time; several are quicker)"),
    ] = 1

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

    text: Annotated[tuple[Path, ...], Flag("files of text", "FILE", heading="required")]
    out: Annotated[Path, Flag("folder to make", "DIR")]
    variant: Annotated[Variant, Flag("what gets a vector (--help-all explains)")]
    dictionary: Annotated[
        Path | None,
        Flag(
            "names and concepts: a dataset of `python -m data_pipeline.build`, MRCONSO.RRF, a "
            "table, or MEDIC (CTD_diseases.tsv); any form that `python -m "
            "data_pipeline.build_mentions` reads (default: annotated names alone)",
            "PATH",
            heading="names",
        ),
    ] = None
    dictionary_languages: Annotated[
        tuple[str, ...],
        Flag(
            "use only names in these languages, such as ENG (default: all)",
            "LANGUAGE",
        ),
    ] = ()
    semantic_types: Annotated[
        tuple[str, ...],
        Flag("use only concepts of these semantic types, such as T047 (default: all)", "TYPE"),
    ] = ()
    exclude_concepts: Annotated[
        Path | None,
        Flag(
            "held-out concepts, one a line or in a column CUI: none of their names is "
            "matched, even where another concept has it, too (default: none)",
            "FILE",
        ),
    ] = None
    stop_names: Annotated[
        Path | None,
        Flag(
            'names that are not matched, one a line, beside "disease", "condition" and such',
            "FILE",
        ),
    ] = None
    text_field: Annotated[
        str, Flag("field of JSON lines that has the text", "NAME", heading="text")
    ] = "text"
    annotation_types: Annotated[
        tuple[str, ...], Flag("types of names to take from PubTator", "TYPE")
    ] = ("Disease", "Chemical")
    keep_stop_words: Annotated[
        bool,
        Flag(
            "keep stop words and marks of the text, as the paper does; otherwise both are dropped, "
            "so that a window reaches further. Names lose theirs in any case"
        ),
    ] = False
    settings: Settings = Settings()
    overwrite: Annotated[bool, Flag("replace the folder at --out", heading="output")] = False

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
