"""Settings of every kind of draw, which decide the batch of a step, and their checks."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self

import numpy as np

from data_pipeline.flags import Flag
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# Checks that the settings of batches and of systems share.


def flag_of(name: str) -> str:
    """The flag of `train` for a setting: --row-length for row_length."""
    return f"--{name.replace('_', '-')}"


def check_least(settings: Any, least: float, *names: str) -> None:
    """Raise BadInput if one of these settings is less than `least`."""
    for name in names:
        if getattr(settings, name) < least:
            raise BadInput(
                f"{flag_of(name)} is {getattr(settings, name)}; expected {least} or more"
            )


def check_rate(settings: Any, *names: str) -> None:
    """Raise BadInput if one of these settings is not a dropout rate."""
    for name in names:
        if not 0 <= getattr(settings, name) < 1:
            raise BadInput(
                f"{flag_of(name)} is {getattr(settings, name)}; expected 0 or more, and less than 1"
            )


def check_divides(spec: Any, what: str) -> None:
    """Raise BadInput if the number of `what` in a step does not divide evenly into its groups."""
    if getattr(spec, what) % spec.groups:
        raise BadInput(
            f"{flag_of(what)} is {getattr(spec, what)} and --groups is {spec.groups}: all groups "
            f"have the same number of {what}; give a multiple of {spec.groups} as {flag_of(what)}, "
            "or other --groups"
        )


def check_passes(groups: int, passes: int, blocks: int = 1) -> None:
    """Raise BadInput if the groups of a step do not divide into passes, or the passes into blocks.

    Args:
        groups, passes: of a step.
        blocks: of a pass, which lie on different devices.
    """
    if groups % (passes * blocks) == 0:
        return
    found = f"--passes is {passes} and --groups is {groups}"
    if groups == 1:
        raise BadInput(
            f"{found}: gradient accumulation takes a step apart by its groups, and one group "
            "cannot be divided, as its loss compares all its terms with each other; leave "
            "--passes out. If memory is short: --cache-chunks, more devices with --shard-encoder, "
            "a smaller batch (--triplets, --pairs or --terms, as the recipe has it), or several "
            "smaller groups"
        )
    over = f" on {blocks} blocks of devices" if blocks > 1 else ""
    raise BadInput(
        f"{found}: gradient accumulation needs as many groups in each pass{over}; give --passes "
        f"that divides {groups // blocks or groups}, or other --groups"
    )


# -------------------------------------------------------------------------------------------------
# Settings of triplet and synonym batches, and how a step is cut into passes and blocks.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchSpec:
    """The batch of a step is a function of the dataset, this, and the step's number.

    The draw decides what fills a group. `relations`: uniform over relation rows, as in the paper.
    `concepts`: uniform over the concepts that have a synonym, each with one of the triplets that it
    heads and whose tail has a synonym too; where there is none, a synonym of the head stands for
    the tail. `synonyms`: the same concepts, without relations. `pairs`: uniform over the pairs of
    two names of a concept, so that concepts with many names come often (SapBERT; `draws.py`).

    A group is the paper's mini-batch: `triplets` distinct triplets, each `repeats` times with terms
    sampled afresh, so k = triplets * repeats pairs and 2k terms, or 3k with corrupted tails; or as
    many triplets as fill k pairs, with `fill_pairs`. A step has `groups` groups.
    """

    draw: Literal["relations", "concepts", "synonyms", "pairs"] = "relations"
    """What fills a group: relations (the paper); concepts that have a synonym, each with one of its
    relations; synonyms alone; or pairs of two names of a concept (SapBERT)."""
    names: Literal["any", "distinct", "unlike", "languages"] = "any"
    """Which names of its concepts a triplet shows when it is repeated: any (the paper); distinct:
    none twice while others are left; languages: each in another language while there are others;
    unlike: names that share few word pieces. With unlike, a name that shares over 60 % of its
    pieces with its concept's first one does not count as a synonym."""
    groups: int = 8
    """Groups in a step (batch = groups x triplets x repeats x 2 terms). Terms are compared within
    their group alone. The paper accumulates gradients over groups; here --passes does."""
    triplets: int = 16
    """Distinct triplets in a group: two concepts and their relation, or two names of a concept."""
    repeats: int = 8
    """Times that each triplet occurs in its group, with other names each time."""
    fill_pairs: int = 0
    """CODER v1: add triplets until a group has so many pairs (0: off). A triplet comes as often as
    head and tail both have terms, at most --repeats times, no term twice; --triplets is ignored."""
    corrupted_tails: Annotated[bool, Flag(hidden=True)] = False
    """Add to each pair a term of another random concept in the place of its tail, for CODER v1."""
    semantic_types: Annotated[bool, Flag(hidden=True)] = False
    """Add the semantic type of each term's concept to a batch, for CODER v1."""
    augment: float = 0.0
    """Share of the names in a batch that are shown as people write them: with another order of
    words, abbreviations, "unspecified", plurals, typing errors, British or American spelling."""
    teacher: Annotated[str, Flag(metavar="FILE")] = ""
    """Learn from another encoder, too: a .npy file of its vectors of the dataset's terms, of any
    width, as `encode --dictionary DATASET` writes it; or of another program, with the terms in a
    .txt of the same name. A part of the loss pulls the ranking of a group's terms to the
    teacher's."""
    teacher_weight: float = 1.0
    """Weight of the teacher's part of the loss."""
    teacher_temperature: float = 0.05
    """The teacher's cosines are divided by it; take 0.01 for a teacher whose cosines all lie close
    to each other, such as E5."""
    row_length: int = 128
    """Tokens in a row; short terms share one, for speed."""
    seed: int = 0
    """For the order of the triplets, the choice of terms and the dropout."""

    @property
    def pairs(self) -> int:
        """k, the (head, tail) pairs of a group."""
        return self.fill_pairs or self.triplets * self.repeats

    @property
    def labels(self) -> int:
        """Relations in a batch per group: one for each triplet, or one for each pair."""
        return self.fill_pairs or self.triplets

    @property
    def terms(self) -> int:
        """The terms of a step."""
        return self.groups * (3 if self.corrupted_tails else 2) * self.pairs

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """The arrays of a batch other than its packed rows, and the shape of each for one group."""
        names = ("concepts", "types") if self.semantic_types else ("concepts",)
        terms = self.terms // self.groups
        return {**dict.fromkeys(names, (terms,)), "relations": (self.labels,)}

    def hyperparameters(self) -> dict[str, Any]:
        """What a step is made of, for the model card."""
        made = {"groups x triplets x repeats": f"{self.groups} x {self.triplets} x {self.repeats}"}
        if self.fill_pairs:
            made = {"groups x pairs": f"{self.groups} x {self.fill_pairs}"}
        if self.augment:
            made["names as people write them"] = f"{self.augment:.0%}"
        if self.teacher:
            by = f"weight {self.teacher_weight:g}, temperature {self.teacher_temperature:g}"
            made["teacher"] = f"vectors of {Path(self.teacher).name}, {by}"
        return {**made, "draw": self.draw}

    def validate(self) -> None:
        """Raise BadInput where a value cannot be used."""
        check_least(self, 1, "groups", "triplets", "repeats", "row_length")
        check_least(self, 0, "fill_pairs", "seed", "teacher_weight")
        if self.teacher_temperature <= 0:
            raise BadInput(
                f"--teacher-temperature is {self.teacher_temperature}; expected more than 0, such "
                "as 0.05"
            )
        if not 0 <= self.augment <= 1:
            raise BadInput(f"--augment is {self.augment}; expected a share of the names, 0 to 1")
        if self.fill_pairs and self.names == "any":
            raise BadInput(
                f"--fill-pairs is {self.fill_pairs} and --names is any: groups that are filled "
                "with pairs show no term of a triplet twice; give --names distinct or unlike"
            )
        if self.draw == "pairs":
            needed = {"repeats": 1, "names": "any", "fill_pairs": 0}
            for name, value in needed.items():
                if getattr(self, name) != value:
                    raise BadInput(
                        f"--draw is pairs and {flag_of(name)} is {getattr(self, name)}: this draw "
                        f"takes each pair of names once, as it is; give {flag_of(name)} {value}, "
                        "or another --draw"
                    )
        if self.draw == "relations" and self.repeats < 2:
            raise BadInput(
                f"--repeats is {self.repeats}: with --draw relations each triplet must be in its "
                "group at least twice, or terms have no positives (CODER, section 3.3); give "
                "--repeats 2 or more"
            )


