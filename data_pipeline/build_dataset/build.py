"""The build of a dataset: read, filter, hold out, tokenize, write, rename."""

from __future__ import annotations

import dataclasses
import errno
import glob
import platform
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import tensorflow_datasets as tfds
import tokenizers
from msgspec import UNSET, UnsetType
from tokenizers import Tokenizer

from data_pipeline import process
from data_pipeline.build_dataset.options import BuildOptions
from data_pipeline.dataset.dictionary import read_identifiers
from data_pipeline.dataset.store import (
    FORMAT,
    MANIFEST,
    WORK_MARK,
    Counts,
    DescribedShard,
    HeldOutConcepts,
    HeldOutCounts,
    Manifest,
    Shard,
    TokenizerOfData,
    is_dataset,
    read_manifest,
)
from data_pipeline.dataset.tokenizer import (
    load_tokenizer,
    save_tokenizer,
    tokenizer_hash,
    vocabulary_size,
    warn_of_case,
)
from data_pipeline.dataset.write import (
    BlockWriter,
    default_shards,
    finish,
    has_finished_shards,
    left_by_finish,
    terminology_hash,
    tidy,
    write_shards,
)
from data_pipeline.files.buckets import (
    address,
    cache_folder,
    explained,
    open_bucket,
    publish_folder,
    short_hash,
)
from data_pipeline.files.whole import locked, recover_folder
from data_pipeline.process import BadInput, tell
from data_pipeline.quiet_tensorflow import tf
from data_pipeline.sources.read_source import read_source
from data_pipeline.sources.release_files import reading, remove_scratch
from data_pipeline.sources.source import Source
from data_pipeline.terminology.heldout import (
    hold_out,
    hold_out_concepts,
    mention_table,
    write_heldout,
    write_heldout_concepts,
)
from data_pipeline.terminology.mentions import read_supervised
from data_pipeline.terminology.terminology import Terminology, read_terminology

# -------------------------------------------------------------------------------------------------
# A full disk during a build.


@contextmanager
def _explain_full_disk(work: Path) -> Iterator[None]:
    """Turns 'no space left', from Python or TensorFlow, into BadInput."""
    try:
        yield
    except (OSError, tf.errors.ResourceExhaustedError) as error:
        is_python = isinstance(error, OSError)
        if is_python and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(work.parent).free
        kept = (
            f": finished shards are kept in {work}, and it goes on from there (delete that folder "
            "to give up)"
            if work.is_dir()
            else ""
        )
        raise BadInput(
            f"the disk is full: {error}. {free / 1e9:.2f} GB are free at {work.parent}. No dataset "
            f"was written. Free some space and run the same command again{kept}."
        ) from error


# -------------------------------------------------------------------------------------------------
# The build itself: read, hold out, tokenize, write, rename.
#
# All work happens in a hidden folder beside --out whose name carries the build's fingerprint. The
# same build finds its finished shards there; another build of the same --out starts over.

_LOCK = "lock"


def build_dataset(options: BuildOptions, *, reuse: bool = False) -> Path:
    """Builds the dataset that `options` describe and returns its folder, `options.out`.

    With `reuse`, a complete dataset at `options.out` that was built from the same inputs with the
    same options is returned as it is; without `overwrite` always.
    Raises BadInput for anything wrong with the input or the disk, and for a folder in the way.
    """
    options.validate()
    tokenizer = load_tokenizer(options.tokenizer)
    warn_of_case(tokenizer, options.tokenizer)
    fingerprint = options.fingerprint(tokenizer_hash(tokenizer), FORMAT)
    if _is_in_the_way(options, fingerprint, reuse):
        return options.out
    out = options.out.absolute()
    work = out.with_name(f".{out.name}{WORK_MARK}{fingerprint[:12]}")
    started = time.monotonic()
    with _explain_full_disk(work):
        _remove_other_builds(out, work)
        work.mkdir(parents=True, exist_ok=True)
        with _locked(work):
            try:
                _build_in(work, out, options, tokenizer, fingerprint)
            except Exception:
                if not has_finished_shards(work):  # nothing that a second run could use
                    shutil.rmtree(work)
                raise
    tell(f"built {options.out} in {time.monotonic() - started:.1f} s")
    return options.out


