"""`normalize` and `evaluate` by the classes of a run: what is printed, what is refused."""

import csv
import hashlib
import io
import json
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from quaero_corpus import write_quaero

from coder_jax.__main__ import main
from coder_jax.encoding.search import search
from coder_jax.mapping.coded_list import Status
from coder_jax.systems.mlnorm import classifier as classifier_module
from coder_jax.systems.mlnorm.classifier import (
    ClassNormalizer,
    ConceptClassifier,
    apply_head,
    head_shapes,
    new_head,
    new_statistics,
    train_head,
)
from coder_jax.systems.trained_models import load_classifier
from data_pipeline.batches.candidates import Classes
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.terminology.semantic_groups import ANY, GROUPS


@pytest.fixture
def mentions(tmp_path):
    (tmp_path / "mentions.txt").write_text("pain in limb\nn/a\nŒdème 12a\n")
    return tmp_path / "mentions.txt"


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text), dialect="excel-tab"))


def test_mentions_get_concepts_of_the_group_and_probabilities(first, mentions, capsys):
    classifier = load_classifier(first[0])
    groups = dict(zip(classifier.concepts, classifier.groups.tolist(), strict=True))
    given = ["normalize", "--model", str(first[0]), "--semantic-group", "diso", "-k", "3"]
    assert main([*given, str(mentions)]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert [row["mention"] for row in rows] == ["pain in limb"] * 3 + ["n/a"] + ["Œdème 12a"] * 3
    index, probability = classifier.nearest(["pain in limb"], ["DISO"], 3)
    for row, number, expected in zip(rows, index[0], probability[0], strict=False):
        assert row["concept"] == classifier.concepts[number]
        assert float(row["similarity"]) == pytest.approx(float(expected), abs=1e-4)
        assert groups[row["concept"]] >> GROUPS.index("DISO") & 1
    assert rows[0]["confidence"] == rows[0]["similarity"]
    assert rows[3]["status"] == "no answer"


def test_any_number_of_mentions_is_compiled_once_and_a_group_s_rows_are_copied_once(
    monkeypatch, caplog
):
    rng, searched = np.random.default_rng(0), []

    class Pooled:
        def encode(self, mentions, **_):
            return rng.normal(size=(len(mentions), 6)).astype(np.float32)

    def seen(queries, keys, k):
        searched.append(keys)
        return search(queries, keys, k)

    params, statistics = head_shapes(6, 4)
    head = {**new_head(params, jax.random.key(0)), **new_statistics(statistics)}
    disorders = 1 << GROUPS.index("DISO") | 1 << ANY
    classes = Classes(list("abcdef"), np.array([disorders] * 4 + [1 << ANY] * 2, np.uint16))
    table = rng.normal(size=(6, 4)).astype(np.float32)
    classifier = ConceptClassifier(Pooled(), head, table, classes, scale=20.0)
    monkeypatch.setattr(classifier_module, "search", seen)
    for group in ("DISO", None):
        classifier.nearest(["pain"] * 8, [group] * 8, 6)
    with jax.log_compiles(), caplog.at_level(logging.WARNING, "jax"):
        for number in (5, 6, 7):
            for group in ("DISO", None):
                index, probability = classifier.nearest(["pain"] * number, [group] * number, 6)
                assert (index >= 0).sum() == number * (4 if group else 6)
                np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-5)
    assert "ompiling" not in caplog.text
    assert len(searched) == 8 and len(set(map(id, searched))) == 2


def test_below_the_threshold_there_is_no_answer(first):
    classifier = load_classifier(first[0])
    names = Dictionary([], [], "none")
    found = classifier.nearest(["pain in limb"], [None], 1)[1][0, 0]
    for threshold, status in ((found - 0.001, Status.NEAR), (found + 0.001, Status.NO_ANSWER)):
        normalizer = ClassNormalizer(classifier, names, threshold=float(threshold))
        (answer,) = normalizer.answers(["pain in limb"])
        assert answer.status == status
        assert answer.confidence == pytest.approx(float(found))
    assert answer.reason.startswith("probability ")


