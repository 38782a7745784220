"""Export a training run as a Hugging Face folder, and perhaps upload it.

The folder opens with transformers (AutoModel, AutoTokenizer), sentence-transformers and
coder_jax.TermEncoder. It holds safetensors weights, the tokenizer, the pooling, a model card with
what is known of the run, and the relation matrices. Its tokenizer cleans terms as coder_jax does,
whatever library reads it; a string that is a special token, such as [MASK], stays one there alone.
Its vectors are compared with the run's before it gets its name; a difference fails the export. This
needs PyTorch.

Of a run with classes (recipes mlnorm and mlnorm_classes) it also holds the head and the classes
(classes.safetensors), the concept and semantic groups of each (classes.tsv), and
concept_classifier.py, which tells the concepts of mentions with PyTorch and transformers alone, and
whose probabilities are compared with the run's. `normalize` and `evaluate` take such a folder.

Of a run of BNE (recipe bne) it holds the encoder of names, its words with their vectors, and
name_encoder.py, the encoder in PyTorch, which is also its sentence-transformers module:
SentenceTransformer(FOLDER, trust_remote_code=True). transformers' AutoModel does not open it.

Examples:
  python -m coder_jax export --checkpoint runs/demo/run --out my-coder
  python -m coder_jax export --checkpoint runs/long --out my-coder-07 --interpolate 0.7
  python -m coder_jax export --checkpoint runs/s2 --out mlnorm
  python -m coder_jax export --checkpoint runs/demo/run --out my-coder --pytorch-bin \\
      --push-to-hub my-organisation/my-coder
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

COMMON = (
    *("--checkpoint", "--out", "--step", "--average", "--interpolate", "--license"),
    *("--pytorch-bin", "--push-to-hub", "--private"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint",
        required=True,
        type=Path,
        metavar="RUN",
        help="folder of a training run; may be in a bucket",
    )
    parser.add_argument(
        "--out",
        required=True,
        type=Path,
        metavar="DIR",
        help="folder to write; may be in a bucket, and an earlier export there is replaced",
    )
    parser.add_argument(
        "--step",
        type=int,
        metavar="STEP",
        help="which checkpoint to export (default: the best if the recipe has a score, else the "
        "newest)",
    )
    parser.add_argument(
        "--average",
        type=int,
        metavar="CHECKPOINTS",
        help="average the encoders of so many checkpoints, the last being that of --step",
    )
    parser.add_argument(
        "--interpolate",
        type=float,
        metavar="WEIGHT",
        help="average with the encoder before training (1: only the trained one, 0: only the old "
        "one). After a long run 0.6 to 0.8 keeps the new names and what the old encoder knew "
        "(docs/results/systems.md). Export several, and take the smallest weight that is "
        "hardly below the best by `evaluate` on the dataset's heldout/, not on the test set",
    )
    parser.add_argument(
        "--license",
        metavar="ID",
        help="license for the model card, as the hub spells it (default: that of the initial "
        "encoder)",
    )
    parser.add_argument(
        "--pytorch-bin", action="store_true", help="also write pytorch_model.bin, for old software"
    )
    parser.add_argument(
        "--push-to-hub",
        metavar="REPO",
        help="upload to this repository of the Hugging Face Hub, organisation/name",
    )
    parser.add_argument(
        "--private", action="store_true", help="make the repository private if it is new"
    )


def run(args: argparse.Namespace) -> int:
    # Imported here, as they import jax: `--help` stays quick.
    from coder_jax.export.folder import publish_export, push_to_hub
    from coder_jax.systems.encoder_system import averaged, interpolated
    from coder_jax.systems.trained_models import load_run
    from data_pipeline.files.buckets import address, in_bucket

    system, run = load_run(args.checkpoint, args.step)
    if args.average is not None:
        run = averaged(args.checkpoint, run, args.average)
    if args.interpolate is not None:
        run = interpolated(system, run, args.interpolate)
    card = {"license": args.license} if args.license else {}
    with tempfile.TemporaryDirectory(prefix="coder_jax-export-") as temporary:
        remote = in_bucket(args.out)
        out = Path(temporary) / "export" if remote else args.out
        differences = system.export(run, out, card=card, pytorch_bin=args.pytorch_bin)
        if remote:
            publish_export(out, args.out)
        checked = ", ".join(f"{name} {worst:.1e}" for name, worst in differences.items())
        where = address(args.out) if remote else out
        what = f" ({run.weights})" if run.weights else ""
        print(f"{where}: step {run.step}{what} exported; largest difference of vectors: {checked}")
        if args.push_to_hub:
            url = push_to_hub(out, args.push_to_hub, private=args.private)
            print(f"uploaded: {url}")
    return 0