class StepSpec(Protocol):
    """What all settings of batches have, whatever a batch is made of."""

    @property
    def groups(self) -> int:
        """The parts of a step that may lie on different devices."""
        ...

    @property
    def terms(self) -> int:
        """The terms of a step."""
        ...

    @property
    def row_length(self) -> int:
        """Tokens in a packed row."""
        ...

    @property
    def seed(self) -> int:
        """The random seed of the order of terms and of dropout."""
        ...

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """The arrays of a batch other than its packed rows, and the shape of each for one group."""
        ...

    def hyperparameters(self) -> dict[str, Any]:
        """What a step is made of, for the model card."""
        ...

    def validate(self) -> None:
        """Raise BadInput where a value cannot be used."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StepCut:
    """How the groups of a step are cut for the machines; changes no result.

    The step's `passes` parts follow one another on the devices. Each part is cut into `blocks`,
    which are packed apart and lie on different devices, so that a term is encoded where its group's
    loss is computed. A host makes the blocks from `first` to `last` - 1 of each pass.
    """

    passes: int = 1
    """P, parts of a step that follow one another."""
    blocks: int = 1
    """B, parts of a pass that lie side by side on the devices of all hosts."""
    row_multiple: int = 1
    """The rows of a block are a multiple of this: the devices that share a block, times the chunks
    in which each encodes its rows."""
    first: int = 0
    """This host's first block."""
    last: int | None = None
    """One after this host's last block; all of them if None."""

    def groups_per_block(self, spec: StepSpec) -> int:
        """Groups in one block.

        Raises:
            BadInput: if the groups of a step do not divide evenly.
        """
        check_passes(spec.groups, self.passes, self.blocks)
        return spec.groups // (self.passes * self.blocks)

    def groups(self, spec: StepSpec) -> np.ndarray:
        """int64 [P, blocks of this host, groups of a block]: their numbers within the step."""
        shape = (self.passes, self.blocks, self.groups_per_block(spec))
        return np.arange(spec.groups).reshape(shape)[:, self.first : self.last]


