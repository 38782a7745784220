"""An exported folder and the Bert it came from in; how far apart their vectors are out."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import polars as pl

from coder_jax.encoding.readers.embed import embed_terms
from coder_jax.models.bert import Bert
from coder_jax.models.encoder_settings import EncoderSettings
from data_pipeline.dataset.tokenize_terms import load_tokenizer
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.cleaning.rules import clean

TOLERANCE = 1e-5  # of unit vectors, float32
PROBE_TERMS = [
    "",
    "pain",
    "Heart attack",
    "Myocardial infarction (disorder)",
    "Type 2 diabetes mellitus",
    "T2DM",
    "Non-small cell lung carcinoma, NOS",
    "Abnormality of the cardiovascular system",
    "5-alpha-reductase deficiency",
    "beta-D-glucopyranosyl-(1->4)-D-glucose",
    "2,3,7,8-tetrachlorodibenzo-p-dioxin",
    "BRCA1 protein, human",
    "HLA-DRB1*04:01",
    "Escherichia coli O157:H7",
    "vitamin B₁₂",
    "α-thalassemia",
    "β-amyloid (1–42)",
    "µ-opioid receptor agonist",
    "37 °C ± 0.5 °C",
    "Sjögren's syndrome",
    "Ménière disease",
    "Behçet’s disease",
    "infarctus du myocarde",
    "œdème aigu du poumon",
    "Herzinfarkt, akuter",
    "Überempfindlichkeit gegen Penicillin",
    "infarto agudo de miocardio",
    "niño con fiebre",
    "инфаркт миокарда",
    "έμφραγμα του μυοκαρδίου",
    "心筋梗塞",
    "急性心肌梗死",
    "심근경색증",
    "احتشاء عضلة القلب",
    "אוטם שריר הלב",
    "กล้ามเนื้อหัวใจตาย",
    "e\u0301ruption cutane\u0301e",
    "pain  \t in   limb",
    "status post 🫀 transplant",
    "Diabetes (type 2 (insulin-treated)) NOS",
    "NOS",
    "nos\u2028cancer\x85NOS (finding) (disorder) ",
    "((unclosed (bracket)",
    "ΝΕΦΡΙΚΉ ΝΌΣΟΣ",
    "İSKEMİ",
    "vitB12a/β2±5µg’s",
    "א\u05b8ב",
    "[Ambiguous] <unspecified> & other; see also: rash/itch",
    "Methionyl" + "threonylthreonylglutaminylalanyl" * 12,
    "Closed fracture of the base of the skull with subarachnoid, subdural, and extradural "
    "hemorrhage, with prolonged loss of consciousness of more than twenty-four hours, without "
    "return to the pre-existing conscious level, initial encounter for closed fracture",
]


def require_torch() -> None:
    """Raises BadInput where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise BadInput(
            "an export is compared with transformers before it is kept, which needs PyTorch; "
            "install it with 'pip install torch', its CPU build is enough"
        )


def verify_export(
    folder: Path,
    bert: Bert,
    *,
    settings: EncoderSettings,
    tolerance: float = TOLERANCE,
    proof: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Opens an export the way its users will and compares its vectors with ours.

    Ours are those of PROBE_TERMS by `bert`, and those that training itself gave.

    Args:
      folder: the export.
      bert: the encoder that was exported.
      settings: pooling, cleaning and length of the export.
      tolerance: largest absolute difference allowed between elements of unit vectors.
      proof: `terms` and `outputs`, with their `vectors`, of training; None where there are none.

    Returns:
      The largest difference for each library that opened the folder: 'transformers', and
      'sentence-transformers' where that is installed.

    Raises:
      BadInput: PyTorch is not installed, so that nothing can be compared.
      RuntimeError: a difference above the tolerance, or NaN.
    """
    require_torch()
    cleaned = clean(pl.Series(PROBE_TERMS, dtype=pl.String), settings.cleaning).to_list()
    ours = embed_terms(
        bert.with_dtype(jnp.float32),
        load_tokenizer(folder),
        cleaned,
        pooling=settings.pooling,
        max_length=settings.max_length,
    )
    ours, terms = with_proof(ours, proof)
    # Not cleaned: the exported tokenizer does it.
    theirs = {"transformers": transformers_vectors(folder, terms, settings)}
    has_modules = (folder / "modules.json").exists()
    if has_modules and importlib.util.find_spec("sentence_transformers") is not None:
        theirs["sentence-transformers"] = sentence_transformers_vectors(folder, terms)
    return {
        name: largest_difference(
            ours, vectors, f"the export opened by {name} gives vectors that", folder, tolerance
        )
        for name, vectors in theirs.items()
    }


def with_proof(ours: np.ndarray, proof: Mapping[str, Any] | None) -> tuple[np.ndarray, list[str]]:
    """(vectors, terms): those of PROBE_TERMS, and behind them those that training gave."""
    if proof is None:
        return ours, PROBE_TERMS
    of_training = np.array(proof["outputs"]["vectors"], np.float32)
    return np.concatenate([ours, of_training]), [*PROBE_TERMS, *proof["terms"]]


def largest_difference(
    ours: np.ndarray, theirs: np.ndarray, what: str, folder: Path, tolerance: float = TOLERANCE
) -> float:
    """The largest difference of what was trained and what an export gives.

    Args:
      ours, theirs: of one shape.
      what: how the message begins, before "differ".
      folder: of the export.
      tolerance: the largest absolute difference allowed.

    Raises:
      RuntimeError: if it is above the tolerance, or NaN.
    """
    difference = float(np.abs(ours - theirs).max())
    if not difference <= tolerance:  # catches NaN too
        raise RuntimeError(
            f"{what} differ from the trained one's by {difference:.2e}; expected at most "
            f"{tolerance:.0e}: {folder}"
        )
    return difference


def load_module(path: Path) -> Any:
    """The Python file that lies in an export, imported under no name that others have."""
    spec = importlib.util.spec_from_file_location(f"exported_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def transformers_tokens(folder: Path, terms: Sequence[str]) -> list[list[int]]:
    """Ids by transformers.AutoTokenizer, which cleans terms in an export of ours; not cut."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)(list(terms))["input_ids"]


def transformers_vectors(folder: Path, terms: list[str], settings: EncoderSettings) -> np.ndarray:
    """Unit vectors by transformers.AutoModel in PyTorch on the CPU, in ordinary padded batches."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    # The length comes from the exported tokenizer, as it does for users.
    batch = tokenizer(terms, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        output = model(**batch)
    if settings.pooling == "pooler":
        vectors = output.pooler_output
    elif settings.pooling == "cls":
        vectors = output.last_hidden_state[:, 0]
    else:
        mask = batch["attention_mask"][:, :, None]
        if settings.pooling == "pieces":  # neither the first token nor the last of each
            mask = mask.roll(-1, 1) * mask
            mask[:, [0, -1]] = 0
        vectors = (output.last_hidden_state * mask).sum(1) / mask.sum(1).clamp(min=1)
    return torch.nn.functional.normalize(vectors, dim=-1).numpy()


def sentence_transformers_vectors(
    folder: Path, terms: list[str], *, trust_remote_code: bool = False
) -> np.ndarray:
    """Vectors by SentenceTransformer.encode, whose own modules pool and normalize.

    Args:
      folder: of the model.
      terms: strings.
      trust_remote_code: whether a module of the folder's own may be run.
    """
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", trust_remote_code=trust_remote_code)
    return model.encode(terms, convert_to_numpy=True, show_progress_bar=False)
