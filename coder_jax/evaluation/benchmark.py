"""Files of a benchmark in, the benchmark out; what a file or folder is shows in its content."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from coder_jax.evaluation.concepts.case_studies import HEADERS, PAPER, CaseStudy, read_case_study
from coder_jax.evaluation.concepts.mcsm import (
    HEADER,
    ConceptSet,
    read_concept_list,
    read_dataset_concepts,
)
from coder_jax.evaluation.normalization.files import (
    NormalizationBenchmark,
    NormalizationFold,
    check_reachable,
    fold_folders,
    read_mentions,
    read_standard_term_folds,
    read_xl_bel,
    with_successors,
    xl_bel_files,
)
from coder_jax.evaluation.normalization.mantra_files import is_mantra, read_mantra
from coder_jax.evaluation.relations.files import HEADER as RELATION_HEADER
from coder_jax.evaluation.relations.files import (
    LinkBenchmark,
    RelationBenchmark,
    RelationFile,
    is_relation_folder,
    read_links,
    read_relation_pairs,
    with_names,
)
from coder_jax.evaluation.similarity.files import SimilarityBenchmark, read_pairs
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.rows import is_double_piped, tab_separated
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.retired_cuis import RetiredCuis

__all__ = [
    "Benchmark",
    "CaseStudy",
    "ConceptSet",
    "LinkBenchmark",
    "NormalizationBenchmark",
    "NormalizationFold",
    "RelationBenchmark",
    "SimilarityBenchmark",
    "has_dictionary",
    "read_benchmark",
]

FORMATS = """expected one of
  mentions: a TSV file of mention<TAB>CUI, or a folder with mentions.tsv and dictionary.tsv
  folds:    a folder of folders, each with test.txt and standard.txt of id<TAB>term (Cadec, PsyTar)
  XL-BEL:   a folder of files such as de_1k_test_query.txt, or a file of CUI||mention
  pairs:    a TSV file of term1<TAB>term2<TAB>score, or a CSV file with Term1, Term2, Mean
  MANTRA:   a .zip or folder of MANTRA GSC, as XML or brat files, or one of its XML files
  concepts: a dataset folder, or a TSV file with the header CUI, semantic types, term
  relations: a folder with x_train.txt, y_train.txt, x_test.txt, y_test.txt (DDBRC), or with
            relations_train.tsv and relations_test.tsv of head, tail, label
  links:    a TSV file with the header head, tail, label
  terms:    a TSV file with the header term, or language and term; or paper:cross-lingual,
            paper:knowledge, the case studies of the CODER paper"""

Benchmark = (
    NormalizationBenchmark
    | SimilarityBenchmark
    | ConceptSet
    | RelationBenchmark
    | LinkBenchmark
    | CaseStudy
)


def read_benchmark(
    name: str,
    path: str | Path,
    *,
    dictionary: Dictionary | None = None,
    retired_cuis: RetiredCuis | None = None,
    types: Sequence[str] = (),
) -> Benchmark:
    """Reads a benchmark in any of the formats above.

    Args:
      name: under which results are reported.
      path: a file or a folder, or one of the paper's case studies.
      dictionary: searched in place of the benchmark's own; of relations, what names the concepts.
      retired_cuis: gold CUIs and those of the dictionary are replaced by what they were merged
        into; of relations, what a retired concept is named after; of pairs and concepts, what a
        CUI without a concept vector is looked up under.
      types: of concepts, the semantic types to evaluate; the papers' if none.

    Raises:
      BadInput: no known format, a broken row, no dictionary, or no mention whose gold concept is
        in the dictionary.
    """
    if str(path).startswith(PAPER):
        benchmark: Benchmark = read_case_study(name, path, dictionary)
    else:
        path = Path(path)
        read = _read_folder if path.is_dir() else _read_file
        benchmark = read(name, path, dictionary, types)
    if isinstance(benchmark, NormalizationBenchmark):
        if retired_cuis is not None:
            benchmark = with_successors(benchmark, retired_cuis)
        check_reachable(benchmark)
    if isinstance(benchmark, RelationFile) and dictionary is not None:
        benchmark = with_names(benchmark, dictionary, retired_cuis)
    if retired_cuis is None:
        return benchmark
    if isinstance(benchmark, CaseStudy):
        today = benchmark.dictionary.with_successors(retired_cuis)
        return replace(benchmark, dictionary=today, retired_cuis=retired_cuis)
    if isinstance(benchmark, SimilarityBenchmark | ConceptSet):
        return replace(benchmark, retired_cuis=retired_cuis)
    return benchmark


def _read_folder(
    name: str, path: Path, dictionary: Dictionary | None, types: Sequence[str]
) -> Benchmark:
    if (path / "mentions.tsv").is_file():
        return read_mentions(name, path / "mentions.tsv", dictionary)
    if (path / "manifest.json").is_file():
        return read_dataset_concepts(name, path, types)
    if is_relation_folder(path):
        return read_relation_pairs(name, path)
    if xl_bel_files(path):
        return read_xl_bel(name, path, dictionary)
    if folders := fold_folders(path, has_dictionary=dictionary is not None):
        return read_standard_term_folds(name, path, folders, dictionary)
    if is_mantra(path):
        return read_mantra(name, path, dictionary)
    held = ", ".join(sorted(child.name for child in path.iterdir())[:8]) or "nothing"
    raise BadInput(f"{path}: found a folder with {held}; {FORMATS}")


def _read_file(
    name: str, path: Path, dictionary: Dictionary | None, types: Sequence[str]
) -> Benchmark:
    if is_mantra(path):
        return read_mantra(name, path, dictionary)
    if is_double_piped(path):
        return read_xl_bel(name, path, dictionary)
    number, fields = tab_separated(path)[0]
    header = [field.lower() for field in fields]
    if tuple(header) == HEADER:
        return read_concept_list(name, path, types)
    if header == RELATION_HEADER:
        return read_links(name, path)
    if header in HEADERS:
        return read_case_study(name, path, dictionary)
    if len(fields) == 3 or (len(fields) == 1 and "," in fields[0]):
        return read_pairs(name, path)
    if len(fields) == 2:
        return read_mentions(name, path, dictionary)
    raise BadInput(f"{path}:{number}: found {len(fields)} tab-separated columns; {FORMATS}")


def has_dictionary(path: Path) -> bool:
    """Whether a benchmark brings what is searched along: a folder of mentions, or of folds."""
    if not path.is_dir() or is_relation_folder(path):
        return False
    own = (path / "mentions.tsv", path / "standard.txt", *path.glob("*/standard.txt"))
    return any(file.is_file() for file in own)
