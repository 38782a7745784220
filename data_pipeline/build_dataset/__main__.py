"""Build a dataset for training from a terminology: UMLS files, an OBO ontology, SNOMED CT, LOINC,
or your own table of terms.

Reads the source, filters and cleans its terms, holds synonyms out for evaluation if asked to,
tokenizes with the encoder's own tokenizer, and writes a TFDS dataset folder. A build that was
killed goes on where it stopped when the same command is run again.

A table of terms (.tsv, .csv, .xlsx) has a header with the columns concept and term, in any order,
and may have language (en, ENG, ...; without it UND), vocabulary, code, semantic_type (or
semantic_group: DISO, ...) and preferred (Y or 1). Relations may lie beside it: for terms.tsv in
terms.relations.tsv (.csv, .xlsx), with the columns head, relation and tail, which read as a
sentence: asthma, is a, lung disease.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from data_pipeline.files.buckets import address, in_bucket
from data_pipeline.flags import run_parsed

if TYPE_CHECKING:
    from data_pipeline.build_dataset.options import BuildOptions
    from data_pipeline.dataset.store import Manifest

# -------------------------------------------------------------------------------------------------
# The closing report of a build, as a table.


def _closing_report(manifest: Manifest, out: str | Path) -> str:
    """What was read, what was dropped (by reason) and kept, and how terms were tokenized."""
    counts, report = manifest.counts, manifest.report
    per_concept = counts.terms / counts.concepts
    per_term = counts.tokens / counts.terms
    max_length = manifest.tokenizer.max_length
    rows: list[tuple[str, str]] = [(name, f"{count:,}") for name, count in report.items() if count]
    rows += [
        ("", ""),
        ("concepts", f"{counts.concepts:,}"),
        ("  with two terms or more", _share(counts.concepts_with_synonyms, counts.concepts)),
        ("terms", f"{counts.terms:,}"),
        ("  per concept, mean", f"{per_concept:.2f}"),
        ("  by language", _by_language(counts.terms_by_language)),
        ("triplets", f"{counts.triplets:,}"),
        (
            "  both concepts with two terms or more",
            _share(counts.triplets_with_synonyms, counts.triplets),
        ),
        ("relation labels", f"{len(manifest.relations):,}"),
        ("semantic types", f"{len(manifest.semantic_types):,}"),
        ("tokens", f"{counts.tokens:,}"),
        ("  per term, mean", f"{per_term:.2f}"),
        ("  longest term before cutting", f"{counts.longest_term_tokens:,}"),
        (f"terms cut to {max_length} tokens", _share(counts.cut_terms, counts.terms)),
        ("terms with unknown pieces", _share(counts.unknown_terms, counts.terms)),
    ]
    if manifest.held_out:
        rows += [
            ("held-out mentions", f"{manifest.held_out.mentions:,}"),
            ("  dictionary terms", f"{manifest.held_out.dictionary:,}"),
        ]
    if concepts := manifest.held_out_concepts:
        rows += [
            ("held-out concepts", f"{concepts.concepts:,}"),
            ("  their terms", f"{concepts.terms:,}"),
        ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}".rstrip() for name, value in rows]
    title = f"{manifest.name}, release {manifest.release}: {out}"
    warnings = [f"note: {warning}" for warning in manifest.warnings]
    return "\n".join([title, "-" * len(title), *lines, *warnings])


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.1%})" if whole else f"{part:,}"


def _by_language(counts: dict[str, int], most: int = 6) -> str:
    shown = [f"{name} {count:,}" for name, count in list(counts.items())[:most]]
    return ", ".join(shown) + (f", {len(counts) - most} more" if len(counts) > most else "")


_EXAMPLES = """\
examples:
  your own synonyms, with relations beside them in terms.relations.tsv:
    python -m data_pipeline.build --source terms.tsv --hold-out 0.1 --out data/own \\
        --tokenizer sentence-transformers/all-MiniLM-L6-v2

  the Human Phenotype Ontology, 1,149 synonyms held out for evaluation:
    python -m data_pipeline.build --source hp.obo --out data/hpo --hold-out 1149 \\
        --tokenizer sentence-transformers/all-MiniLM-L6-v2

  the English UMLS, as for CODER_ENG (META folder, release .zip or .nlm files alike):
    python -m data_pipeline.build --source umls/2020AA/META --languages ENG \\
        --tokenizer microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract --out data/umls_eng

  all languages, English names first where two languages share a string:
    python -m data_pipeline.build --source umls-2020AA-full.zip --out data/umls_all \\
        --tokenizer google-bert/bert-base-multilingual-cased --cleaning none

  SNOMED CT as it was downloaded, without the tags "(disorder)" of its fully specified names:
    python -m data_pipeline.build --source SnomedCT_InternationalRF2.zip --term-types PT SY \\
        --tokenizer MODEL --out data/snomed

  OMOP's vocabularies from Athena; ICD-10 names become names of the SNOMED CT concepts they map to:
    python -m data_pipeline.build --source vocabulary_download_v5.zip --standard --languages ENG \\
        --tokenizer MODEL --out data/omop

  French and its English mirror, as for the first step of MLNorm:
    python -m data_pipeline.build --source META --languages FRE ENG --mirror FRE \\
        --semantic-groups ANAT CHEM DEVI DISO GEOG LIVB OBJC PHEN PHYS PROC --cleaning mlnorm \\
        --tokenizer google-bert/bert-base-multilingual-uncased --max-length 100 --out data/fr_mirror

  and the English terms of five vocabularies, whatever their concepts, for its second step:
    python -m data_pipeline.build ... --sources ENG=CHV,SNOMEDCT_US,MTH,NCI,MSH --out data/fr_all

  preferred names and exact synonyms only, hierarchy only, test mentions kept out:
    python -m data_pipeline.build --source META --term-types PT SY --relations 'CHD|isa' 'PAR|*' \\
        --exclude-terms test_mentions.tsv --tokenizer MODEL --out data/small
"""


_COMMON = (
    *("--source", "--out", "--tokenizer", "--hold-out", "--languages", "--sources"),
    *("--relations", "--cleaning", "--max-length", "--exclude-terms", "--overwrite"),
)


def main(argv: list[str] | None = None, name: str = "python -m data_pipeline.build") -> int:
    """Runs the command; its exit status is that of `run_command`."""

    return run_parsed(
        name,
        __doc__,
        _EXAMPLES,
        _options,
        _build,
        argv,
        common=_COMMON,
        when_asked="stopping soon; the same command goes on",
        when_stopped="stopped; the same command goes on",
    )


def _options() -> type[BuildOptions]:
    # Imported here: what is not installed is then said by name.
    from data_pipeline.build_dataset.options import BuildOptions

    return BuildOptions


def _build(options: BuildOptions) -> int:
    """Builds the dataset and prints what it holds."""
    # Imported late: TensorFlow takes seconds, which --help should not cost.
    from data_pipeline.build_dataset.build import build_dataset, build_in_bucket
    from data_pipeline.build_dataset.options import with_language_sources
    from data_pipeline.dataset.store import read_manifest

    options = with_language_sources(options)
    if in_bucket(options.out):
        print(_closing_report(build_in_bucket(options), address(options.out)))
    else:
        out = build_dataset(options)
        print(_closing_report(read_manifest(out), out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
