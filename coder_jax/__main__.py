"""python -m coder_jax VERB: train, evaluate, encode, normalize, export."""

import argparse
import errno
import importlib
import sys
from collections.abc import Sequence

from data_pipeline.errors import BadInput

# A disk that is full or may not be written to is the user's to mend: no traceback.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS)

VERBS = {
    "train": "train an encoder on a built dataset, or go on where a run stopped",
    "evaluate": "score an encoder on benchmarks",
    "encode": "turn terms into vectors",
    "normalize": "map free-text mentions to the concepts of a dictionary",
    "export": "write a checkpoint as a folder for the Hugging Face Hub",
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
    """Run one verb; 0 if it did its work, 2 if what it was given cannot be used."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return 0 if words else 2
    verb, rest = words[0], words[1:]
    if verb not in VERBS:
        print(f"error: there is no verb {verb!r}\n\n{usage()}", file=sys.stderr)
        return 2
    command = importlib.import_module(f"coder_jax.commands.{verb}")
    try:
        if hasattr(command, "parse"):  # train: its flags follow from a typed configuration
            return command.run(command.parse(rest))
        parser = argparse.ArgumentParser(
            prog=f"python -m coder_jax {verb}",
            description=command.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(parser)
        return command.run(parser.parse_args(rest))
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; a training run goes on with the same command", file=sys.stderr)
        return 130
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        print(f"error: {error}; make room or check the rights, and try again", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
