"""A small folder of mentions, each of one concept or several, with keywords of two kinds."""

from __future__ import annotations

from pathlib import Path

from tiny_bert import UNUSED, write_tokenizer

from data_pipeline.build_dataset.build import build_dataset
from data_pipeline.build_dataset.options import BuildOptions
from data_pipeline.build_mentions.build import MentionOptions, build_mentions
from data_pipeline.dataset.mentions import MentionDataset

# Two codes have one name, and a heading ("01") is a candidate, too, as in ICD-9-CM-3.
DICTIONARY = """\
01	heart disease
01.1	heart attack
01.2	acute heart attack
01.3	chronic heart failure
02	renal disease
02.1	renal failure
02.1x1	renal failure
02.2	acute renal failure
02.3	chronic renal failure
03.1	limb pain
03.2	infarction of the limb"""
MENTIONS = {
    "train": """\
mention	names
attack of the heart	heart attack
acute renal and heart failure	acute renal failure##chronic heart failure
limb pain	limb pain
heart disease, acute	heart disease
chronic failure (renal)	chronic renal failure
lung attack	lung failure
pain, infarction	limb pain##infarction of the limb##lung failure
""",
    "dev": "renal	renal disease\nheart + renal disease	heart disease##renal disease\n",
    "test": "renal failure x	renal failure\nacute attack	acute heart attack\n",
}
WORDS = """\
heart	site
renal	site
limb	site
disease	type
attack	type
failure	type
heart failure	type
"""

# Concepts of several names, whose mentions are annotated with codes.
DICTIONARY_OF_CODES = """\
H1	heart attack
H1	coronary occlusion
H1	acute infarction of the heart
K1	renal failure
K1	kidney failure
K2	renal disease
L1	limb pain
L1	pain of the limb
A1	acute attack"""
MENTIONS_WITH_CODES = """\
coronary attack	H1
failing kidney	K1
pain of limb	L1
renal pain	K2|L1
"""

# The same dictionary with what is broader.
ONTOLOGY = """\
format-version: 1.2
ontology: tiny

[Term]
id: K2
name: renal disease

[Term]
id: K1
name: renal failure
synonym: "kidney failure" EXACT []
is_a: K2

[Term]
id: H1
name: heart attack
synonym: "coronary occlusion" EXACT []
synonym: "acute infarction of the heart" EXACT []
is_a: A1
is_a: K2

[Term]
id: A1
name: acute attack
is_a: K2

[Term]
id: L1
name: limb pain
synonym: "pain of the limb" EXACT []
is_a: K2
"""


def write_files(folder: Path) -> dict[str, Path]:
    """Files of a dictionary, mentions, keywords and a tokenizer, by the options that take them."""
    files = {split: folder / f"{split}.tsv" for split in MENTIONS}
    for split, text in MENTIONS.items():
        files[split].write_text(text, encoding="utf-8")
    files |= {name: folder / name for name in ("dictionary", "keywords", "tokenizer")}
    files["dictionary"].write_text(DICTIONARY, encoding="utf-8")
    files["keywords"].write_text(WORDS, encoding="utf-8")
    files["tokenizer"].mkdir()
    write_tokenizer(files["tokenizer"], UNUSED)
    return files


def tiny_mentions(folder: Path, **changes) -> MentionDataset:
    """The folder of mentions at folder / "mentions"; `changes` are of `MentionOptions`."""
    files = write_files(folder)
    options = {**files, **{split: (files[split],) for split in MENTIONS}, **changes}
    options.setdefault("out", folder / "mentions")
    return build_mentions(MentionOptions(**options))


def mentions_of_codes(folder: Path) -> MentionDataset:
    """A folder of mentions of concepts with several names, at folder / "mentions"."""
    dictionary, train = folder / "codes.tsv", folder / "mentions.tsv"
    dictionary.write_text(DICTIONARY_OF_CODES, encoding="utf-8")
    train.write_text(MENTIONS_WITH_CODES, encoding="utf-8")
    files = {"dictionary": dictionary, "train": (train,), "dev": (train,), "test": ()}
    return tiny_mentions(folder, **files)


def mentions_with_hierarchy(folder: Path) -> MentionDataset:
    """The same with a dataset as dictionary, at folder / "mentions"."""
    train, obo = folder / "mentions.tsv", folder / "tiny.obo"
    train.write_text(MENTIONS_WITH_CODES, encoding="utf-8")
    obo.write_text(ONTOLOGY, encoding="utf-8")
    tokenizer, dataset = folder / "of_dataset", folder / "dataset"
    tokenizer.mkdir()
    write_tokenizer(tokenizer)
    build_dataset(BuildOptions(source=obo, out=dataset, tokenizer=tokenizer, hold_out=None))
    files = {"dictionary": dataset, "train": (train,), "dev": (train,)}
    # Cut-offs are measured on a hundred cases or more.
    return tiny_mentions(folder, **files, test=(train,) * 40)
