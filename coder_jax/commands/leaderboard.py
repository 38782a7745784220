"""Score every encoder of a list on every set of a list, and show all of it in one table.

Two lists say what is scored: models.toml has a [[model]] for each row, and sets.toml a [[set]] for
each column. Without them, the lists of this project are taken, which have the public encoders of
the field and the sets that its papers report, and say where to get each. What is not on this
machine is named and left out. An encoder of the Hugging Face Hub is fetched, unless
HF_HUB_OFFLINE=1 is set.

A [[model]] has a name and a model (a folder, a hub id, or a file of vectors with vectors_of); and
where it needs them pooling, prompt, cleaning, max_length, attend_padding, backend, licence. With
backend = "strings" no encoder is needed: the model is "exact match", "edit distance", "tf-idf" or
"bm25", which compare terms as they are written. A [[set]] has a name and a path (anything that
`evaluate --benchmark` takes); and dictionary, dictionary_languages, dictionary_sources,
retired_cuis, options (of `evaluate`, such as given_groups; files in them are below --data), score
(the one to show), language, counts (the published ones, which are checked).

DIR gets board.html (a table to sort, with a picture of size, speed and score), board.csv,
board.json, board.tex (booktabs) and board.md; each score has its 95 % interval, and with
--compare-to the difference from one row by the paired test of `evaluate --compare`. times.json
alone holds times, from which those files take them. cells/ holds a file for each score.

The same command continues what was stopped or killed. A score is computed anew only if the files
of its encoder or set, or its settings in the lists, have changed. Other lists
with the same DIR add rows and columns. Vectors of a dictionary are made once for each encoder, and
shared between sets (see `evaluate --help`).

Examples:
  python -m coder_jax leaderboard --out board --data yours
  python -m coder_jax leaderboard --models mine.toml --sets sets.toml --out board \\
      --compare-to SapBERT
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from coder_jax.commands.arguments import (
    DictionaryOptions,
    EncodingOptions,
    encoded_for,
    load_encoder,
)
from coder_jax.encoding.vector_files import encoder_protocol
from coder_jax.evaluation import benchmarks as known
from coder_jax.evaluation.benchmark import Options
from coder_jax.evaluation.leaderboard import (
    BoardCell,
    BoardModel,
    BoardSet,
    Speed,
    board_of,
    cell_file,
    csv_of,
    hash_of_files,
    is_done,
    json_of,
    key_of,
    latex_of,
    markdown_of,
    read_cells,
    read_list,
    read_times,
    write_cell,
    write_times,
)
from coder_jax.evaluation.name_pairs import NameStrings
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.vectors import CONCEPTS, TERMS, open_table, vector_file_protocol
from coder_jax.models.hf_files import find_folder
from data_pipeline.files.whole import write_text
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput, did_you_mean, message_of, tell
from data_pipeline.terminology.retired_cuis import choose_list, read_retired_cuis

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.evaluation.benchmark import Benchmark
    from coder_jax.evaluation.vectors import Vectors

COMMON = ("--models", "--sets", "--out", "--data", "--compare-to")
WHEN_ASKED_TO_STOP = "stopping; finished scores are kept"
_TIMED_TERMS = 1024  # of the first set, encoded twice: the second time counts


@dataclass(frozen=True, kw_only=True)
class LeaderboardOptions:
    """The options of `leaderboard`."""

    models: Annotated[
        tuple[Path, ...],
        Flag("lists of encoders, a [[model]] for each row (default: the public ones)", "FILE"),
    ] = ()
    sets: Annotated[
        tuple[Path, ...],
        Flag("lists of sets, a [[set]] for each column (default: those of the papers)", "FILE"),
    ] = ()
    out: Annotated[Path, Flag("the folder of the board", "DIR")]
    data: Annotated[Path, Flag("the folder in which the paths of both lists begin", "DIR")] = Path(
        "."
    )
    compare_to: Annotated[
        str, Flag("test each row against this one, by its name in the list", "NAME")
    ] = ""


OPTIONS = LeaderboardOptions


@dataclass(frozen=True)
class _Row:
    """A model that is at hand."""

    entry: BoardModel
    path: Path
    files: str  # the hash of its files


@dataclass
class _Column:
    """A set that is at hand; it is read when the first encoder needs it."""

    entry: BoardSet
    files: str  # the hash of its files, of the dictionary's and of the list of retired CUIs
    options: Options = field(default_factory=Options)
    benchmark: Benchmark | None = None


def run(options: LeaderboardOptions) -> int:
    models, sets = read_list(options.models, BoardModel), read_list(options.sets, BoardSet)
    _check_compared(options, models)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out: {options.out} cannot be made ({error.strerror})") from error
    missing: list[BoardModel | BoardSet] = []
    columns = [one for one in (_column(entry, options.data, missing) for entry in sets) if one]
    if not columns:
        raise BadInput(
            f"found none of the {len(sets)} sets below {options.data}; expected the path of one: "
            "give --data, the folder in which they are, or another list with --sets"
        )
    for entry in models:
        row = _row(entry, options.data, missing)
        if row is not None:
            _fill(row, columns, options)
    _write_board(options, models, sets, missing)
    return 0


def _check_compared(options: LeaderboardOptions, models: Sequence[BoardModel]) -> None:
    """BadInput if --compare-to names no row, before anything is computed."""
    names = [*(one.name for one in models), *(one.model.name for one in read_cells(options.out))]
    if options.compare_to and options.compare_to not in names:
        raise BadInput(
            f"--compare-to: found {options.compare_to!r}{did_you_mean(options.compare_to, names)}; "
            f"expected the name of a model: {', '.join(dict.fromkeys(names))}"
        )


def _column(entry: BoardSet, data: Path, missing: list[BoardModel | BoardSet]) -> _Column | None:
    """A set, or None for one that is not at hand, which is told."""
    paths = [data / name for name in (entry.path, entry.dictionary, entry.retired_cuis) if name]
    paths += [data / one for name in _FILES for one in entry.options.get(name, [])]
    absent = [str(path) for path in paths if not path.exists()]
    if absent:
        had = f"; get it from {entry.source}" if entry.source else ""
        needs = f"; it needs {entry.needs}" if entry.needs else ""
        tell(f"set {entry.name}: left out, there is no {' and no '.join(absent)}{had}{needs}")
        missing.append(entry)
        return None
    return _Column(entry, "+".join(hash_of_files(path) for path in paths))


def _row(entry: BoardModel, data: Path, missing: list[BoardModel | BoardSet]) -> _Row | None:
    """A model, or None for one that is not at hand, which is told."""
    here = data / entry.model
    if entry.backend == "strings":
        return _Row(entry, here, "")
    try:
        if entry.vectors_of and not here.exists():
            raise BadInput(f"there is no {here}; expected a file of vectors")
        path = (
            here
            if here.exists()
            else find_folder(
                entry.model,
                onnx=entry.backend.startswith("onnx"),
                whole=entry.backend == "sentence-transformers",
            )
        )
    except BadInput as error:
        tell(f"model {entry.name}: left out: {error}")
        missing.append(entry)
        return None
    return _Row(entry, path, hash_of_files(path))


def _fill(row: _Row, columns: Sequence[_Column], options: LeaderboardOptions) -> None:
    """Scores a model on the sets whose cells are not there, and measures its speed."""
    keys = [key_of(row.entry, row.files, column.entry, column.files) for column in columns]
    todo = []
    for column, key in zip(columns, keys, strict=True):
        path = cell_file(options.out, row.entry.name, column.entry.name)
        if not is_done(path, key) and _is_read(column, options.data):
            todo.append((column, key, path))
    speed_key = key_of(row.entry, row.files, columns[0].entry, columns[0].files)
    times = read_times(options.out)
    timed = bool(row.entry.vectors_of) or row.entry.backend == "strings"  # they have no speed
    timed = timed or (row.entry.name in times and times[row.entry.name].key == speed_key)
    timed = timed or not _is_read(columns[0], options.data)  # nothing to measure it on
    if not todo and timed:
        tell(f"model {row.entry.name}: its scores are there")
        return
    try:
        scorer = _scorer(row, [column for column, _, _ in todo])
    except (BadInput, ModuleNotFoundError) as error:
        if (message := message_of(error)) is None:  # no extra of ours
            raise
        tell(f"model {row.entry.name}: left out: {message}")
        return
    for _, _, path in todo:  # of another encoder or set, should this one get no score
        path.unlink(missing_ok=True)
    for column, key, path in todo:
        assert column.benchmark is not None
        tell(f"model {row.entry.name}, set {column.entry.name}")
        try:
            begun = path.with_name(
                f"{path.stem}.{key[:16]}.json"
            )  # vectors of other keys are others
            record = scorer.score(column.benchmark, column.options, begun)
        except BadInput as error:
            tell(f"model {row.entry.name}, set {column.entry.name}: no score: {error}")
            continue
        cell = BoardCell(
            key=key,
            model=row.entry,
            set=column.entry,
            parameters=scorer.parameters,
            record=replace(record, path=column.entry.path),
        )
        write_cell(path, cell)
    read = (column for column in columns if _is_read(column, options.data))
    if not timed and (speed := scorer.speed(read, speed_key)):
        write_times(options.out, {**times, row.entry.name: speed})


def _is_read(column: _Column, data: Path) -> bool:
    """Whether a set could be read, as it is now if it was not; what is wrong with it is told."""
    if column.benchmark is None:
        try:
            column.options = _options_of(column.entry, data)
            column.benchmark = _benchmark(column.entry, data, column.options)
        except BadInput as error:
            tell(f"set {column.entry.name}: left out: {error}")
    return column.benchmark is not None


def _benchmark(entry: BoardSet, data: Path, options: Options) -> Benchmark:
    from data_pipeline.dataset.dictionary import read_dictionary

    dictionary = None
    if entry.dictionary:
        chosen = DictionaryOptions(
            dictionary_languages=tuple(entry.dictionary_languages),
            dictionary_sources=tuple(entry.dictionary_sources),
        )
        dictionary = read_dictionary(data / entry.dictionary, **chosen.choices())
    given = str(data / entry.retired_cuis) if entry.retired_cuis else None
    source = str(data / entry.dictionary) if entry.dictionary else None
    merges = choose_list(given, source)
    return known.read_benchmark(
        entry.name,
        data / entry.path,
        dictionary=dictionary,
        retired_cuis=read_retired_cuis(merges) if merges else None,
        options=options,
    )


# Options that name files to read.
_FILES = ("exact_match", "training_names")


def _options_of(entry: BoardSet, data: Path) -> Options:
    """The options of all kinds of sets, with those of this one."""
    default = known.options_with()
    names = vars(default).keys() - {"predictions"}  # which would be written, not scored
    for name in entry.options:
        if name not in names:
            raise BadInput(
                f"the set {entry.name}: options has {name!r}{did_you_mean(name, names)}; expected "
                f"{', '.join(sorted(names))}"
            )
    lists = {name: tuple(one) for name, one in entry.options.items() if isinstance(one, list)}
    files = {
        name: tuple(str(data / one) for one in lists[name]) for name in _FILES if name in lists
    }
    return replace(default, **{**entry.options, **lists, **files})


# -------------------------------------------------------------------------------------------------
# What scores a model: an encoder, a file of vectors, or a comparison of strings.


@dataclass(frozen=True)
class _Scorer:
    """Scores a model: by its encoder, or without one by what stands in `vectors`."""

    protocol: EncoderRecord
    parameters: int | None
    encoder: TermEncoder | None = None
    vectors: Vectors | None = None

    def score(self, benchmark: Benchmark, options: Options, path: Path) -> EvaluationRecord:
        """The record; vectors that are not kept grow beside the cell's file.

        BadInput for a set that has none of the keys of the vectors.
        """
        scratch: list[Path] = []
        vectors = self.vectors
        if self.encoder is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            vectors = encoded_for([benchmark], self.encoder, path, scratch)
        assert vectors is not None
        benchmark.keys(vectors.keyed_by)
        record = known.score(benchmark, vectors, self.protocol, options)
        for file in scratch:
            file.unlink()
        return record

    def speed(self, columns: Iterable[_Column], key: str) -> Speed | None:
        """Terms per second of the encoder on this machine; None where no set has terms."""
        assert self.encoder is not None
        for column in columns:
            assert column.benchmark is not None
            with suppress(BadInput):  # relations of concepts have none
                terms = column.benchmark.keys(TERMS)
                break
        else:
            return None
        step = max(1, len(terms) // _TIMED_TERMS)
        terms = terms[::step][:_TIMED_TERMS]
        for _ in range(2):  # in the first jax compiles
            began = time.perf_counter()
            self.encoder.encode(terms)
            seconds = time.perf_counter() - began
        return Speed(
            key=key,
            terms_per_s=len(terms) / seconds,
            machine=_machine(),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            terms=f"{len(terms):,} of {column.entry.name}",
        )


def _scorer(row: _Row, columns: Sequence[_Column]) -> _Scorer:
    """What scores a model on sets that were read; of a file of vectors only their rows are read."""
    entry = row.entry
    if entry.backend == "strings":
        strings = NameStrings(entry.model)
        return _Scorer(strings.protocol, None, vectors=strings)
    if kind := entry.vectors_of:
        keys: set[str] = set()
        for column in columns:
            assert column.benchmark is not None
            with suppress(BadInput):  # what has no such keys is told when it is scored
                keys.update(column.benchmark.keys(CONCEPTS if kind == "concepts" else TERMS))
        table = open_table(row.path, kind, keys)
        protocol = replace(vector_file_protocol(table), model=entry.model)
        return _Scorer(protocol, table.table.in_file * table.table.vectors.shape[1], vectors=table)
    how = EncodingOptions(
        cleaning=entry.cleaning,
        max_length=entry.max_length,
        attend_padding=entry.attend_padding,
        backend=entry.backend,
        prompt=entry.prompt,
    )
    encoder = load_encoder(str(row.path), entry.pooling, how)
    of_encoder = encoder_protocol(encoder, entry.model, encoder.weights_hash)
    return _Scorer(of_encoder, _parameters_of(encoder), encoder)


def _parameters_of(encoder: TermEncoder) -> int | None:
    """The number of parameters of an encoder; None where it is a file that another runs."""
    import jax

    from coder_jax.encoding.readers import BertReader, LibraryReader, NameReader
    from coder_jax.models.bert import split_encoder

    reader = encoder.reader
    if isinstance(reader, BertReader):
        return sum(int(leaf.size) for leaf in jax.tree.leaves(split_encoder(reader.bert)[1]))
    if isinstance(reader, NameReader):
        leaves = [*jax.tree.leaves(dict(reader.params)), reader.vectors.vectors]
        return sum(int(np.size(leaf)) for leaf in leaves)
    return reader.parameters if isinstance(reader, LibraryReader) else None


def _machine() -> str:
    """The machine in words: what computes, and how many processors."""
    import jax

    device = jax.devices()[0].device_kind
    return f"{device}, {platform.machine()}, {os.cpu_count()} processors"


# -------------------------------------------------------------------------------------------------
# The files of the board.


def _write_board(
    options: LeaderboardOptions,
    models: Sequence[BoardModel],
    sets: Sequence[BoardSet],
    missing: list[BoardModel | BoardSet],
) -> None:
    """Writes the board of all cells that are there."""
    from coder_jax.report.board import board_page

    cells = read_cells(options.out, models, sets)
    order = [one.name for one in sets]
    if not cells:
        raise BadInput(
            "found no encoder of the list that could be scored on a set; expected one: see above "
            "what is missing, or give other lists with --models and --sets"
        )
    there = {one.model.name for one in cells} | {one.set.name for one in cells}
    absent = [one for one in missing if one.name not in there]
    board = board_of(cells, read_times(options.out), order, options.compare_to, absent)
    for name, text in {
        "board.csv": csv_of(board),
        "board.json": json_of(board),
        "board.tex": latex_of(board),
        "board.md": markdown_of(board),
        "board.html": board_page(board),
    }.items():
        write_text(options.out / name, text)
    for note in board.notes:
        tell(f"note: {note}")
    tell(
        f"{options.out / 'board.html'}: {len(cells)} scores (encoders {len(board.rows)}, sets "
        f"{len(board.sets)})"
    )
