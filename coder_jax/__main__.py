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

import argparse
import importlib
from collections.abc import Sequence
from types import ModuleType

from coder_jax.devices.xla_settings import set_up_xla
from data_pipeline.process import (
    QUIET,
    check_flags,
    did_you_mean,
    message_of,
    quiet,
    run_command,
    without_other_bars,
)

VERBS = {
    "train": "train an encoder on a built dataset, or go on where a run stopped",
    "evaluate": "score an encoder on benchmarks",
    "encode": "turn terms into vectors",
    "extend-vocabulary": "give an encoder word pieces or characters of a terminology",
    "candidates": "find the concepts nearest to mentions, for a ranker to learn from",
    "normalize": "map free-text mentions to the concepts of a dictionary",
    "export": "write a checkpoint as a folder for the Hugging Face Hub",
    "report": "put scores, curves, maps and neighbours of an encoder into one HTML file",
}
WIDTH = max(map(len, VERBS))
HELP = {"-h", "--help"}


def usage() -> str:
    """What to type."""
    verbs = "\n".join(f"  {verb:<{WIDTH}} {what}" for verb, what in VERBS.items())
    return (
        f"usage: python -m coder_jax VERB ...\n\n{verbs}\n\n"
        "`python -m coder_jax VERB --help` explains a verb, with examples.\n"
        "Datasets are built with `python -m data_pipeline.build --help`."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; its exit status is that of `data_pipeline.process.run_command`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in HELP:

        def show() -> int:
            print(usage())
            return 0 if words else 2

        return run_command(show, when_asked=None)
    verb, rest = words[0], words[1:]
    if verb not in VERBS:
        said = f"there is no verb {verb!r}{did_you_mean(verb, VERBS)}"
        print(f"error: {said}\n\n{usage()}", file=sys.stderr)
        return 2
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

        return run_on_hosts(lambda: work(verb, command, rest))

    everywhere = getattr(command, "ON_ALL_HOSTS", False) and not HELP & set(rest)
    when_asked = getattr(command, "WHEN_ASKED_TO_STOP", None)
    when_stopped = getattr(command, "WHEN_STOPPED", "stopped; the same command goes on")
    return run_command(
        on_all_hosts if everywhere else lambda: work(verb, command, rest),
        when_asked=when_asked,
        when_stopped=when_stopped,
    )


def work(verb: str, command: ModuleType, words: list[str]) -> int:
    """Read the words behind the verb, and do what they say."""
    if hasattr(command, "parse"):  # train: its flags follow from a typed configuration
        parsed = command.parse(words)
        wanted = parsed.run.quiet
    else:
        parser = argparse.ArgumentParser(
            prog=f"python -m coder_jax {verb}",
            description=command.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(parser)
        parser.add_argument("--quiet", action="store_true", help=QUIET)
        check_flags(parser, words)
        parsed = parser.parse_args(words)
        wanted = parsed.quiet
    from coder_jax.devices.mesh import devices_explained  # imports jax: --help does without

    with quiet(wanted), devices_explained():
        return command.run(parsed)


if __name__ == "__main__":
    sys.exit(main())
