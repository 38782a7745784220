"""Arguments that several verbs share: of an encoder, of a dictionary, of generators and rankers."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from coder_jax.encoding.vector_files import DEFAULT_GB, LEAST_TERMS, LIMIT, kept_folder
from coder_jax.encoding.vector_files import TERMS_PER_CHUNK as TERMS_PER_CHUNK
from coder_jax.models.bert_config import POOLINGS
from data_pipeline.process import BadInput, tell
from data_pipeline.terminology.cleaning import ALL_IN_WORDS

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.systems.recall_rank.candidates import GeneratorEnsemble
    from coder_jax.systems.recall_rank.ranking import Choice
    from data_pipeline.dataset.dictionary import Dictionary


# -------------------------------------------------------------------------------------------------
# Arguments that several verbs share: those of an encoder, and what of a dictionary to take.

_MOST_NAMED = 8  # languages in a line


def add_model_arguments(
    parser: argparse._ActionsContainer,
    *,
    several_poolings: bool = False,
    several_models: Literal["", "words", "flags"] = "",
    required: bool = True,
) -> None:
    """The arguments that choose an encoder; with `several_poolings`, --pooling takes a list.

    Where it is not `required`, the command can do something without one. `several_models` says how
    several generators are given: as words behind --model, or each with a --model of its own, where
    the verb has a positional argument, which the flag would take, too. Then `args.models` has them
    all, `args.model` the first.
    """
    many = {"words": "--model A B", "flags": "--model A --model B"}.get(several_models)
    parser.add_argument(
        "--model",
        required=required,
        action=_Models if many else "store",
        nargs="+" if several_models == "words" else None,
        metavar="FOLDER_OR_HUB_ID",
        help="the encoder, a folder or a hub id"
        + (f"; only for recall several ({many}), which are averaged" if many else ""),
    )
    parser.set_defaults(models=[])
    parser.add_argument(
        "--pooling",
        nargs="+" if several_poolings else None,
        choices=POOLINGS,
        help="how a term becomes a vector (default: the model's own, or cls)",
    )
    parser.add_argument(
        "--cleaning",
        metavar="RULES",
        help=f"how terms are cleaned first (default: the model's). {ALL_IN_WORDS}",
    )
    parser.add_argument(
        "--max-length",
        type=int,
        metavar="TOKENS",
        help="cut terms to so many tokens (default: the model's)",
    )
    parser.add_argument(
        "--attend-padding",
        action="store_true",
        default=None,
        help="attend to padding, as the published CODER checkpoints were trained; use with "
        "--pooling pooler",
    )
    parser.add_argument(
        "--dtype",
        choices=("auto", "float32", "bfloat16"),
        default="float32",
        help="arithmetic of the encoder; auto, as in training, is bfloat16 on an accelerator and "
        "float32 on CPUs. Published scores compare with float32 (default: float32)",
    )


def add_cache_argument(parser: argparse._ActionsContainer) -> None:
    """--no-cache: `args.cache` says whether vectors of dictionaries are kept and read again."""
    parser.add_argument(
        "--no-cache",
        dest="cache",
        action="store_false",
        help=f"encode the dictionary again; otherwise its vectors, if it has {LEAST_TERMS:,} "
        f"terms or more, are kept in {kept_folder()} (or below CODER_JAX_CACHE) for the next time. "
        f"The oldest are deleted when all need more than {LIMIT} gigabytes ({DEFAULT_GB:g} "
        "if it is not set)",
    )


def load_encoder(args: argparse.Namespace, pooling: str | None) -> TermEncoder:
    """The encoder of the arguments of `add_model_arguments`; what was loaded goes to stderr."""
    # Imported here, as they import jax: `--help` stays quick.
    from coder_jax.devices.mesh import arithmetic
    from coder_jax.encoding.encoder import TermEncoder

    encoder = TermEncoder.from_pretrained(
        args.model,
        pooling,
        cleaning=args.cleaning,
        max_length=args.max_length,
        attend_padding=args.attend_padding,
        dtype=arithmetic(args.dtype),
    )
    if encoder.report is not None:
        tell(encoder.report)
    trained = f"; trained on terms in {_listed(encoder.languages)}" if encoder.languages else ""
    tell(f"terms become vectors by {encoder.settings}{trained}")
    return encoder


def warn_of_languages(encoder: TermEncoder, dictionary: Dictionary) -> None:
    """Says which terms of a dictionary are in languages that the encoder was not trained on.

    Nothing is said where either is unknown.
    """
    if not (encoder.languages and dictionary.languages):
        return
    others = Counter(dictionary.languages)
    for language in encoder.languages:
        del others[language]
    if others:
        print(
            f"warning: {others.total():,} of {len(dictionary.terms):,} terms of the dictionary are "
            f"in {_listed([name for name, _ in others.most_common()])}; the encoder was trained on "
            f"terms in {_listed(encoder.languages)}: expect it to find less among the others",
            file=sys.stderr,
        )


def _listed(languages: Sequence[str]) -> str:
    """Languages in words, of many the first."""
    more = f" and {len(languages) - _MOST_NAMED} more" if len(languages) > _MOST_NAMED else ""
    return ", ".join(languages[:_MOST_NAMED]) + more


class _Models(argparse.Action):
    """One model or several: all in `models`, the first in `model`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        # Words replace those before, as of any flag; a flag for each adds up.
        namespace.models = [*namespace.models, values] if self.nargs is None else list(values)
        setattr(namespace, self.dest, namespace.models[0])


