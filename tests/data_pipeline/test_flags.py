"""Flags: a frozen dataclass is filled from words, and `--help` tells of its fields."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest

from data_pipeline.flags import MINILM, Flag, command_words, hub_id_of, parsed
from data_pipeline.process import BadInput


@dataclass(frozen=True, kw_only=True)
class Shared:
    languages: Annotated[
        tuple[str, ...],
        Flag("which to take", "LANGUAGE", commas=True, one_word=True, heading="terms"),
    ] = ()
    no_cache: Annotated[bool, Flag("encode again")] = False


@dataclass(frozen=True, kw_only=True)
class Inner:
    seed: Annotated[int, Flag("of all draws", least=0, heading="draws")] = 0
    unseen: tuple[int, ...] = (1,)


@dataclass(frozen=True, kw_only=True)
class Toy(Shared):
    model: Annotated[str, Flag("the encoder; a folder. Or a hub id", "MODEL")]
    out: Annotated[Path, Flag("file to write", "FILE")]
    terms: Annotated[tuple[Path, ...], Flag("files of terms")] = (Path("a"), Path("b"))
    k: Annotated[int | None, Flag("concepts of each (default: 1)", name="-k", least=1)] = None
    pair: Annotated[tuple[str, str] | None, Flag("two to compare", ("A", "B"))] = None
    kind: Annotated[Literal["x", "y"], Flag("of what")] = "x"
    rate: Annotated[float, Flag("how fast")] = 0.5
    folds: Annotated[bool, Flag("each without its own")] = False
    test: Annotated[str, Flag("to score", "NAME=PATH")] = ""
    inner: Inner = field(default_factory=lambda: Inner(seed=7))


@dataclass(frozen=True, kw_only=True)
class WithList(Toy):
    mentions: Annotated[str, Flag("the list (default: stdin)", "LIST", name="")] = "-"


NEEDED = ["--model", "m", "--out", "o"]


def toy(*words, kind=Toy):
    return parsed(kind, [*NEEDED, *words], "python -m toy")[0]


def test_what_is_not_given_is_the_default_of_its_field():
    plain = Toy(model="m", out=Path("o"))
    assert toy() == plain and plain.inner.seed == 7
    with pytest.raises(dataclasses.FrozenInstanceError):
        toy().model = "other"


def test_types_say_how_words_become_values():
    found = toy(*"-k 3 --pair a b --kind y --rate -2.5 --folds --no-cache --seed 1".split())
    assert (found.k, found.pair, found.kind, found.rate) == (3, ("a", "b"), "y", -2.5)
    assert found.folds and found.no_cache and found.inner == Inner(seed=1)
    assert toy("--terms", "c", "--terms", "d", "e").terms == (Path("c"), Path("d"), Path("e"))
    assert toy("--rate=3", "--lang", "A,B", "--lang", "C").languages == ("A", "B", "C")
    assert parsed(Toy, NEEDED)[1] is False and parsed(Toy, [*NEEDED, "--quiet"])[1] is True


def test_values_are_told_as_words_without_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "bert").mkdir(parents=True)
    given = "--pair a b --terms lists/x.tsv . --folds --languages GER,FRE --rate 0.5".split()
    values = json.loads(json.dumps(dataclasses.asdict(toy(*given)), default=str))
    for model, shown in {
        "models/bert": "bert",
        "org/bert": "org/bert",
        "s3://ours/bert": "bert",
        "/tmp/rate=1/bert": "bert",
        "~/bert": "bert",
    }.items():
        words = command_words({**values, "model": model, "test": "ncbi=a=b/x y"}, Toy)
        assert " ".join(words) == (
            f"--model {shown} --out o --terms x.tsv {tmp_path.name} --pair a b --folds "
            "--test ncbi=x y --languages GER FRE"
        )
    words = command_words({**values, "languages": ["2024/05/01"]}, Toy)
    assert words[-2:] == ["--languages", "2024/05/01"], "no path"
    again = toy(*words, kind=Toy)
    assert again.pair == ("a", "b") and again.folds and again.languages == ("2024/05/01",)
    without = {"folds": False, "languages": []}
    assert command_words(without, dataclasses.replace(toy(), folds=True)) == ["--no-folds"]


def test_a_flag_of_one_word_leaves_the_argument_that_has_none():
    found = toy("--languages", "A,B", "list.txt", kind=WithList)
    assert (found.languages, found.mentions) == (("A", "B"), "list.txt")
    assert toy(kind=WithList).mentions == "-"
    assert toy("--languages", "A", "B").languages == ("A", "B"), "where there is no such argument"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--modle", "m"], "no option --modle; did you mean --model.*toy --help-all"),
        (["--modle=m"], "no option --modle; did you mean --model"),
        (["--kind", "z"], "^--kind: invalid choice: 'z' .choose from 'x', 'y'"),
        (["--rate", "fast"], "^--rate: invalid float value: 'fast' .`python -m toy --help-all`"),
        (["-k", "0"], "^-k: found 0; expected 1 or more"),
        (["--seed", "-1"], "^--seed: found -1; expected 0 or more"),
        (["--languages", "A,"], "^--languages: found 'A,'; expected no empty value"),
        (["--pair", "a"], "^--pair: expected 2 arguments"),
        (["more"], "^unrecognized arguments: more"),
    ],
)
def test_wrong_words_are_named(words, message):
    with pytest.raises(BadInput, match=message):
        toy(*words)


def test_what_is_missing_is_named_with_the_command_that_has_it():
    usage = r"python -m toy --model MODEL --out FILE \[options\]"
    with pytest.raises(BadInput, match=f"^found no --out; expected {usage}$"):
        parsed(Toy, ["--model", "m"], "python -m toy")
    with pytest.raises(BadInput, match="no option --outt; did you mean --out?"):
        parsed(Toy, ["--outt", "o"], "python -m toy")
    # The beginning of a flag is enough, and what comes after -- is no flag.
    assert toy("--lang", "A", "--", "--modle", kind=WithList).mentions == "--modle"


def shown(capsys, *words, kind=Toy, **texts):
    with pytest.raises(SystemExit) as stop:
        parsed(kind, words, "python -m toy", **texts)
    assert stop.value.code == 0
    return capsys.readouterr().out


ABOUT = """Does a thing.

