"""The protocol of a benchmark, through which `evaluate` handles all kinds alike.

A kind is a class: a dataclass of what was read, with the methods below. Its instances are
benchmarks. It stands in a file of its own and in one line of `benchmarks.BENCHMARKS`; flags,
reading, scores, tables and help follow from there.

This file and those of the kinds import no jax, so that `--help` stays quick: what computes scores
is imported where it is called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, TypeVar

from coder_jax.evaluation.published import PublishedRow
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results import Table
from coder_jax.evaluation.vectors import Vectors
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.tables import tab_separated
from data_pipeline.flags import Flag
from data_pipeline.terminology.retired_cuis import RetiredCuis

OwnOptions = TypeVar("OwnOptions", bound="Options")

_NO_TABLE_OF_TEXT = (".zip", ".xml", ".tar.gz", ".tgz", ".tar")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line asks of the kinds of benchmarks.

    A kind with flags of its own has a subclass (`Benchmark.options`); the options of an evaluation
    are of all these classes at once (`benchmarks.options_with`).
    """

    seed: Annotated[int, Flag("for all random draws", least=0, heading="options")] = 0

    def of(self, own: type[OwnOptions]) -> OwnOptions:
        """As the options of one kind; its defaults where they are not among them."""
        return self if isinstance(self, own) else own(seed=self.seed)


@dataclass(frozen=True)
class Found:
    """The file at a benchmark's path, inspected once for all kinds."""

    path: Path

    @cached_property
    def is_folder(self) -> bool:
        return self.path.is_dir()

    @cached_property
    def is_text(self) -> bool:
        """Whether the path may be a file of rows: not a folder, an archive, XML, or missing."""
        packed = self.path.name.lower().endswith(_NO_TABLE_OF_TEXT)
        return not packed and self.path.exists() and not self.is_folder

    @cached_property
    def first_row(self) -> list[str]:
        """The tab-separated fields of the first line of a file of rows; empty for anything else.

        BadInput for a file that is empty or not UTF-8.
        """
        return tab_separated(self.path)[0][1] if self.is_text else []

    @property
    def header(self) -> list[str]:
        """`first_row` in small letters."""
        return [name.lower() for name in self.first_row]

    def holds(self, *names: str) -> bool:
        """Whether it is a folder with one of these files."""
        return any((self.path / name).is_file() for name in names)


@dataclass(frozen=True)
class Given:
    """The inputs from which a benchmark is read.

    Attributes:
      name: under which results are reported.
      path: a file or a folder, or a word that a kind claims, such as paper:knowledge.
      dictionary: searched in place of the benchmark's own; of relations, what names the concepts.
      retired_cuis: which CUIs were merged into which.
      options: of all kinds.
    """

    name: str
    path: Path
    dictionary: Dictionary | None = None
    retired_cuis: RetiredCuis | None = None
    options: Options = Options()


class Benchmark(ABC):
    """The protocol of a benchmark; a subclass is a kind of benchmark.

    Attributes:
      name: under which results are reported.
      path: what was read.
      kind: of its records. Those of one kind share a table; kinds may share one.
      formats: lines for whoever gave a path that no kind knows: what files of it look like.
      about: lines for `evaluate --help`.
      options: the class of its own options.
      published: rows of papers; shown below those of a benchmark whose name holds theirs.
      takes_features: vectors as they are, not of unit length, are asked of the encoder while it is
        scored; so its terms are not encoded before.
      takes_relations: the relations that were learned with the encoder are to be read too.
    """

    name: str
    path: str

    kind: ClassVar[str]
    formats: ClassVar[str]
    about: ClassVar[str]
    options: ClassVar[type[Options]] = Options
    published: ClassVar[tuple[PublishedRow, ...]] = ()
    takes_features: ClassVar[bool] = False
    takes_relations: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def claims(cls, found: Found) -> bool:
        """Whether a path is certainly of this kind, by its name, ending or header."""

    @classmethod
    def would_take(cls, found: Found) -> bool:
        """Whether a path that no kind claims may be of this kind, for instance by its columns."""
        return False

    @classmethod
    def brings_dictionary(cls, path: Path) -> bool:
        """Whether the path contains its own dictionary, so that one given for all benchmarks is not
        used.
        """
        return False

    @classmethod
    @abstractmethod
    def read(cls, given: Given) -> Benchmark:
        """Reads the benchmark.

        BadInput for broken files, no dictionary where one is needed, or one that does not fit.
        """

    @abstractmethod
    def keys(self, keyed_by: str) -> list[str]:
        """The TERMS or CONCEPTS that need vectors; BadInput if the benchmark has none of that
        type.
        """

    def dictionaries(self) -> list[Dictionary]:
        """The distinct dictionaries that are searched; their vectors are cached for other
        evaluations.
        """
        return []

    @abstractmethod
    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        """The record of its scores.

        Raises:
          BadInput: vectors that cannot be used.
          Stopped: a signal asked for it.
        """

    @classmethod
    @abstractmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """The table of records of this kind."""
