"""Everything that decides what a dataset holds, checked before any file is read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import tokenizers

from data_pipeline.process.errors import BadInput
from data_pipeline.sources.read_source import EXPECTED, source_paths
from data_pipeline.terminology.cleaning.rules import CLEANING
from data_pipeline.terminology.filters import Filters

CONTENT = 2  # raise it when the same options give another dataset: old ones are then built anew


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """Options of a build; `python -m data_pipeline.build --help` explains each.

    Attributes:
      source: UMLS, SNOMED CT or LOINC release, OBO ontology or table of terms.
      out: dataset folder to make.
      tokenizer: folder or hub id of the encoder.
      filters: which rows to keep.
      synonym_scopes: OBO synonyms to read; with RELATED, LOINC's related names.
      cleaning: name of a rule set of `clean.CLEANING`.
      max_length: longest term in tokens, special tokens included.
      hold_out: concepts that give one synonym to heldout/: a fraction (< 1) or a count; None: none.
      hold_out_languages: each of these gives so many; none: the most wanted language does.
      hold_out_concepts: so many whole concepts go to heldout/; None: none.
      hold_out_phrases: only terms in this list of phrases are held out with their concepts.
      heldout_dictionary: most terms in heldout/dictionary.tsv.
      exclude_terms: .tsv of mention and CUI to keep out of the dataset; heldout/dictionary.tsv has
        the other terms of these concepts.
      supervised: tables of mentions and CUIs, and folders of the QUAERO corpus, to train on.
      supervised_sets: which sets of the corpus are read.
      seed: of the held-out choice.
      shards: number of shard files; None: chosen by size. Does not change the content.
      overwrite: replace a dataset that is already at `out`.
      release: name of the release; None: from the files.
    """

    source: Path
    out: Path
    tokenizer: str | Path
    filters: Filters = Filters()
    synonym_scopes: tuple[str, ...] = ("EXACT",)
    cleaning: str = "paper"
    max_length: int = 32
    hold_out: float | None = None
    hold_out_languages: tuple[str, ...] = ()
    hold_out_concepts: int | None = None
    hold_out_phrases: Path | None = None
    heldout_dictionary: int = 50_000
    exclude_terms: Path | None = None
    supervised: tuple[Path, ...] = ()
    supervised_sets: tuple[str, ...] = ("train",)
    seed: int = 0
    shards: int | None = None
    overwrite: bool = False
    release: str | None = None

    def validate(self) -> None:
        """Raises BadInput for values that no build can use."""
        if self.cleaning not in CLEANING:
            raise BadInput(f"--cleaning {self.cleaning}: expected one of {', '.join(CLEANING)}")
        if self.max_length < 3:
            raise BadInput(
                f"--max-length {self.max_length}: expected 3 or more ([CLS], a piece, [SEP])"
            )
        if self.shards is not None and self.shards < 1:
            raise BadInput(f"--shards {self.shards}: expected 1 or more")
        self.filters.validate()
        if not self.source.exists():
            raise BadInput(f"--source {self.source} does not exist; expected {EXPECTED}")
        if self.exclude_terms is not None and not self.exclude_terms.is_file():
            raise BadInput(
                f"--exclude-terms {self.exclude_terms} does not exist; expected a .tsv file with "
                "the header mention, CUI"
            )
        if self.hold_out_phrases is not None:
            if self.hold_out_concepts is None:
                raise BadInput("--hold-out-phrases chooses among --hold-out-concepts: give it, too")
            if not self.hold_out_phrases.is_file():
                raise BadInput(
                    f"--hold-out-phrases {self.hold_out_phrases} does not exist; expected a phrase "
                    "in each line"
                )
        for path in self.supervised:
            if not path.exists():
                raise BadInput(
                    f"--supervised {path} does not exist; expected a table with the columns "
                    "mention and cui, or the folder QUAERO_FrenchMed"
                )

    def as_json(self) -> dict:
        """The options as JSON values, for the manifest."""
        values = dataclasses.asdict(self)
        return json.loads(json.dumps(values, default=str))

    def fingerprint(self, tokenizer_hash: str, data_format: str) -> str:
        """Names a build: equal for equal input files, options, tokenizer, code and libraries.

        Files count by name, size and time of change, so that large ones need not be read.
        """
        options = self.as_json()
        for name in ("out", "overwrite", "tokenizer"):
            del options[name]
        inputs = source_paths(self.source)
        inputs += [path for path in (self.exclude_terms, self.hold_out_phrases) if path is not None]
        for path in self.supervised:
            inputs += sorted(path.rglob("*.*")) if path.is_dir() else [path]
        stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in inputs]
        versions = [CONTENT, data_format, pl.__version__, tokenizers.__version__]
        content = json.dumps([options, stats, tokenizer_hash, versions], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()
