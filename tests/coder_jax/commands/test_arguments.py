"""Verbs of the command line share arguments, and none of them imports another."""

import ast
import importlib
import re
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from coder_jax.__main__ import _VERBS
from coder_jax.commands import arguments as encoder_arguments
from coder_jax.commands import evaluate, normalize
from coder_jax.encoding.vector_files import kept_folder
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.flags import parsed
from data_pipeline.process import BadInput, quiet


def test_no_verb_imports_another(repo):
    """Not even inside a function, but for the demo, which runs one after the other."""
    folder = repo / "coder_jax" / "commands"
    verbs = {f"coder_jax.commands.{verb}".replace("-", "_") for verb in _VERBS}
    paths = list(folder.rglob("*.py"))
    ours = set(_VERBS) - {"build"}  # of data_pipeline
    assert {path.stem for path in paths} >= {verb.replace("-", "_") for verb in ours}
    for path in paths:
        if path.stem == "demo":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            else:
                continue
            assert not names & verbs, f"{path.name}:{node.lineno}"


@dataclass(frozen=True, kw_only=True)
class Options(encoder_arguments.EncodingOptions, encoder_arguments.DictionaryOptions):
    """Of a verb without an argument behind its flags."""


def test_an_encoder_s_own_settings_are_the_default():
    options, _ = parsed(Options, [])
    assert (options.cleaning, options.max_length, options.attend_padding) == (None, None, False)
    assert (options.dtype, options.dictionary_languages, options.dictionary_sources) == (
        *("float32", (), ()),
    )
    several, _ = parsed(evaluate.OPTIONS, ["--pooling", "mean", "cls"])
    assert several.poolings == ["mean", "cls"] and parsed(evaluate.OPTIONS, [])[0].poolings == [
        None
    ]
    with pytest.raises(BadInput, match="--pooling: invalid choice: 'max'"):
        parsed(evaluate.OPTIONS, ["--pooling", "max"])


def test_what_of_a_dictionary_is_taken():
    flags = ("--dictionary-languages", "--dictionary-sources", "--semantic-types")
    languages, sources, types = flags

    def chosen(*words):
        return parsed(Options, words)[0].choices()

    everything = {"languages": None, "sources": None, "types": None}
    everything |= {"keep_suppressed": False, "standard": False, "strict": False, "columns": {}}
    assert chosen() == everything
    assert chosen("--dictionary-standard") == everything | {"standard": True}
    assert chosen("--strict") == everything | {"strict": True}
    assert chosen("--concept-column", "Kode")["columns"] == {"concept": "Kode"}
    assert chosen("--dictionary-keep-suppressed") == everything | {"keep_suppressed": True}
    for words in (["ENG", "FRE"], ["ENG,FRE"], ["ENG, FRE"], ["ENG", languages, "FRE"]):
        assert chosen(languages, *words)["languages"] == ["ENG", "FRE"], words
    assert chosen(sources, "MSH,SNOMEDCT_US")["sources"] == ["MSH", "SNOMEDCT_US"]
    name = "Element, Ion, or Isotope"
    assert chosen(types, name, "T047")["types"] == [name, "T047"], "its commas are its own"
    for empty in (",", "ENG,", ""):
        with pytest.raises(BadInput, match="expected no empty value"):
            chosen(languages, empty)


@pytest.mark.parametrize(("verb", "positional"), [("normalize", "mentions"), ("encode", "terms")])
def test_a_choice_leaves_the_positional_argument_behind_it(verb, positional):
    command = importlib.import_module(f"coder_jax.commands.{verb}")
    words = ["--model", "m", "--dictionary", "d", *(["--out", "o.npy"] if verb == "encode" else [])]
    for flag, value in (
        ("--dictionary-languages", "ENG,FRE"),
        ("--dictionary-sources", "MSH"),
        ("--semantic-types", "Disease or Syndrome"),
    ):
        options, _ = parsed(command.OPTIONS, [*words, flag, value, "list.txt"])
        assert getattr(options, positional) == "list.txt"
        assert getattr(options, flag[2:].replace("-", "_")) == tuple(value.split(","))


def test_several_models_stand_behind_one_flag_or_each_behind_its_own():
    several, _ = parsed(evaluate.OPTIONS, ["--model", "a", "b", "--seed", "1"])
    assert several.models == ("a", "b") and several.kinds.seed == 1
    words = ["--model", "a", "--model", "b", "--ranker", "c", "d", "--no-cache", "list.txt"]
    each, _ = parsed(normalize.OPTIONS, words)
    assert (each.models, each.ranker, each.mentions) == (("a", "b"), ("c", "d"), "list.txt")
    assert each.no_cache


def test_what_was_loaded_is_told_on_stderr(tmp_path, capsys):
    from tiny_bert import write_model

    write_model(tmp_path, 0)
    options, _ = parsed(Options, ["--max-length", "7", "--cleaning", "paper"])
    encoder = encoder_arguments.load_encoder(str(tmp_path), "mean", options)
    assert (encoder.settings.pooling, encoder.settings.max_length) == ("mean", 7)
    assert encoder.settings.cleaning == "paper"
    printed = capsys.readouterr()
    assert printed.out == "" and "EncoderSettings" not in printed.err
    assert "model: pooling mean, cleaning paper, terms cut at 7 tokens\n" in printed.err


def test_auto_is_the_arithmetic_that_training_takes(tmp_path, monkeypatch):
    from tiny_bert import write_model

    from coder_jax.systems.recipes import RECIPES

    write_model(tmp_path, 0)
    options, _ = parsed(Options, ["--dtype", "auto"])
    for backend, dtype in (("cpu", "float32"), ("gpu", "bfloat16")):
        monkeypatch.setattr("jax.default_backend", lambda backend=backend: backend)
        assert encoder_arguments.load_encoder(str(tmp_path), None, options).bert.dtype == dtype
        assert RECIPES["small"]().system.resolved().model.dtype == dtype


def test_vectors_are_kept_unless_told_otherwise(capsys):
    kept = encoder_arguments.CacheOptions
    assert not parsed(kept, [])[0].no_cache and parsed(kept, ["--no-cache"])[0].no_cache
    with pytest.raises(SystemExit):
        parsed(kept, ["--help-all"])
    told = "".join(capsys.readouterr().out.split())  # a long folder is on two lines
    for part in ("2,000 terms or more", f"{kept_folder()}", "CODER_JAX_CACHE_GB", "(10 if"):
        assert "".join(part.split()) in told


@pytest.mark.parametrize(
    ("trained", "languages", "said"),
    [
        (("ENG",), ["ENG", "FRE", "GER", "FRE"], "3 of 4 terms of the dictionary are in FRE, GER;"),
        (("ENG", "FRE", "GER"), ["ENG", "FRE", "GER", "FRE"], ""),
        (("ENG",), None, ""),
        (("ENG",), ["ENG", "UND"], ""),
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
