"""The options of a dataset build, checked before any file is read, and their command-line
arguments.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import tokenizers

from data_pipeline.process import BadInput
from data_pipeline.sources.corpora import SETS
from data_pipeline.sources.obo import SYNONYM_SCOPES
from data_pipeline.sources.read_source import EXPECTED, source_paths
from data_pipeline.terminology.cleaning import ALL_IN_WORDS, CLEANING
from data_pipeline.terminology.filters import Filters
from data_pipeline.terminology.semantic_groups import GROUPS

# -------------------------------------------------------------------------------------------------
# Everything that decides what a dataset holds.

_CONTENT = 2  # raise it when the same options give another dataset: old ones are then built anew


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
        versions = [_CONTENT, data_format, pl.__version__, tokenizers.__version__]
        content = json.dumps([options, stats, tokenizer_hash, versions], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


# -------------------------------------------------------------------------------------------------
# The arguments of `python -m data_pipeline.build`, and the options made of them.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of the command."""
    required = parser.add_argument_group("required")
    required.add_argument(
        "--source",
        type=Path,
        required=True,
        metavar="PATH",
        help="UMLS, SNOMED CT, LOINC, an ontology, or your own table; a UMLS release (META "
        "folder or its parent, .zip, .nlm, folder of .nlm, MRCONSO.RRF), "
        "OBO ontology (.obo, .obo.gz), your own table of terms (.tsv, .csv, .xlsx), SNOMED CT "
        "(Snapshot folder or release .zip, RF2) or LOINC (Loinc.csv, release folder or .zip)",
    )
    required.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="dataset folder to make; may be in a bucket (s3://..., gs://...)",
    )
    required.add_argument(
        "--tokenizer",
        required=True,
        metavar="MODEL",
        help="folder or hub id of the encoder that will be trained",
    )
    _add_filter_arguments(parser)
    _add_term_arguments(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--shards", type=int, metavar="N", help="number of files (default: auto)")
    output.add_argument("--overwrite", action="store_true", help="replace the dataset at --out")
    output.add_argument("--release", metavar="NAME", help="release name (default: from the files)")


def _add_filter_arguments(parser: argparse.ArgumentParser) -> None:
    filters = parser.add_argument_group("what to keep (default: all that is not suppressed)")
    filters.add_argument(
        "--languages",
        nargs="+",
        default=(),
        metavar="LAT",
        help="languages to keep, such as ENG FRE, the most wanted first; a string that a "
        "concept has in several languages keeps the first (default: all; ENG first, then A to Z)",
    )
    filters.add_argument(
        "--sources",
        nargs="+",
        default=(),
        metavar="SAB",
        help="vocabularies to keep, such as MSH NCI; or those of the terms of a "
        "language: ENG=CHV,MSH FRE=MSHFRE (a language that is not named keeps all of its, and "
        "relations stay)",
    )
    filters.add_argument(
        "--without-sources", nargs="+", default=(), metavar="SAB", help="vocabularies to leave out"
    )
    filters.add_argument(
        "--semantic-groups",
        nargs="+",
        default=(),
        metavar="GROUP",
        help="only concepts with a semantic type of one of these groups of the UMLS: "
        f"{', '.join(GROUPS)}",
    )
    filters.add_argument(
        "--mirror",
        metavar="LAT",
        help="only concepts that have a term in this language, with their terms in all --languages "
        "(FRE: French and its English mirror). With --sources ENG=CHV,MSH these keep all their "
        "English terms, whatever the vocabulary, and all other concepts come in, too, with "
        "their English terms of CHV and MSH",
    )
    filters.add_argument(
        "--term-types",
        nargs="+",
        default=(),
        metavar="TTY",
        help="types of terms to keep, such as PT SY",
    )
    filters.add_argument(
        "--relations",
        nargs="+",
        default=(),
        metavar="LABEL",
        help="relation labels REL|RELA to keep, quoted, such as 'CHD|isa' 'RO|*'",
    )
    filters.add_argument(
        "--keep-suppressed",
        action="store_true",
        help="keep terms and relations whose SUPPRESS is O (obsolete), E or Y (suppressed by the "
        "editors or with their source and type), as CODER's released code does",
    )
    filters.add_argument(
        "--synonym-scopes",
        nargs="+",
        default=("EXACT",),
        metavar="SCOPE",
        help=f"OBO synonyms to read: {', '.join(SYNONYM_SCOPES)} (default: EXACT); with RELATED, "
        "LOINC's related names, too",
    )


def _add_term_arguments(parser: argparse.ArgumentParser) -> None:
    terms = parser.add_argument_group("terms")
    terms.add_argument(
        "--cleaning",
        choices=sorted(CLEANING),
        default="paper",
        help="how terms are cleaned for training; for look-ups the strings of the source are kept "
        f"beside them (default: paper). {ALL_IN_WORDS}",
    )
    terms.add_argument(
        "--max-length",
        type=int,
        default=32,
        metavar="N",
        help="longest term in tokens, special tokens included (default: 32)",
    )
    terms.add_argument(
        "--supervised",
        nargs="+",
        type=Path,
        default=(),
        metavar="FILES",
        help="mentions of annotated text to train on, as terms of their concepts: tables with the "
        "columns mention and cui, and perhaps language (default: --mirror, or the first of "
        "--languages) and semantic_group; or the folder QUAERO_FrenchMed. Their concepts join the "
        "mirror; --sources and --term-types do not drop them",
    )
    terms.add_argument(
        "--supervised-sets",
        nargs="+",
        choices=SETS,
        default=("train",),
        metavar="SET",
        help=f"sets of QUAERO_FrenchMed to train on: {', '.join(SETS)} (default: train)",
    )
    heldout = parser.add_argument_group("evaluation")
    heldout.add_argument(
        "--hold-out",
        type=float,
        metavar="FRACTION_OR_COUNT",
        help="set aside one synonym of so many concepts for evaluation, in DIR/heldout; a fraction "
        "below 1 of the concepts that have one, or a number",
    )
    heldout.add_argument(
        "--hold-out-languages",
        nargs="+",
        default=[],
        metavar="LANGUAGE",
        help="take so many out of each of these, such as ENG FRE (default: of the first language); "
        "`evaluate --cutoffs` then measures each",
    )
    heldout.add_argument(
        "--hold-out-concepts",
        type=int,
        metavar="N",
        help="take so many whole concepts out, with all their terms and relations, into "
        "DIR/heldout/concepts.tsv: of those with two terms or more that no other concept has",
    )
    heldout.add_argument(
        "--hold-out-phrases",
        type=Path,
        metavar="FILE",
        help="of these, only terms with the words of a phrase in this list, one a line, count, "
        "such as names that a text has: names.tsv of `python -m data_pipeline.skip_gram`",
    )
    heldout.add_argument(
        "--heldout-dictionary",
        type=int,
        default=50_000,
        metavar="N",
        help="most terms in DIR/heldout/dictionary.tsv: those of the concepts of held-out and of "
        "excluded terms, and of other concepts (default: 50,000)",
    )
    heldout.add_argument(
        "--exclude-terms",
        type=Path,
        metavar="FILE",
        help="test terms to keep out of the data; tab-separated mention and CUI with that header. "
        "With --hold-out the other terms of their concepts are in heldout/dictionary.tsv. Several "
        "CUIs of a mention are joined with |",
    )
    heldout.add_argument("--seed", type=int, default=0, help="of the held-out choice (default: 0)")


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


def options_from(args: argparse.Namespace) -> BuildOptions:
    """The `BuildOptions` of a parsed command line."""
    sources, language_sources = _sources(args.sources)
    return BuildOptions(
        source=args.source,
        out=args.out,
        tokenizer=args.tokenizer,
        filters=Filters(
            languages=tuple(args.languages),
            sources=sources,
            language_sources=language_sources,
            semantic_groups=tuple(name.upper() for name in args.semantic_groups),
            mirror=args.mirror,
            without_sources=tuple(args.without_sources),
            term_types=tuple(args.term_types),
            relations=tuple(args.relations),
            keep_suppressed=args.keep_suppressed,
        ),
        synonym_scopes=tuple(args.synonym_scopes),
        cleaning=args.cleaning,
        max_length=args.max_length,
        hold_out=args.hold_out,
        hold_out_languages=tuple(args.hold_out_languages),
        hold_out_concepts=args.hold_out_concepts,
        hold_out_phrases=args.hold_out_phrases,
        heldout_dictionary=args.heldout_dictionary,
        exclude_terms=args.exclude_terms,
        supervised=tuple(args.supervised),
        supervised_sets=tuple(args.supervised_sets),
        seed=args.seed,
        shards=args.shards,
        overwrite=args.overwrite,
        release=args.release,
    )