@dataclasses.dataclass(frozen=True, slots=True)
class RowPlan:
    """The numbers of rows that a block can have; each is a shape to compile.

    The same on all hosts, as it follows from the dataset, the BatchSpec, the StepCut and the length
    of the run alone.
    """

    sizes: tuple[int, ...]
    """Rising; the last is enough for any block."""

    @property
    def ample(self) -> int:
        """Enough rows for any block."""
        return self.sizes[-1]

    def rows(self, needed: int) -> int:
        """The smallest planned number of rows that is enough; `ample` if none is."""
        return next((rows for rows in self.sizes if needed <= rows), self.ample)


class BatchSource(Protocol):
    """A source of a run's batches: a pure function of data, settings and step.

    The arrays of a batch are int32 [P, blocks of this host, ...], but for `floats`.
    """

    folder: Path
    """Of the data."""
    kept: tuple[str, ...]
    """Names in `folder`, such as tokenizer, of which a run keeps a copy."""
    cut: StepCut
    """How the steps are cut for the devices."""
    plan: RowPlan
    """The numbers of rows that a block can have."""
    packed: tuple[str, ...]
    """The arrays [P, B, R, L] of packed rows; of all others the third dimension counts groups."""
    floats: tuple[str, ...]
    """The arrays that are float32."""
    manifest: Any
    """Of the data: a `Manifest`, or of mentions a `MentionManifest`."""

    @property
    def steps_per_epoch(self) -> float:
        """The steps in which each item of the draw comes once."""
        ...

    @property
    def identity(self) -> dict[str, Any]:
        """What a run says of its data; all but their provenance must be the same when it goes on.
        Plain JSON.
        """
        ...

    def shapes(self, rows: int) -> dict[str, tuple[int, ...]]:
        """The shape of each array of a batch whose blocks have so many rows."""
        ...

    def rows_in_use(self, batch: Mapping[str, np.ndarray]) -> int:
        """The rows that the fullest block of a batch needs."""
        ...

    def fill(self, batch: Mapping[str, np.ndarray]) -> float:
        """The share of a batch's tokens that are not padding."""
        ...

    def batches(self, first_step: int, last_step: int) -> Iterator[dict[str, np.ndarray]]:
        """This host's batches of first_step to last_step - 1."""
        ...

    def some_terms(self) -> list[str]:
        """A few strings spread over the data, the same in every run."""
        ...

    def with_index(self, index: Path) -> Self:
        """The same data with an index that `System.refresh` has written.

        Raises:
            BadInput: if the index is not of this data.
        """
        ...


# -------------------------------------------------------------------------------------------------
# Settings of batches with nearest neighbours (CODER++).

