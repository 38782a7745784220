"""The command from files to folder: what it prints, how it resumes, what it refuses."""

import errno
import fcntl
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_bert
from tiny_ontology import write_ontology
from tiny_rrf import tiny_files, write_release

from data_pipeline import write_dataset
from data_pipeline.build import main
from data_pipeline.build_dataset import build_dataset
from data_pipeline.build_options import BuildOptions
from data_pipeline.errors import BadInput
from data_pipeline.filters import Filters
from data_pipeline.store import open_dataset


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_bert.write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def ontology(tmp_path_factory) -> Path:
    return write_ontology(tmp_path_factory.mktemp("obo") / "tiny.obo")


@pytest.fixture
def options(model, ontology, tmp_path) -> BuildOptions:
    return BuildOptions(
        source=ontology, out=tmp_path / "out", tokenizer=model, hold_out=100, shards=3
    )


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Killed(BaseException):
    """Stands for the end of the process: nothing in the build catches it."""


def kill_after(monkeypatch, shards: int) -> None:
    """Ends the build when that many shards are written, in the midst of the next one."""
    write, written = write_dataset._write_shard, []

    def write_some(writer, file, blocks, bar):
        if len(written) == shards:
            file.with_name(file.name + ".unfinished").write_bytes(b"half a shard")
            raise Killed
        written.append(file)
        return write(writer, file, blocks, bar)

    monkeypatch.setattr(write_dataset, "_write_shard", write_some)


def test_command_on_rrf(model, tmp_path, capsys):
    release, out = write_release(tmp_path / "2020AA" / "META"), tmp_path / "umls"
    assert main(["--source", str(release), "--out", str(out), "--tokenizer", str(model)]) == 0
    printed = capsys.readouterr()
    assert f"umls 2020AA: {out}" in printed.out
    for line in (
        "terms read 13",
        "terms dropped: suppressed, SUPPRESS=O 1",
        "terms dropped: empty after cleaning 1",
        "relations dropped: unknown concept 3",
        "triplets 4",
        "with two terms or more 3 (75.0%)",
        "both concepts with two terms or more 4 (100.0%)",
        "by language ENG 6, FRE 2",
    ):
        assert line in " ".join(printed.out.split()), line
    assert "term/s" in printed.err  # the progress bar
    assert left_behind(tmp_path) == ["2020AA", "umls"]
    assert (out / "retired_cuis.tsv").read_text().splitlines() == [
        "retired\trelation\tcui\tmerged",
        "C0000007\tRB\tC0000003\tfalse",
        "C0000008\tDEL\t\tfalse",
        "C0000009\tSY\tC0000002\ttrue",
    ]
    manifest = manifest_of(out)
    assert manifest["name"] == "umls" and manifest["release"] == "2020AA"
    assert {"file": "MRREL.RRF", "bytes": len(tiny_files()["MRREL.RRF"].encode())} in manifest[
        "sources"
    ]
    assert manifest["counts"]["terms"] == 8 and manifest["tokenizer"]["max_length"] == 32


def test_all_arguments_arrive(model, tmp_path):
    out, exclude = tmp_path / "out", tmp_path / "exclude.tsv"
    exclude.write_text("mention\tCUI\nDouleur aigue\tC0000006\nLimb pain\tC0000003\n")
    arguments = [
        "--source", str(write_release(tmp_path / "META")), "--out", str(out),
        "--tokenizer", str(model), "--languages", "FRE", "ENG", "--without-sources", "SNOMEDCT_US",
        "--term-types", "MH", "SY", "--relations", "CHD|*", "PAR|*", "--keep-suppressed",
        "--cleaning", "none", "--max-length", "9", "--exclude-terms", str(exclude),
        "--hold-out", "1", "--heldout-dictionary", "10", "--seed", "3", "--release", "mine",
    ]  # fmt: skip
    with pytest.raises(SystemExit):
        main([*arguments, "--shards", "none"])
    assert main([*arguments, "--shards", "1"]) == 2  # French has no second term to hold out
    arguments[arguments.index("FRE")] = "ENG"
    arguments[arguments.index("ENG", arguments.index("ENG") + 1)] = "FRE"
    assert main(arguments) == 0
    data = open_dataset(out, strings=True)
    assert data.manifest["relations"] == ["CHD|isa", "PAR|inverse_isa"]
    assert data.manifest["release"] == "mine" and data.manifest["languages"] == ["ENG", "FRE"]
    assert np.diff(data.token_start).max() == 9
    assert "Limb pain" not in data.terms and "Heart disease (disorder)" in data.terms
    mention = (out / "heldout" / "mentions.tsv").read_text().splitlines()[1].split("\t")[0]
    assert mention not in data.terms
    assert data.manifest["held_out"]["mentions"] == 1
    listed = (out / "heldout" / "dictionary.tsv").read_text()
    assert "\tC0000006\n" in listed and "\tC0000003\n" in listed


