"""Export a training run as a folder that Hugging Face's libraries open; upload it if asked.

The folder opens with transformers (AutoModel, AutoTokenizer), sentence-transformers and
coder_jax.TermEncoder. It holds safetensors weights, the tokenizer, the pooling, a model card with
what is known of the run, and the relation matrices. Its tokenizer cleans terms as coder_jax does,
whatever library reads it; a string that is a special token, such as [MASK], stays one there alone.
Its vectors are compared with the run's before it gets its name; a difference fails the export. This
needs PyTorch. --onnx also writes the encoder for ONNX Runtime, which needs the extra onnx; encode
with it by `--backend onnx`.

Of a run with classes (recipes mlnorm and mlnorm_classes) it also holds the head and the classes
(classes.safetensors), the concept and semantic groups of each (classes.tsv), and
concept_classifier.py, which tells the concepts of mentions with PyTorch and transformers alone, and
whose probabilities are compared with the run's. `normalize` and `evaluate` take such a folder.

Of a run of BNE (recipe bne) it holds the encoder of names, its words with their vectors, and
name_encoder.py, the encoder in PyTorch, which is also its sentence-transformers module:
SentenceTransformer(FOLDER, trust_remote_code=True). transformers' AutoModel does not open it.

Examples:
  python -m coder_jax export --checkpoint runs/demo/run --out my-coder
  python -m coder_jax export --checkpoint runs/long --out my-coder --interpolate auto
  python -m coder_jax export --checkpoint runs/long --out my-coder-07 --interpolate 0.7
  python -m coder_jax export --checkpoint runs/demo/run --out my-coder --onnx --int8
  python -m coder_jax export --checkpoint runs/s2 --out mlnorm
  python -m coder_jax export --checkpoint runs/demo/run --out my-coder --pytorch-bin \\
      --push-to-hub my-organisation/my-coder
"""

from __future__ import annotations

import copy
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from data_pipeline.files.identity import PROVENANCE
from data_pipeline.flags import Flag, command_words
from data_pipeline.process import BadInput

if TYPE_CHECKING:
    from coder_jax.training.system import SavedRun

