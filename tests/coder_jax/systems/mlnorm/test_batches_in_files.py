"""MLNorm on batches in files: the run that the dataset gives, to the bit; step 2 has none."""

import dataclasses

import numpy as np
import pytest
from class_run import SECOND, config_of_first, source_of
from short_run import assert_same_parameters, lines_of

from coder_jax.systems.finished_run import load_run
from coder_jax.training.train import train
from data_pipeline import batch_files
from data_pipeline.batches.files import BatchFiles
from data_pipeline.dataset.classes import classes_of
from data_pipeline.process.errors import BadInput

FLAGS = "--steps 12 --draw terms --terms 32 --groups 8 --row-length 32".split()


@pytest.fixture(scope="module")
def files(built, tmp_path_factory):
    out = tmp_path_factory.mktemp("files") / "batches"
    assert batch_files.main(["--data", str(built[0]), "--out", str(out), *FLAGS]) == 0
    return out


def test_the_run_is_that_of_the_dataset_to_the_bit(built, first, files, tmp_path, on_one_device):
    given = config_of_first(built, tmp_path / "run")
    source = source_of(files, given.system)
    assert isinstance(source, BatchFiles)
    result = train(given, source)
    assert result.scores == first[1].scores, "held-out terms too, by terms and by classes"
    ours, theirs = load_run(tmp_path / "run")[1], load_run(first[0])[1]
    assert_same_parameters(ours.params, theirs.params)
    losses = [
        [line["loss"] for line in lines_of(out / "metrics.jsonl") if "loss" in line]
        for out in (tmp_path / "run", first[0])
    ]
    assert losses[0] == losses[1]


def test_the_classes_lie_beside(built, files):
    ours, theirs = classes_of(files), classes_of(built[0])
    assert ours.concepts == theirs.concepts
    np.testing.assert_array_equal(ours.groups, theirs.groups)


def test_other_settings_are_refused(built, files):
    system = config_of_first(built, "run").system
    batch = dataclasses.replace(system.batch, languages=("ENG",))
    with pytest.raises(BadInput, match=r"languages is \[\], the run wants \['ENG'\]"):
        source_of(files, dataclasses.replace(system, batch=batch))


def test_terms_of_a_language(built, tmp_path, capsys):
    command = ["--data", str(built[0]), "--out", str(tmp_path / "out"), *FLAGS]
    assert batch_files.main([*command, "--languages", "ENG"]) == 0
    assert BatchFiles(
        tmp_path / "out", dataclasses.replace(SECOND.batch, languages=("ENG",))
    ).index["spec"]["languages"] == ["ENG"]
    assert batch_files.main([*command[:3], str(tmp_path / "no"), *FLAGS, "--languages", "GRE"]) == 2
    assert "GRE: " in capsys.readouterr().err


def test_the_second_step_takes_no_batches(files):
    with pytest.raises(BadInput, match="found batches in files, .*; expected a built dataset, all"):
        source_of(files, SECOND)
