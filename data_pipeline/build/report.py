"""The closing report of a build: a manifest in, a readable table out."""

from __future__ import annotations

from pathlib import Path


def closing_report(manifest: dict, out: str | Path) -> str:
    """What was read, dropped (by reason) and kept, and how the terms became tokens."""
    counts, report = manifest["counts"], manifest["report"]
    per_concept = counts["terms"] / counts["concepts"]
    per_term = counts["tokens"] / counts["terms"]
    max_length = manifest["tokenizer"]["max_length"]
    rows: list[tuple[str, str]] = [(name, f"{count:,}") for name, count in report.items() if count]
    rows += [
        ("", ""),
        ("concepts", f"{counts['concepts']:,}"),
        ("  with two terms or more", _share(counts["concepts_with_synonyms"], counts["concepts"])),
        ("terms", f"{counts['terms']:,}"),
        ("  per concept, mean", f"{per_concept:.2f}"),
        ("  by language", _by_language(counts["terms_by_language"])),
        ("triplets", f"{counts['triplets']:,}"),
        (
            "  both concepts with two terms or more",
            _share(counts["triplets_with_synonyms"], counts["triplets"]),
        ),
        ("relation labels", f"{len(manifest['relations']):,}"),
        ("semantic types", f"{len(manifest['semantic_types']):,}"),
        ("tokens", f"{counts['tokens']:,}"),
        ("  per term, mean", f"{per_term:.2f}"),
        ("  longest term before cutting", f"{counts['longest_term_tokens']:,}"),
        (f"terms cut to {max_length} tokens", _share(counts["cut_terms"], counts["terms"])),
        ("terms with unknown pieces", _share(counts["unknown_terms"], counts["terms"])),
    ]
    if manifest["held_out"]:
        rows += [
            ("held-out mentions", f"{manifest['held_out']['mentions']:,}"),
            ("  dictionary terms", f"{manifest['held_out']['dictionary']:,}"),
        ]
    if concepts := manifest.get("held_out_concepts"):
        rows += [
            ("held-out concepts", f"{concepts['concepts']:,}"),
            ("  their terms", f"{concepts['terms']:,}"),
        ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}".rstrip() for name, value in rows]
    title = f"{manifest['name']} {manifest['release']}: {out}"
    warnings = [f"note: {warning}" for warning in manifest["warnings"]]
    return "\n".join([title, "-" * len(title), *lines, *warnings])


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.1%})" if whole else f"{part:,}"


def _by_language(counts: dict[str, int], most: int = 6) -> str:
    shown = [f"{name} {count:,}" for name, count in list(counts.items())[:most]]
    return ", ".join(shown) + (f", {len(counts) - most} more" if len(counts) > most else "")