COMMON = (
    *("--checkpoint", "--out", "--step", "--average", "--interpolate", "--license"),
    *("--pytorch-bin", "--onnx", "--int8", "--push-to-hub", "--private"),
)


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The options of `export`."""

    checkpoint: Annotated[Path, Flag("folder of a training run; may be in a bucket", "RUN")]
    out: Annotated[
        Path,
        Flag("folder to write; may be in a bucket, and an earlier export there is replaced", "DIR"),
    ]
    step: Annotated[
        int | None,
        Flag(
            "which checkpoint to export (default: the newest, but the best of recall, rank and BNE "
            "with --development)",
            "STEP",
        ),
    ] = None
    average: Annotated[
        int | None,
        Flag(
            "average the encoders of so many checkpoints, up to that of --step",
            "CHECKPOINTS",
        ),
    ] = None
    interpolate: Annotated[
        str | None,
        Flag(
            "average with the encoder before training: auto, or a number from 0 (that one alone) "
            "to 1 (the trained one alone, as without this). After a long run 0.6 to 0.8 keeps the "
            "new names and what the encoder knew before. auto takes the smallest weight that is "
            "about best on the held-out names of the dataset and not below the start on a second "
            "set (--not-below)",
            "WEIGHT",
        ),
    ] = None
    not_below: Annotated[
        Path | None,
        Flag(
            "with --interpolate auto: mentions of your own (mention<TAB>concept) on which the "
            "export must not be below the start, looked up in the dictionary.tsv beside FILE, or "
            "else in that of the held-out names; no public test set, whose scores would mean less "
            "afterwards (default: the held-out names as people write them)",
            "FILE",
        ),
    ] = None
    license: Annotated[
        str | None,
        Flag(
            "license for the model card, as the hub spells it (default: that of the initial "
            "encoder)",
            "ID",
        ),
    ] = None
    pytorch_bin: Annotated[bool, Flag("also write pytorch_model.bin, for old software")] = False
    onnx: Annotated[
        bool,
        Flag(
            "also write model.onnx, for ONNX Runtime; its vectors are compared with the others' to "
            "1e-4"
        ),
    ] = False
    int8: Annotated[
        bool,
        Flag(
            "with --onnx, also write model_int8.onnx, a quarter of the size; the model card says "
            "how near its vectors are, and how many held-out names each finds, if the run has any"
        ),
    ] = False
    push_to_hub: Annotated[
        str | None,
        Flag("upload to this repository of the Hugging Face Hub, organisation/name", "REPO"),
    ] = None
    private: Annotated[
        bool, Flag("with --push-to-hub: make the repository private, before anything is sent")
    ] = False


OPTIONS = ExportOptions


def run(options: ExportOptions) -> int:
    # Imported here, as they import jax: `--help` stays quick.
    from coder_jax.export.folder import publish_export, push_to_hub
    from coder_jax.export.model_card import LICENSE
    from coder_jax.export.onnx_files import add_onnx
    from coder_jax.systems.best_weight import choose_weight
    from coder_jax.systems.encoder_system import averaged, interpolated
    from coder_jax.systems.trained_models import load_run
    from data_pipeline.files.buckets import address, in_bucket

    auto = options.interpolate == "auto"
    if options.int8 and not options.onnx:
        raise BadInput("--int8 needs --onnx: give both")
    if options.not_below and not auto:
        raise BadInput("--not-below needs --interpolate auto: give both")
    system, run = load_run(options.checkpoint, options.step)
    if options.average is not None:
        run = averaged(options.checkpoint, run, options.average)
    card: dict[str, Any] = {}
    if options.license:  # the name and link are of the initial encoder's
        card = dict.fromkeys(LICENSE) | {"license": options.license}
    card["commands"] = _commands(run)
    if auto:
        choice = choose_weight(system, run, options.not_below)
        run, card["results"] = choice.run, choice.rows
    elif options.interpolate is not None:
        run = interpolated(system, run, _weight(options.interpolate))
    with tempfile.TemporaryDirectory(prefix="coder_jax-export-") as temporary:
        remote = in_bucket(options.out)
        out = Path(temporary) / "export" if remote else options.out
        differences = system.export(run, out, card=card, pytorch_bin=options.pytorch_bin)
        if options.onnx:
            checks = add_onnx(out, int8=options.int8, heldout=run.folder / "heldout")
        if remote:
            publish_export(out, options.out)
        checked = ", ".join(f"{name} {worst:.1e}" for name, worst in differences.items())
        where = address(options.out) if remote else out
        what = f" ({run.weights})" if run.weights else ""
        checked += f", {checks}" if options.onnx else ""
        print(f"{where}: step {run.step}{what} exported; largest difference of vectors: {checked}")
        if options.push_to_hub:
            url = push_to_hub(out, options.push_to_hub, private=options.private)
            print(f"uploaded: {url}")
    return 0


def _commands(run: SavedRun) -> list[str]:
    """The commands that build the dataset of a run and train it again, as far as run.json says."""
    from coder_jax.systems.recipes import RECIPES
    from coder_jax.training.system import ONCE

    made = run.identity.get("dataset", {}).get(PROVENANCE, {})
    commands = [made["command"]] if "command" in made else []
    config = copy.deepcopy(run.identity["config"])
    # A recipe may be in a file of the user's; what was made longer had another rate before.
    if config["recipe"] not in RECIPES or "extended" in run.identity:
        return commands
    optimizer, model = config["optimizer"], config["system"].get("model", {})
    if config["system"].get("refresh_steps") == ONCE:
        config["system"]["refresh_steps"] = 0  # as people give it
    steps, epochs = optimizer.pop("steps"), optimizer.pop("epochs", 0.0)
    length = ["--epochs", str(epochs)] if epochs else ["--steps", str(steps)]
    length += ["--warmup-steps", str(round(optimizer.pop("warmup_steps")))]
    encoder = run.identity["start"].get("encoder", {})
    if "init" in model and "run" not in encoder and not config["start"]:
        model["init"] = encoder.get("base_model") or model["init"]
    words = command_words(config, RECIPES[config["recipe"]]())
    train = ["python", "-m", "coder_jax", "train", "--recipe", config["recipe"], *words, *length]
    return [*commands, shlex.join([*train, "--data", "DATASET", "--out", "RUN"])]


def _weight(text: str) -> float:
    """The number in --interpolate; BadInput for anything else."""
    try:
        return float(text)
    except ValueError:
        raise BadInput(
            f"--interpolate {text}: expected the trained encoder's weight, 0 to 1, or auto"
        ) from None
