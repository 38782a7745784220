"""Every file of the project, spoiled in thousands of ways: a clear error, or the right result.

Each file is read as the verbs read it. `bash launch/test.sh -m slow
tests/coder_jax/commands/test_spoiled_files.py -s` prints the counts; some forms of what is read
without a model are tried always. What a source is made of is spoiled in
`tests/data_pipeline/sources/test_spoiled_sources.py`.
"""

import contextlib
import dataclasses
import io
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from mantra_corpus import DICTIONARY, XML, write_brat
from safetensors.numpy import load_file, save_file
from spoiled_files import readings, spoiled_json, spoiled_text, spoiled_zip
from tiny_bert import write_model
from tiny_ontology import write_ontology

from coder_jax.__main__ import main
from coder_jax.commands.normalize import _read_mentions
from coder_jax.commands.train import _starting_settings
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.vector_files import TermLines
from coder_jax.evaluation.benchmarks import read_benchmark
from coder_jax.evaluation.vectors import _read_vector_file
from coder_jax.export.relations import read_relations
from coder_jax.mapping.coded_list import read_decisions
from coder_jax.mapping.confidence import Cutoffs
from coder_jax.mapping.normalizer import read_abbreviations
from coder_jax.report.build import _load_subject
from coder_jax.report.curves import training_panels
from coder_jax.report.results import read_results, result_tables
from coder_jax.systems.teacher import open_teacher
from coder_jax.systems.trained_models import load_run
from coder_jax.training.checkpoints import (
    read_extra,
    read_notes,
    read_params,
    read_saved_identity,
)
from coder_jax.training.metrics import _keep_lines_until, read_metrics
from data_pipeline.build_dataset import __main__ as build
from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.dataset.store import open_dataset
from data_pipeline.process import BadInput
from data_pipeline.sources.corpora import mention_rows