def build_in_bucket(options: BuildOptions) -> Manifest:
    """Builds on this machine as `build_dataset` does, publishes the dataset, and returns its
    manifest.

    If the publishing fails, the same command does only that again.
    """
    url = address(options.out)
    with explained(url, "read"):
        files, root = open_bucket(url)
        there = files.exists(f"{root}/{MANIFEST}")
    if there and not options.overwrite:
        raise BadInput(
            f"--out {url} already holds a dataset; add --overwrite to replace it, or give another"
        )
    out = cache_folder() / "builds" / f"{options.out.name}-{short_hash(url.encode())}"
    build_dataset(dataclasses.replace(options, out=out, overwrite=True), reuse=True)
    manifest = read_manifest(out)
    publish_folder(out, url, MANIFEST, overwrite=options.overwrite)
    shutil.rmtree(out)
    return manifest


def _build_in(
    work: Path, out: Path, options: BuildOptions, tokenizer: Tokenizer, fingerprint: str
) -> None:
    scratch = work / "unpacked"
    try:
        with reading(options.source):
            terminology, excluded = _read(options, scratch)
            licenses = _licenses(terminology)  # while what was unpacked is there
    finally:
        remove_scratch(scratch)
    process.poll()
    terminology, of_terms, of_concepts = _hold_out(options, terminology, excluded, work / "heldout")
    _write_small_tables(terminology.source, work)
    save_tokenizer(options.tokenizer, work / "tokenizer")
    writer = BlockWriter(terminology, tokenizer, options.max_length)
    shards = write_shards(writer, work, options.shards or default_shards(terminology.terms.height))
    manifest = dataclasses.replace(
        _manifest(options, fingerprint, terminology, licenses, tokenizer, shards),
        held_out=of_terms,
        held_out_concepts=of_concepts,
    )
    (work / _LOCK).unlink()
    finish(work, out, manifest)


def _hold_out(
    options: BuildOptions, terminology: Terminology, excluded: pl.DataFrame | None, folder: Path
) -> tuple[Terminology, HeldOutCounts | None, HeldOutConcepts | UnsetType]:
    """Writes what is held out; returns the remaining terminology, and an entry for the manifest.

    Concepts go first, so that no synonym is asked for, nor among the answers, that is in none.
    """
    of_terms: HeldOutCounts | None = None
    of_concepts: HeldOutConcepts | UnsetType = UNSET
    if options.hold_out_concepts is not None:
        terminology, names = hold_out_concepts(
            terminology, options.hold_out_concepts, options.seed, options.hold_out_phrases
        )
        of_concepts = HeldOutConcepts(**write_heldout_concepts(folder, names))
    if options.hold_out is not None:
        terminology, mentions = hold_out(
            terminology, options.hold_out, options.seed, options.hold_out_languages
        )
        most = options.heldout_dictionary
        counts = write_heldout(folder, terminology, mentions, most, options.seed, excluded)
        of_terms = HeldOutCounts(**counts)
    return terminology, of_terms, of_concepts


def _read(options: BuildOptions, scratch: Path) -> tuple[Terminology, pl.DataFrame | None]:
    """The terminology, and the mentions of --exclude-terms."""
    started = time.monotonic()
    tell(f"reading {options.source}")
    source = read_source(
        options.source,
        scratch,
        options.synonym_scopes,
        options.release,
        standard=options.standard,
        strict=options.strict,
    )
    tell(f"filtering and cleaning the terms of {source.name}, release {source.release}")
    excluded = mention_table(options.exclude_terms) if options.exclude_terms else None
    supervised = None
    if options.supervised:
        supervised = read_supervised(options.supervised, options.supervised_sets)
    listed = read_identifiers(options.concepts_of) if options.concepts_of else None
    terminology = read_terminology(
        source, options.filters, options.cleaning, excluded, supervised, listed
    )
    if not len(terminology.heads):
        tell("warning: no relation is left; the encoder can train on synonyms alone")
    tell(
        f"{len(terminology.cuis):,} concepts, {terminology.terms.height:,} terms, "
        f"{len(terminology.heads):,} triplets in {time.monotonic() - started:.1f} s"
    )
    return terminology, excluded


def _write_small_tables(source: Source, work: Path) -> None:
    """Writes retired_cuis.tsv and xrefs.tsv if the source has them."""
    for name, table in (("retired_cuis", source.retired), ("xrefs", source.xrefs)):
        if table.height:
            table.write_csv(work / f"{name}.tsv", separator="\t", quote_style="never")


