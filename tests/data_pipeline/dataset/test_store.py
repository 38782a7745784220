"""What is written is what is read; folders that are no finished dataset are refused."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds
import tiny_bert
from spoiled_files import readings
from tiny_rrf import write_release

from data_pipeline.build_dataset.build import build_dataset
from data_pipeline.build_dataset.options import BuildOptions
from data_pipeline.dataset.store import ARRAYS, SOURCE_ARRAYS, open_dataset
from data_pipeline.dataset.tokenizer import load_tokenizer, tokenize
from data_pipeline.process import BadInput
from data_pipeline.quiet_tensorflow import tf
from data_pipeline.terminology.filters import Filters


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("dataset")
    (tmp / "model").mkdir()
    tiny_bert.write_tokenizer(tmp / "model")
    options = BuildOptions(
        source=write_release(tmp / "META"), out=tmp / "tiny", tokenizer=tmp / "model", max_length=8
    )
    return build_dataset(options)


TERMS = [
    "heart attack", "myocardial infarction", "infarctus", "heart disease", "cardiac disease",
    "limb pain", '"pain" in limb', "douleur aiguë",
]  # fmt: skip


def test_open_dataset(folder):
    data = open_dataset(folder, strings=True)
    assert data.terms == TERMS
    assert data.cuis == ["C0000001", "C0000002", "C0000003", "C0000006"]
    assert data.term_start.tolist() == [0, 3, 5, 7, 8]
    assert data.term_language.tolist() == [0, 0, 1, 0, 0, 0, 0, 1]
    assert data.manifest.languages == ["ENG", "FRE"]
    assert data.manifest.vocabularies == ["MSH", "MSHFRE", "SNOMEDCT_US"]
    assert data.vocabulary_start.tolist() == [0, 2, 3, 4, 5, 7, 8, 9, 10]
    assert data.term_vocabularies.tolist() == [0, 2, 2, 1, 0, 0, 1, 0, 0, 1]
    assert data.manifest.relations == ["CHD|isa", "PAR|inverse_isa", "RO|", "RO|finding_of"]
    assert data.heads.tolist() == [0, 0, 1, 1]
    assert data.relations.tolist() == [1, 2, 0, 3]
    assert data.tails.tolist() == [1, 2, 0, 2]
    type_start, types = data.type_start, data.types
    assert type_start.tolist() == [0, 1, 2, 4, 4] and types.tolist() == [1, 1, 0, 2]


def test_a_string_of_two_languages_is_a_term_of_both(folder):
    data = open_dataset(folder, strings=True)
    of = {
        language: [data.terms[n] for n in np.flatnonzero(data.in_languages([language]))]
        for language in ("ENG", "FRE")
    }
    assert "cardiac disease" in of["ENG"] and len(of["ENG"]) == 6
    assert of["FRE"] == ["infarctus", "cardiac disease", "douleur aiguë"]
    assert data.manifest.counts.terms_by_language == {"ENG": 6, "FRE": 3}
    assert data.language_among(["FRE"]).tolist() == [-1, -1, 1, -1, 1, -1, -1, 1]
    assert data.language_among([]).tolist() == data.term_language.tolist()
    assert data.term_counts().tolist() == [1] * 8, "it is shown once"
    assert data.term_counts(["FRE"]).tolist() == [0, 0, 1, 0, 1, 0, 0, 1]


def test_mentions_are_counted(folder, tmp_path, monkeypatch):
    """In each record those of its own terms."""
    mentions = ["heart attack"] * 2 + ["pain"] * 4 + ["infarctus", "new"]
    rows = [f"{m}\t{'C0000001' if m != 'pain' else 'C0000006'}\tFRE" for m in mentions]
    (tmp_path / "mentions.tsv").write_text("\n".join(["mention\tcui\tlanguage", *rows, ""]))
    options = BuildOptions(
        source=folder.parent / "META",
        out=tmp_path / "sup",
        tokenizer=folder.parent / "model",
        supervised=(tmp_path / "mentions.tsv",),
    )
    monkeypatch.setattr("data_pipeline.dataset.write.BLOCK", 2)
    data = open_dataset(build_dataset(options), strings=True)
    assert data.manifest.shards[0].records == 2
    found = dict(zip(data.terms, data.term_counts().tolist(), strict=True))
    more = {"heart attack": 3, "infarctus": 2, "pain": 4}
    assert found == dict.fromkeys([*TERMS, "new"], 1) | more
    of_english = dict(zip(data.terms, data.term_counts(["ENG"]).tolist(), strict=True))
    assert of_english["heart attack"] == 1 and of_english["pain"] == 0
    # The language of mentions is one that the name has, too.
    assert data.in_languages(["FRE"])[data.terms.index("heart attack")]
    manifest = data.manifest
    assert manifest.report["supervised mentions kept"] == len(mentions)
    assert manifest.report["terms added: supervised mentions"] == 2
    (record, _) = tfds.builder_from_directory(options.out).as_dataset(split="train")
    assert record["occurrence_counts"].numpy().sum() == 2 + 1


def test_a_dataset_of_an_older_version_is_what_it_was(folder, tmp_path):
    """No term occurs again: the same hash as then, and no file says anything of it."""
    options = BuildOptions(
        source=folder.parent / "META", out=tmp_path / "old", tokenizer=folder.parent / "model",
        filters=Filters(languages=("ENG",)), max_length=8,
    )  # fmt: skip
    new = open_dataset(build_dataset(options))
    hashed = "8482cf2d2e9cf4bcf1727965a51a525257d38a676ea3592af44cb73e55a8a497"
    assert new.manifest.content_hash == hashed
    (shard,) = options.out.glob("*.tfrecord-*")
    (record,) = tf.data.TFRecordDataset(str(shard)).as_numpy_iterator()
    example = tf.train.Example.FromString(record)
    for name in [name for name in ARRAYS if name.startswith("occurrence_")]:
        del example.features.feature[name]
    with tf.io.TFRecordWriter(str(shard)) as records:
        records.write(example.SerializeToString())
    manifest = json.loads((options.out / "manifest.json").read_text())
    del manifest["counts"]["occurrences"], manifest["shards"][0]["occurrences"]
    manifest["shards"][0]["bytes"] = shard.stat().st_size
    (options.out / "manifest.json").write_text(json.dumps(manifest))
    old = open_dataset(options.out)
    np.testing.assert_array_equal(old.tokens, new.tokens)
    assert old.term_counts().tolist() == [1] * 6 and old.in_languages(["ENG"]).all()


def test_what_the_source_writes(folder):
    data = open_dataset(folder, source=True)
    assert data.terms == TERMS, "they come with the source's strings"
    source = data.source
    strings = [
        ["Heart attack", "HEART ATTACK"], ["Myocardial infarction NOS"], ["Infarctus"],
        ["Heart disease (disorder)"], ["Cardiac disease"],
        ["Limb pain"], ['"Pain" in limb'], ["Douleur aiguë"],
    ]  # fmt: skip
    assert source.strings == sum(strings, [])
    assert np.diff(source.string_start).tolist() == [len(of_term) for of_term in strings]
    # Those of the row itself, of a string in two languages both.
    assert np.diff(source.vocabulary_start).tolist() == [1, 1, 1, 1, 1, 2, 1, 1, 1]
    assert source.vocabularies.tolist() == [0, 2, 2, 1, 0, 0, 1, 0, 0, 1]
    codes = [
        ["0 0", "1 3", "2 1", "2 2"], ["0 4", "0 5", "1 6"],
        ["0 7", "0 8"],  # not 9: it is suppressed
        ["1 12"],
    ]  # fmt: skip
    found = zip(source.code_vocabularies.tolist(), source.codes, strict=True)
    assert [f"{vocabulary} {code}" for vocabulary, code in found] == sum(codes, [])
    assert np.diff(source.code_start).tolist() == [len(of_concept) for of_concept in codes]


def test_terms_that_are_what_the_source_writes(folder, tmp_path):
    """They are stored once; a term may be all of a block, and a block may have no code."""
    (tmp_path / "META").mkdir()
    lines = (folder.parent / "META" / "MRCONSO.RRF").read_text().splitlines(keepends=True)
    path = tmp_path / "META" / "MRCONSO.RRF"
    path.write_text(lines[0].replace("|MH|0|", "|MH|NOCODE|"))
    model = folder.parent / "model"
    options = BuildOptions(source=path, out=tmp_path / "one", tokenizer=model, cleaning="none")
    data = open_dataset(build_dataset(options), source=True)
    assert data.terms == data.source.strings == ["Heart attack"]
    assert data.source.codes == [] and data.source.code_start.tolist() == [0, 0]
    (record,) = tfds.builder_from_directory(options.out).as_dataset(split="train")
    assert record["source_strings"].numpy() == b"" and record["terms"].numpy() == b"Heart attack"


def test_tokens_are_the_tokenizers_own(folder):
    data = open_dataset(folder)
    tokens, start = tokenize(load_tokenizer(folder / "tokenizer"), TERMS, 8)
    assert np.array_equal(data.tokens, tokens) and np.array_equal(data.token_start, start)
    assert np.diff(start).max() == 8  # one term at least was cut
    assert data.cuis is None and data.terms is None
    assert data.vocabulary_start is None and data.term_vocabularies is None
    assert data.source is None and open_dataset(folder, strings=True).source is None


def test_dtypes(folder):
    data = open_dataset(folder, strings=True)
    for name, dtype in {
        "term_start": np.int64, "token_start": np.int64, "tokens": np.uint16, "heads": np.int32,
        "relations": np.int32, "tails": np.int32, "term_language": np.uint8,
        "type_start": np.int64, "types": np.int32, "vocabulary_start": np.int64,
        "term_vocabularies": np.uint16,
    }.items():  # fmt: skip
        assert getattr(data, name).dtype == dtype, name


def test_a_large_vocabulary_takes_wider_tokens(folder, tmp_path):
    path = copy(folder, tmp_path) / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["tokenizer"]["vocab_size"] = 65_536
    path.write_text(json.dumps(manifest))
    data = open_dataset(path.parent)
    assert data.tokens.dtype == np.int32
    assert np.array_equal(data.tokens, open_dataset(folder).tokens)


def test_tfds_opens_the_folder(folder):
    builder = tfds.builder_from_directory(folder)
    assert builder.info.splits["train"].num_examples == 1
    (record,) = builder.as_dataset(split="train").as_numpy_iterator()
    data = open_dataset(folder)
    assert record["terms"].decode().split("\n") == TERMS
    assert record["cuis"].decode().split("\n")[-1] == "C0000006"
    assert record["n_terms"].tolist() == [3, 2, 2, 1]
    assert np.array_equal(record["tokens"], data.tokens)
    assert record["n_triplets"].tolist() == [2, 2, 0, 0]
    assert np.array_equal(record["tails"], data.tails)
    assert record["first_concept"] == 0


def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def refused(path) -> str:
    with pytest.raises(BadInput) as error:
        open_dataset(path)
    return str(error.value)


def test_missing_folder(tmp_path):
    message = refused(tmp_path / "none")
    assert "none does not exist" in message and "python -m data_pipeline.build" in message


def test_foreign_folder(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    assert "is no finished dataset: it has no manifest.json" in refused(tmp_path)


def test_a_build_that_did_not_finish(tmp_path):
    (tmp_path / ".umls.building-0123456789ab").mkdir()
    message = refused(tmp_path / ".umls.building-0123456789ab")
    assert "did not finish; run the same build command again" in message
    assert "run the same build command again" in refused(tmp_path / "umls")


def test_another_format(folder, tmp_path):
    path = copy(folder, tmp_path) / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": "other 2"}))
    assert "has the format 'other 2', expected 'coder_jax triplets 3'" in refused(path.parent)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": "coder_jax triplets 2"}))
    message = refused(path.parent)
    assert "has the format 'coder_jax triplets 2', expected 'coder_jax triplets 3'" in message
    assert "an older version of coder_jax wrote it; make it again with `python -m data_" in message
    path.write_text("[1]")
    assert "manifest.json holds a list; expected a JSON object" in refused(path.parent)
    path.write_text("{}")
    assert "has the format None, expected 'coder_jax triplets 3'" in refused(path.parent)
    path.write_text('{"format": ')
    assert "manifest.json is not JSON (" in refused(path.parent)


def test_damaged_shards(folder, tmp_path):
    shard = next(copy(folder, tmp_path).glob("*.tfrecord-*"))
    data = shard.read_bytes()
    shard.write_bytes(data[:-5])
    assert f"damaged ({len(data) - 5:,} bytes, expected {len(data):,})" in refused(shard.parent)
    shard.write_bytes(data[:200] + b"????" + data[204:])
    assert "damaged (a record's checksum is wrong)" in refused(shard.parent)
    shard.unlink()
    assert "damaged (the file is missing); copy the dataset again" in refused(shard.parent)


@pytest.mark.parametrize(("change", "message"), [(1, "holds less than"), (-1, "holds more than")])
def test_shards_that_do_not_fit_the_manifest(folder, tmp_path, change, message):
    path = copy(folder, tmp_path) / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["shards"][0]["terms"] += change
    path.write_text(json.dumps(manifest))
    assert "manifest.json is damaged (the terms of its shards do not add up)" in refused(
        path.parent
    )
    manifest["counts"]["terms"] += change
    path.write_text(json.dumps(manifest))
    assert f"damaged (it {message} the manifest says)" in refused(path.parent)


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="no file that cannot be read")
def test_a_disk_that_fails(folder, tmp_path):
    """The first bytes of a process's memory are not there: reading them is an I/O error."""
    path = copy(folder, tmp_path) / "manifest.json"
    manifest = json.loads(path.read_text())
    shard = path.parent / manifest["shards"][0]["file"]
    manifest["shards"][0]["bytes"] = 0  # as the system says of that file: so nothing is in it
    for name, count in manifest["shards"][0].items():
        if name in manifest["counts"]:
            manifest["counts"][name] -= count
        if isinstance(count, int):
            manifest["shards"][0][name] = 0
    path.write_text(json.dumps(manifest))
    shard.unlink()
    shard.symlink_to("/proc/self/mem")
    message = refused(path.parent)
    assert f"{shard} cannot be read: " in message and "Input/output error" in message


