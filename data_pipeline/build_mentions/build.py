"""The build of a folder of mentions: its options, the work, the closing report."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tokenizers
from tokenizers import Tokenizer

from data_pipeline.dataset.dictionary import read_entries
from data_pipeline.dataset.mentions import (
    ODD_LINES,
    SPLITS,
    UNREACHABLE,
    MentionDataset,
    MentionManifest,
    MentionSplit,
    TokenTable,
    starts,
    token_table,
    write_mentions,
)
from data_pipeline.dataset.store import TokenizerOfData, open_dataset
from data_pipeline.dataset.tokenizer import (
    load_tokenizer,
    tokenizer_hash,
    vocabulary_size,
    warn_of_case,
)
from data_pipeline.files.identity import DATASET, MENTIONS, check_free, is_of_kind
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput, tell
from data_pipeline.sources.corpora import (
    GoldMention,
    GoldMentions,
    is_pubtator,
    read_gold,
    types_of,
)
from data_pipeline.terminology.cleaning import ALL_IN_WORDS, CLEANING
from data_pipeline.terminology.keywords import KeywordVocabulary, read_keywords
from data_pipeline.terminology.mentions import (
    ConceptNames,
    GoldAs,
    MentionSet,
    concept_names,
    gold_form,
    mention_set,
)

# -------------------------------------------------------------------------------------------------
# Everything that decides what a folder of mentions holds.


@dataclass(frozen=True, kw_only=True)
class MentionOptions:
    """Everything that decides what a folder of mentions holds."""

    train: Annotated[
        tuple[Path, ...],
        Flag("mentions with their right concepts (gold), to train on", "FILE", heading="required"),
    ]
    dictionary: Annotated[Path, Flag("codes and names that are searched for mentions", "PATH")]
    tokenizer: Annotated[
        str | Path, Flag("folder or hub id of the encoder that will be trained", "MODEL")
    ]
    out: Annotated[Path, Flag("folder to make", "DIR")]
    dev: Annotated[
        tuple[Path, ...],
        Flag("mentions by which the best checkpoint is chosen", "FILE", heading="mentions"),
    ] = ()
    test: Annotated[tuple[Path, ...], Flag("mentions that `evaluate` scores", "FILE")] = ()
    keywords: Annotated[
        Path | None,
        Flag(
            "keywords that a ranker looks at apart, such as sites and types of procedures: "
            "word<TAB>kind in each line (default: none); `python -m data_pipeline.derive_keywords` "
            "makes such a file from a dictionary",
            "FILE",
            heading="strings",
        ),
    ] = None
    gold_as: Annotated[
        GoldAs | None,
        Flag(
            "how gold is written (default: whichever of both the dictionary has more of). Of "
            "names, each distinct one is a concept, however many codes it has; of codes, each is a "
            "concept with all its names",
            name="--gold",
            heading="mentions",
        ),
    ] = None
    mention_types: Annotated[
        tuple[str, ...],
        Flag("types of mentions to take from PubTator, such as Disease (default: all)", "TYPE"),
    ] = ()
    distinct: Annotated[
        bool,
        Flag(
            "train on each mention with its gold once, however often texts repeat it: an epoch of "
            "NCBI disease is a third as long then (CHIP-2019 repeats none)"
        ),
    ] = False
    hold_out: Annotated[
        float,
        Flag(
            "in place of --dev: take so many of the last mentions of --train, a fraction below 1 "
            "or a number (default: none)",
            "FRACTION_OR_COUNT",
        ),
    ] = 0
    cleaning: Annotated[
        str,
        Flag(
            f"how strings are cleaned before they are tokenized. {ALL_IN_WORDS}",
            choices=sorted(CLEANING),
            heading="strings",
        ),
    ] = "none"
    max_length: Annotated[
        int, Flag("longest string in tokens, special tokens included", least=3)
    ] = 64
    name: Annotated[
        str, Flag("name of the data (default: the dictionary's file)", heading="output")
    ] = ""
    release: Annotated[str, Flag("release of the data, for the records", "NAME")] = ""
    overwrite: Annotated[bool, Flag("replace the mentions at --out")] = False

    def validate(self) -> None:
        """Raises BadInput for values that no build can use."""
        if self.hold_out < 0 or self.hold_out > 1 and self.hold_out != int(self.hold_out):
            raise BadInput(
                f"--hold-out {self.hold_out}: expected a fraction below 1, or a number of mentions"
            )
        if self.hold_out and self.dev:
            raise BadInput("--hold-out and --dev: found both; expected one of them")
        files = {split: getattr(self, split) for split in ("train", "dev", "test")}
        files |= {"dictionary": (self.dictionary,), "keywords": (self.keywords,)}
        for option, paths in files.items():
            for path in paths:
                if path is not None and not path.exists():
                    raise BadInput(f"--{option} {path} does not exist; give an existing file")

    def as_json(self) -> dict[str, Any]:
        """The options as JSON values, for the manifest."""
        return json.loads(json.dumps(dataclasses.asdict(self), default=str))


# -------------------------------------------------------------------------------------------------
# The build itself: read, resolve, tokenize, write.

_MOST_WARNINGS = 10  # of a kind that are written out in the manifest


def build_mentions(options: MentionOptions) -> MentionDataset:
    """Builds the folder that `options` describe, and opens it.

    Raises:
      BadInput: for anything wrong with the input, and for a folder in the way.
    """
    options.validate()
    check_free(options.out, MENTIONS, "mentions", overwrite=options.overwrite)
    tokenizer = load_tokenizer(options.tokenizer)
    warn_of_case(tokenizer, options.tokenizer)
    read = _read_splits(options)
    entries = read_entries(options.dictionary)
    gold_as = options.gold_as or gold_form(entries, read["train"].rows)
    tell(f"gold is written as {gold_as} of {options.dictionary}")
    dictionary = concept_names(entries, gold_as)
    sets = {split: mention_set(found, dictionary) for split, found in read.items()}
    _check_reachable(sets, options, gold_as)
    keywords = KeywordVocabulary({})
    if options.keywords is not None:
        keywords = read_keywords(options.keywords)
    dataset = _dataset(options, dictionary, sets, tokenizer, keywords)
    odd = [f"{split}: {line}" for split, found in sets.items() for line in found.odd]
    return write_mentions(options.out, dataset, options.tokenizer, odd)


def _read_splits(options: MentionOptions) -> dict[str, GoldMentions]:
    """The mentions of each split, given as a file or held out of train."""
    read: dict[str, GoldMentions] = {}
    _check_types(options)
    for split in SPLITS:
        files = [read_gold(path, options.mention_types) for path in getattr(options, split)]
        if files:
            read[split] = GoldMentions(
                [row for one in files for row in one.rows],
                sum((one.counts for one in files), Counter()),
                [line for one in files for line in one.odd],
            )
    if options.hold_out:
        train = read["train"]
        count = int(options.hold_out * (len(train.rows) if options.hold_out < 1 else 1))
        if not 0 < count < len(train.rows):
            raise BadInput(
                f"--hold-out {options.hold_out:g} of {len(train.rows):,} mentions is {count:,}; "
                "expected some to hold out and some to train on"
            )
        held = GoldMentions(train.rows[-count:], Counter(), [])
        read["train"] = GoldMentions(train.rows[:-count], train.counts, train.odd)
        read["dev"] = held
    if options.distinct:
        read["train"] = _distinct(read["train"])
    return {name: read[name] for name in SPLITS if name in read}


def _check_types(options: MentionOptions) -> None:
    """Raise BadInput if none of the files has a type of mention that is asked for."""
    files = [path for split in SPLITS for path in getattr(options, split)]
    texts = [path for path in files if is_pubtator(path)]
    found = set[str]().union(*map(types_of, texts))
    if missing := [name for name in options.mention_types if texts and name not in found]:
        raise BadInput(
            f"--mention-types: found no mention of the type {missing[0]} in "
            f"{', '.join(map(str, texts))}; expected some of {', '.join(sorted(found))}"
        )


def _distinct(read: GoldMentions) -> GoldMentions:
    """The same mentions without duplicates (same mention, same gold)."""
    first: dict[tuple[str, frozenset[str]], GoldMention] = {}
    for row in read.rows:
        first.setdefault((row.mention, frozenset(row.gold)), row)
    rows = list(first.values())
    repeated = Counter({"rows left out: the same as another": len(read.rows) - len(rows)})
    return GoldMentions(rows, read.counts + repeated, read.odd)


def _check_reachable(sets: Mapping[str, MentionSet], options: MentionOptions, form: str) -> None:
    """Raise BadInput if the dictionary has no gold concept of a split."""
    for split, found in sets.items():
        if (found.gold == UNREACHABLE).all():
            raise BadInput(
                f"--{split}: found none of its gold among the {form} of {options.dictionary}; such "
                f"as {found.odd[-1]}. Give the dictionary that it was annotated with, or say how "
                "gold is written with --gold"
            )


def _dataset(
    options: MentionOptions,
    dictionary: ConceptNames,
    sets: Mapping[str, MentionSet],
    tokenizer: Tokenizer,
    keywords: KeywordVocabulary,
) -> MentionDataset:
    cut: dict[str, int] = {}

    def table(strings: Sequence[str], what: str) -> TokenTable:
        made, cut[what] = token_table(
            tokenizer,
            strings,
            cleaning=options.cleaning,
            max_length=options.max_length,
            keywords=keywords,
            progress=f"tokenize {what}",
        )
        return made

    names = table(dictionary.names, "names")
    splits = {
        split: MentionSplit(table(found.mentions, split), found.gold_start, found.gold)
        for split, found in sets.items()
    }
    concepts = len(dictionary.concepts)
    parent_start, parents = _broader_in(options.dictionary, dictionary.number, concepts)
    counts = {
        "concepts": concepts,
        "names": len(dictionary.names),
        "codes": len({code for some in dictionary.codes for code in some}),
        "concepts of several codes": sum(len(some) > 1 for some in dictionary.codes),
    }
    if len(parents):
        counts["concepts with a broader one"] = int((np.diff(parent_start) > 0).sum())
    for split, found in sets.items():
        counts |= {f"{split}: {what}": count for what, count in found.counts.items()}
    tables = {"names": names} | {split: found.mentions for split, found in splits.items()}
    unknown = tokenizer.token_to_id("[UNK]")
    for what, one in tables.items():
        counts |= _token_counts(what, one, unknown, keywords.kinds) | {f"{what}: cut": cut[what]}
    numbers = {
        branch: number
        for number, branch in enumerate(
            dict.fromkeys(branch for some in dictionary.branches for branch in some)
        )
    }
    branches = [numbers[branch] for some in dictionary.branches for branch in some]
    return MentionDataset(
        folder=options.out,
        manifest=_manifest(options, counts, sets, tokenizer, keywords),
        concepts=dictionary.concepts,
        code_start=starts(map(len, dictionary.codes)),
        codes=[code for some in dictionary.codes for code in some],
        branch_start=starts(map(len, dictionary.branches)),
        branches=np.array(branches, np.int32),
        parent_start=parent_start,
        parents=parents,
        names=names,
        name_concepts=dictionary.name_concepts,
        splits=splits,
        words=keywords.words,
    )


def _broader_in(
    path: str | Path, number: Mapping[str, int], concepts: int
) -> tuple[np.ndarray, np.ndarray]:
    """(parent_start, parents): what is a step broader than each concept (`MentionDataset`).

    Those are the relations PAR (the tail is a parent of the head) and CHD (a child) of a dataset,
    as MRREL and all sources here have them. A dictionary of another kind tells of none.

    Args:
        path: of the dictionary.
        number: identifier -> concept.
        concepts: how many there are.
    """
    pairs = np.zeros(0, np.int64)
    if is_of_kind(Path(path) / DATASET.file, DATASET):
        dataset = open_dataset(path, strings=True)
        kind = np.array([label.partition("|")[0] for label in dataset.manifest.relations] or [""])
        up, down = (np.isin(dataset.relations, np.flatnonzero(kind == k)) for k in ("PAR", "CHD"))
        place = np.array([number.get(cui, -1) for cui in dataset.cuis or []])
        child = place[np.concatenate([dataset.heads[up], dataset.tails[down]])]
        parent = place[np.concatenate([dataset.tails[up], dataset.heads[down]])]
        known = (child >= 0) & (parent >= 0) & (child != parent)
        pairs = np.unique(child[known].astype(np.int64) * concepts + parent[known])
    parents = (pairs % concepts).astype(np.int32)
    return np.searchsorted(pairs, np.arange(concepts + 1) * concepts), parents


def _token_counts(
    what: str, table: TokenTable, unknown: int | None, kinds: Sequence[str]
) -> dict[str, int]:
    """The numbers of tokens, of unknown tokens, and of strings with keywords in a table."""
    counts = {
        f"{what}: tokens": len(table.tokens),
        f"{what}: unknown tokens": int((table.tokens == unknown).sum()),
    }
    for bit, kind in enumerate(kinds):
        marked = np.add.reduceat(table.kinds >> bit & 1, table.start[:-1], dtype=np.int64) > 0
        counts[f"{what}: with a keyword of the kind {kind}"] = int(marked.sum())
    return counts


def _manifest(
    options: MentionOptions,
    counts: Mapping[str, int],
    sets: Mapping[str, MentionSet],
    tokenizer: Tokenizer,
    keywords: KeywordVocabulary,
) -> MentionManifest:
    odd = [f"{split}: {line}" for split, found in sets.items() for line in found.odd]
    warnings = odd[:_MOST_WARNINGS]
    if len(odd) > _MOST_WARNINGS:
        warnings.append(f"{len(odd) - _MOST_WARNINGS:,} more odd lines, all of them in {ODD_LINES}")
    return MentionManifest(
        name=options.name or options.dictionary.stem,
        release=options.release,
        cleaning=options.cleaning,
        relations=[],
        keyword_kinds=keywords.kinds,
        splits=[split for split in SPLITS if split in sets],
        counts=dict(counts),
        warnings=warnings,
        tokenizer=TokenizerOfData(
            name=str(options.tokenizer),
            hash=tokenizer_hash(tokenizer),
            vocab_size=vocabulary_size(tokenizer),
            max_length=options.max_length,
        ),
        options=options.as_json(),
        versions={"python": platform.python_version(), "tokenizers": tokenizers.__version__},
        arrays={},  # these two are told when the arrays are written
        content_hash="",
    )


# -------------------------------------------------------------------------------------------------
# The closing report of a build of mentions, as a table.


def mentions_report(manifest: MentionManifest, out: Path) -> str:
    """What was read, what was unusual in it, and how the strings were tokenized."""
    rows = [(name, f"{count:,}") for name, count in manifest.counts.items() if count]
    width = max(len(name) for name, _ in rows)
    title = f"{manifest.name} {manifest.release}".strip() + f": {out}"
    lines = [f"{name:<{width}}  {count:>9}" for name, count in rows]
    notes = [f"note: {warning}" for warning in manifest.warnings]
    return "\n".join([title, "-" * len(title), *lines, *notes])