def test_ontology_of_several_blocks(options):
    out = build_dataset(options)
    data = open_dataset(out, strings=True)
    counts = data.manifest["counts"]
    assert len(data.manifest["shards"]) == 3
    assert counts["concepts"] == len(data.cuis) == 2500
    assert counts["terms"] == len(data.terms) == 2500 + 1666 - 100
    assert counts["triplets"] == len(data.heads) == 2 * (2499 + 250)
    assert data.cuis == sorted(data.cuis)
    labels = data.manifest["relations"]
    assert labels == ["CHD|isa", "PAR|inverse_isa", "RO|inverse_part_of", "RO|part_of"]
    # Every triplet again, from the ontology's rule.
    expected = {(i // 7, 0, i) for i in range(1, 2500)} | {
        (i - 5, 3, i) for i in range(9, 2500, 10)
    }
    expected |= {(t, 1 if r == 0 else 2, h) for h, r, t in expected}
    found = zip(data.heads.tolist(), data.relations.tolist(), data.tails.tolist(), strict=True)
    assert list(found) == sorted(expected)
    assert data.terms[data.term_start[1234]] == "pain of limb 1234"


def test_content_hash_is_about_content(options, tmp_path, ontology):
    def built(name, **changes):
        return manifest_of(build_dataset(replace(options, out=tmp_path / name, **changes)))

    first = built("first")
    assert built("one_shard", shards=1)["content_hash"] == first["content_hash"]
    assert (
        built("cleaned", cleaning="none")["content_hash"] == first["content_hash"]
    )  # same strings
    assert built("other_seed", seed=1)["content_hash"] != first["content_hash"]
    assert built("shorter", max_length=5)["content_hash"] != first["content_hash"]


def test_a_killed_build_goes_on(options, tmp_path, monkeypatch):
    straight = manifest_of(build_dataset(replace(options, out=tmp_path / "straight")))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_after(patch, shards=2)
        build_dataset(options)
    (work,) = tmp_path.glob(".out.building-*")
    with pytest.raises(BadInput, match="run the same build command again"):
        open_dataset(options.out)
    with pytest.raises(BadInput, match="did not finish"):
        open_dataset(work)
    before = {p.name: p.stat().st_mtime_ns for p in work.glob("*.tfrecord-*-of-00003")}
    assert len(before) == 2
    out = build_dataset(options)
    after = {p.name: p.stat().st_mtime_ns for p in out.glob("*.tfrecord-*-of-00003")}
    assert len(after) == 3 and before.items() < after.items()
    assert manifest_of(out)["content_hash"] == straight["content_hash"]
    assert left_behind(out) == left_behind(tmp_path / "straight")
    assert [name for name in left_behind(out) if "tfrecord" not in name] == [
        "dataset_info.json", "features.json", "heldout", "manifest.json", "tokenizer",
    ]  # fmt: skip
    assert [name[-14:] for name in left_behind(out) if "tfrecord" in name] == [
        f"{index:05d}-of-00003" for index in range(3)
    ]
    assert left_behind(tmp_path) == ["out", "straight"]


def test_other_arguments_start_over(options, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_after(patch, shards=1)
        build_dataset(options)
    (work,) = tmp_path.glob(".out.building-*")
    out = build_dataset(replace(options, max_length=7))
    assert not work.exists() and left_behind(tmp_path) == ["out"]
    assert np.diff(open_dataset(out).token_start).max() == 7


def test_a_changed_source_starts_over(options, tmp_path, monkeypatch):
    source = write_ontology(tmp_path / "own.obo", 2100)
    options = replace(options, source=source)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_after(patch, shards=1)
        build_dataset(options)
    write_ontology(source, 2200)
    straight = manifest_of(build_dataset(replace(options, out=tmp_path / "straight")))
    assert manifest_of(build_dataset(options))["content_hash"] == straight["content_hash"]


def test_an_existing_dataset_is_not_touched_without_leave(options):
    first = manifest_of(build_dataset(options))
    with pytest.raises(BadInput) as error:
        build_dataset(replace(options, max_length=7))
    assert "already holds a dataset: tiny 7, 2,500 concepts, 4,066 terms" in str(error.value)
    assert "Add --overwrite to replace it" in str(error.value)
    assert manifest_of(options.out) == first
    build_dataset(replace(options, max_length=7, overwrite=True))
    assert manifest_of(options.out)["tokenizer"]["max_length"] == 7
    assert left_behind(options.out.parent) == ["out"]


def test_reuse_returns_only_the_same_dataset(options):
    build_dataset(options)
    built = (options.out / "manifest.json").stat().st_mtime_ns
    assert build_dataset(options, reuse=True) == options.out
    assert (options.out / "manifest.json").stat().st_mtime_ns == built
    with pytest.raises(BadInput, match="already holds a dataset"):
        build_dataset(replace(options, seed=1), reuse=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_build_that_was_killed_when_it_was_done_is_only_tidied(options, monkeypatch, overwrite):
    def killed(out):
        raise Killed

    build_dataset(replace(options, seed=1))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(write_dataset, "tidy", killed)
        build_dataset(replace(options, overwrite=True))
    assert len(left_behind(options.out.parent)) == 2 and any(options.out.glob("*tfrecord-*.json"))
    built = (options.out / "manifest.json").stat().st_ino
    for _ in range(1 if overwrite else 2):
        assert build_dataset(replace(options, overwrite=overwrite)) == options.out
        assert (options.out / "manifest.json").stat().st_ino == built
        assert left_behind(options.out.parent) == ["out"]
        assert not any(options.out.glob("*tfrecord-*.json"))
    build_dataset(replace(options, overwrite=True))  # of a damaged one, say
    assert (options.out / "manifest.json").stat().st_ino != built


def test_a_foreign_folder_is_never_replaced(options):
    options.out.mkdir()
    (options.out / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match="exists and is not a dataset; expected a new folder"):
        build_dataset(replace(options, overwrite=True))
    assert left_behind(options.out) == ["thesis.txt"]


def test_two_builds_at_once(options, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_after(patch, shards=1)
        build_dataset(options)
    (work,) = tmp_path.glob(".out.building-*")
    with open(work / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # a build needs it for itself
        with pytest.raises(BadInput, match="another process is building in"):
            build_dataset(options)
        with pytest.raises(BadInput, match="another process is building in"):
            build_dataset(replace(options, seed=1))
    assert build_dataset(options) == options.out


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_full_disk_while_writing_a_shard(options, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_after(patch, shards=1)
        build_dataset(options)
    (work,) = tmp_path.glob(".out.building-*")
    unfinished = next(work.glob("*.unfinished"))
    unfinished.unlink()
    unfinished.symlink_to("/dev/full")  # the kernel's own disk without room
    with pytest.raises(BadInput) as error:
        build_dataset(options)
    assert "the disk is full" in str(error.value) and "No space left" in str(error.value)
    assert "GB are free" in str(error.value)
    assert f"run the same command again: finished shards are kept in {work}" in str(error.value)
    assert left_behind(tmp_path) == [work.name]  # no folder that looks complete
    assert not unfinished.is_symlink(), "nothing of it is left"
    assert open_dataset(build_dataset(options)).manifest["counts"]["concepts"] == 2500


def test_full_disk_elsewhere(options, monkeypatch, capsys, model, ontology):
    def no_room(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("data_pipeline.build_dataset.save_tokenizer", no_room)
    arguments = ["--source", str(ontology), "--out", str(options.out), "--tokenizer", str(model)]
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert "error: the disk is full: [Errno 28] No space left on device" in printed
    assert "run the same command again." in printed
    assert left_behind(options.out.parent) == []


def test_a_stop_by_the_user_is_no_traceback(options, monkeypatch, capsys, model, ontology):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("data_pipeline.build_dataset.read_obo", stop)
    arguments = ["--source", str(ontology), "--out", str(options.out), "--tokenizer", str(model)]
    assert main(arguments) == 130
    assert "interrupted" in capsys.readouterr().err


def test_bad_input_is_one_message_and_status_2(model, tmp_path, capsys):
    text = tiny_files()["MRREL.RRF"].replace("|N||\n", "|N|\n", 1)
    release = write_release(tmp_path / "META", MRREL=text)
    out = tmp_path / "out"
    assert main(["--source", str(release), "--out", str(out), "--tokenizer", str(model)]) == 2
    printed = capsys.readouterr().err
    assert "error: " in printed and "MRREL.RRF, line 1: found 15 columns, expected 16" in printed
    assert "Traceback" not in printed and not out.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": Path("none.obo")}, "--source none.obo does not exist; expected a UMLS"),
        ({"cleaning": "soap"}, "--cleaning soap: expected one of paper, none"),
        ({"max_length": 2}, "--max-length 2: expected 3 or more"),
        ({"shards": 0}, "--shards 0: expected 1 or more"),
        ({"exclude_terms": Path("no.tsv")}, "--exclude-terms no.tsv does not exist"),
        ({"filters": Filters(languages=("FRE",))}, "--languages FRE: no term of the source has it"),
        ({"hold_out": 10_000}, "asks for 10,000 concepts; 1,666 have a term"),
    ],
)
def test_bad_options(options, changes, message):
    with pytest.raises(BadInput, match=message):
        build_dataset(replace(options, **changes))
    assert left_behind(options.out.parent) == []


def test_no_relations_is_a_warning(model, tmp_path, capsys):
    source = tmp_path / "flat.obo"
    source.write_text('[Term]\nid: A:1\nname: pain\nsynonym: "ache" EXACT []\n')
    out = tmp_path / "out"
    assert main(["--source", str(source), "--out", str(out), "--tokenizer", str(model)]) == 0
    printed = capsys.readouterr()
    assert "warning: no relation is left" in printed.err
    assert "note: no relation is left: the dataset has synonyms only" in printed.out
    assert open_dataset(out).heads.shape == (0,)


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    assert "--source umls/2020AA/META --languages ENG" in text and "hp.obo" in text


def test_hpo(hpo_path, minilm_path, tmp_path):
    """The demo's dataset: real ontology, real tokenizer, 1,149 synonyms held out."""
    out = build_dataset(
        BuildOptions(source=hpo_path, out=tmp_path / "hpo", tokenizer=minilm_path, hold_out=1149)
    )
    counts = manifest_of(out)["counts"]
    data = open_dataset(out, strings=True)
    assert counts["concepts"] == len(data.cuis) > 19_000
    assert len(data.terms) == counts["terms"] > 37_000
    assert len(set(zip(data.heads.tolist(), data.tails.tolist(), strict=True))) > 40_000
    by_cui = dict(zip(data.cuis, range(len(data.cuis)), strict=True))
    body_height, stature = by_cui["HP:0000002"], by_cui["HP:0001507"]
    at = (data.heads == stature) & (data.tails == body_height)
    labels = [data.manifest["relations"][r] for r in data.relations[at]]
    assert labels == ["CHD|isa"]  # growth abnormality has the child abnormality of body height