And more.

Examples:
  python -m toy --model m
"""


def test_help_shows_what_people_need(capsys):
    text = shown(capsys, "--help", about=ABOUT, common=["--out", "-k"], kind=WithList)
    assert text == (
        "usage: python -m toy --model MODEL --out FILE [options] [LIST]\n\nDoes a thing.\n\n"
        "Examples:\n  python -m toy --model m\n\nOptions:\n"
        "  [LIST]      the list (default: stdin)\n"
        "  --out FILE  file to write\n"
        "  -k N        concepts of each (default: 1)\n\n"
        "--help-all shows all 13 options\n"
    )


def test_all_help_shows_every_option_under_its_heading(capsys):
    text = shown(capsys, "--help-all", about=ABOUT, examples="more examples")
    for line in (
        "And more.\n",
        "\noptions:\n  --model MODEL   the encoder; a folder. Or a hub id\n",
        "  --terms TERMS ...  files of terms (default: a b)",
        "  --pair A B  two to compare\n",
        "  --kind {x,y}  of what (default: x)\n",
        "  --rate X  how fast (default: 0.5)\n",
        "\ndraws:\n  --seed N  of all draws (default: 7)\n",
        "\nterms:\n  --languages LANGUAGE ...  which to take\n",
        "  --no-cache  encode again\n",
        "  --quiet  print only results",
    ):
        words = [" ".join(one.split()) for one in line.strip("\n").splitlines()]
        assert "\n".join(words) in "\n".join(" ".join(one.split()) for one in text.splitlines())
    assert text.endswith("more examples\n") and "unseen" not in text


def test_the_package_with_minilm_is_told_by_its_hub_id(minilm_path, tmp_path):
    assert hub_id_of("org/name") == "org/name" and hub_id_of(str(tmp_path)) is None
    assert hub_id_of(str(minilm_path)) == MINILM
    words = command_words({"model": str(minilm_path), "out": "o"}, Toy)
    assert words[:2] == ["--model", MINILM]
