"""The model card (README.md) of an export, filled only with recorded facts.

The card says only what the caller gives: sections without content are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coder_jax.devices.hosts import log
from coder_jax.export.relations import KINDS, ExportedRelations
from coder_jax.models.hf_files import OF_NAMES, EncoderSettings
from data_pipeline.flags import is_hub_id
from data_pipeline.terminology.cleaning import IN_WORDS

_POOLING_IN_WORDS = {
    "cls": "the last hidden state of [CLS]",
    "mean": "the mean of the last hidden states of all its tokens, [CLS] and [SEP] included",
    "pieces": "the mean of the last hidden states of its word pieces, without [CLS] and [SEP]",
    "pooler": "BERT's tanh pooler over [CLS]",
    OF_NAMES: "read from its words and their characters by two BiLSTMs",
}
FOLDER = "folder = MODEL if os.path.isdir(MODEL) else snapshot_download(MODEL)"  # in the code
_PYTORCH = f"""```python
import os, sys
from huggingface_hub import snapshot_download

{FOLDER}
sys.path.insert(0, folder)
from name_encoder import NameEncoder

vectors = NameEncoder.load(folder).encode(["heart attack", "myocardial infarction"])
```"""
# A language of the UMLS: its name, and what the hub calls it.
LANGUAGES = {
    "BAQ": ("Basque", "eu"),
    "CHI": ("Chinese", "zh"),
    "CZE": ("Czech", "cs"),
    "DAN": ("Danish", "da"),
    "DUT": ("Dutch", "nl"),
    "ENG": ("English", "en"),
    "EST": ("Estonian", "et"),
    "FIN": ("Finnish", "fi"),
    "FRE": ("French", "fr"),
    "GER": ("German", "de"),
    "GRE": ("Greek", "el"),
    "HEB": ("Hebrew", "he"),
    "HUN": ("Hungarian", "hu"),
    "ITA": ("Italian", "it"),
    "JPN": ("Japanese", "ja"),
    "KOR": ("Korean", "ko"),
    "LAV": ("Latvian", "lv"),
    "NOR": ("Norwegian", "no"),
    "POL": ("Polish", "pl"),
    "POR": ("Portuguese", "pt"),
    "RUS": ("Russian", "ru"),
    "SCR": ("Croatian", "hr"),
    "SPA": ("Spanish", "es"),
    "SWE": ("Swedish", "sv"),
    "TUR": ("Turkish", "tr"),
    "UKR": ("Ukrainian", "uk"),
}
_KEYS = {
    "name",  # title
    "method",  # what it was trained by, with the paper
    "license",  # of the weights, as the hub spells it
    "license_name",  # of a license that the hub calls "other"
    "license_link",
    "base_model",  # the encoder that training began with: its hub id, or ./ and a folder's name
    "made_from",  # the base of that one, where it is a folder: a hub id
    "languages",  # list of those of the terms of training, as the UMLS writes them
    "language",  # list of language codes of the hub, in place of those of `languages`
    "tags",  # list
    "data",  # what it was trained on: label -> value
    "recipe",  # how: label -> value
    "commands",  # list of those that train it again
    "results",  # measured: list of rows, each column -> value
    "dataset_hash",
}
_MODEL = "`MODEL` is the path of this folder or its id on the hub.\n\n"
_OURS = """

With coder_jax, installed from its repository:

```python
from coder_jax import TermEncoder

encoder = TermEncoder.from_pretrained(MODEL)
vectors = encoder.encode(["heart attack", "myocardial infarction"])
```"""
_SENTENCE_TRANSFORMERS = """```python
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer(MODEL).encode(["heart attack", "myocardial infarction"])
```

