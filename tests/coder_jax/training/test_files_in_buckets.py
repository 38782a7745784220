"""The small files of a run: which are published and fetched, and what is left alone."""

import pytest

pytest.importorskip("s3fs", reason="s3fs is not installed (see requirements-cloud.txt)")

from s3_server import BUCKET

from coder_jax.training.run_folder import RunFiles, small_files
from data_pipeline.files.buckets import file_sizes, open_bucket
from data_pipeline.process import BadInput

pytestmark = pytest.mark.usefixtures("in_bucket")


def names_at(url: str) -> set[str]:
    return set(file_sizes(*open_bucket(url)))


def test_run_json_is_published_last_and_files_that_stay_only_once(monkeypatch, tmp_path):
    url = f"{BUCKET}/runs/order"
    files, put = RunFiles(url), []
    store = open_bucket(url)[0]
    whole = store.put_file
    monkeypatch.setattr(store, "put_file", lambda file, to: (put.append(to), whole(file, to)))
    (files.folder / "tokenizer").mkdir()
    for name in ("run.json", "metrics.jsonl", "tokenizer/vocab.txt"):
        (files.folder / name).write_text(name)
    (files.folder / "lock").touch()
    files.publish()
    assert len(put) == 3 and put[-1].endswith("/run.json")
    (files.folder / "metrics.jsonl").write_text("two lines")
    files.publish()
    assert [name.rsplit("/", 1)[1] for name in put[3:]] == ["metrics.jsonl"]
    again = RunFiles(url)
    assert again.folder != files.folder
    assert (again.folder / "metrics.jsonl").read_text() == "two lines"
    assert (again.folder / "tokenizer" / "vocab.txt").read_text() == "tokenizer/vocab.txt"


def test_an_index_is_published_fetched_and_gone_when_it_is_gone_here():
    url = f"{BUCKET}/runs/refreshed"
    files = RunFiles(url)
    for name in ("run.json", "index/2/near.npy", "index/.4.partial/near.npy", "words/list.txt"):
        (files.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (files.folder / name).write_text(name)
    files.publish()
    again = RunFiles(url)
    found = {str(p.relative_to(again.folder)) for p in again.folder.rglob("*") if p.is_file()}
    assert found == {"run.json", "index/2/near.npy", "words/list.txt"}
    (files.folder / "index" / "2" / "near.npy").unlink()
    files.publish()
    assert names_at(url) == {"run.json", "words/list.txt"}


def test_what_is_no_run_is_left_alone():
    url = f"{BUCKET}/runs/thesis"
    files, root = open_bucket(url)
    files.pipe_file(f"{root}/thesis.tex", b"my only copy")
    with pytest.raises(BadInput, match=r"thesis is not empty \(it has thesis.tex\).*--out"):
        RunFiles(url)
    with pytest.raises(BadInput, match=r"runs/none is not the folder of a training run"):
        small_files(f"{BUCKET}/runs/none")


def test_a_start_that_was_cut_off_is_no_hindrance():
    url = f"{BUCKET}/runs/cut"
    files, root = open_bucket(url)
    files.pipe_file(f"{root}/tokenizer/vocab.txt", b"[PAD]")
    assert not any(RunFiles(url).folder.iterdir())


def test_a_folder_of_this_machine_is_worked_on_itself(tmp_path):
    with RunFiles(tmp_path) as files:
        assert (files.folder, files.name) == (tmp_path, str(tmp_path))
