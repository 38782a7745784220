import pytest
from mention_files import medic
from tiny_mentions import mentions_with_hierarchy, tiny_mentions, write_files

from data_pipeline.build_mentions import __main__ as command
from data_pipeline.build_mentions.build import mentions_report
from data_pipeline.dataset.mentions import open_mentions
from data_pipeline.process import BadInput


def arguments(folder, **changes):
    files = {**write_files(folder), "out": folder / "mentions", **changes}
    given = {name: value for name, value in files.items() if value is not None}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


def test_the_command_builds_a_folder_and_says_what_is_in_it(tmp_path, capsys):
    assert command.main(arguments(tmp_path)) == 0
    said = capsys.readouterr()
    dataset = open_mentions(tmp_path / "mentions")
    counts = dataset.manifest.counts
    assert (counts["concepts"], counts["codes"], counts["names"]) == (10, 11, 10)
    assert counts["concepts of several codes"] == 1
    assert (counts["train: mentions"], counts["train: gold"]) == (7, 10)
    assert counts["train: mentions with gold outside the dictionary"] == 2
    assert counts["names: with a keyword of the kind site"] == 10
    assert counts["dev: unknown tokens"] == 1  # the plus sign
    assert dataset.manifest.keyword_kinds == ["site", "type"]
    assert mentions_report(dataset.manifest, tmp_path / "mentions") + "\n" == said.out
    assert "note: train: train.tsv:7: gold outside the dictionary: 'lung failure'" in said.out
    odd = (tmp_path / "mentions" / "odd_lines.txt").read_text().splitlines()
    assert odd == [
        f"train: train.tsv:{line}: gold outside the dictionary: 'lung failure'" for line in (7, 8)
    ]
    assert "gold is written as names" in said.err


def test_several_files_of_a_split_are_one_after_the_other(tmp_path):
    files = write_files(tmp_path)
    (tmp_path / "rest").mkdir()
    both = tiny_mentions(tmp_path / "rest", dev=(), test=(files["dev"], files["test"]))
    assert list(both.splits) == ["train", "test"]
    assert both.splits["test"].mentions.strings[:] == [
        *("renal", "heart + renal disease", "renal failure x", "acute attack")
    ]
    assert both.splits["test"].gold_sets() == [{4}, {0, 4}, {5}, {2}]


def test_the_last_mentions_of_train_are_held_out(tmp_path):
    whole = tiny_mentions(tmp_path)
    for hold_out in (2, 0.3):
        folder = tmp_path / str(hold_out)
        folder.mkdir()
        held = tiny_mentions(folder, dev=(), hold_out=hold_out)
        strings = whole.splits["train"].mentions.strings[:]
        assert held.splits["train"].mentions.strings[:] == strings[:-2]
        assert held.splits["dev"].mentions.strings[:] == strings[-2:]
        assert held.splits["dev"].gold_sets() == whole.splits["train"].gold_sets()[-2:]


def test_a_mention_of_train_is_trained_on_once_if_asked_for(tmp_path):
    train = tmp_path / "again.tsv"
    rows = ["renal\trenal failure", "heart\theart failure##renal failure", "renal\trenal failure"]
    rows += ["heart\trenal failure##heart failure", "heart\theart failure"]
    train.write_text("\n".join(rows) + "\n")
    folders = {name: tmp_path / name for name in ("whole", "once")}
    for folder in folders.values():
        folder.mkdir()
    whole = tiny_mentions(folders["whole"], train=(train,), dev=())
    assert whole.splits["train"].mentions.strings[:] == [
        "renal",
        "heart",
        "renal",
        "heart",
        "heart",
    ]
    once = tiny_mentions(folders["once"], train=(train,), dev=(), test=(train,), distinct=True)
    assert once.splits["train"].mentions.strings[:] == ["renal", "heart", "heart"]
    golds = whole.splits["train"].gold_sets()
    assert once.splits["train"].gold_sets() == [golds[0], golds[1], golds[4]]
    assert once.manifest.counts["train: rows left out: the same as another"] == 2
    assert len(once.splits["test"].mentions) == 5  # what is measured stays as it is


def test_long_strings_are_cut_and_counted(tmp_path):
    dataset = tiny_mentions(tmp_path, max_length=5)
    assert max(dataset.names.of(row).size for row in range(len(dataset.names))) == 5
    assert dataset.manifest.counts["train: cut"] == 5
    assert dataset.manifest.counts["names: cut"] == 1
    assert dataset.names.strings[9] == "infarction of the limb"  # the string is whole


def test_cleaning_changes_tokens_and_no_string(tmp_path):
    dataset = tiny_mentions(tmp_path, cleaning="paper")
    train = dataset.splits["train"].mentions
    row = train.strings[:].index("chronic failure (renal)")
    assert len(train.of(row)) == 4  # without what stands in brackets
    assert dataset.manifest.cleaning == "paper"


