"""Verbs of the command line share arguments, and none of them imports another."""

import argparse
import ast
import importlib
import re
from types import SimpleNamespace

import pytest

from coder_jax.__main__ import VERBS
from coder_jax.commands import arguments as encoder_arguments
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process import quiet


def test_no_verb_imports_another(repo):
    """Not even inside a function: what several need is in a module that is no verb."""
    folder = repo / "coder_jax" / "commands"
    verbs = {f"coder_jax.commands.{verb}".replace("-", "_") for verb in VERBS}
    paths = list(folder.rglob("*.py"))
    ours = set(VERBS) - {"build"}  # of data_pipeline
    assert {path.stem for path in paths} >= {verb.replace("-", "_") for verb in ours}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            else:
                continue
            assert not names & verbs, f"{path.name}:{node.lineno}"


def parsed(*words, **options):
    parser = argparse.ArgumentParser(exit_on_error=False)
    encoder_arguments.add_model_arguments(parser, **options)
    encoder_arguments.add_dictionary_choices(parser)
    return parser.parse_args([*words])


def test_an_encoder_s_own_settings_are_the_default():
    args = parsed("--model", "m")
    assert (args.model, args.pooling, args.cleaning, args.max_length) == ("m", None, None, None)
    assert (args.attend_padding, args.dtype) == (None, "float32")
    assert (args.dictionary_languages, args.dictionary_sources) == (None, None)
    assert parsed("--model", "m", "--pooling", "mean").pooling == "mean"
    several = parsed("--model", "m", "--pooling", "mean", "cls", several_poolings=True)
    assert several.pooling == ["mean", "cls"]
    with pytest.raises(argparse.ArgumentError, match="invalid choice: 'max'"):
        parsed("--model", "m", "--pooling", "max")


def test_what_of_a_dictionary_is_taken():
    flags = ("--dictionary-languages", "--dictionary-sources", "--semantic-types")
    languages, sources, types = flags

    def chosen(*words):
        return encoder_arguments.dictionary_choices(parsed("--model", "m", *words))

    assert chosen() == {"languages": None, "sources": None, "types": None}
    for words in (["ENG", "FRE"], ["ENG,FRE"], ["ENG, FRE"], ["ENG", languages, "FRE"]):
        assert chosen(languages, *words)["languages"] == ["ENG", "FRE"], words
    assert chosen(sources, "MSH,SNOMEDCT_US")["sources"] == ["MSH", "SNOMEDCT_US"]
    name = "Element, Ion, or Isotope"
    assert chosen(types, name, "T047")["types"] == [name, "T047"], "its commas are its own"
    for empty in (",", "ENG,", ""):
        with pytest.raises(argparse.ArgumentError, match="expected no empty value"):
            parsed("--model", "m", languages, empty)


@pytest.mark.parametrize(("verb", "positional"), [("normalize", "mentions"), ("encode", "terms")])
def test_a_choice_leaves_the_positional_argument_behind_it(verb, positional):
    command = importlib.import_module(f"coder_jax.commands.{verb}")
    parser = argparse.ArgumentParser(exit_on_error=False)
    command.add_arguments(parser)
    words = ["--model", "m", "--dictionary", "d", *(["--out", "o.npy"] if verb == "encode" else [])]
    for flag, value in (
        ("--dictionary-languages", "ENG,FRE"),
        ("--dictionary-sources", "MSH"),
        ("--semantic-types", "Disease or Syndrome"),
    ):
        args = parser.parse_args([*words, flag, value, "list.txt"])
        assert getattr(args, positional) == "list.txt"
        assert getattr(args, flag[2:].replace("-", "_")) == value.split(",")


def test_what_was_loaded_is_told_on_stderr(tmp_path, capsys):
    from tiny_bert import write_model

    write_model(tmp_path, 0)
    args = parsed("--model", str(tmp_path), "--max-length", "7", "--cleaning", "paper")
    encoder = encoder_arguments.load_encoder(args, "mean")
    assert (encoder.settings.pooling, encoder.settings.max_length) == ("mean", 7)
    assert encoder.settings.cleaning == "paper"
    printed = capsys.readouterr()
    assert printed.out == "" and "EncoderSettings" not in printed.err
    assert "by pooling mean, cleaning paper, at most 7 tokens\n" in printed.err


def test_auto_is_the_arithmetic_that_training_takes(tmp_path, monkeypatch):
    from tiny_bert import write_model

    from coder_jax.systems.recipes import RECIPES

    write_model(tmp_path, 0)
    args = parsed("--model", str(tmp_path), "--dtype", "auto")
    for backend, dtype in (("cpu", "float32"), ("gpu", "bfloat16")):
        monkeypatch.setattr("jax.default_backend", lambda backend=backend: backend)
        assert encoder_arguments.load_encoder(args, None).bert.dtype == dtype
        assert RECIPES["small"]().system.resolved().model.dtype == dtype


def test_vectors_are_kept_unless_told_otherwise(monkeypatch):
    parser = argparse.ArgumentParser()
    monkeypatch.setenv("CODER_JAX_CACHE", "/somewhere")
    encoder_arguments.add_cache_argument(parser)
    assert parser.parse_args([]).cache and not parser.parse_args(["--no-cache"]).cache
    told = " ".join(parser.format_help().split())
    for part in ("2,000 terms or more", "/somewhere/vectors", "CODER_JAX_CACHE_GB", "(10 if"):
        assert part in told


@pytest.mark.parametrize(
    ("trained", "languages", "said"),
    [
        (("ENG",), ["ENG", "FRE", "GER", "FRE"], "3 of 4 terms of the dictionary are in FRE, GER;"),
        (("ENG", "FRE", "GER"), ["ENG", "FRE", "GER", "FRE"], ""),
        (("ENG",), None, ""),
        ((), ["FRE"] * 4, ""),
        (("ENG",), [f"L{number}" for number in range(11)], "11 of 11 .* L7 and 3 more; the enc"),
    ],
)
def test_a_dictionary_in_other_languages_is_warned_of(capsys, trained, languages, said):
    encoder = SimpleNamespace(languages=trained)
    terms = ["x"] * len(languages or "1")
    with quiet():  # a warning is said even so
        encoder_arguments.warn_of_languages(
            encoder, Dictionary(terms, terms, "here", languages=languages)
        )
    err = capsys.readouterr().err
    assert re.search(said, err) and err.startswith("warning: " if said else "")
    assert ("the encoder was trained on terms in ENG: expect" in err) == bool(said)
    assert err.count("\n") == bool(said)