"""
LICENSE = ("license", "license_name", "license_link")  # of a model card
_TAGS = ["medical", "biomedical", "entity-linking"]


def check_card(card: Mapping[str, Any]) -> None:
    """Refuses keys that the card does not know, which would otherwise be lost."""
    unknown = set(card) - _KEYS
    if unknown:
        raise ValueError(f"unknown card keys {sorted(unknown)}; expected some of {sorted(_KEYS)}")


def model_card(
    card: Mapping[str, Any],
    settings: EncoderSettings,
    relations: ExportedRelations | None = None,
) -> str:
    """The text of README.md: YAML front matter for the hub, then what, data, recipe, results, use.

    Args:
      card: any of KEYS.
      settings: pooling, cleaning and length of the model.
      relations: those in the folder.
    """
    from huggingface_hub import ModelCardData  # takes half a second

    bases = [one for one in (card.get("base_model"), card.get("made_from")) if one]
    metadata = ModelCardData(
        license=card.get("license"),
        license_name=card.get("license_name"),
        license_link=card.get("license_link"),
        base_model=next(filter(is_hub_id, bases), None),
        language=card.get("language") or _hub_languages(card.get("languages", ())) or None,
        library_name="transformers" if settings.pooling == "pieces" else "sentence-transformers",
        pipeline_tag="feature-extraction",
        tags=[*_TAGS, *card.get("tags", [])],
    )
    sections = [
        f"---\n{metadata.to_yaml()}\n---\n\n# {card.get('name', 'CODER term encoder')}",
        _about(card, settings, relations),
        section("Training data", markdown_table(card.get("data"), card.get("dataset_hash"))),
        section("Training recipe", markdown_table(card.get("recipe"))),
        section("Commands", _block(card.get("commands"))),
        section("Measured results", _table_of_rows(card.get("results"))),
        section("Use", _usage(settings, relations)),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def with_hub_id(card: str, repo: str) -> str:
    """The text of a card with an id on the hub in the place of MODEL in its code."""
    about, title, use = card.partition("\n## Use\n")
    return about + title + re.sub(r"\bMODEL\b", f'"{repo}"', use.replace(_MODEL, ""))


def read_card(folder: Path) -> dict[str, Any]:
    """The metadata of a folder's model card; a card that cannot be read is told of, and gives none.

    Args:
      folder: of a model, with README.md or without.
    """
    import yaml
    from huggingface_hub import ModelCard

    path = folder / "README.md"
    if not path.is_file():
        return {}
    try:
        return ModelCard.load(path, ignore_metadata_errors=True).data.to_dict()
    except (ValueError, yaml.YAMLError) as error:
        what = str(error).splitlines()[0]
        log(f"{path}: its metadata cannot be read ({what}), so its license is not known")
        return {}


def _hub_languages(languages: Sequence[str]) -> list[str]:
    """The languages under the hub's names; unknown ones are left out."""
    return [LANGUAGES[name][1] for name in languages if name in LANGUAGES]


def _about(
    card: Mapping[str, Any], settings: EncoderSettings, relations: ExportedRelations | None
) -> str:
    """What the model is, in a paragraph."""
    base = card.get("base_model")
    start = f", trained from `{base if is_hub_id(base) else Path(base).name}`" if base else ""
    if base and not is_hub_id(base) and card.get("made_from"):
        start += f", which was made from `{card['made_from']}`,"
    method = f", after {card['method']}" if card.get("method") else ""
    text = (
        f"An encoder of medical terms{start} with coder_jax{method}. Terms of one concept lie "
        "close together: compare vectors by cosine. The vector of a term is "
        f"{_POOLING_IN_WORDS[settings.pooling]}, scaled to length 1"
    )
    names = settings.pooling == OF_NAMES
    text += "." if names else f"; terms are cut to {settings.max_length} tokens."
    if languages := [LANGUAGES.get(name, (name,))[0] for name in card.get("languages", ())]:
        text += f" It was trained on terms in {', '.join(languages)}."
    reader = "module" if names else "tokenizer"
    if settings.cleaning != "none":
        text += (
            f" Terms were cleaned with the rule set `{settings.cleaning}` in training "
            f"({IN_WORDS[settings.cleaning]}). The {reader} of this folder does so by itself: "
            "give it terms as they are."
        )
    if relations:
        what = "matrices" if relations.bilinear else "translations"
        count = len(relations.labels)
        text += f" The {what} of {count} relations are included (`relations.json`)."
    return text


