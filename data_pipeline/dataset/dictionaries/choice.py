"""What of a dictionary is taken: terms of some languages and vocabularies, concepts of a kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data_pipeline.process.errors import BadInput
from data_pipeline.process.suggestions import did_you_mean
from data_pipeline.terminology.filters import some


@dataclass(frozen=True)
class Choice:
    """Of a release or a dataset, the terms to take; what is empty chooses all."""

    languages: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    concepts_of: tuple[str, ...] = ()
    types: tuple[str, ...] = ()

    def options(self) -> dict[str, tuple[str, ...]]:
        """The options of the commands, for messages."""
        return {
            "--dictionary-languages": self.languages,
            "--dictionary-sources": self.sources,
            "--dictionary-concepts-of": self.concepts_of,
            "--semantic-types": self.types,
        }

    def check(self, languages: Sequence[str], vocabularies: Sequence[str], path: Path) -> None:
        """BadInput for a value that no term has."""
        there = (languages, vocabularies, vocabularies)
        for (option, asked), known in zip(self.options().items(), there, strict=False):
            if missing := sorted(set(asked) - set(known)):
                raise BadInput(
                    f"{option} {' '.join(missing)}: no term of {path} has it; it has {some(known)}"
                    f"{did_you_mean(missing[0], known)}"
                )

    def types_among(self, known: Sequence[str], path: Path) -> list[int]:
        """The places in `known` of the semantic types to keep.

        A type may be asked for by its number (T047), its name, or both as they stand in `known`, in
        whatever case; several may stand in one string with commas between them, as names hold
        commas, too.

        Raises:
            BadInput: none of `known` is called so.
        """
        places: dict[str, list[int]] = {}
        for place, name in enumerate(known):
            number, _, bare = name.partition(" ")
            names = {name, number, bare} if is_type_number(number) else {name}
            for one in names - {""}:
                places.setdefault(one.lower(), []).append(place)
        chosen: set[int] = set()
        for asked in self.types:
            parts = [asked] if asked.lower() in places else asked.split(",")
            for part in map(str.strip, parts):
                if part.lower() not in places:
                    raise BadInput(
                        f"--semantic-types {part}: no concept of {path} has it; it has "
                        f"{some(known)}{did_you_mean(part, places)}"
                    )
                chosen.update(places[part.lower()])
        return sorted(chosen)

    def check_left(self, terms: int, path: Path) -> None:
        """BadInput for a choice that leaves no term."""
        if not terms:
            asked = [option for option, values in self.options().items() if values]
            other = f"other values for {' and '.join(asked)}" if asked else "another dictionary"
            raise BadInput(
                f"{path}: found no term of the choice, suppressed ones aside; give {other}"
            )

    def named(self, path: Path) -> str:
        """The path, and what is chosen of it."""
        return " ".join([str(path), *(one for asked in self.options().values() for one in asked)])

    def record(self) -> dict[str, list[str]]:
        """What a record of the dictionary says."""
        types = {"semantic_types": list(self.types)} if self.types else {}
        return {
            "languages": list(self.languages),
            "vocabularies": list(self.sources),
            "concepts_of": list(self.concepts_of),
            **types,
        }


def is_type_number(word: str) -> bool:
    """Whether a word is the number of a semantic type of the UMLS, as T047 is."""
    return len(word) == 4 and word[0] == "T" and word[1:].isdecimal()