def test_a_dictionary_beside_it_tells_the_names(built, first, mentions, capsys):
    given = ["normalize", "--model", str(first[0]), "--by", "classes"]
    assert main([*given, "--dictionary", str(built[0]), str(mentions)]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert rows[0]["preferred_name"] and rows[0]["semantic_type"]


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--semantic-group", "DIS"], "found the semantic group 'DIS'; expected one of ACTI"),
        (["--precision", "0.9"], "--precision is for terms of a dictionary, but answers are"),
        (["--review", "review.html"], "--review needs the names of concepts"),
        (["--by", "terms"], "--by terms: found no --dictionary"),
    ],
)
def test_what_classes_cannot_do(first, mentions, flags, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["normalize", "--model", str(first[0]), *flags, str(mentions)]) == 2
    assert words in capsys.readouterr().err


def test_a_model_without_classes_needs_a_dictionary(built, mentions, capsys):
    assert main(["normalize", "--model", str(built[1]), str(mentions)]) == 2
    assert "--dictionary is missing, and" in capsys.readouterr().err


def test_a_group_without_a_class_is_named(first, mentions, capsys):
    classifier = load_classifier(first[0])
    missing = [name for name in GROUPS if not classifier.known_group(name)]
    if not missing:
        pytest.skip("the invented release has concepts of all groups")
    given = ["normalize", "--model", str(first[0]), "--semantic-group", missing[0]]
    assert main([*given, str(mentions)]) == 2
    assert "the model has no concept of it; it has" in capsys.readouterr().err


def test_quaero_is_scored_by_classes(first, tmp_path, capsys):
    corpus = write_quaero(tmp_path)
    out = tmp_path / "out.json"
    given = ["evaluate", "--model", str(first[0]), "--json", str(out)]
    told = ["--predictions", str(tmp_path / "told")]
    assert main([*given, "--benchmark", f"quaero={corpus}", *told]) == 0
    (record,) = json.loads(out.read_text())["records"]
    table = tmp_path / record["answers"]["predictions"]["EMEA 2015"]
    assert [row["mention"] for row in rows_of(table.read_text())][:2] == [
        *("Douxium", "métastases hépatiques"),
    ]
    assert record["encoder"]["pooling"] == "pieces"
    classes = load_classifier(first[0]).table.tobytes()
    assert record["encoder"]["weights_hash"] == hashlib.sha256(classes).hexdigest()
    assert np.isfinite(record["scores"][next(iter(record["scores"]))])
    assert "unreachable" in capsys.readouterr().out


def test_other_benchmarks_need_terms(built, first, tmp_path, capsys):
    mentions = built[0] / "heldout" / "mentions.tsv"
    given = ["evaluate", "--model", str(first[0]), "--json", str(tmp_path / "out.json")]
    assert main([*given, "--benchmark", f"own={mentions}"]) == 2
    assert "has classes, which answer mentions with a semantic group" in capsys.readouterr().err


@pytest.mark.slow
def test_a_report_shows_them_beside_the_nearest_terms(built, first, mentions, tmp_path, capsys):
    out = tmp_path / "report.html"
    given = ["report", "--model", str(first[0]), "--dictionary", str(built[0]), "--out", str(out)]
    assert main(given) == 0
    html = out.read_text()
    assert "nearest term acc@1" in html and "class acc@1" in html, "the curves"
    classifier = load_classifier(first[0])
    assert f"a class for each of {len(classifier.concepts)} concepts" in html
    held_out = (built[0] / "heldout" / "mentions.tsv").read_text().splitlines()[1:]
    table = html.partition('aria-label="Table: answers by classes"')[2].partition("</table>")[0]
    assert table.count('<th scope="row">') == len({line.split("\t")[0] for line in held_out})
    assert (
        table.count("<li>") > 5 * len(held_out)
        and "Answers by classes" not in capsys.readouterr().out
    )
    assert main([*given, "--mentions", str(mentions)]) == 0
    table = out.read_text().partition('aria-label="Table: answers by classes"')[2]
    index, probability = classifier.nearest(["pain in limb"], [None], 1)
    row = table.partition("pain in limb")[2].partition("</li>")[0]
    assert f"{probability[0, 0]:.2f}" in row and classifier.concepts[index[0, 0]] in row