def test_without_keywords_no_token_has_a_kind(tmp_path):
    dataset = tiny_mentions(tmp_path, keywords=None)
    assert not dataset.names.kinds.any()
    assert dataset.manifest.keyword_kinds == []
    assert dict(dataset.words) == {}


def test_what_is_broader_is_stored(tmp_path):
    data = mentions_with_hierarchy(tmp_path)
    wider = {
        concept: {data.concepts[one] for one in data.parents[data.parent_start[row] :][:count]}
        for row, (concept, count) in enumerate(
            zip(data.concepts, (data.parent_start[1:] - data.parent_start[:-1]), strict=True)
        )
    }
    assert wider == {"H1": {"A1", "K2"}, "K1": {"K2"}, "K2": set(), "L1": {"K2"}, "A1": {"K2"}}
    numbers = {concept: row for row, concept in enumerate(data.concepts)}
    assert data.broader([numbers["H1"]]) == {numbers["A1"], numbers["K2"]}
    assert data.broader([numbers["A1"], numbers["K2"]]) == set()
    assert data.manifest.counts["concepts with a broader one"] == 4
    folder = tmp_path / "plain"
    folder.mkdir()
    plain = tiny_mentions(folder)
    assert not len(plain.parents) and not plain.broader([0])


def test_only_mentions_are_replaced_and_only_when_asked(tmp_path, capsys):
    words = arguments(tmp_path)
    assert command.main(words) == 0
    first = open_mentions(tmp_path / "mentions").manifest.content_hash
    assert command.main(words) == 2
    assert "add --overwrite" in capsys.readouterr().err
    assert command.main([*words, "--overwrite", "--max-length", "5"]) == 0
    assert open_mentions(tmp_path / "mentions").manifest.content_hash != first
    (tmp_path / "mentions" / "manifest.json").write_text("{}")
    assert command.main([*words, "--overwrite"]) == 2
    assert "is no folder of mentions" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cleaning", "soap"], "--cleaning: invalid choice: 'soap' (choose from"),
        (["--max-length", "2"], "--max-length: found 2; expected 3 or more"),
    ],
)
def test_values_that_are_refused_before_a_file_is_read(tmp_path, words, said, capsys):
    assert command.main([*arguments(tmp_path), *words]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "mentions").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hold_out": 2}, "found both"),
        ({"dev": (), "hold_out": 7}, "is 7; expected some"),
        ({"dev": (), "hold_out": 1.5}, "expected a fraction"),
        ({"gold_as": "codes"}, "found none of its gold among the codes"),
    ],
)
def test_what_cannot_be_built_is_said_and_nothing_is_left(tmp_path, changes, said):
    with pytest.raises(BadInput, match=said):
        tiny_mentions(tmp_path, **changes)
    assert not (tmp_path / "mentions").exists()
    assert not list(tmp_path.glob(".mentions*"))


def test_corpora_may_call_their_types_differently(tmp_path):
    """Each has some of --mention-types, and each type is in one of them."""
    names = {"one": ("limb pain", "Disease"), "two": ("heart disease", "SpecificDisease")}
    files = [tmp_path / f"{name}.txt" for name in names]
    for file, (name, kind) in zip(files, names.values(), strict=True):
        file.write_text(f"1|t|{name}\n1\t0\t9\t{name}\t{kind}\t{name}\n", encoding="utf-8")
    types = ("Disease", "SpecificDisease")

    def folder(name):
        (tmp_path / name).mkdir()
        return tmp_path / name

    found = tiny_mentions(folder("one"), train=tuple(files), mention_types=types)
    assert found.splits["train"].mentions.strings[:] == ["limb pain", "heart disease"]
    with pytest.raises(BadInput, match="mention of the type Diseases in .*one.txt, .*two.txt; exp"):
        tiny_mentions(folder("two"), train=tuple(files), mention_types=(*types, "Diseases"))


@pytest.mark.slow
def test_bc5cdr_with_the_tokenizer_of_minilm(tmp_path, shared_data, minilm_path):
    from data_pipeline.build_mentions.build import MentionOptions, build_mentions

    benchmarks = shared_data / "benchmarks"
    dataset = build_mentions(
        MentionOptions(
            train=(benchmarks / "bc5cdr" / "CDR_TrainingSet.PubTator.txt",),
            dictionary=medic(benchmarks),
            tokenizer=minilm_path,
            out=tmp_path / "bc5cdr",
            mention_types=("Disease",),
        )
    )
    assert (len(dataset.concepts), len(dataset.names)) == (11915, 76237)
    assert len(dataset.splits["train"].mentions) == 4150
    train = dataset.splits["train"]
    row = train.mentions.strings[:].index("Ocular and auditory toxicity")
    assert {dataset.concepts[one] for one in train.gold_sets()[row]} == {"D014786", "D006311"}