def section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}" if body else ""


def markdown_table(values: Mapping[str, Any] | str | None, dataset_hash: str | None = None) -> str:
    """A table with two columns; a plain text is returned unchanged."""
    if isinstance(values, str):
        values = {"": values}
    rows = dict(values or {})
    if dataset_hash:
        rows["dataset hash"] = f"`{dataset_hash}`"
    lines = [f"| {_cell(name)} | {_cell(value)} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines]) if lines else ""


def _block(commands: Sequence[str] | None) -> str:
    """Commands as code, and what to change in them."""
    if not commands:
        return ""
    told = "They make it again. Give your own paths for DATASET, RUN, files and folders."
    return "\n".join([told, "", "```bash", *commands, "```"])


def _table_of_rows(rows: Sequence[Mapping[str, Any]] | None) -> str:
    """A table with the columns of all rows, in the order they first occur."""
    columns = list(dict.fromkeys(name for row in rows or () for name in row))
    if not rows or not columns:
        return ""
    head = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(
        head + ["| " + " | ".join(_cell(row.get(c, "")) for c in columns) + " |" for row in rows]
    )


def _cell(value: Any) -> str:
    """A value as the text of a table cell."""
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    if isinstance(value, float):
        value = f"{value:.4g}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def _usage(settings: EncoderSettings, relations: ExportedRelations | None) -> str:
    """Code for each library that opens the folder; MODEL is its path or hub id."""
    if settings.pooling == OF_NAMES:
        own = _SENTENCE_TRANSFORMERS.replace("(MODEL)", "(MODEL, trust_remote_code=True)")
        return f"{_MODEL}{own}{_PYTORCH}{_OURS}"
    pooled = {
        "cls": "hidden[:, 0]",
        "mean": '(hidden * batch["attention_mask"][..., None]).sum(1) '
        '/ batch["attention_mask"].sum(1, keepdim=True)',
        "pieces": "(hidden * pieces).sum(1) / pieces.sum(1).clamp(min=1)",
        "pooler": "output.pooler_output",
    }[settings.pooling]
    mask = ""
    if settings.pooling == "pieces":
        mask = (
            'pieces = (batch["attention_mask"] * batch["attention_mask"].roll(-1, 1))[..., None]\n'
        )
        mask += "pieces[:, [0, -1]] = 0  # neither [CLS] nor [SEP] of any term\n"
    text = f"""{_MODEL}{_SENTENCE_TRANSFORMERS if settings.pooling != "pieces" else ""}```python
import torch
from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained(MODEL), AutoModel.from_pretrained(MODEL)
terms = ["heart attack", "myocardial infarction"]
batch = tokenizer(terms, padding=True, truncation=True, return_tensors="pt")
with torch.inference_mode():
    output = model(**batch)
hidden = output.last_hidden_state
{mask}vectors = torch.nn.functional.normalize({pooled}, dim=-1)
```{_OURS}"""
    if relations:
        name, _ = KINDS[relations.table.ndim]
        query = "table[r].T @ vector" if relations.bilinear else "vector + table[r]"
        near = "" if relations.bilinear else "; the vector is not normalized"
        text += f"""

```python
import json, os
from pathlib import Path
from huggingface_hub import snapshot_download
from safetensors.numpy import load_file

{FOLDER}
labels = json.loads(Path(folder, "relations.json").read_text())["labels"]
table = load_file(f"{{folder}}/relations.safetensors")["{name}"]
r = labels.index(LABEL)
query = {query}  # near the tails of the relation LABEL{near}
```"""
    return text