def test_a_report_of_a_model_without_classes_refuses_mentions(built, mentions, tmp_path, capsys):
    given = ["report", "--model", str(built[1]), "--out", str(tmp_path / "r.html")]
    given += ["--mentions", str(mentions)]
    assert main(given) == 2
    assert "expected --dictionary with it" in capsys.readouterr().err
    assert main([*given, "--dictionary", str(built[0])]) == 2
    assert "has no classes to answer them" in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()


# -------------------------------------------------------------------------------------------------
# The head: PyTorch's layers in the paper's order, its running statistics too.

W, D = 12, 7


@pytest.fixture
def pair():
    """Our head with its statistics, and the layers of PyTorch with the same parameters."""
    shapes, of_statistics = head_shapes(W, D)
    head, statistics = new_head(shapes, jax.random.key(0)), new_statistics(of_statistics)
    rng = np.random.default_rng(0)
    head["scale"] = jnp.float32(rng.uniform(0.5, 2, D))
    head["shift"] = jnp.float32(rng.normal(size=D))
    linear, norm = torch.nn.Linear(W, D), torch.nn.BatchNorm1d(D)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor(np.array(head["kernel"]).T))
        for layer, name, ours in (
            (linear, "bias", "bias"), (norm, "weight", "scale"), (norm, "bias", "shift"),
        ):  # fmt: skip
            getattr(layer, name).copy_(torch.tensor(np.array(head[ours])))

    def theirs(pooled):
        return torch.nn.functional.normalize(norm(torch.relu(linear(pooled))), dim=1)

    return head, statistics, norm, theirs


@pytest.mark.parity
def test_in_training_and_after_it_gives_what_pytorch_does(pair):
    head, statistics, norm, theirs = pair
    rng = np.random.default_rng(1)
    for _ in range(3):
        pooled = rng.normal(size=(9, W)).astype(np.float32)
        found, statistics = train_head(head, statistics, jnp.asarray(pooled))
        np.testing.assert_allclose(found, theirs(torch.tensor(pooled)).detach(), atol=1e-5)
    np.testing.assert_allclose(statistics["mean"], norm.running_mean, rtol=1e-5)
    np.testing.assert_allclose(statistics["variance"], norm.running_var, rtol=1e-5)
    norm.eval()
    pooled = rng.normal(size=(1, W)).astype(np.float32)
    found = apply_head(head, statistics, jnp.asarray(pooled))
    np.testing.assert_allclose(found, theirs(torch.tensor(pooled)).detach(), atol=1e-5)


@pytest.mark.parity
def test_gradients_are_those_of_pytorch(pair):
    head, statistics, _, theirs = pair
    pooled = np.random.default_rng(2).normal(size=(9, W)).astype(np.float32)
    way = np.random.default_rng(3).normal(size=(9, D)).astype(np.float32)

    def along(pooled):
        return (train_head(head, statistics, pooled)[0] * way).sum()

    given = torch.tensor(pooled, requires_grad=True)
    (theirs(given) * torch.tensor(way)).sum().backward()
    np.testing.assert_allclose(jax.grad(along)(jnp.asarray(pooled)), given.grad, atol=1e-5)


def test_it_begins_as_pytorch_does():
    shapes, _ = head_shapes(384, 350)
    head = new_head(shapes, jax.random.key(0))
    bound = 384**-0.5
    for name in ("kernel", "bias"):
        values = np.abs(np.asarray(head[name]))
        assert values.max() <= bound
        assert values.mean() == pytest.approx(bound / 2, rel=0.1)
