"""The command from files to folder: what it prints and what it refuses."""

import errno
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from quaero_corpus import write_quaero
from tiny_build import left_behind, manifest_of, write_tokenizer
from tiny_rrf import tiny_files, write_release

from data_pipeline.batches.draws import _word_piece_sets
from data_pipeline.build_dataset.__main__ import _closing_report, main
from data_pipeline.build_dataset.build import build_dataset
from data_pipeline.build_dataset.options import BuildOptions
from data_pipeline.dataset.store import open_dataset
from data_pipeline.process import BadInput
from data_pipeline.terminology.filters import Filters


def test_command_on_rrf(model, tmp_path, capsys):
    release, out = write_release(tmp_path / "2020AA" / "META"), tmp_path / "umls"
    assert main(["--source", str(release), "--out", str(out), "--tokenizer", str(model)]) == 0
    printed = capsys.readouterr()
    assert f"umls, release 2020AA: {out}" in printed.out
    for line in (
        "terms read 13",
        "terms dropped: suppressed, SUPPRESS=O 1",
        "terms dropped: empty after cleaning 1",
        "relations dropped: unknown concept 3",
        "triplets 4",
        "with two terms or more 3 (75.0%)",
        "both concepts with two terms or more 4 (100.0%)",
        "by language ENG 6, FRE 3",
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
    assert manifest["licenses"]["SNOMEDCT_US"] == "UMLS, restriction level 9"


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
    assert main([*arguments, "--shards", "none"]) == 2
    assert main([*arguments, "--shards", "1"]) == 2  # French has no second term to hold out
    arguments[arguments.index("FRE")] = "ENG"
    arguments[arguments.index("ENG", arguments.index("ENG") + 1)] = "FRE"
    assert main(arguments) == 0
    data = open_dataset(out, strings=True)
    assert data.manifest.relations == ["CHD|isa", "PAR|inverse_isa"]
    assert data.manifest.release == "mine" and data.manifest.languages == ["ENG", "FRE"]
    assert np.diff(data.token_start).max() == 9
    assert "Limb pain" not in data.terms and "Heart disease (disorder)" in data.terms
    mention = (out / "heldout" / "mentions.tsv").read_text().splitlines()[1].split("\t")[0]
    assert mention not in data.terms
    assert data.manifest.held_out.mentions == 1
    listed = (out / "heldout" / "dictionary.tsv").read_text()
    assert "\tC0000006\n" in listed and "\tC0000003\n" in listed
    assert {*data.manifest.licenses} == {"MSH", "MSHFRE"}, "those that were kept"


def test_a_packed_release_keeps_its_licenses(model, tmp_path):
    release = write_release(tmp_path / "2020AA" / "META").parent
    packed = shutil.make_archive(str(tmp_path / "umls"), "zip", release)
    out = tmp_path / "out"
    assert main(["--source", packed, "--out", str(out), "--tokenizer", str(model)]) == 0
    assert manifest_of(out)["licenses"]["SNOMEDCT_US"] == "UMLS, restriction level 9"


def test_the_command_in_the_manifest_builds_it_again(model, tmp_path, monkeypatch):
    """Typed beside the files, as the paths of this machine are not told."""
    monkeypatch.chdir(tmp_path)
    write_release(tmp_path / "META")
    words = ["--source", str(tmp_path / "META"), "--tokenizer", str(model), "--max-length", "9"]
    words += ["--sources", "ENG=MSH,SNOMEDCT_US", "FRE=MSHFRE", "--relations", "CHD|*", "PAR|*"]
    words += ["--languages", "ENG", "FRE", "--keep-suppressed", "--hold-out", "1", "--seed", "3"]
    assert main([*words, "--out", str(tmp_path / "first")]) == 0
    first = open_dataset(tmp_path / "first").manifest
    assert str(tmp_path) not in first.command and "'CHD|*' 'PAR|*'" in first.command
    assert "--hold-out 1 " in first.command
    again = shlex.split(first.command)
    assert again[:3] == ["python", "-m", "data_pipeline.build"]
    again[again.index("--tokenizer") + 1] = str(model)
    assert main(again[3:]) == 0
    second = open_dataset(tmp_path / "DATASET").manifest
    assert second.content_hash == first.content_hash and second.filters == first.filters
    assert second.command == first.command


def test_the_concepts_that_a_list_has(model, tmp_path, capsys):
    """By codes, as MEDIC names diseases."""
    medic, out = tmp_path / "medic.txt", tmp_path / "out"
    medic.write_text("D000001||x\n000007|C000002||y\n")  # codes of tiny_rrf are numbers of rows
    text = tiny_files()["MRCONSO.RRF"].replace("|MH|0|", "|MH|D000001|")
    release = write_release(tmp_path / "META", MRCONSO=text)
    words = ["--source", str(release), "--out", str(out), "--tokenizer", str(model)]
    assert main([*words, "--concepts-of", str(medic)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "identifiers in --concepts-of 3 identifiers in --concepts-of found 1" in printed
    assert "concepts dropped: not in --concepts-of 5" in printed
    assert open_dataset(out, strings=True).cuis == ["C0000001"]
    changed = BuildOptions(source=release, out=out, tokenizer=model, concepts_of=medic)
    before = changed.fingerprint("t", "f")
    medic.write_text("C0000002\n")
    assert changed.fingerprint("t", "f") != before


def test_ontology_of_several_blocks(options):
    out = build_dataset(options)
    data = open_dataset(out, strings=True)
    counts = data.manifest.counts
    assert len(data.manifest.shards) == 3
    assert counts.concepts == len(data.cuis) == 2500
    assert counts.terms == len(data.terms) == 2500 + 1666 - 100
    assert counts.triplets == len(data.heads) == 2 * (2499 + 250)
    assert data.cuis == sorted(data.cuis)
    labels = data.manifest.relations
    assert labels == ["CHD|isa", "PAR|inverse_isa", "RO|inverse_part_of", "RO|part_of"]
    # Every triplet again, from the ontology's rule.
    expected = {(i // 7, 0, i) for i in range(1, 2500)} | {
        (i - 5, 3, i) for i in range(9, 2500, 10)
    }
    expected |= {(t, 1 if r == 0 else 2, h) for h, r, t in expected}
    found = zip(data.heads.tolist(), data.relations.tolist(), data.tails.tolist(), strict=True)
    assert list(found) == sorted(expected)
    assert data.terms[data.term_start[1234]] == "pain of limb 1234"


@pytest.mark.slow
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


def test_full_disk_elsewhere(options, monkeypatch, capsys, model, ontology):
    def no_room(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("data_pipeline.build_dataset.build.save_tokenizer", no_room)
    arguments = ["--source", str(ontology), "--out", str(options.out), "--tokenizer", str(model)]
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert "error: the disk is full: [Errno 28] No space left on device" in printed
    assert "run the same command again." in printed
    assert left_behind(options.out.parent) == []


def test_a_stop_by_the_user_is_no_traceback(options, monkeypatch, capsys, model, ontology):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("data_pipeline.build_dataset.build.read_source", stop)
    arguments = ["--source", str(ontology), "--out", str(options.out), "--tokenizer", str(model)]
    assert main(arguments) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_mirror_of_some_groups(model, tmp_path, capsys):
    release, out = write_release(tmp_path / "META"), tmp_path / "out"
    arguments = ["--source", str(release), "--out", str(out), "--tokenizer", str(model)]
    arguments += ["--languages", "FRE", "ENG", "--semantic-groups", "DISO", "anat"]
    asked = ["--mirror", "FRE", "--sources", "ENG=MSH", "ENG=SNOMEDCT_US,MSH", "FRE=MSHFRE"]
    assert main([*arguments, *asked, "--cleaning", "mlnorm"]) == 0
    manifest = manifest_of(out)
    assert manifest["filters"]["semantic_groups"] == ["DISO", "ANAT"]
    assert manifest["filters"]["mirror"] == "FRE" and manifest["filters"]["sources"] == []
    named = {"ENG": ["MSH", "SNOMEDCT_US"], "FRE": ["MSHFRE"]}
    assert manifest["filters"]["language_sources"] == named
    assert manifest["options"]["filters"] == manifest["filters"]
    assert open_dataset(out, strings=True).cuis == ["C0000001", "C0000002", "C0000003"]
    assert "semantic group not asked for" in capsys.readouterr().out
    assert main([*arguments, "--mirror", "FRE"]) == 2  # another dataset
    for words, message in (
        (["MSH", "ENG=MSH"], "found vocabularies with and without a language; expected one form"),
        (["ENG="], "--sources ENG=: expected a language and its vocabularies: ENG=CHV,MSH"),
        (["GER=MSH"], "--sources GER=...: GER is none of --languages FRE ENG"),
    ):
        assert main([*arguments, "--overwrite", "--sources", *words]) == 2
        assert message in " ".join(capsys.readouterr().err.split())


def test_training_mentions(model, tmp_path, capsys):
    release, out = write_release(tmp_path / "META"), tmp_path / "out"
    table, corpus = tmp_path / "mentions.tsv", write_quaero(tmp_path)
    table.write_text("mention\tcui\tsemantic_group\nCrise cardiaque\tC0000009\tDISO\n")
    arguments = ["--source", str(release), "--out", str(out), "--tokenizer", str(model)]
    arguments += ["--languages", "FRE", "ENG", "--supervised", str(table), str(corpus)]
    assert main(arguments) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "supervised mentions dropped: concept not in the release 12" in printed
    assert {"crise cardiaque", "douxium"} < set(open_dataset(out, strings=True).terms)
    assert manifest_of(out)["options"]["supervised"] == [str(table), str(corpus)]
    assert main(arguments) == 0  # it is there
    document = corpus / "corpus" / "train" / "EMEA" / "318_2.ann"
    document.write_text(document.read_text().replace("C0494165", "C0000003"))
    assert main(arguments) == 2
    assert "already holds a dataset" in capsys.readouterr().err
    assert main([*arguments, "--overwrite", "--supervised-sets", "train", "dev"]) == 0
    report = manifest_of(out)["report"]
    assert report["supervised mentions dropped: concept not in the release"] == 23
    assert main([*arguments, "--supervised", "none.tsv"]) == 2
    assert "--supervised none.tsv does not exist; expected a table" in capsys.readouterr().err


def test_bad_input_is_one_message_and_status_2(model, tmp_path, capsys):
    text = tiny_files()["MRREL.RRF"].replace("|N||\n", "|N|\n", 1)
    release = write_release(tmp_path / "META", MRREL=text)
    out = tmp_path / "out"
    assert main(["--source", str(release), "--out", str(out), "--tokenizer", str(model)]) == 2
    printed = capsys.readouterr().err
    assert "error: " in printed and "MRREL.RRF, line 1: found 15 columns, expected 16" in printed
    assert "Traceback" not in printed and not out.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cleaning", "soap"], "--cleaning: invalid choice: 'soap' (choose from"),
        (["--max-length", "2"], "--max-length: found 2; expected 3 or more"),
        (["--shards", "0"], "--shards: found 0; expected 1 or more"),
    ],
)
def test_values_that_are_refused_before_a_file_is_read(options, words, message, capsys):
    paths = {"--source": options.source, "--tokenizer": options.tokenizer, "--out": options.out}
    given = [str(word) for pair in paths.items() for word in pair]
    assert main([*given, *words]) == 2
    assert message in capsys.readouterr().err and left_behind(options.out.parent) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": Path("none.obo")}, "--source none.obo does not exist; expected a UMLS"),
        ({"exclude_terms": Path("no.tsv")}, "--exclude-terms no.tsv does not exist"),
        ({"concepts_of": Path("no.txt")}, "--concepts-of no.txt does not exist; expected a file"),
        ({"filters": Filters(languages=("FRE",))}, "--languages FRE: no term of the source has it"),
        ({"hold_out_phrases": Path("no.tsv")}, "chooses among --hold-out-concepts: give it, too"),
        (
            {"hold_out_phrases": Path("no.tsv"), "hold_out_concepts": 1},
            "--hold-out-phrases no.tsv does not exist",
        ),
        ({"hold_out": 10_000}, "asks for 10,000 concepts; 1,666 have a term"),
    ],
)
def test_bad_options(options, changes, message):
    with pytest.raises(BadInput, match=message):
        build_dataset(replace(options, **changes))
    assert left_behind(options.out.parent) == []


def test_a_table_has_no_suppressed_rows(options, tmp_path):
    table = tmp_path / "own.tsv"
    table.write_text("term\tconcept\tactive\nache\tC1\t1\npain\tC1\t0\n")
    with pytest.raises(BadInput, match="--keep-suppressed: found the table .*own.tsv, whose rows"):
        build_dataset(replace(options, source=table, filters=Filters(keep_suppressed=True)))


def test_capitals_that_are_made_small_are_told_once(ontology, tmp_path, capsys):
    model = write_tokenizer(tmp_path)
    with (model / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("Heart\n")
    command = ["--source", ontology, "--out", tmp_path / "out", "--tokenizer", model]
    assert main(list(map(str, command))) == 0
    printed = capsys.readouterr().err
    assert printed.count("have capitals") == 1 and f"vocabulary of {model} have" in printed


def test_a_line_that_is_twice_in_a_vocabulary_counts_twice(tmp_path):
    """The ids behind it are counted and drawn by, too."""
    model = write_tokenizer(tmp_path)
    with (model / "vocab.txt").open("a") as file:
        file.write("[unused]\n[unused]\nzebra\n")
    lines = len((model / "vocab.txt").read_text().splitlines())
    source = tmp_path / "flat.obo"
    source.write_text('[Term]\nid: A:1\nname: zebra\nsynonym: "ache" EXACT []\n')
    dataset = open_dataset(
        build_dataset(BuildOptions(source=source, out=tmp_path / "out", tokenizer=model))
    )
    assert dataset.manifest.tokenizer.vocab_size == lines
    assert dataset.tokens.max() == lines - 1
    assert len(set(_word_piece_sets(dataset).tolist())) == 2


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
        main(["--help-all"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    assert "--source umls/2020AA/META --languages ENG" in text and "hp.obo" in text
    words = " ".join(text.split())
    assert "lookup: as they stand, but for a semantic tag of SNOMED CT at the end" in words


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
    labels = [data.manifest.relations[r] for r in data.relations[at]]
    assert labels == ["CHD|isa"]  # growth abnormality has the child abnormality of body height


def test_a_table_of_your_own_with_relations_beside_it(model, tmp_path, capsys, write):
    source = write(
        "own.csv", "concept;name;language;preferred\nC1;limb pain;en;\nC1;Pain of limb;en;Y\n"
        "C2;pain;en;\nC2;douleur;fr;\n",
    )  # fmt: skip
    write("own.relations.tsv", "head\trelation\ttail\nC1\tis a\tC2\nC1\tis a\tC9\n")
    command = ["--source", str(source), "--out", str(tmp_path / "out"), "--tokenizer", str(model)]
    assert main(command) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for line in ("own, release unknown: ", "terms read 4", "relations dropped: unknown concept 2"):
        assert line in printed, line
    dataset = open_dataset(tmp_path / "out", strings=True)
    assert dataset.terms == ["pain of limb", "limb pain", "pain", "douleur"]
    assert dataset.manifest.relations == ["CHD|isa", "PAR|inverse_isa"]
    assert [file["file"] for file in dataset.manifest.sources] == [
        "own.csv",
        "own.relations.tsv",
    ]
    assert main(command) == 0, "it is already there"
    write("own.relations.tsv", "head\trelation\ttail\nC2\tis a\tC1\n")
    assert main(command) == 2 and "already holds a dataset" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------
# Whole concepts held out of a dataset by the command.


def test_whole_concepts_are_held_out_before_synonyms_are(options):
    out = build_dataset(replace(options, hold_out_concepts=30))
    manifest = manifest_of(out)
    assert manifest["held_out_concepts"] == {"concepts": 30, "terms": 60}
    assert manifest["held_out"]["mentions"] == 100
    assert manifest["counts"]["concepts"] == 2470
    rows = [line.split("\t") for line in (out / "heldout/concepts.tsv").read_text().splitlines()]
    held_terms, held = ({row[side] for row in rows[1:]} for side in (0, 1))
    dataset = open_dataset(out, strings=True)
    assert not held & set(dataset.cuis) and not held_terms & set(dataset.terms)
    for name in ("mentions.tsv", "dictionary.tsv"):
        lines = (out / "heldout" / name).read_text().splitlines()[1:]
        assert not held & {line.split("\t")[1] for line in lines}
    assert f"held-out concepts {30}" in " ".join(_closing_report(dataset.manifest, out).split())
    with pytest.raises(BadInput, match="found 1,.* concepts that can be held out"):
        build_dataset(replace(options, hold_out_concepts=2500, overwrite=True))


def test_held_out_concepts_of_a_list_of_phrases(model, tmp_path, ontology, capsys, write):
    phrases = write("names.tsv", "name\tcount\nacute attack 4\t9\nPain of limb 4\t8\n")
    out = tmp_path / "out"
    arguments = [
        "--source",
        str(ontology),
        "--out",
        str(out),
        "--tokenizer",
        str(model),
    ]
    asked = ["--hold-out-concepts", "1", "--hold-out-phrases", str(phrases)]
    assert main([*arguments, *asked]) == 0
    assert (out / "heldout" / "concepts.tsv").read_text().splitlines() == [
        "term\tCUI",
        "pain of limb 4\tT:00004",
        "acute attack 4\tT:00004",
    ]
    assert "held-out concepts 1 their terms 2" in " ".join(capsys.readouterr().out.split())
    phrases.write_text("acute attack 4\npain of limb 4\npain of limb 5\nacute attack 5\n")
    assert main([*arguments, *asked]) == 2  # another list, another dataset
    assert "already holds a dataset" in capsys.readouterr().err