SEED = 15
SMALL = ["--groups", "1", "--triplets", "4", "--repeats", "2", "--row-length", "64"]
TERMS = ["pain of limb 1", "heart attack"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One of everything: BERT, dataset, run, export, vectors, results."""
    folder = tmp_path_factory.mktemp("spoiled")
    write_model(folder / "bert")
    ontology = write_ontology(folder / "tiny.obo", classes=60)
    made = ["--source", ontology, "--tokenizer", folder / "bert", "--hold-out", "5"]
    assert build.main([*map(str, made), "--out", str(folder / "data")]) == 0
    heldout = folder / "data" / "heldout"
    for command in (
        ["train", "--recipe", "small", "--data", folder / "data", "--out", folder / "run"]
        + ["--steps", "2", "--warmup-steps", "1", "--eval-steps", "1", "--init", folder / "bert"]
        + SMALL,
        ["export", "--checkpoint", folder / "run", "--out", folder / "export"],
        ["encode", "--model", folder / "export", "--out", folder / "v.npy"]
        + ["--dictionary", folder / "data"],
        ["evaluate", "--model", folder / "export", "--benchmark", f"heldout={heldout}"]
        + ["--json", folder / "results.json"],
    ):
        assert main([str(word) for word in command]) == 0
    shutil.copytree(folder / "export", folder / "sharded")
    whole = folder / "sharded" / "model.safetensors"
    save_file(load_file(whole), folder / "sharded" / "model-1.safetensors")
    weight_map = dict.fromkeys(load_file(whole), "model-1.safetensors")
    whole.unlink()
    index = folder / "sharded" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    shutil.copytree(folder / "export", folder / "plain")
    (folder / "plain" / "coder_jax.json").unlink()
    shutil.copytree(folder / "run", folder / "going_on")
    (folder / "mentions.txt").write_text("\n".join(TERMS) + "\n")
    return folder


def dataset(folder):
    opened = open_dataset(folder / "data", strings=True)
    values = dataclasses.asdict(opened)
    del values["manifest"]
    return repr(jax.tree.map(lambda one: getattr(one, "tolist", lambda: one)(), values))


def run(folder):
    system, saved = load_run(folder / "run")
    trained = system.trained(saved)
    return str((system, trained.card, trained.encoder.settings, trained.encoder.bert.config))


def settings(folder):
    """The settings that --config gives back."""
    return repr(_starting_settings(None, str(folder / "run"))[0])


def going_on(folder):
    """What a run that goes on keeps of its metrics."""
    before = folder / "going_on" / "metrics.jsonl"
    shutil.copy(before, folder / "kept.jsonl")
    return _keep_lines_until(folder / "kept.jsonl", 2), (folder / "kept.jsonl").read_text()


def curves(folder):
    return repr(training_panels(read_metrics(folder / "run" / "metrics.jsonl")))


def encoder(folder):
    made = TermEncoder.from_pretrained(folder / "export")
    relations = read_relations(folder / "export")
    assert relations is not None
    return made.encode(TERMS).tolist(), list(relations.labels), relations.table.tolist()


def sharded(folder):
    return TermEncoder.from_pretrained(folder / "sharded").encode(TERMS).tolist()


def checkpoint(folder):
    """All that readers beside a training take from its last checkpoint."""
    run = folder / "run"
    arrays = read_params(run, 2), read_extra(run, 2)
    return repr((jax.tree.map(np.asarray, arrays), read_notes(run, 2), read_saved_identity(run, 2)))


def facts(folder):
    subject = _load_subject("it", str(folder / "export"))
    return subject.facts, subject.encoder.settings


def plain(folder):
    """The encoder as sentence-transformers describes it, without the file of ours."""
    return TermEncoder.from_pretrained(folder / "plain").settings


def mentions(folder):
    return mention_rows(folder / "data" / "heldout" / "mentions.tsv")


def dictionary(folder):
    read = read_dictionary(folder / "data" / "heldout" / "dictionary.tsv")
    return read.terms, read.concepts


def results(folder):
    records = read_results([("", folder / "results.json")])
    return repr(result_tables(records))


def normalized(folder):
    """What `normalize` prints with the vectors of a file."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            command = ["normalize", "--model", folder / "export", "--dictionary", folder / "data"]
            command += ["--dictionary-vectors", folder / "v.npy", folder / "mentions.txt"]
            status = main([str(word) for word in command])
    if status == 2:
        raise BadInput(said.getvalue())
    return status, printed.getvalue()


def teacher(folder):
    """Which row of a file each term of the dataset has."""
    found = open_teacher(folder / "v.npy", folder / "data")
    return found.row_of_term.tolist(), found.width


# In a file of another library's format a value may be left out, or be of another type.
OTHERS = ("*",)
# Name, file, how it is read, whether its bytes are spoiled, keys whose values are only shown.
FILES = {
    "manifest": ("data/manifest.json", dataset, False, ()),
    "shard": ("data/triplets-train.tfrecord-00000-of-00001", dataset, True, ()),
    **{
        name: (f"run/checkpoints/2/{name}", checkpoint, False, OTHERS)
        for name in (
            *("_CHECKPOINT_METADATA", "params/_METADATA", "params/_sharding", "rest/_METADATA"),
            *("identity/metadata", "notes/metadata", "checksums/metadata"),
        )
    },
    "weights of a checkpoint": ("run/checkpoints/2/params/manifest.ocdbt", checkpoint, True, ()),
    "index of weights": ("sharded/model.safetensors.index.json", sharded, False, ()),
    "run.json": ("run/run.json", run, False, ()),
    "settings of a run": ("run/run.json", settings, False, ("start",)),
    "metrics": ("run/metrics.jsonl", curves, True, ()),
    "lines of metrics": ("run/metrics.jsonl", curves, False, OTHERS),
    "metrics of a card": ("run/metrics.jsonl", run, False, OTHERS),
    "metrics of a run that goes on": ("going_on/metrics.jsonl", going_on, False, OTHERS),
    "tokenizer of a run": ("run/tokenizer/tokenizer.json", run, False, OTHERS),
    "coder_jax.json": ("export/coder_jax.json", facts, False, ("recipe", "dataset_hash")),
    "config.json": ("export/config.json", encoder, False, ()),
    "weights": ("export/model.safetensors", encoder, True, ()),
    "tokenizer.json": ("export/tokenizer.json", encoder, False, OTHERS),
    "tokenizer_config.json": ("export/tokenizer_config.json", encoder, False, OTHERS),
    "relations.json": ("export/relations.json", encoder, False, ()),
    "relations": ("export/relations.safetensors", encoder, True, ()),
    "modules.json": ("plain/modules.json", plain, False, ()),
    "pooling": ("plain/1_Pooling/config.json", plain, False, ()),
    "length": ("plain/sentence_bert_config.json", plain, False, ()),
    "about vectors": ("v.npy.json", normalized, False, ()),
    "vectors": ("v.npy", normalized, True, ()),
    "about vectors of a teacher": ("v.npy.json", teacher, False, ("encoder",)),
    "vectors of a teacher": ("v.npy", teacher, True, ()),
    "results": ("results.json", results, False, ("scoring", "versions", "intervals")),
    "mentions": ("data/heldout/mentions.tsv", mentions, True, ()),
    "dictionary": ("data/heldout/dictionary.tsv", dictionary, True, ()),
}


# What is not read as another thing: its bytes have a checksum.
CHECKED = (
    "shard",
    "weights of a checkpoint",
    "params/_METADATA",
    "rest/_METADATA",
    "params/_sharding",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_spoiled_file_is_refused_or_read_right(folder, name):
    file, read, as_bytes, shown = FILES[name]
    found = readings(
        folder / file,
        lambda: read(folder),
        seed=SEED,
        count=60 if read is checkpoint else 1000,  # Orbax takes seconds to refuse one
        as_bytes=as_bytes,
        shown=shown,
        checked=name in CHECKED,
    )
    print(f"{name}: {found}")
    assert found["refused"] or name not in CHECKED, f"none was refused: {found}"


# -------------------------------------------------------------------------------------------------
# What is read without a model: test sets, decisions, lists to normalize, vectors of words.


def benchmark(path):
    return repr(read_benchmark("it", path, dictionary=DICTIONARY))


def listed(path):
    with path.open("rb") as file:
        return list(_read_mentions(io.BytesIO(file.read()), "list"))


def lines(path):
    with path.open("rb") as file:
        terms = TermLines(file, "terms", 2)
        return [terms.chunk(number) for number in range(terms.chunks)], terms.hash


def pairs(path):
    return {name: repr(value) for name, value in vars(read_benchmark("it", path)).items()}


def relations(path):
    return repr(read_benchmark("it", path.parent, dictionary=DICTIONARY))


def word_vectors(path):
    found = _read_vector_file(path, {"pain", "heart", "C1"})
    return sorted(found.row_of), found.vectors.tolist(), found.in_file


def brat(path):
    return repr(read_benchmark("it", path.parents[2], dictionary=DICTIONARY))


def json_of_others(rng, content):
    return spoiled_json(rng, content, OTHERS)


CUTOFFS = {
    "format": "coder_jax cutoffs 1",
    "measured_on": {},
    "tables": {
        "all": {"mentions": 4, "cutoffs": [0.5, 0.8], "answered": [3, 1], "right": [2, 1]},
    },
}
GOLD = "pain\tC0000001\ncough, dry\tC0000002|C0000003\n"
TRIPLES = "head\ttail\tlabel\nC0000001\tC0000002\tisa\nC0000003\tC0000001\tpart of\n"
ABSTRACT = "1|t|Sore pain\n1|a|and cough.\n1\t5\t9\tpain\tDisease\tC0000001\n"
DECISIONS = 'mention;concept;decision;note\nache;C1;accepted;\n"a; b";;rejected;\'=x\nx;;open;no\n'
BIOSYN = "1||0|4||Disease||pain|sore pain||C0000001|C0000002\n1||5|6||Disease||ache||C0000001\n"


def med_mentions(path):
    path.with_name("corpus_pubtator_pmids_test.txt").write_text("1\n")
    return repr(read_benchmark("it", path.parent, dictionary=DICTIONARY))


def biosyn(path):
    path.parents[1].joinpath("test_dictionary.txt").write_text("C0000001||pain\nC0000002||sore\n")
    return repr(read_benchmark("it", path.parents[1]))


# Name -> (the file, its content, how it is spoiled, how it is read).
READ_ALONE = {
    "MedMentions": ("corpus_pubtator.txt", ABSTRACT, spoiled_text, med_mentions),
    "BioSyn": ("processed_test/1.concept", BIOSYN, spoiled_text, biosyn),
    "cutoffs": (
        "cutoffs.json",
        json.dumps(CUTOFFS),
        json_of_others,
        lambda path: Cutoffs.read(path),
    ),
    "decisions": ("d.csv", DECISIONS, spoiled_text, read_decisions),
    "abbreviations": (
        "a.tsv",
        "MI\theart attack\nHA\thead ache\n",
        spoiled_text,
        read_abbreviations,
    ),
    "list": ("list.txt", "pain\n\ncough of \u00e9\r\nx\n", spoiled_text, listed),
    "terms": ("terms.txt", "pain\n\ncough of \u00e9\r\nx\n", spoiled_text, lines),
    "mentions": ("m.tsv", GOLD, spoiled_text, benchmark),
    "XL-BEL": ("x.txt", "C0000001||Schmerz\nC0000002||Husten\n", spoiled_text, benchmark),
    "folds": ("f/0/test.txt", "1\tpain\n2\tcough\n", spoiled_text, None),
    "codes": (
        "c.tsv",
        "filename\tlabel\ttext\tcode\n1\tX\tdolor\tC0000001\n1\tX\ttos\tC0000002\n",
        spoiled_text,
        benchmark,
    ),
    "local terms": (
        "l.tsv",
        "term\tconcept\tpredicate\ndolor\tC0000001\texactMatch\ntos\tC0000002\tbroadMatch\n",
        spoiled_text,
        benchmark,
    ),
    "pairs": (
        "p.csv",
        "Term1,Term2,Mean\npain,ache,3.5\ncough,cold,1\nx,y,2\n",
        spoiled_text,
        pairs,
    ),
    "text": ("t.txt", ABSTRACT, spoiled_text, benchmark),
    "MANTRA": ("Medline_GSC_fr_man.xml", XML, spoiled_text, benchmark),
    "terms of a case": (
        "c.tsv",
        "language\tterm\nFRE\tmal\nGER\tHusten\n",
        spoiled_text,
        benchmark,
    ),
    "coverage": ("concepts.tsv", "term\tcui\na\tC1\nb\tC1\nc\tC2\nd\tC2\n", spoiled_text, pairs),
    "concepts": (
        "c.tsv",
        "CUI\tsemantic types\tterm\nC1\tFinding|Disease or Syndrome\ta\nC2\tFinding\tb\n",
        spoiled_text,
        pairs,
    ),
    "links": ("l.tsv", TRIPLES, spoiled_text, benchmark),
    "relations": ("r/relations_train.tsv", TRIPLES, spoiled_text, relations),
    "word2vec": ("v.txt", "2 3\npain 1 2 3\nheart 0.5 1e-3 -1\n", spoiled_text, word_vectors),
    "GloVe": ("v.txt", "pain 1 2 3\nheart 0.5 1e-3 -1\n", spoiled_text, word_vectors),
    "cui2vec": ("v.csv", '"",V1,V2\n"C1",1,2\n"C2",3,4\n', spoiled_text, word_vectors),
    "word2vec, binary": (
        "v.bin",
        b"2 2\npain " + np.float32([1, 2]).tobytes() + b"\nheart " + np.float32([3, 4]).tobytes(),
        spoiled_text,
        word_vectors,
    ),
}


def check_alone(name, folder, count):
    file, content, spoil, read = READ_ALONE[name]
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if name == "relations":
        shutil.copy(path, path.with_name("relations_test.tsv"))
    if name == "folds":
        shutil.copy(path, path.with_name("standard.txt"))
        read = folds
    return readings(path, lambda: read(path), seed=SEED, count=count, spoil=spoil)


def folds(path):
    return repr(read_benchmark("it", path.parents[1]))


@pytest.mark.parametrize("name", READ_ALONE)
def test_a_spoiled_file_that_is_read_without_a_model(tmp_path, name):
    check_alone(name, tmp_path, 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", READ_ALONE)
def test_a_thousand_forms_of_what_is_read_without_a_model(tmp_path, name):
    print(f"{name}: {check_alone(name, tmp_path, 1000)}")


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_spoiled_corpus(tmp_path, count):
    root = write_brat(tmp_path)
    for file in sorted(root.rglob("0001*")):
        readings(file, lambda path=file: brat(path), seed=SEED, count=count, spoil=spoiled_text)
    packed = Path(shutil.make_archive(str(tmp_path / "Mantra-GSC"), "zip", tmp_path, root.name))
    readings(packed, lambda: benchmark(packed), seed=SEED, count=count, spoil=spoiled_zip)
