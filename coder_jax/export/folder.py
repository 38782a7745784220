"""Export of an encoder as a Hugging Face folder whose vectors are checked."""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import polars as pl
from jax.errors import JaxRuntimeError
from safetensors import SafetensorError
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from coder_jax.devices.hosts import log
from coder_jax.encoding.embed import embed_terms, place
from coder_jax.export.model_card import check_card, model_card, with_hub_id
from coder_jax.export.relations import ExportedRelations, write_relations
from coder_jax.models.bert import Bert
from coder_jax.models.hf_files import EncoderSettings, hub_errors, write_settings
from coder_jax.models.hf_weights import check_vocabulary, to_hf
from data_pipeline.dataset.tokenizer import ends_of_terms, load_tokenizer, vocabulary_size
from data_pipeline.files.buckets import address, explained, file_sizes, open_bucket, publish_folder
from data_pipeline.files.identity import CUTOFFS, ENCODER
from data_pipeline.files.whole import recover_folder, whole_folder, write_json
from data_pipeline.process import BadInput, Stopped, tell
from data_pipeline.terminology.cleaning import clean, clean_in

# -------------------------------------------------------------------------------------------------
# The files that make a model folder open in sentence-transformers.

# Module names and keys as sentence-transformers 2 to 6 all read them.
_TRANSFORMER, _POOLING, _DENSE, NORMALIZE = (
    f"sentence_transformers.models.{name}"
    for name in ("Transformer", "Pooling", "Dense", "Normalize")
)


def write_sentence_transformers_files(
    folder: Path,
    tensors: Mapping[str, np.ndarray],
    *,
    width: int,
    pooling: str,
    max_length: int,
) -> None:
    """Writes modules.json and the module folders beside a transformers model.

    The last module makes vectors of unit length. BERT's tanh pooler becomes a Dense module, which
    sentence-transformers applies to the pooled [CLS].

    Args:
      folder: with config.json, weights and tokenizer.
      tensors: the weights, under Hugging Face's names; the pooler's are read, if any.
      width: of the vectors.
      pooling: 'cls', 'mean' or 'pooler'.
      max_length: longest text in tokens.
    """
    modules = [("", _TRANSFORMER), ("1_Pooling", _POOLING)]
    if pooling == "pooler":
        modules.append(("2_Dense", _DENSE))
    modules.append((f"{len(modules)}_Normalize", NORMALIZE))
    write_modules(folder, modules)
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": max_length, "do_lower_case": False},
    )
    write_json(
        folder / "1_Pooling" / "config.json",
        {
            "word_embedding_dimension": width,
            "pooling_mode_cls_token": pooling != "mean",
            "pooling_mode_mean_tokens": pooling == "mean",
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    )
    if pooling == "pooler":
        write_json(
            folder / "2_Dense" / "config.json",
            {
                "in_features": width,
                "out_features": width,
                "bias": True,
                "activation_function": "torch.nn.modules.activation.Tanh",
            },
        )
        dense = {f"linear.{part}": tensors[f"pooler.dense.{part}"] for part in ("weight", "bias")}
        save_file(dense, folder / "2_Dense" / "model.safetensors", metadata={"format": "pt"})


def write_modules(folder: Path, modules: Sequence[tuple[str, str]]) -> None:
    """Writes modules.json, the folders of the modules, and that vectors are compared by cosine.

    Args:
      folder: of the model.
      modules: of each its folder and its class; the folder of the first is "".
    """
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": kind}
        for i, (path, kind) in enumerate(modules)
    ]
    write_json(folder / "modules.json", listed)
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"},
    )
    for path, _ in modules[1:]:
        (folder / path).mkdir()


# -------------------------------------------------------------------------------------------------
# The check of an export: how far its vectors are from those of the trained Bert.

_TOLERANCE = 1e-5  # of unit vectors, float32
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
_TRIAL_TERMS = ["", "pain", "Myocardial infarction (disorder)", "α-thalassemia", PROBE_TERMS[-1]]


