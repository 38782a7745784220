"""Batches as .npz files: written once where TensorFlow is, read where it is not.

    python -m data_pipeline.batch_files --data datasets/umls --out batches --steps 1000 \\
        --groups 8 --triplets 16 --repeats 8
    python -m data_pipeline.batch_files --data datasets/fr_mirror --out batches --steps 1000 \\
        --draw terms --terms 128 --languages FRE ENG

writes one file per step, with the dataset's manifest, tokenizer and held-out terms beside them;
`python -m coder_jax train --data batches` then trains on them without TensorFlow. The files hold
the terms of a step unpacked: passes, hosts and devices are the business of the run that reads them.
--draw terms is for the recipes that learn classes (mlnorm): each term once an epoch, and the
classes lie beside the files.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from data_pipeline.process import QUIET, quiet, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m data_pipeline.batch_files",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="What a batch is made of (--groups, --triplets, ...) as in training; `python -m "
        "coder_jax train --help` explains each, of the recipe that is to be trained.",
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of a built dataset")
    parser.add_argument("--out", type=Path, required=True, help="new folder for the batches")
    parser.add_argument("--steps", type=int, required=True, help="write steps 0 to STEPS - 1")
    parser.add_argument(
        "--draw",
        help="what fills a batch: relations, concepts or synonyms, as --draw of training, or terms",
    )
    parser.add_argument("--quiet", action="store_true", help=QUIET)
    known, rest = parser.parse_known_args(arguments)

    def work() -> int:
        # Imported here: what is not installed is then said by name, and --help is quick.
        import tyro

        from data_pipeline.batches.files import write_batches
        from data_pipeline.batches.spec import BatchSpec, TermSpec
        from data_pipeline.batches.stream import BatchMaker
        from data_pipeline.dataset.store import open_dataset

        spec: BatchSpec | TermSpec
        if known.draw == "terms":
            spec = tyro.cli(TermSpec, args=rest, prog=parser.prog)
        else:
            draw = ["--draw", known.draw] if known.draw else []
            spec = tyro.cli(BatchSpec, args=[*draw, *rest], prog=parser.prog)
        maker = BatchMaker(open_dataset(known.data), spec)
        with quiet(known.quiet):
            write_batches(maker, known.out, 0, known.steps)
        print(f"{known.steps} batches of {spec.terms} terms in {known.out}")
        return 0

    return run_command(
        work,
        when_asked="stopping; the same command starts over",
        when_stopped="stopped; the same command starts over",
    )


if __name__ == "__main__":
    sys.exit(main())
