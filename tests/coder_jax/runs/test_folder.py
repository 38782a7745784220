"""The claim of a run's folder: what is there stays, and one that was cut off is made again."""

import json
import os
from pathlib import Path

import pytest

from coder_jax.runs.folder import claim_run_folder, read_identity
from data_pipeline.files.identity import RUN
from data_pipeline.process.errors import BadInput

THIS_RUN = {
    "format": RUN.format,
    "config": {
        "recipe": "toy",
        "system": {"name": "toy", "seed": 0},
        "optimizer": {"steps": 2, "learning_rate": 0.1},
        "start": "",
    },
    "start": {},
}


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    out = tmp_path / "thesis"
    (out / "tokenizer").mkdir(parents=True)
    (out / "tokenizer" / "mine.txt").write_text("my only copy")
    for names in (["lock", "thesis.tex"], [], ["lock", "thesis.tex", ".partial"]):
        for name in names:
            (out / name).touch()
        with pytest.raises(BadInput, match="is not empty and is not the folder of a run"):
            claim_run_folder(out, THIS_RUN, tmp_path / "unused", ["tokenizer"])
        for name in names:
            (out / name).unlink()
    assert (out / "tokenizer" / "mine.txt").read_text() == "my only copy"


@pytest.mark.parametrize("cut", ["before the tokenizer", "before run.json"])
def test_a_claim_that_was_cut_off_is_made_again(tmp_path, cut, monkeypatch):
    tokenizer, out = tmp_path / "tokenizer", tmp_path / "run"
    tokenizer.mkdir()
    (tokenizer / "vocab.txt").write_text("a\nb\n")
    real = os.replace

    def killed(source, target):
        if Path(target).name == {"before the tokenizer": "tokenizer"}.get(cut, "run.json"):
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            claim_run_folder(out, THIS_RUN, tmp_path, ["tokenizer"])
    assert not (out / "run.json").exists()
    claim_run_folder(out, THIS_RUN, tmp_path, ["tokenizer"])
    assert json.loads((out / "run.json").read_text()) == THIS_RUN
    assert sorted(path.name for path in out.iterdir()) == ["lock", "run.json", "tokenizer"]
    assert (out / "tokenizer" / "vocab.txt").read_text() == "a\nb\n"


def test_what_a_run_is_that_cannot_be_read(tmp_path):
    with pytest.raises(BadInput, match="is not the folder of a training run: it has no run.json"):
        read_identity(tmp_path)
    for content, message in (
        ("{", "run.json is not JSON .*; make it again with `python -m coder_jax train`"),
        ('{"format": 2, "config": {}}', f"has the format 2, expected '{RUN.format}': .*an older"),
        (json.dumps({**THIS_RUN, "config": {}}), "run.json: config.recipe is missing; make it ag"),
        ('{"format": "coder_jax batches 1"}', "`python -m data_pipeline.batch_files` writes such"),
    ):
        (tmp_path / "run.json").write_text(content)
        with pytest.raises(BadInput, match=message):
            read_identity(tmp_path)