def _manifest(
    options: BuildOptions,
    fingerprint: str,
    terminology: Terminology,
    licenses: dict[str, str],
    tokenizer: Tokenizer,
    shards: Sequence[DescribedShard],
) -> Manifest:
    source = terminology.source
    warnings = list(source.warnings)
    if not len(terminology.heads):
        warnings.append("no relation is left: the dataset has synonyms only")
    return Manifest(
        name=source.name,
        release=source.release,
        sources=source.files,
        filters=dataclasses.asdict(options.filters),
        cleaning=options.cleaning,
        languages=terminology.languages,
        vocabularies=terminology.vocabularies,
        licenses=licenses,
        relations=terminology.relation_labels,
        semantic_types=terminology.semantic_types,
        counts=_counts(terminology, shards),
        report=terminology.report,
        warnings=warnings,
        held_out=None,
        tokenizer=TokenizerOfData(
            name=str(options.tokenizer),
            hash=tokenizer_hash(tokenizer),
            vocab_size=vocabulary_size(tokenizer),
            max_length=options.max_length,
        ),
        content_hash=terminology_hash(terminology, shards),
        fingerprint=fingerprint,
        options=options.as_json(),
        command=options.command(),
        versions={
            "python": platform.python_version(),
            "polars": pl.__version__,
            "tokenizers": tokenizers.__version__,
            "tensorflow": tf.__version__,
            "tensorflow_datasets": tfds.__version__,
        },
        shards=[msgspec.convert(shard, Shard, from_attributes=True) for shard in shards],
    )


def _licenses(terminology: Terminology) -> dict[str, str]:
    """The licenses of the vocabularies that were kept, as far as the files say them."""
    table = terminology.source.licenses
    if table is None:
        return {}
    kept = table.filter(pl.col("source").is_in(terminology.vocabularies)).sort("source")
    return dict(kept.collect(engine="streaming").iter_rows())


def _counts(terminology: Terminology, shards: Sequence[DescribedShard]) -> Counts:
    def total(name: str) -> int:
        return sum(getattr(shard, name) for shard in shards)

    has_synonyms = np.diff(terminology.term_start()) > 1
    both = has_synonyms[terminology.heads] & has_synonyms[terminology.tails]
    spoken = terminology.terms.select("language", again="more_languages")
    others = spoken.explode("again").filter(pl.col("again") != pl.col("language"))["again"]
    by_language = np.bincount(
        pl.concat([spoken["language"], others]).to_numpy(), minlength=len(terminology.languages)
    )
    names = ("concepts", "terms", "tokens", "triplets", "concept_types", "term_vocabularies")
    return Counts(
        **{name: total(name) for name in (*names, "occurrences", "cut_terms", "unknown_terms")},
        longest_term_tokens=max(shard.longest_term_tokens for shard in shards),
        concepts_with_synonyms=int(has_synonyms.sum()),
        triplets_with_synonyms=int(both.sum()),
        terms_by_language=dict(zip(terminology.languages, by_language.tolist(), strict=True)),
    )


def _is_in_the_way(options: BuildOptions, fingerprint: str, reuse: bool) -> bool:
    """Whether `out` already is the wanted dataset; raises BadInput if something else is there."""
    out = options.out
    recover_folder(out)  # of a build that was killed while it replaced another
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    if not (out / MANIFEST).is_file():
        raise BadInput(
            f"--out {out} exists and is not a dataset; expected a new folder, an empty one, or a "
            "dataset to replace with --overwrite. Give another --out, or move it away."
        )
    try:
        manifest = read_manifest(out)
    except BadInput:
        if options.overwrite and is_dataset(out):
            return False
        raise
    left = left_by_finish(out.absolute())  # of a build that was killed once its work was done
    if manifest.fingerprint == fingerprint and (reuse or left or not options.overwrite):
        tidy(out.absolute())
        tell(f"{out} already is the dataset of this command")
        return True
    if not options.overwrite:
        counts = manifest.counts
        raise BadInput(
            f"--out {out} already holds a dataset: {manifest.name} {manifest.release}, "
            f"{counts.concepts:,} concepts, {counts.terms:,} terms, "
            f"{counts.triplets:,} triplets. Add --overwrite to replace it, or give another "
            "--out."
        )
    return False


def _remove_other_builds(out: Path, work: Path) -> None:
    """Removes unfinished builds of the same --out with other arguments."""
    for other in out.parent.glob(f".{glob.escape(out.name)}{WORK_MARK}*"):
        if other != work and other.is_dir():
            with _locked(other):
                tell(f"removing {other}, an unfinished build with other arguments or inputs")
                shutil.rmtree(other)


def _locked(work: Path) -> AbstractContextManager[None]:
    held = f"another process is building in {work}; wait for it, or stop it"
    return locked(work / _LOCK, held)