def require_torch() -> None:
    """Raises BadInput where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise BadInput(
            "an export is compared with transformers before it is kept, which needs PyTorch; "
            "install it with 'pip install torch', its CPU build is enough"
        )


def _verify_export(
    folder: Path,
    bert: Bert,
    *,
    settings: EncoderSettings,
    tolerance: float = _TOLERANCE,
    terms: list[str] = PROBE_TERMS,
    proof: Any = None,
    tokenizer: Tokenizer | None = None,
) -> dict[str, float]:
    """Opens an export as its users will and compares its vectors with ours.

    Ours are those of `terms` by `bert`, and those that training itself gave.

    Args:
      folder: the export.
      bert: the encoder that was exported.
      settings: pooling, cleaning and length of the export.
      tolerance: largest absolute difference allowed between elements of unit vectors.
      terms: to compare.
      tokenizer: of the encoder before it was exported; None: that of the export.
      proof: `terms` and `outputs`, with their `vectors`, of training; None where there are none.

    Returns:
      The largest difference for each library that opened the folder: 'transformers', and
      'sentence-transformers' where that is installed.

    Raises:
      BadInput: PyTorch is not installed, so that nothing can be compared.
      RuntimeError: a difference above the tolerance, or NaN.
    """
    require_torch()
    cleaned = clean(pl.Series(terms, dtype=pl.String), settings.cleaning).to_list()
    ours = embed_terms(
        place(bert.with_dtype(jnp.float32)),
        tokenizer or load_tokenizer(folder),
        cleaned,
        pooling=settings.pooling,
        max_length=settings.max_length,
    )
    ours, terms = with_proof(terms, ours, proof)
    # Not cleaned: the exported tokenizer cleans.
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


def with_proof(terms: list[str], ours: np.ndarray, proof: Any) -> tuple[np.ndarray, list[str]]:
    """(vectors, terms): ours of some terms, followed by those of the run's proof."""
    if proof is None:
        return ours, terms
    of_training = np.array(proof.outputs["vectors"], np.float32)
    return np.concatenate([ours, of_training]), [*terms, *proof.terms]