class Values(argparse.Action):
    """Values of one flag or of several, which add up; taken apart at their commas."""

    def __init__(self, *args: Any, commas: bool = True, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.commas = commas

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        words = [values] if isinstance(values, str) else values
        found = [one for word in words for one in (word.split(",") if self.commas else [word])]
        if not all(map(str.strip, found)):
            raise argparse.ArgumentError(
                self, f"found {','.join(found)!r}; expected no empty value"
            )
        before = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, [*before, *map(str.strip, found)])


def add_dictionary_choices(
    group: argparse._ActionsContainer, *, several_words: bool = True
) -> None:
    """What of a dictionary is taken, as `read_dictionary` does it.

    Args:
      group: the parser, or a group of it.
      several_words: whether a flag takes more than one word. Not so where the verb has a positional
        argument, which the flag would take, too.
    """
    nargs = "+" if several_words else None
    several = "several with commas, as in {}" + (", or blanks between them" * several_words)
    group.add_argument(
        "--dictionary-languages",
        action=Values,
        nargs=nargs,
        metavar="LANGUAGE",
        help="use only terms in these languages; for a dictionary with languages: a dataset, a "
        "release or a table; " + several.format("ENG,FRE"),
    )
    group.add_argument(
        "--dictionary-sources",
        action=Values,
        nargs=nargs,
        metavar="SAB",
        help="use only terms of these vocabularies; " + several.format("SNOMEDCT_US,MSH"),
    )
    group.add_argument(
        "--semantic-types",
        action=Values,
        commas=False,  # names of types hold commas: `read_dictionary` knows them
        nargs=nargs,
        metavar="TYPE",
        help="use only concepts of these semantic types; numbers or names, in any case "
        "('Disease or Syndrome'); " + several.format("T047,T191"),
    )


class DictionaryChoices(TypedDict):
    """The arguments of `add_dictionary_choices`, by their names in `read_dictionary`."""

    languages: list[str] | None
    sources: list[str] | None
    types: list[str] | None


def dictionary_choices(args: argparse.Namespace) -> DictionaryChoices:
    """What `read_dictionary` is to take."""
    return DictionaryChoices(
        languages=args.dictionary_languages,
        sources=args.dictionary_sources,
        types=args.semantic_types,
    )


def check_dictionary_choices(args: argparse.Namespace) -> None:
    """BadInput for a choice where there is no --dictionary to choose from."""
    for flag, given in (
        ("--dictionary-languages", args.dictionary_languages),
        ("--dictionary-sources", args.dictionary_sources),
        ("--semantic-types", args.semantic_types),
    ):
        if given and not args.dictionary:
            raise BadInput(f"{flag}: found {given[0]!r}; expected --dictionary with it")


# -------------------------------------------------------------------------------------------------
# Arguments of recall and rank: generators, rankers, and how both become answers.


def add_ranker_arguments(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """The arguments of recall and rank.

    Args:
        parser: gets them.
        several: whether several fusions may be asked for.
    """
    ranker = parser.add_argument_group("recall and rank")
    ranker.add_argument(
        "--ranker",
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="rank the candidates of --model by a run of the recipe rank, or its export; several "
        "are averaged",
    )
    ranker.add_argument(
        "--fusion",
        nargs="+" if several else 1,
        choices=("mean", "recall", "rank"),
        default=["mean"],
        help="order candidates by the mean of both scores, or by one of them (default: mean)"
        + ("; a row for each that is given" if several else ""),
    )
    ranker.add_argument(
        "--recall-score",
        choices=("sum", "max"),
        default="sum",
        help="the generator's score of a distance d; 1 - d / the sum of the distances of all "
        "candidates (the paper), or 1 - d / the largest (its code) (default: sum)",
    )
    ranker.add_argument(
        "--fourth-above",
        type=float,
        default=0.8,
        metavar="SCORE",
        help="where a ranker predicts three concepts or more, add those after the third that score "
        "above this (default: %(default)s)",
    )


def ranker_choices(args: argparse.Namespace) -> list[Choice]:
    """How recall and rank become answers, as the command line says: for each fusion."""
    from coder_jax.systems.recall_rank.ranking import Choice

    return [
        Choice(fusion=fusion, form=args.recall_score, threshold=args.fourth_above)
        for fusion in dict.fromkeys(args.fusion)
    ]


def generators_of(args: argparse.Namespace, pooling: str | None) -> GeneratorEnsemble:
    """The generators, or encoders as such, that --model names.

    Raises:
        BadInput: as `load_generators`; settings for a run, which stay as it was trained.
    """
    from coder_jax.systems.trained_models import load_generators

    return load_generators(args.models, [_encoder_of(args, one, pooling) for one in args.models])


def _encoder_of(args: argparse.Namespace, model: str, pooling: str | None) -> TermEncoder | None:
    """As `load_encoder`, for one of the models; None for a run, which has its own."""
    from coder_jax.training.run_folder import system_name

    if not system_name(model):
        return load_encoder(argparse.Namespace(**{**vars(args), "model": model}), pooling)
    settings = {"pooling": pooling, "cleaning": args.cleaning, "max-length": args.max_length}
    given = [name for name, value in settings.items() if value is not None]
    if given:
        raise BadInput(
            f"--{given[0]}: {model} is a run, which encodes as it was trained; export it to "
            "encode in another way"
        )
    return None


def check_one_model(models: Sequence[str], why: str) -> None:
    """BadInput for several models where one is to answer, as `why` says."""
    if len(models) > 1:
        raise BadInput(
            f"--model: found {' and '.join(models)}, which answer together as generators of "
            f"candidates, but {why}; expected one model"
        )