NEIGHBOURS = "neighbours.npy"  # of an index: int32 [A, k]; `NeighbourDraw` says of what


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourSpec(BatchSpec):
    """As BatchSpec, but a share of each group's triplets makes room for nearest neighbours.

    The room is filled with blocks of 1 + `neighbours` pairs, each of an anchor and what is nearest
    to it: the first name of a pair is the anchor, or one of its neighbours; `positives` says what
    the second is. The last block of a group may be cut short. With the draw `relations` anchors are
    any terms (or concepts), else those of the concepts that the draw takes.
    """

    mined_share: float = 1.0
    """Share of a group that is made of nearest neighbours, 0 to 1; the rest is drawn."""
    neighbours: int = 30
    """Neighbours of an anchor, the term or concept whose neighbours are found (k)."""
    neighbours_of: Literal["terms", "concepts"] = "terms"
    """What the neighbours of an anchor are: the terms nearest to a term (CODER++); or the concepts
    nearest to a concept, by the means of their terms' vectors, each shown by names of its own. A
    terminology has fewer concepts than terms, so that these are found sooner."""
    positives: Literal["anchor", "each"] = "anchor"
    """The second names of a block's pairs: all of the anchor's concept, so that its neighbours are
    there for it alone (CODER++); or each of the first's own concept, so that neighbours learn, too.
    """

    @property
    def mined_triplets(self) -> int:
        """The triplets of a group that are replaced by neighbours."""
        return round(self.mined_share * self.triplets)

    @property
    def mined_pairs(self) -> int:
        """The pairs of a group that show neighbours."""
        return self.mined_triplets * self.repeats

    @property
    def blocks(self) -> int:
        """The blocks of a group; each has an anchor."""
        return -(-self.mined_pairs // (1 + self.neighbours))

    def drawn(self) -> BatchSpec:
        """The settings of the rest of a group, of which there must be some."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(BatchSpec)}
        return BatchSpec(**{**fields, "triplets": self.triplets - self.mined_triplets})

    def hyperparameters(self) -> dict[str, Any]:
        """What a step is made of, for the model card."""
        # In a slotted dataclass, super() without arguments names the class before it got slots.
        values = BatchSpec.hyperparameters(self)
        if self.mined_share:
            of_each = f"{self.neighbours} nearest {self.neighbours_of} of each"
            values["neighbours"] = f"{self.mined_share:.0%}, the {of_each}"
        return values

    def validate(self) -> None:
        """Raise BadInput where a value cannot be used."""
        BatchSpec.validate(self)
        check_least(self, 1, "neighbours")
        if not 0 <= self.mined_share <= 1:
            raise BadInput(f"--mined-share is {self.mined_share}; expected 0 to 1")
        if self.mined_share and not self.mined_triplets:
            raise BadInput(
                f"--mined-share is {self.mined_share} and --triplets is {self.triplets}: that is "
                f"no triplet; give --mined-share {1 / self.triplets:.3g} or more, or 0"
            )
        if 0 < self.mined_pairs <= self.neighbours:
            raise BadInput(
                f"--neighbours is {self.neighbours}, but a group has room for {self.mined_pairs} "
                f"pairs of an anchor and its neighbours ({self.mined_triplets} triplets x "
                f"{self.repeats}); give fewer --neighbours, more --triplets or a larger "
                "--mined-share"
            )
        if self.draw == "pairs":
            raise BadInput(
                "--draw is pairs, which cannot be mixed with neighbours; give --draw synonyms"
            )
        if self.fill_pairs:
            raise BadInput(
                "--fill-pairs is for CODER v1, and groups with neighbours are not filled so; leave "
                "it out"
            )


# -------------------------------------------------------------------------------------------------
# Settings of batches of terms (MLNorm).


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TermSpec:
    """The batch of a step are some terms; each comes once an epoch, and once more for each mention.

    Mentions are those that `build --supervised` has added. A term comes with its concept and a
    semantic group of it: one whose concept is of two groups comes twice as often (`draws.py`).
    """

    terms: int = 128
    """Terms in a step."""
    groups: int = 8
    """Parts of a step that may lie on different devices; changes no result but for rounding."""
    row_length: int = 128
    """Tokens in a row; short terms share one, for speed."""
    languages: Annotated[tuple[str, ...], Flag(metavar="LANGUAGE")] = ()
    """Draw only terms in these languages of the dataset, such as FRE. Concepts stay as they are,
    those without such a term too."""
    seed: int = 0
    """For the order of the terms and the dropout."""

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """The arrays of a batch other than its packed rows, and the shape of each for one group."""
        return dict.fromkeys(("concepts", "semantic_groups"), (self.terms // self.groups,))

    def hyperparameters(self) -> dict[str, Any]:
        """What a step is made of, for the model card."""
        of = f" of {', '.join(self.languages)}" if self.languages else ""
        return {"draw": f"each term{of} once an epoch, and each training mention"}

    def validate(self) -> None:
        """Raise BadInput where a value cannot be used."""
        check_least(self, 1, "terms", "groups", "row_length")
        check_least(self, 0, "seed")
        check_divides(self, "terms")