def largest_difference(
    ours: np.ndarray, theirs: np.ndarray, what: str, folder: Path, tolerance: float = _TOLERANCE
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
    """Imports a Python file of an export under a unique name."""
    spec = importlib.util.spec_from_file_location(f"exported_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _without_load_report() -> Iterator[None]:
    """Silences transformers' table of weights that a folder lacks, such as those of a pooler.

    The vectors are compared: a weight that matters does not go unnoticed.
    """
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def transformers_tokens(folder: Path, terms: Sequence[str]) -> list[list[int]]:
    """Ids by transformers.AutoTokenizer, which cleans terms in an export of ours; not cut."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)(list(terms))["input_ids"]


def transformers_vectors(folder: Path, terms: list[str], settings: EncoderSettings) -> np.ndarray:
    """Unit vectors by transformers.AutoModel in PyTorch on the CPU, in ordinary padded batches."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    with _without_load_report():
        model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    # The exported tokenizer sets the length, as for users.
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
    """Vectors by SentenceTransformer.encode, with its own pooling and normalization.

    Args:
      folder: of the model.
      terms: strings.
      trust_remote_code: whether a module of the folder's own may be run.
    """
    from sentence_transformers import SentenceTransformer

    with _without_load_report():
        model = SentenceTransformer(str(folder), device="cpu", trust_remote_code=trust_remote_code)
    return model.encode(terms, convert_to_numpy=True, show_progress_bar=False)


# -------------------------------------------------------------------------------------------------
# The export itself.
#
# The folder opens unchanged with transformers (AutoModel, AutoTokenizer), sentence-transformers and
# `TermEncoder.from_pretrained`, and cleans terms in each of them. It is written under another name,
# its vectors are compared with the trained encoder's, and only then does it get its name.


def export_encoder(
    bert: Bert,
    tokenizer: Any,
    hf_config: Mapping[str, Any],
    out: str | Path,
    *,
    pooling: str,
    cleaning: str,
    max_length: int,
    relations: ExportedRelations | None = None,
    card: Mapping[str, Any] | None = None,
    pytorch_bin: bool = False,
    beside: Callable[[Path], dict[str, float]] | None = None,
    proof: Any = None,
) -> dict[str, float]:
    """Writes and checks an export.

    Args:
      bert: the encoder.
      tokenizer: folder or hub id of its tokenizer, or a transformers tokenizer.
      hf_config: config.json of the encoder that training began with, of which the ids of special
        tokens are taken where the tokenizer does not name these.
      out: the folder to write; an earlier export there is replaced, anything else refused.
      pooling: one of POOLINGS; with 'pieces' it opens in no sentence-transformers.
      cleaning: the rule set that terms went through in training.
      max_length: longest term in tokens.
      relations: what was learned of relations, or None.
      card: what the model card tells; see `model_card`.
      pytorch_bin: also write pytorch_model.bin.
      beside: writes more into the folder, and says what it found different, as this does.
      proof: `terms` and `outputs` of them, of the training whose encoder it is; None where it is
        none's.

    Returns:
      The largest difference of vectors for each library that opened the export; see
      `_verify_export`.

    Raises:
      BadInput: settings that do not fit the encoder, an `out` that is something else, a disk that
        is full, or PyTorch missing.
      RuntimeError: the export's vectors are not the encoder's. Nothing is left behind.
    """
    out, card = Path(out), dict(card or {})
    settings = EncoderSettings(pooling=pooling, cleaning=cleaning, max_length=max_length)
    check_exportable(bert, settings, card, out)
    with whole_export(out) as new:
        _write_encoder(new, bert, tokenizer, hf_config, settings, pytorch_bin)
        if relations is not None:
            write_relations(new, relations)
        _write_descriptions(new, settings, card, relations)
        differences = _verify_export(new, bert, settings=settings, proof=proof)
        if beside is not None:
            differences |= beside(new)
    return differences


@contextmanager
def whole_export(out: Path) -> Iterator[Path]:
    """A new folder, which is at `out` once all of it is written.

    Raises:
      BadInput: a disk that is full, or a folder that cannot be written. Nothing is left behind.
    """
    try:
        with whole_folder(out) as new:
            yield new
            for path in new.rglob("*.safetensors"):  # written for the owner alone
                shutil.copymode(new / "config.json", path)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{out} could not be written: {error}; nothing was left there") from error


def check_exportable(
    bert: Bert, settings: EncoderSettings, card: Mapping[str, Any], out: Path
) -> None:
    """Refuses, before anything is written, a model that cannot be exported."""
    require_torch()
    check_card(card)
    if settings.pooling == "pooler" and bert.pooler is None:
        raise BadInput("pooling is 'pooler', but the encoder has no pooler; export 'cls' or 'mean'")
    check_out(out)


def check_out(out: Path) -> None:
    """Refuses an output folder that holds anything but an earlier export."""
    recover_folder(out)  # of an export that was killed while it replaced another
    in_use = out.exists() and (not out.is_dir() or any(out.iterdir()))
    if in_use and not (out / ENCODER.file).is_file():
        raise BadInput(f"{out} exists and is no earlier export; give a new or empty folder")
    if (out / CUTOFFS.file).is_file():
        tell(
            f"warning: {out / CUTOFFS.file} is of the earlier export there, which a new one "
            f"replaces: make it again with `{CUTOFFS.command}`"
        )


def try_export(
    bert: Bert, tokenizer: Path, hf_config: Mapping[str, Any], settings: EncoderSettings
) -> None:
    """Exports an encoder before it is trained, opens that, and removes it again.

    Where PyTorch is not installed it is written alone. What this machine lacks, such as room for
    temporary files, is told and no error: it can be had until the training is over.

    Args:
      bert, tokenizer, hf_config: as for `export_encoder`.
      settings: pooling, cleaning and length of the export.

    Raises:
      BadInput: the export of what will be trained would fail.
    """
    with tempfile.TemporaryDirectory(prefix="coder_jax-trial-") as folder, unreported():
        try:
            _write_encoder(Path(folder), bert, tokenizer, hf_config, settings)
            if importlib.util.find_spec("torch") is not None:
                differences = _verify_export(
                    Path(folder),
                    bert,
                    settings=settings,
                    # Accelerators round differently; what is broken differs by far more.
                    tolerance=100 * _TOLERANCE,
                    terms=_TRIAL_TERMS,
                    tokenizer=load_tokenizer(tokenizer),
                )
                if max(differences.values()) > _TOLERANCE:
                    log(
                        "warning: vectors of the initial encoder differ by "
                        f"{max(differences.values()):.2e} between these devices and PyTorch, and "
                        f"`export` allows {_TOLERANCE:.0e}: it may refuse what is trained here. "
                        "Try it with the first checkpoint, before the run is long"
                    )
        except (BadInput, Stopped):
            raise
        except (OSError, SafetensorError, ImportError, MemoryError, JaxRuntimeError) as error:
            log(
                f"an export could not be tried here ({_in_a_line(error)}): training goes on, and "
                "`export` will need it"
            )
        except Exception as error:  # libraries have exceptions of all kinds
            raise BadInput(
                f"what this run trains could not be exported: {_in_a_line(error)}. This was tried "
                "with its initial encoder, and nothing was trained yet: give another --init, or "
                "mend its tokenizer and build the dataset with it"
            ) from error


def _in_a_line(error: Exception) -> str:
    """The class and the first line of an error."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


@contextmanager
def unreported() -> Iterator[None]:
    """In the block, transformers shows no bars, and warns of no long terms or unused weights."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _write_encoder(
    folder: Path,
    bert: Bert,
    tokenizer: Any,
    hf_config: Mapping[str, Any],
    settings: EncoderSettings,
    pytorch_bin: bool = False,
) -> None:
    """All that transformers and sentence-transformers open."""
    token_ids = _write_tokenizer(folder, tokenizer, bert, settings)
    tensors = write_model(folder, bert, {**hf_config, **token_ids}, pytorch_bin)
    if settings.pooling != "pieces":  # which sentence-transformers has no module for
        write_sentence_transformers_files(
            folder,
            tensors,
            width=bert.config.hidden_size,
            pooling=settings.pooling,
            max_length=settings.max_length,
        )


# Nothing else of what an encoder's folder carries along is written: settings of quantized weights
# or of attention, padding on the left, code of its own and the like would make other vectors of
# the same weights, or fail.
_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


def write_model(
    folder: Path, bert: Bert, token_ids: Mapping[str, Any], pytorch_bin: bool
) -> dict[str, np.ndarray]:
    """config.json, model.safetensors and, if asked, pytorch_model.bin.

    Args:
      folder: to write to.
      bert: the encoder.
      token_ids: the ids of special tokens are taken from it, by their names in a config.json.
      pytorch_bin: whether to write that file.

    Returns:
      The tensors.
    """
    config = bert.config.to_hf()
    for name in (f"{role}_token_id" for role in ("bos", "eos", "sep", "pad", "cls")):
        given = token_ids.get(name)
        # RoBERTa's positions count from the padding token's, whatever tokenizers say.
        counted = name == "pad_token_id" and bert.config.first_position > 0
        if isinstance(given, int) and 0 <= given < bert.config.vocab_size and not counted:
            config[name] = given
    write_json(folder / "config.json", {**config, "dtype": "float32"})
    tensors = to_hf(bert)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if pytorch_bin:
        import torch

        state = {name: torch.from_numpy(tensor) for name, tensor in tensors.items()}
        torch.save(state, folder / "pytorch_model.bin")
    return tensors


def _write_tokenizer(
    folder: Path, tokenizer: Any, bert: Bert, settings: EncoderSettings
) -> dict[str, int]:
    """Tokenizer files that clean and cut terms on their own; returns the ids of special tokens.

    The ids are by their names in a config.json.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if isinstance(tokenizer, str | Path):
        tokenizer = AutoTokenizer.from_pretrained(str(tokenizer))
    backend = tokenizer.backend_tokenizer
    check_vocabulary(vocabulary_size(backend), bert.config, "export")
    # Padding and truncation saved earlier would override the caller's.
    backend.no_padding()
    backend.no_truncation()
    opening, closing = ends_of_terms(backend, "the export")
    of_padding = (name for name in ("[PAD]", "<pad>") if backend.token_to_id(name) is not None)
    tokens = {
        "pad_token": next(of_padding, backend.id_to_token(closing)),
        **{name: str(token) for name, token in tokenizer.special_tokens_map.items() if token},
        "cls_token": backend.id_to_token(opening),
        "sep_token": backend.id_to_token(closing),
    }
    names = (f"{role}_token" for role in _ROLES)
    tokens = {name: tokens[name] for name in names if name in tokens}
    types = ["token_type_ids"] if bert.config.model_type == "bert" else []
    # transformers 4 takes a blank before the first word away where the settings do not name it.
    before = json.loads(backend.to_str())["pre_tokenizer"] or {}
    blank = {name: before[name] for name in ("add_prefix_space",) if name in before}
    clean = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=settings.max_length,
        model_input_names=["input_ids", *types, "attention_mask"],
        **blank,
        **tokens,
    )
    clean.save_pretrained(folder)
    clean_in(folder, settings.cleaning)
    return {f"{name}_id": clean.convert_tokens_to_ids(token) for name, token in tokens.items()}


def _write_descriptions(
    folder: Path,
    settings: EncoderSettings,
    card: Mapping[str, Any],
    relations: ExportedRelations | None,
) -> None:
    """coder_jax.json for programs and README.md, the model card, for people."""
    about = {name: card[name] for name in ("recipe", "dataset_hash", "languages") if name in card}
    versions = {name: version(name) for name in ("jax", "flax", "transformers")}
    write_settings(folder, settings, **about, versions=versions)
    (folder / "README.md").write_text(model_card(card, settings, relations), encoding="utf-8")


# -------------------------------------------------------------------------------------------------
# Upload of an export to the Hugging Face Hub or a bucket.


_WEIGHTS = ("*.safetensors", "*.bin", "*.onnx")
# What an earlier export may have and a new one may lack, and by which a model would be misread.
_OF_AN_EXPORT = [*_WEIGHTS, "*.json", "vocab.txt", "merges.txt", "words.txt"]


def push_to_hub(folder: str | Path, repo: str, *, private: bool = False) -> str:
    """Uploads an export to the Hugging Face Hub, making the repository if need be.

    Weights, settings, tokenizer and card of an earlier export there are replaced or deleted;
    pictures, a license and other files stay. The code of the uploaded card names the
    repository.

    Args:
      folder: the export.
      repo: organisation/name, or the name alone for one's own.
      private: whether the repository must be private before anything is sent; else it is what it
        was, and a new one what its organisation decides.

    Returns:
      The address of the model.

    Raises:
      BadInput: not logged in, no right to write there, no network, or another model is there.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        url = api.create_repo(repo, private=True if private else None, exist_ok=True)
        found = api.model_info(url.repo_id)
        there = [file.rfilename for file in found.siblings or ()]
        weights = sorted(name for name in there if any(fnmatch(name, one) for one in _WEIGHTS))
        if weights and ENCODER.file not in there:
            raise BadInput(
                f"{url.repo_id} holds another model ({', '.join(weights[:3])}); expected an "
                "earlier export or no weights. Give another repository, or empty it on the Hub"
            )
        if private and not found.private:
            api.update_repo_settings(url.repo_id, private=True)
        card = Path(folder, "README.md")
        text = card.read_text("utf-8")
        card.write_text(with_hub_id(text, url.repo_id), "utf-8")
        try:
            api.upload_folder(
                folder_path=str(folder),
                repo_id=url.repo_id,
                commit_message="Upload of a coder_jax export",
                delete_patterns=_OF_AN_EXPORT,
            )
        finally:  # the next repository has another id
            card.write_text(text, "utf-8")
    except hub_errors() as error:
        raise BadInput(
            f"{folder} was not uploaded to {repo} ({type(error).__name__}: {error}); the folder "
            "itself is complete. Log in with 'hf auth login', check the name, and try again"
        ) from error
    return str(url)


def publish_export(folder: Path, out: Path) -> None:
    """Copy an export into a bucket; an earlier export there is replaced.

    Raises:
        BadInput: if something else is there, or the bucket cannot be written to.
    """
    with explained(address(out), "read"):
        earlier = ENCODER.file in file_sizes(*open_bucket(address(out)))
    publish_folder(folder, out, "config.json", overwrite=earlier)
