"""Arguments that several verbs share: those of an encoder, and what of a dictionary to take."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from coder_jax.models.bert_config import POOLINGS
from data_pipeline.process.progress import tell
from data_pipeline.terminology.clean import ALL_IN_WORDS

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder

TERMS_PER_CHUNK = 1 << 16  # encoded and written at a time: what a kill may lose


def add_model_arguments(
    parser: argparse._ActionsContainer, *, several_poolings: bool = False
) -> None:
    """The arguments that choose an encoder; with `several_poolings`, --pooling takes a list."""
    parser.add_argument(
        "--model", required=True, metavar="FOLDER_OR_HUB_ID", help="the encoder to use"
    )
    parser.add_argument(
        "--pooling",
        nargs="+" if several_poolings else None,
        choices=POOLINGS,
        help="how a term becomes a vector (default: the model's own, or cls)",
    )
    parser.add_argument(
        "--cleaning",
        metavar="RULES",
        help=f"rules that terms go through first (default: the model's). {ALL_IN_WORDS}",
    )
    parser.add_argument(
        "--max-length", type=int, metavar="TOKENS", help="cut longer terms (default: the model's)"
    )
    parser.add_argument(
        "--attend-padding",
        action="store_true",
        default=None,
        help="as the published CODER checkpoints were trained; use with --pooling pooler",
    )
    parser.add_argument(
        "--dtype",
        choices=("auto", "float32", "bfloat16"),
        default="float32",
        help="arithmetic of the encoder; auto, as in training, is bfloat16 on an accelerator and "
        "float32 on CPUs (default: float32, with which published scores compare)",
    )


def load_encoder(args: argparse.Namespace, pooling: str | None) -> TermEncoder:
    """The encoder of the arguments of `add_model_arguments`; what was loaded goes to stderr."""
    # Imported here, as they import jax: `--help` stays quick.
    from coder_jax.devices.accelerator import arithmetic
    from coder_jax.encoding.encoder import TermEncoder

    encoder = TermEncoder.from_pretrained(
        args.model,
        pooling,
        cleaning=args.cleaning,
        max_length=args.max_length,
        attend_padding=args.attend_padding,
        dtype=arithmetic(args.dtype),
    )
    tell(encoder.report)
    tell(f"terms become vectors by {encoder.settings}")
    return encoder


def add_dictionary_choices(group: argparse._ActionsContainer) -> None:
    """What of a dictionary is taken, as `read_dictionary` does it."""
    group.add_argument(
        "--dictionary-languages",
        nargs="+",
        metavar="LANGUAGE",
        help="of a dataset or release, take the terms in these languages only (such as ENG)",
    )
    group.add_argument(
        "--dictionary-sources",
        nargs="+",
        metavar="SAB",
        help="of a dataset or release, take the terms of these vocabularies only (such as "
        "SNOMEDCT_US)",
    )
