"""python -m coder_jax VERB: train, evaluate, encode, normalize, export, report."""

import argparse
import importlib
import sys
from collections.abc import Sequence

from coder_jax.devices.xla_settings import set_up_xla
from data_pipeline.process.command import run_command

VERBS = {
    "train": "train an encoder on a built dataset, or go on where a run stopped",
    "evaluate": "score an encoder on benchmarks",
    "encode": "turn terms into vectors",
    "normalize": "map free-text mentions to the concepts of a dictionary",
    "export": "write a checkpoint as a folder for the Hugging Face Hub",
    "report": "put scores, curves, maps and neighbours of an encoder into one HTML file",
}


def usage() -> str:
    """What to type."""
    verbs = "\n".join(f"  {verb:<10} {what}" for verb, what in VERBS.items())
    return (
        f"usage: python -m coder_jax VERB ...\n\n{verbs}\n\n"
        "`python -m coder_jax VERB --help` explains a verb, with examples.\n"
        "Datasets are built with `python -m data_pipeline.build --help`."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; its exit status is that of `data_pipeline.process.command.run_command`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return 0 if words else 2
    verb, rest = words[0], words[1:]
    if verb not in VERBS:
        print(f"error: there is no verb {verb!r}\n\n{usage()}", file=sys.stderr)
        return 2
    set_up_xla()
    command = importlib.import_module(f"coder_jax.commands.{verb}")

    def work() -> int:
        if hasattr(command, "parse"):  # train: its flags follow from a typed configuration
            return command.run(command.parse(rest))
        parser = argparse.ArgumentParser(
            prog=f"python -m coder_jax {verb}",
            description=command.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(parser)
        return command.run(parser.parse_args(rest))

    def on_all_hosts() -> int:
        from coder_jax.devices.hosts import run_on_hosts  # imports jax, which --help can do without

        return run_on_hosts(work)

    everywhere = getattr(command, "ON_ALL_HOSTS", False) and not {"-h", "--help"} & set(rest)
    when_asked = getattr(command, "WHEN_ASKED_TO_STOP", None)
    when_stopped = getattr(command, "WHEN_STOPPED", "stopped; the same command goes on")
    return run_command(
        on_all_hosts if everywhere else work, when_asked=when_asked, when_stopped=when_stopped
    )


if __name__ == "__main__":
    sys.exit(main())
