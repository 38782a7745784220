"""Runs in a bucket, against a real S3 server on this machine: nothing but the place differs."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny_bert import TERMS, write_model
from tiny_ontology import write_ontology
from training_process import CHANCE

pytest.importorskip("s3fs", reason="s3fs is not installed (see requirements-cloud.txt)")
pytest.importorskip("moto", reason="moto is not installed (see requirements-test.txt)")

from s3_server import BUCKET, use, with_server

from coder_jax import __main__ as coder_jax_command
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.training.checkpoints import (
    _checkpoint_folder,
    _explain_failed_save,
    read_params,
    saved_steps,
)
from coder_jax.training.run_folder import small_files
from data_pipeline.build_dataset import __main__ as build
from data_pipeline.files.buckets import file_sizes, open_bucket, publish_folder
from data_pipeline.process import BadInput

STEPS = 20
SETTINGS = ["--recipe", "small", "--groups", "2", "--triplets", "4", "--repeats", "2"]
SETTINGS += ["--row-length", "64", "--steps", str(STEPS), "--warmup-steps", "2", "--eps", "1e-3"]
SETTINGS += ["--log-steps", "1", "--save-steps", "4", "--eval-steps", "0"]


pytestmark = pytest.mark.usefixtures("in_bucket")


@pytest.fixture(scope="module")
def inputs(server, tmp_path_factory):
    """A folder with an encoder and an ontology; encoder and dataset are in the bucket too."""
    folder = tmp_path_factory.mktemp("inputs")
    write_model(folder / "bert")
    ontology = write_ontology(folder / "tiny.obo", classes=300)
    with pytest.MonkeyPatch.context() as monkeypatch:
        use(monkeypatch, server)
        monkeypatch.setenv("CODER_JAX_CACHE", str(folder / "cache"))
        publish_folder(folder / "bert", f"{BUCKET}/bert", "config.json")
        command = ["--source", str(ontology), "--tokenizer", f"{BUCKET}/bert"]
        assert build.main([*command, "--out", str(folder / "data")]) == 0
        assert build.main([*command, "--out", f"{BUCKET}/data"]) == 0
        assert build.main([*command, "--out", f"{BUCKET}/data"]) == 2  # it is there
        assert not list((folder / "cache" / "builds").glob("*")), "nothing is left here"
    return folder


def start(inputs, server, place, out, *flags, process=0, processes=1, port=0):
    """A training process, on one CPU device, with a cache of its own."""
    words = [
        "--recipe",
        "coder_eng",
        "--data",
        f"{place}/data",
        "--init",
        f"{place}/bert",
        "--out",
        str(out),
        *SETTINGS,
    ]
    settings = with_server(server) | {
        "CODER_JAX_CACHE": str(inputs / f"cache-{process}"),
        "JAX_NUM_CPU_DEVICES": "1",
        # A restart takes seconds rather than the time to compile.
        "JAX_COMPILATION_CACHE_DIR": str(inputs / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    if processes > 1:
        settings |= {
            "JAX_COORDINATOR_ADDRESS": f"localhost:{port}",
            "JAX_NUM_PROCESSES": str(processes),
            "JAX_PROCESS_ID": str(process),
        }
    command = [sys.executable, "-m", "coder_jax", "train", *words, *flags]
    repo = Path(__file__).parents[3]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env=settings, cwd=repo, text=True, stdout=pipe, stderr=subprocess.STDOUT
    )


def said(process, status=0) -> str:
    output = process.communicate(timeout=600)[0]
    assert process.returncode == status, output
    return output


@pytest.fixture(scope="module")
def on_disk(inputs, server, tmp_path_factory):
    """The run with all its folders on this machine."""
    out = tmp_path_factory.mktemp("runs") / "run"
    environment = {name: value for name, value in server.items() if not name.startswith("AWS")}
    said(start(inputs, environment, inputs, out, "--save-steps", str(STEPS)))
    return out


@pytest.fixture(scope="module")
def killed_run(inputs, server):
    """A run from bucket to bucket, killed at a checkpoint and finished; also what it said then."""
    out = f"{BUCKET}/runs/killed"
    process = start(inputs, server, BUCKET, out)
    with pytest.MonkeyPatch.context() as monkeypatch:
        use(monkeypatch, server)
        wait_for(lambda: 4 in saved_steps(Path(out)), process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return out, said(start(inputs, server, BUCKET, out))


def wait_for(happens, process) -> None:
    limit = time.monotonic() + 300
    while not happens():
        assert time.monotonic() < limit, "nothing happens"
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)


def lines(folder: Path) -> list[dict]:
    """Of metrics.jsonl, without what depends on time."""
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in CHANCE} for line in found]


def names_at(url: str) -> set[str]:
    return set(file_sizes(*open_bucket(url)))


@pytest.mark.slow
def test_a_killed_run_in_a_bucket_ends_as_one_on_disk(on_disk, killed_run):
    url, output = killed_run
    assert f"{STEPS} steps; checkpoints, metrics and curves in {url}" in output
    found, expected = read_params(Path(url), STEPS), read_params(on_disk, STEPS)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert lines(small_files(url)) == lines(on_disk)
    steps = saved_steps(Path(url))
    assert steps == list(range(4, STEPS + 1, 4)), "those at multiples of --save-steps stay"


@pytest.mark.slow
def test_another_run_is_refused_with_its_address(inputs, server, killed_run):
    url, _ = killed_run
    output = said(start(inputs, server, BUCKET, url, "--seed", "5"), status=2)
    assert f"{url} holds a run that differs from this one" in output and "seed" in output


@pytest.mark.slow
def test_an_export_in_a_bucket_is_the_one_on_disk(on_disk, killed_run, tmp_path):
    url, _ = killed_run
    out = f"{BUCKET}/exports/tiny"
    for checkpoint, folder in ((url, out), (url, out), (on_disk, tmp_path / "export")):
        words = ["export", "--checkpoint", str(checkpoint), "--out", str(folder)]
        assert coder_jax_command.main(words) == 0  # the second replaces the first
    encoders = [TermEncoder.from_pretrained(folder) for folder in (out, str(tmp_path / "export"))]
    vectors = [encoder.encode(TERMS) for encoder in encoders]
    np.testing.assert_array_equal(*vectors)
    assert names_at(out) == {
        str(file.relative_to(tmp_path / "export"))
        for file in (tmp_path / "export").rglob("*")
        if file.is_file()
    }
    words = ["export", "--checkpoint", url, "--out", f"{BUCKET}/data"]
    assert coder_jax_command.main(words) == 2, "a dataset is not overwritten by an export"


@pytest.mark.slow
def test_two_machines_with_nothing_but_the_bucket_give_the_run_of_one(inputs, server, on_disk):
    url = f"{BUCKET}/runs/two"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    processes = [
        start(inputs, server, BUCKET, url, process=index, processes=2, port=port)
        for index in range(2)
    ]
    first, second = (said(process) for process in processes)
    assert f"in {url}" in first and f"in {url}" not in second
    found, expected = read_params(Path(url), STEPS), read_params(on_disk, STEPS)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.linalg.norm(one - other) <= 1e-6 * np.linalg.norm(other) + 1e-9


@pytest.mark.slow
def test_a_damaged_checkpoint_is_set_aside_when_asked(inputs, server, on_disk):
    url = f"{BUCKET}/runs/damaged"
    said(start(inputs, server, BUCKET, url))
    files = open_bucket(url)[0]
    large = max(
        (size, name)
        for name, size in file_sizes(*open_bucket(f"{url}/checkpoints/{STEPS}/params")).items()
    )[1]
    files.pipe_file(f"{url}/checkpoints/{STEPS}/params/{large}", os.urandom(1000))
    output = said(start(inputs, server, BUCKET, url), status=2)
    assert f"checkpoint {url}/checkpoints/{STEPS} cannot be read" in output
    output = said(start(inputs, server, BUCKET, url, "--restore-step", "12"))
    assert f"renamed checkpoint {STEPS} to {url}/checkpoints/{STEPS}.unreadable" in output
    found, expected = read_params(Path(url), STEPS), read_params(on_disk, STEPS)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert any(name.startswith(f"{STEPS}.unreadable/") for name in names_at(f"{url}/checkpoints"))


@pytest.mark.parametrize(
    "error", [ValueError("Error writing {}/8/params/manifest.ocdbt: denied"), OSError("denied")]
)
def test_a_save_that_the_bucket_refuses_is_said(error):
    folder = _checkpoint_folder(f"{BUCKET}/runs/refused")
    problem = type(error)(str(error).format(folder))
    with pytest.raises(BadInput, match=r"runs/refused.*denied.*See to the bucket"):
        with _explain_failed_save(folder):
            raise problem
    with pytest.raises(ValueError, match="another"):
        with _explain_failed_save(folder):
            raise ValueError("another")


UNREACHABLE = {
    "no bucket": ({}, "s3://no-such-bucket/run", "bucket does not exist"),
    "no credentials": (
        {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": "/none"},
        f"{BUCKET}/run",
        "credentials",
    ),
    "no server": ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, f"{BUCKET}/run", "Could not connect"),
}


@pytest.mark.slow  # one waits until a host gives up
@pytest.mark.parametrize("case", UNREACHABLE)
def test_a_bucket_that_cannot_be_reached_is_said_soon(server, repo, case):
    changes, url, problem = UNREACHABLE[case]
    code = (
        "import sys; from data_pipeline.process import run_command; "
        "from coder_jax.training.run_folder import RunFiles; "
        "sys.exit(run_command(lambda: RunFiles(sys.argv[1])))"
    )
    settings = with_server(server) | changes | {"PYTHONPATH": str(repo)}
    began = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-c", code, url], env=settings, capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 2, result.stderr
    assert f"{url} cannot be read" in result.stderr and problem in result.stderr
    assert "Traceback" not in result.stderr
    assert time.monotonic() - began < 180, "seconds, on a machine with nothing else to do"
