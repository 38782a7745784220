"""The options of a dataset build, checked before any file is read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import polars as pl
import tokenizers

from data_pipeline.flags import Flag, command_words
from data_pipeline.process import BadInput
from data_pipeline.sources.corpora import SETS
from data_pipeline.sources.obo import SYNONYM_SCOPES
from data_pipeline.sources.read_source import EXPECTED, is_release, source_paths
from data_pipeline.sources.term_tables import is_terms
from data_pipeline.terminology.cleaning import ALL_IN_WORDS, CLEANING
from data_pipeline.terminology.filters import WHAT_TO_KEEP, Filters, Strict

_CONTENT = 3  # raise it when the same options give another dataset: old ones are then built anew


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """Everything that decides what a dataset holds."""

    source: Annotated[
        Path,
        Flag(
            "UMLS, SNOMED CT, RxNorm, LOINC, OMOP, an ontology, or your own table; a UMLS release "
            "(META folder or its parent, .zip, .nlm, folder of .nlm, MRCONSO.RRF), RxNorm (folder, "
            ".zip, RXNCONSO.RRF), OBO ontology (.obo, "
            ".obo.gz), your own table of terms (.tsv, .csv, .xlsx), a folder with ontologies and "
            "tables of further names of their concepts, SNOMED CT (Snapshot folder or "
            "release .zip, RF2), LOINC (Loinc.csv, release folder or .zip) or OMOP's vocabularies "
            "(CONCEPT.csv, folder or .zip from Athena)",
            "PATH",
            heading="required",
        ),
    ]
    out: Annotated[
        Path, Flag("dataset folder to make; may be in a bucket (s3://..., gs://...)", "DIR")
    ]
    tokenizer: Annotated[
        str | Path, Flag("folder or hub id of the encoder that will be trained", "MODEL")
    ]
    filters: Filters = Filters()
    concepts_of: Annotated[
        Path | None,
        Flag(
            "only the concepts in this list; one identifier a line, a column CUI or concept of a "
            "table with tabs, or MEDIC (CTD_diseases.tsv). An identifier is a concept of the "
            "source, or a code of MeSH or OMIM that one has",
            "FILE",
            heading=WHAT_TO_KEEP,
        ),
    ] = None
    synonym_scopes: Annotated[
        tuple[str, ...],
        Flag(
            f"OBO synonyms to read: {', '.join(SYNONYM_SCOPES)} (default: EXACT); with RELATED, "
            "LOINC's related names, too",
            "SCOPE",
            heading="terms",
        ),
    ] = ("EXACT",)
    standard: Annotated[
        bool,
        Flag(
            "of OMOP's vocabularies, keep standard concepts alone; each also gets the names of the "
            "concepts that map to it ('Maps to')"
        ),
    ] = False
    strict: Strict = False
    cleaning: Annotated[
        str,
        Flag(
            "how terms are cleaned for training (default: paper); for look-ups the strings of the "
            f"source are kept beside them. {ALL_IN_WORDS}",
            choices=sorted(CLEANING),
        ),
    ] = "paper"
    max_length: Annotated[int, Flag("longest term in tokens, special tokens included", least=3)] = (
        32
    )
    hold_out: Annotated[
        float | None,
        Flag(
            "set aside one synonym of so many concepts for evaluation, in DIR/heldout (default: "
            "none); a fraction below 1 of the concepts that have one, or a number",
            "FRACTION_OR_COUNT",
            heading="evaluation",
        ),
    ] = None
    hold_out_languages: Annotated[
        tuple[str, ...],
        Flag(
            "take so many out of each of these, such as ENG FRE (default: of the first language); "
            "`evaluate --cutoffs` then measures each",
            "LANGUAGE",
        ),
    ] = ()
    hold_out_concepts: Annotated[
        int | None,
        Flag(
            "take so many whole concepts out, with all their terms and relations, into "
            "DIR/heldout/concepts.tsv: of those with two terms or more that no other concept has"
        ),
    ] = None
    hold_out_phrases: Annotated[
        Path | None,
        Flag(
            "of these, only terms with the words of a phrase in this list, one a line, count, such "
            "as names that a text has: names.tsv of `python -m data_pipeline.skip_gram`",
            "FILE",
        ),
    ] = None
    heldout_dictionary: Annotated[
        int,
        Flag(
            "most terms in DIR/heldout/dictionary.tsv: those of the concepts of held-out and of "
            "excluded terms, and of other concepts (default: 50,000)"
        ),
    ] = 50_000
    exclude_terms: Annotated[
        Path | None,
        Flag(
            "test terms to keep out of the data; tab-separated mention and CUI with that header. "
            "With --hold-out the other terms of their concepts are in heldout/dictionary.tsv. "
            "Several CUIs of a mention are joined with |",
            "FILE",
        ),
    ] = None
    supervised: Annotated[
        tuple[Path, ...],
        Flag(
            "mentions of annotated text to train on, as terms of their concepts: tables with the "
            "columns mention and cui, and perhaps language (default: --mirror, or the first of "
            "--languages) and semantic_group; or the folder QUAERO_FrenchMed. Their concepts join "
            "the mirror; --sources and --term-types do not drop them. MLNorm shows each mention "
            "once an epoch, also where its text repeats; other recipes take it as one term",
            "FILE",
            heading="terms",
        ),
    ] = ()
    supervised_sets: Annotated[
        tuple[str, ...],
        Flag(
            f"sets of QUAERO_FrenchMed to train on: {', '.join(SETS)} (default: train)",
            "SET",
            choices=SETS,
        ),
    ] = ("train",)
    seed: Annotated[int, Flag("of the held-out choice", heading="evaluation")] = 0
    shards: Annotated[
        int | None,
        Flag(
            "number of files, which changes nothing else (default: auto)",
            least=1,
            heading="output",
        ),
    ] = None
    overwrite: Annotated[bool, Flag("replace the dataset at --out")] = False
    release: Annotated[str | None, Flag("release name (default: from the files)", "NAME")] = None

    def validate(self) -> None:
        """Raises BadInput for values that no build can use."""
        self.filters.validate()
        if not self.source.exists():
            raise BadInput(f"--source {self.source} does not exist; expected {EXPECTED}")
        if self.filters.keep_suppressed and is_terms(self.source) and not is_release(self.source):
            raise BadInput(
                f"--keep-suppressed: found the table {self.source}, whose rows that are not active "
                "are never read; expected a release or an ontology: leave it out, or take the "
                "column that says so out of the table"
            )
        if self.concepts_of is not None and not self.concepts_of.is_file():
            raise BadInput(
                f"--concepts-of {self.concepts_of} does not exist; expected a file with an "
                "identifier in each line, or MEDIC"
            )
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

    def command(self) -> str:
        """The command that builds the dataset again; of paths it has the last part."""
        values = self.as_json()
        filters = values["filters"]
        for language, names in filters["language_sources"].items():
            filters["sources"].append(f"{language}={','.join(names)}")
        del values["out"], values["overwrite"]
        words = command_words(values, BuildOptions)
        return shlex.join(["python", "-m", "data_pipeline.build", *words, "--out", "DATASET"])

    def fingerprint(self, tokenizer_hash: str, data_format: str) -> str:
        """Names a build: equal for equal input files, options, tokenizer, code and libraries.

        Files count by name, size and time of change, so that large ones need not be read.
        """
        options = self.as_json()
        without_effect = () if self.strict else ("strict",)  # older builds go on
        for name in ("out", "overwrite", "tokenizer", *without_effect):
            del options[name]
        inputs = source_paths(self.source)
        lists = (self.concepts_of, self.exclude_terms, self.hold_out_phrases)
        inputs += [path for path in lists if path is not None]
        for path in self.supervised:
            inputs += sorted(path.rglob("*.*")) if path.is_dir() else [path]
        stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in inputs]
        versions = [_CONTENT, data_format, pl.__version__, tokenizers.__version__]
        content = json.dumps([options, stats, tokenizer_hash, versions], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


def _sources(words: Sequence[str]) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """The values of --sources: vocabularies for all languages, and by language ("ENG=CHV,MSH").

    Raises:
      BadInput: both forms, or a language or vocabulary that is empty.
    """
    by_language: dict[str, tuple[str, ...]] = {}
    for word in words:
        language, is_named, joined = word.partition("=")
        if not is_named:
            continue
        found = tuple(name for name in joined.split(",") if name)
        if not language or not found:
            raise BadInput(
                f"--sources {word}: expected a language and its vocabularies: ENG=CHV,MSH"
            )
        by_language[language] = tuple(dict.fromkeys((*by_language.get(language, ()), *found)))
    plain = tuple(word for word in words if "=" not in word)
    if plain and by_language:
        raise BadInput(
            f"--sources {' '.join(words)}: found vocabularies with and without a language; "
            "expected one form: MSH NCI, or ENG=MSH,NCI FRE=MSHFRE"
        )
    return plain, by_language


def with_language_sources(options: BuildOptions) -> BuildOptions:
    """The `BuildOptions` of a parsed command line."""
    filters = options.filters
    sources, language_sources = _sources(filters.sources)
    groups = tuple(name.upper() for name in filters.semantic_groups)
    filters = dataclasses.replace(
        filters, sources=sources, language_sources=language_sources, semantic_groups=groups
    )
    return dataclasses.replace(options, filters=filters)
