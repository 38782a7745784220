"""An OBO ontology of any number of classes, whose words the tiny tokenizer knows."""

from __future__ import annotations

from pathlib import Path


def write_ontology(path: Path, classes: int = 2500) -> Path:
    """Each class: a name, a synonym but for every third, a parent; every tenth is part of another.

    More than two blocks of the store by default.
    """
    header = "format-version: 1.2\ndata-version: 7\nontology: tiny\n"
    frames = [header + "property_value: terms:license https://example.org/tiny\n"]
    for i in range(classes):
        lines = [f"[Term]\nid: T:{i:05d}\nname: pain of limb {i}"]
        if i % 3:
            lines.append(f'synonym: "acute attack {i}" EXACT []')
        if i:
            lines.append(f"is_a: T:{i // 7:05d}")
        if i % 10 == 9:
            lines.append(f"relationship: part_of T:{i - 5:05d}")
        frames.append("\n".join(lines) + "\n")
    path.write_text("\n".join(frames), encoding="utf-8")
    return path
