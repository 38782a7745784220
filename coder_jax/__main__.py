"""python -m coder_jax VERB: train, evaluate, encode, candidates, normalize, ..."""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036
    print(
        f"error: this is Python {sys.version.split()[0]} ({sys.executable}); coder_jax needs 3.11, "
        "3.12 or 3.13: use the environment that `bash launch/train.sh` makes "
        "(source .venv/bin/activate)",
        file=sys.stderr,
    )
    sys.exit(2)

import importlib
import importlib.metadata
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from coder_jax.commands.demo import main as demo
from coder_jax.devices.xla_settings import set_up_xla
from data_pipeline.build_dataset.__main__ import main as build
from data_pipeline.flags import HELP_FLAGS, parsed
from data_pipeline.process import (
    did_you_mean,
    message_of,
    quiet,
    run_command,
    without_other_bars,
)

_PURPOSES = {
    "try it": {
        "demo": "train, score and export a small encoder on real data, in minutes",
    },
    "map terms to concepts": {
        "normalize": "map free-text terms to the concepts of a dictionary",
        "diff": "list the decisions that a new release of a vocabulary affects",
        "encode": "turn terms into vectors",
        "serve": "answer other programs over HTTP, also as OpenAI's embeddings",
    },
    "train an encoder": {
        "build": "make a dataset from a terminology: UMLS, SNOMED CT, an ontology, your own table",
        "train": "train an encoder on a dataset, or resume a run",
        "extend-vocabulary": "add word pieces or characters of a terminology to an encoder",
        "candidates": "find the nearest concepts of mentions, to train the recipe rank on",
    },
    "compare encoders": {
        "evaluate": "score an encoder on benchmarks, or compare the scores of two",
        "leaderboard": "score every encoder of a list on every test set, in one table",
        "report": "show scores, curves, maps and neighbours of an encoder in one HTML file",
    },
    "publish": {
        "export": "write a checkpoint as a folder for the Hugging Face Hub",
    },
}
_VERBS = {verb: what for verbs in _PURPOSES.values() for verb, what in verbs.items()}
_WIDTH = max(map(len, _VERBS))
_HELP = set(HELP_FLAGS)


def _usage() -> str:
    """The usage text."""
    lines = ["usage: python -m coder_jax VERB [options]", ""]
    for purpose, verbs in _PURPOSES.items():
        lines += [f"{purpose}:", *(f"  {verb:<{_WIDTH}}  {what}" for verb, what in verbs.items())]
    return "\n".join(
        [
            *lines,
            "",
            "For example, the demo, and then its list with its encoder and dictionary:",
            "  python -m coder_jax demo",
            "  python -m coder_jax normalize --model runs/demo/export --dictionary "
            "runs/demo/dataset \\",
            "      --column local_term --out coded.csv runs/demo/list.csv",
            "An encoder of your own: build, train, export, then evaluate or normalize.",
            "",
            "`python -m coder_jax VERB --help` explains a verb, with examples; --version shows the "
            "version.",
            "Data for the recipes recall, rank and bne: python -m data_pipeline.build_mentions, "
            ".derive_keywords,",
            ".skip_gram (--help).",
        ]
    )


def _version() -> str:
    """The version of the package that runs."""
    try:
        return importlib.metadata.version("coder-jax")
    except importlib.metadata.PackageNotFoundError:  # a clone that was not installed
        project = Path(__file__).parent.parent / "pyproject.toml"
        if not project.is_file():
            return "of an unknown version"
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; its exit status is that of `data_pipeline.process.run_command`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in _HELP or words[0] == "--version":

        def show() -> int:
            print(f"coder_jax {_version()}" if "--version" in words[:1] else _usage())
            return 0 if words else 2

        return run_command(show, when_asked=None)
    verb, rest = words[0], words[1:]
    if verb not in _VERBS:
        said = f"there is no verb {verb!r}{did_you_mean(verb, _VERBS)}"
        print(f"error: {said}\n\n{_usage()}", file=sys.stderr)
        return 2
    if verb == "build":
        return build(rest, "python -m coder_jax build")
    if verb == "demo":
        return demo(rest)
    without_other_bars(rest)
    try:
        set_up_xla()
        command = importlib.import_module(f"coder_jax.commands.{verb.replace('-', '_')}")
    except ModuleNotFoundError as error:
        if (message := message_of(error)) is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return 2

    def on_all_hosts() -> int:
        from coder_jax.devices.hosts import run_on_hosts  # imports jax, which --help can do without

        return run_on_hosts(lambda: _work(verb, command, rest))

    everywhere = getattr(command, "ON_ALL_HOSTS", False) and not _HELP & set(rest)
    when_asked = getattr(command, "WHEN_ASKED_TO_STOP", None)
    when_stopped = getattr(command, "WHEN_STOPPED", "stopped; the same command goes on")
    return run_command(
        on_all_hosts if everywhere else lambda: _work(verb, command, rest),
        when_asked=when_asked,
        when_stopped=when_stopped,
    )


def _work(verb: str, command: ModuleType, words: list[str]) -> int:
    """Parse the verb and its arguments, and run it."""
    if hasattr(command, "parse"):  # train: its flags follow from a typed configuration
        options = command.parse(words)
        wanted = options.run.quiet
    else:
        name = f"python -m coder_jax {verb}"
        options, wanted = parsed(command.OPTIONS, words, name, command.__doc__, command.COMMON)
    from coder_jax.devices.mesh import devices_explained  # imports jax: --help does without

    with quiet(wanted), devices_explained():
        if not getattr(command, "ON_ALL_HOSTS", False):
            from coder_jax.devices.hosts import alone

            alone(verb)
        return command.run(options)


if __name__ == "__main__":
    sys.exit(main())
