"""The component `coder_linker` of spaCy: entities to concepts, abbreviations, contexts."""

import os
import subprocess
import sys
import tomllib

import pytest
from tiny_bert import write_model

spacy = pytest.importorskip("spacy", reason="spacy is not installed (see requirements-test.txt)")

import coder_jax.commands.spacy_linker  # noqa: E402, F401
from data_pipeline.process import BadInput  # noqa: E402

DICTIONARY = (
    "term\tconcept\nheart attack\tC1\nmyocardial infarction\tC1\nrenal failure\tC2\npain\tC3\n"
)
ENTITIES = ("heart attack", "MI", "renal failure", "pain", "Pain", "x", "myocardial infarction")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("linker")
    write_model(folder / "tiny")
    (folder / "terms.tsv").write_text(DICTIONARY)
    return folder


def pipeline(folder, **config):
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "DISORDER", "pattern": one} for one in ENTITIES])
    config = {"model": str(folder / "tiny"), "dictionary": str(folder / "terms.tsv")} | config
    config["options"] = {"pooling": "mean", **config.get("options", {})}
    nlp.add_pipe("coder_linker", config=config)
    return nlp


@pytest.fixture(scope="module")
def nlp(folder):
    return pipeline(folder)


def linked(doc):
    return [(ent.text, ent.kb_id_) for ent in doc.ents]


def test_entities_get_their_concept_and_candidates(nlp):
    doc = nlp("Pain after a heart attack, then x was seen.")
    assert linked(doc) == [("Pain", "C3"), ("heart attack", "C1"), ("x", "")]
    pain, attack, letter = (ent._.coder for ent in doc.ents)
    assert [row["rank"] for row in pain] == [1, 2, 3] and pain[0]["status"] == "exact"
    assert {row["concept"] for row in pain} == {"C1", "C2", "C3"}
    assert attack[0]["similarity"] == 1.0 and attack[0]["confidence"] is None
    assert [row["reason"] for row in letter] == ["one letter"]


def test_abbreviations_of_the_document_are_written_out(nlp, folder):
    text = "Myocardial infarction (MI) was found. Two years later MI again."
    ent = nlp(text).ents[-1]
    assert (ent.text, ent.kb_id_) == ("MI", "C1")
    assert ent._.coder[0]["mention"] == "Myocardial infarction"
    assert ent._.coder[0]["status"] == "exact"
    plain = pipeline(folder, abbreviations=False)
    assert plain(text).ents[-1]._.coder[0]["status"] != "exact"


def test_what_the_sentence_says_of_an_entity(nlp, folder):
    texts = {
        "She denies any pain or heart attack.": ["negated", "negated"],
        "No pain but renal failure.": ["negated", ""],
        "Mother had a heart attack. Now pain.": ["family", ""],
        "Renal failure was ruled out; pain": ["", ""],  # no entity in these letters
        "renal failure was ruled out yesterday; pain": ["negated", ""],
        "no fever\npain": [""],
        "Rule out renal failure": ["possible"],
    }
    docs = list(nlp.pipe(texts, batch_size=3))
    found = {doc.text: [ent._.coder[0]["context"] for ent in doc.ents] for doc in docs}
    assert found == texts | {"Renal failure was ruled out; pain": [""]}
    assert linked(docs[0]) == [("pain", ""), ("heart attack", "")]
    assert linked(docs[1]) == [("pain", ""), ("renal failure", "C2")]
    coded = pipeline(folder, options={"context": "code"})("She denies any pain.")
    assert linked(coded) == [("pain", "C3")]
    assert coded.ents[0]._.coder[0]["status"] == "in context"


def test_documents_and_pipelines_are_kept(nlp, folder):
    from spacy.tokens import DocBin

    (doc,) = DocBin(docs=[nlp("pain")], store_user_data=True).get_docs(nlp.vocab)
    assert linked(doc) == [("pain", "C3")] and doc.ents[0]._.coder[0]["concept"] == "C3"
    nlp.to_disk(folder / "pipeline")
    again = spacy.load(folder / "pipeline")
    assert linked(again("renal failure")) == [("renal failure", "C2")]
    assert list(again.pipe([])) == [] and linked(again("nothing here")) == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"options": {"precison": 0.9}}, "there is no option --precison; did you mean"),
        ({"options": {"precision": 2}}, "--precision is 2.0; expected a share"),
        ({"dictionary": "absent.tsv"}, "absent.tsv"),
    ],
)
def test_what_is_wrong_with_a_configuration(folder, config, message):
    with pytest.raises(BadInput, match=message):
        pipeline(folder, **config)


@pytest.mark.slow
def test_it_is_there_once_the_project_is_installed(repo, folder, tmp_path):
    """spaCy finds it by its entry point: nothing of ours is imported by hand."""
    project = tomllib.loads((repo / "pyproject.toml").read_text())["project"]
    info = tmp_path / "coder_linker_test-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: coder-linker-test\nVersion: 1\n")
    lines = [
        f"{name} = {what}" for name, what in project["entry-points"]["spacy_factories"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(["[spacy_factories]", *lines]) + "\n")
    code = (
        "import spacy, sys\n"
        "nlp = spacy.blank('en')\n"
        "assert 'jax' not in sys.modules and 'polars' not in sys.modules\n"
        "nlp.add_pipe('entity_ruler').add_patterns([{'label': 'D', 'pattern': 'pain'}])\n"
        f"config = {{'model': {str(folder / 'tiny')!r}, 'options': {{'pooling': 'mean'}},\n"
        f"          'dictionary': {str(folder / 'terms.tsv')!r}}}\n"
        "nlp.add_pipe('coder_linker', config=config)\n"
        "print([ent.kb_id_ for ent in nlp('pain').ents])\n"
    )
    path = os.pathsep.join([str(tmp_path), str(repo)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["['C3']"]
