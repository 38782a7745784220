"""What is changed of Orbax: folders in buckets, gs:// and above all s3://; and what it prints.

Orbax writes arrays through tensorstore, which has a driver for S3, but hands it only gs:// and
local paths (google/orbax issue 359). Here its three functions that tell them apart learn s3:// as
well. Small files go through epath and fsspec.
"""

import logging
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
import orbax.checkpoint as ocp
from etils import epath
from etils.epath import gpath
from orbax.checkpoint._src.path import gcs_utils
from orbax.checkpoint._src.serialization import tensorstore_utils

from data_pipeline.files.buckets import address, in_bucket, open_bucket
from data_pipeline.process.errors import BadInput

Spec = dict[str, Any]


def checkpoint_folder(out: str | Path) -> Path:
    """OUT/checkpoints as Orbax takes it; OUT may be on this machine or in a bucket.

    Raises:
        BadInput: if the package for such addresses is missing, or this Orbax cannot be told.
    """
    if not in_bucket(out):
        return (Path(out) / "checkpoints").resolve()
    url = address(out)
    files, _ = open_bucket(url)
    # tensorstore writes into the same folders, so a listing that fsspec keeps is soon wrong: of a
    # checkpoint that makes place for another only what was in the listing would be deleted.
    for protocol in (files.protocol,) if isinstance(files.protocol, str) else files.protocol:
        fsspec.config.conf.setdefault(protocol, {})["use_listings_cache"] = False
    # Where TensorFlow is installed, epath would use its file systems, which have no s3://.
    os.environ["EPATH_USE_TF"] = "false"
    gpath._is_tf_installed.cache_clear()
    if url.startswith("s3://"):
        allow_s3()
    return epath.Path(f"{url}/checkpoints")


def atomicity(folder: Path) -> ocp.options.AtomicityOptions:
    """How a checkpoint becomes whole: by its new name or, in a bucket, by a file written last."""
    modes = ocp.options.AtomicityMode
    mode = modes.COMMIT_FILE if in_bucket(folder) else modes.ATOMIC_RENAME
    return ocp.options.AtomicityOptions(mode=mode)


def allow_s3() -> None:
    """Make this process's Orbax take s3:// addresses; the second call changes nothing.

    Raises:
        BadInput: if Orbax has other functions than those that are known here.
    """
    probe = "s3://bucket/folder"
    try:
        if tensorstore_utils.build_kvstore_tspec(probe, use_ocdbt=False)["driver"] == "s3":
            return
        extend(gcs_utils, "get_kvstore_for_gcs", lambda known: lambda path: s3_or(known, path))
        extend(
            tensorstore_utils,
            "_use_gcs_driver",
            lambda known: lambda path: path.startswith("s3://") or known(path),
        )
        extend(
            tensorstore_utils,
            "_normalize_path",
            lambda known: lambda path: re.sub("^s3:/(?!/)", "s3://", known(path)),
        )
        driver = tensorstore_utils.build_kvstore_tspec(probe, use_ocdbt=False)["driver"]
    except (AttributeError, NameError, KeyError, TypeError, ValueError) as error:
        driver = f"error: {error}"
    if driver != "s3":
        raise BadInput(
            f"checkpoints cannot be kept at s3:// with orbax-checkpoint {ocp.__version__} "
            f"({driver}); install the version of constraints.txt, or mount the bucket as a folder"
        )


def extend(module: Any, name: str, around: Callable[[Any], Any]) -> None:
    """Put what `around` makes of a module's function in its place."""
    setattr(module, name, around(getattr(module, name)))


def s3_or(known: Callable[[str], Spec], path: str) -> Spec:
    """tensorstore's description of an s3:// address; of any other what `known` makes of it.

    fsspec reads end point and region from the environment, but tensorstore must be told.
    """
    if not path.startswith("s3://"):
        return known(path)
    parts = urlsplit(path)
    spec: Spec = {"driver": "s3", "bucket": parts.netloc, "path": parts.path.lstrip("/")}
    for option, names in (
        ("endpoint", ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")),
        ("aws_region", ("AWS_REGION", "AWS_DEFAULT_REGION")),
    ):
        values = [os.environ[name] for name in names if os.environ.get(name)]
        spec |= {option: values[0]} if values else {}
    if os.environ.get("AWS_ACCESS_KEY_ID"):  # else it looks for files first, and says so at length
        spec["aws_credentials"] = {"type": "environment"}
    return spec


def quieten() -> None:
    """From now on drop log records with a traceback, and the echoes of reads and writes dropped.

    One full disk or damaged file gives pages of tracebacks, one for each array under way, and the
    message that says what to do would be lost among them: what failed is raised as well. And one
    item of a checkpoint, read alone, has no metadata file of a whole one, which Orbax warns of.
    """
    for name in ("absl", "asyncio"):
        logging.getLogger(name).addFilter(_is_news)
    if sys.unraisablehook is not _without_echoes:
        _before.append(sys.unraisablehook)
        sys.unraisablehook = _without_echoes


_before: list[Any] = []


def _is_news(record: logging.LogRecord) -> bool:
    return record.exc_info is None and not str(record.msg).startswith("Metadata file does not")


def _without_echoes(unraisable: Any) -> None:
    if str(unraisable.exc_value) != "Event loop is closed":
        _before[-1](unraisable)