@pytest.mark.slow
def test_opening_is_silent_and_takes_no_gpu(folder):
    program = (
        "import sys; from data_pipeline.dataset.store import open_dataset as o; o(sys.argv[1]);"
        "import tensorflow as tf; assert not tf.config.get_visible_devices('GPU')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_triton_is_loaded_before_tensorflow(tmp_path):
    # After it, the real one ends the process (triton 3.7.1 with tensorflow 2.21.0).
    (tmp_path / "triton.py").write_text("import sys; assert 'tensorflow' not in sys.modules")
    program = "import sys, data_pipeline.quiet_tensorflow; assert 'triton' in sys.modules"
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    subprocess.run(
        [sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": paths}
    )


def forge(folder, **changes):
    """Writes the record of a dataset anew, with other arrays or texts and the right checksums."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    shard = folder / manifest["shards"][0]["file"]
    (record,) = tf.data.TFRecordDataset(str(shard)).as_numpy_iterator()
    example = tf.train.Example.FromString(record)
    for name, change in changes.items():
        values = example.features.feature[name].bytes_list.value
        if callable(change):
            array = np.frombuffer(values[0], (ARRAYS | SOURCE_ARRAYS)[name]).copy()
            values[0] = np.asarray(change(array), array.dtype).tobytes()
        elif change is None:
            del example.features.feature[name]
        else:
            values[0] = change
    with tf.io.TFRecordWriter(str(shard)) as records:
        records.write(example.SerializeToString())
    manifest["shards"][0]["bytes"] = shard.stat().st_size
    path.write_text(json.dumps(manifest))


def first(value):
    def change(array):
        array[0] = value
        return array

    return change


FORGED = [
    ("tokens", first(-1), "found -1 in its tokens; expected 0 to"),
    ("tokens", first(60_000), "found 60,000 in its tokens; expected 0 to"),
    ("tokens", first(2**31 - 1), "found 2,147,483,647 in its tokens; expected 0 to"),
    ("tails", first(-1), "found -1 in its tails; expected 0 to 3"),
    ("tails", first(4), "found 4 in its tails; expected 0 to 3"),
    ("relations", first(4), "found 4 in its relations; expected 0 to 3"),
    ("types", first(3), "found 3 in its types; expected 0 to 2"),
    ("term_languages", first(2), "found 2 in its term_languages; expected 0 to 1"),
    ("occurrence_terms", first(8), "found 8 in its occurrence_terms; expected 0 to 7"),
    ("occurrence_terms", first(-1), "found -1 in its occurrence_terms; expected 0 to 7"),
    ("occurrence_languages", first(2), "found 2 in its occurrence_languages; expected 0 to 1"),
    ("occurrence_counts", first(-5), "found -5 in its occurrence_counts; expected 0"),
    ("n_terms", lambda n: [0, *n[1:-1], n[-1] + n[0]], "its n_terms do not add up to 8"),
    ("n_terms", lambda n: [n[0] + 2**30, n[1] - 2**30, *n[2:]], "its n_terms do not add up to 8"),
    ("n_tokens", lambda n: [n[0] + 1, *n[1:]], "its n_tokens do not add up to"),
    ("n_triplets", lambda n: [-1, n[1] + n[0] + 1, *n[2:]], "its n_triplets do not add up to 4"),
    ("n_types", lambda n: n[:-1], "its n_types are of other concepts"),
    ("n_triplets", lambda n: n[:-1], "its n_triplets are of other concepts"),
    ("tails", b"abc", r"a record has another form \(buffer size must be a multiple"),
    ("tails", None, r"a record has another form \('tails'\)"),
]


@pytest.mark.parametrize(("name", "change", "message"), FORGED)
def test_forged_records(folder, tmp_path, name, change, message):
    """Their checksums are right, so that only what they hold tells them."""
    forge(copy(folder, tmp_path), **{name: change})
    assert re.search(rf"tfrecord-00000-of-00001 is damaged \({message}", refused(tmp_path / "copy"))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("term_vocabularies", first(3), "found 3 in its term_vocabularies; expected 0 to 2"),
        ("n_vocabularies", first(9), "its n_vocabularies do not add up to 10"),
        ("source_vocabularies", first(3), "found 3 in its source_vocabularies; expected 0 to 2"),
        ("code_vocabularies", first(3), "found 3 in its code_vocabularies; expected 0 to 2"),
        ("n_codes", first(-1), "its n_codes do not add up to 10"),
        ("n_source_strings", first(0), "its n_source_strings do not add up to 9"),
        ("cuis", b"C1\nC2\nC3", "it has 3 cuis for 4"),
        ("terms", b"a\nb", "it has 2 terms for 8"),
        ("codes", b"\xff", "its codes are not UTF-8"),
    ],
)
def test_forged_strings(folder, tmp_path, name, change, message):
    forge(copy(folder, tmp_path), **{name: change})
    with pytest.raises(BadInput, match=message):
        open_dataset(tmp_path / "copy", source=True)


def everything(path):
    """All that a reader gets of a dataset, as what can be compared."""
    data = open_dataset(path, source=True)
    arrays = [value for value in vars(data).values() if isinstance(value, np.ndarray)]
    source = [*vars(data.source).values()]
    return repr([*map(np.ndarray.tolist, arrays), source, data.occurrences, data.cuis, data.terms])


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_spoiled_datasets(folder, tmp_path, count):
    """No damage of a record is taken for data, and none of the manifest gives a traceback."""
    path = copy(folder, tmp_path)
    (shard,) = path.glob("*.tfrecord-*")
    found = readings(
        shard, lambda: everything(path), seed=39, count=count, as_bytes=True, checked=True
    )
    assert found["another"] == 0
    readings(path / "manifest.json", lambda: everything(path), seed=39, count=count)


@pytest.mark.parametrize("count", [8, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [*ARRAYS, *SOURCE_ARRAYS, "cuis", "terms", "source_strings", "codes"]
)
def test_records_forged_at_random(folder, tmp_path, name, count):
    """Whatever the bytes of an array are, it is refused or has a form that readers can use."""
    path = copy(folder, tmp_path)
    forged = path / "forged"
    (shard,) = path.glob("*.tfrecord-*")
    (record,) = tf.data.TFRecordDataset(str(shard)).as_numpy_iterator()
    example = tf.train.Example.FromString(record)
    forged.write_bytes(example.features.feature[name].bytes_list.value[0])

    def read():
        forge(path, **{name: forged.read_bytes()})
        data = open_dataset(path, source=True)
        for start, counted in (
            (data.term_start, data.token_start[1:]),
            (data.token_start, data.tokens),
            (data.type_start, data.types),
            (data.source.string_start, data.source.strings),
            (data.source.code_start, data.source.codes),
        ):
            assert start[-1] == len(counted) and (np.diff(start) >= 0).all()
        assert len(data.heads) == len(data.tails) == len(data.relations)
        assert max(data.tails, default=0) < len(data.cuis)
        assert data.tokens.max() < data.manifest.tokenizer.vocab_size
        data.term_counts(data.manifest.languages[:1])
        return everything(path)

    readings(forged, read, seed=39, count=count, as_bytes=True)
