"""Every file of the project, spoiled in thousands of ways: a clear error, or the right result.

Each file is read as the verbs read it. Slow: `bash launch/test.sh -m slow
tests/coder_jax/commands/test_spoiled_files.py -s` prints the counts.
"""

import contextlib
import dataclasses
import io
import shutil

import numpy as np
import pytest
from spoiled_files import readings
from tiny_bert import write_model
from tiny_ontology import write_ontology

from coder_jax.__main__ import main
from coder_jax.commands.train import _starting_settings
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.export.relations import read_relations
from coder_jax.report.build import _model_subject
from coder_jax.report.curves import training_panels
from coder_jax.report.results import read_results, result_tables
from coder_jax.systems.trained_models import load_run
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
    shutil.copytree(folder / "export", folder / "plain")
    (folder / "plain" / "coder_jax.json").unlink()
    shutil.copytree(folder / "run", folder / "going_on")
    (folder / "mentions.txt").write_text("\n".join(TERMS) + "\n")
    return folder


def dataset(folder):
    opened = open_dataset(folder / "data", strings=True)
    values = dataclasses.asdict(opened)
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in values.items()
        if name != "manifest"
    }


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


def facts(folder):
    subject = _model_subject("it", str(folder / "export"), None)
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


# In a file of another library's format a value may be left out, or be of another type.
OTHERS = ("*",)
# Name, file, how it is read, whether its bytes are spoiled, keys whose values are only shown.
FILES = {
    "manifest": ("data/manifest.json", dataset, False, ()),
    "shard": ("data/triplets-train.tfrecord-00000-of-00001", dataset, True, ()),
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
    "results": ("results.json", results, False, ("scoring", "versions")),
    "mentions": ("data/heldout/mentions.tsv", mentions, True, ()),
    "dictionary": ("data/heldout/dictionary.tsv", dictionary, True, ()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_spoiled_file_is_refused_or_read_right(folder, name):
    file, read, as_bytes, shown = FILES[name]
    found = readings(
        folder / file, lambda: read(folder), seed=SEED, count=400, as_bytes=as_bytes, shown=shown
    )
    assert found["refused"], f"none was refused: {found}"
    print(f"{name}: {found}")
