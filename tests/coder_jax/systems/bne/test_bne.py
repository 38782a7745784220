"""A run of BNE: it learns, goes on bitwise, is the same on any devices; what it cannot use."""

import dataclasses
import json
import shutil
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from name_run import STEPS, config_of, source_of
from safetensors.numpy import load_file, save_file
from short_run import Stops, assert_same_parameters, lines_of
from tiny_names import tiny_vectors

from coder_jax.__main__ import main
from coder_jax.commands.train import parse
from coder_jax.devices.mesh import put_batch
from coder_jax.encoding import embed
from coder_jax.encoding.encoder import RememberingEncoder, TermEncoder
from coder_jax.encoding.readers import NameReader
from coder_jax.export.folder import PROBE_TERMS, load_module
from coder_jax.systems import bne as bne_module
from coder_jax.systems.bne import (
    _LOSSES,
    BneSystem,
    NameModel,
    _bne_loss,
    _choose_negatives,
    _compare_names,
    _describe_names,
    _development_scores,
    _StartOfNames,
    _write_files,
    bne,
    bne_released,
)
from coder_jax.systems.encoder_system import averaged
from coder_jax.systems.trained_models import load_run
from coder_jax.training.state import new_state
from coder_jax.training.step import make_step
from coder_jax.training.system import check_proof
from coder_jax.training.train import train
from data_pipeline.batches.bne import Alphabet, NameBatches
from data_pipeline.batches.spec import StepCut
from data_pipeline.process import BadInput


def test_it_learns_and_is_scored(trained):
    out, result = trained
    losses = [line["loss"] for line in lines_of(out / "metrics.jsonl") if "loss" in line]
    assert losses[-1] < losses[0]
    assert {"acc@1", "acc@5", "mrr", "terms"} == result.scores["heldout"].keys()


@pytest.mark.slow
@pytest.mark.parametrize("at", [3, 6])  # before the first checkpoint, and after one
def test_stopped_and_gone_on_with_it_is_bitwise_the_straight_run(
    names, trained, tmp_path, on_one_device, at
):
    config = config_of(names, tmp_path / "run")
    with pytest.raises(ConnectionError):
        train(config, Stops(source_of(config, names), at))
    train(config, source_of(config, names))
    (_, ours), (_, theirs) = load_run(tmp_path / "run"), load_run(trained[0])
    assert ours.step == theirs.step == STEPS
    assert_same_parameters(ours.params, theirs.params)


def steps_on(names, devices, **changes):
    """(losses, parameters) of three steps on some devices."""
    config = config_of(names, "x", **changes)
    # Adam divides by the size of a gradient: of one near 0 it would show the rounding.
    config = dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, eps=1e-3))
    system = config.system
    about = system.load_initial(source_of(config, names))[0]
    step = make_step(config, about, NameBatches.packed, devices=jax.devices()[:devices])
    state = new_state(step.like, system, {}, step.parts, step.optimizer)
    source = system.open(names, step.cut, rows=0, steps=3)
    step.compile(source, source.plan.ample)
    losses = []
    for batch in source.batches(0, 3):
        placed = put_batch(step.mesh, step.cut, batch, source.packed)
        state, metrics = step(state, placed, source.plan.ample)
        losses.append(float(metrics["loss"]))
    return losses, jax.device_get(state.params)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"negatives": "hardest"},
        {
            "learned_scale": True,
            "model": {"cell": "coupled", "projection": "tanh"},
            "batch": {"groups": 4},
        },
    ],
    ids=["paper", "released, devices share blocks"],
)
def test_devices_change_nothing(names, changes):
    losses, params = steps_on(names, 1, **changes)
    again, others = steps_on(names, 8, **changes)
    assert again == pytest.approx(losses, rel=1e-6)
    for ours, theirs in zip(jax.tree.leaves(others), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_the_released_recipe_trains_as_many_numbers_as_its_checkpoint():
    system = bne_released().system
    params, _ = system.shapes(_StartOfNames(alphabet="x" * 81, width=200))
    assert sum(shape.size for shape in jax.tree.leaves(params)) == 1_350_002


def test_the_recipe_has_three_losses_and_the_model_of_the_paper():
    assert tuple(bne().system.weights.values()) == (1, 1, 1)
    assert bne().system.model == NameModel()


def test_what_the_vectors_decide_is_written_down(names, trained):
    _, run = load_run(trained[0])
    assert run.identity["config"]["system"]["batch"]["targets"] == "tokens"
    manifest = source_of(config_of(names, "x"), names).grams.manifest
    assert run.identity["vectors"]["content_hash"] == manifest.content_hash
    assert "tokenizer" not in run.identity


@pytest.mark.slow
def test_another_run_s_encoder_is_a_start_for_vectors_of_its_width(
    names, trained, tmp_path, on_one_device
):
    config = dataclasses.replace(config_of(names, tmp_path / "on"), start=str(trained[0]))
    result = train(config, source_of(config, names))
    assert result.steps == STEPS
    tiny_vectors(tmp_path / "wide", width=13)
    wide = config_of(names, tmp_path / "no", model={"init": str(tmp_path / "wide")})
    wide = dataclasses.replace(wide, start=str(trained[0]))
    with pytest.raises(
        BadInput, match="found vectors of width 13, but the run to start from has 12"
    ):
        train(wide, source_of(wide, names))


def test_other_vectors_are_another_run(names, trained, tmp_path, on_one_device):
    tiny_vectors(tmp_path / "words", "words")
    other = config_of(names, trained[0], model={"init": str(tmp_path / "words")})
    with pytest.raises(BadInput, match="content_hash"):
        train(other, source_of(other, names))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": NameModel(init="x", dropout=1.0)}, "--dropout is 1.0; expected"),
        ({"model": NameModel(init="x", hidden=0)}, "--hidden is 0; expected 1 or more"),
        ({"synonym_weight": -1.0}, "none may be below 0"),
        (dict.fromkeys(("synonym_weight", "concept_weight", "context_weight"), 0.0), "one must be"),
    ],
)
def test_values_that_cannot_be_used_are_said(changes, message):
    system = BneSystem(**({"model": NameModel(init="x")} | changes))
    with pytest.raises(BadInput, match=message):
        system.validate(bne().optimizer)


def test_without_vectors_of_words_nothing_begins(tmp_path):
    with pytest.raises(BadInput, match="found no --init; expected the folder of vectors of words"):
        BneSystem(model=NameModel()).open(tmp_path, StepCut(), rows=0, steps=1)


# -------------------------------------------------------------------------------------------------
# The checkpoint of the best score on development sets (section 4).

ABSTRACT = """\
1|t|Pain of the heart, and attack.
1|a|Renal failure.
1\t0\t17\tPain of the heart\tDisease\tD000002
1\t23\t29\tattack\tDisease\tD000001
1\t31\t44\tRenal failure\tChemical\tMESH:D000003
"""
MEDIC = (
    "D000001||heart attack|attack\nD000002||heart pain\nD000003||failure of the renal|lung pain\n"
)


def development_of(names, write):
    """Settings: a set of two types of mention among MEDIC, and one with its own dictionary."""
    sets = [f"ncbi={write('ncbi.txt', ABSTRACT)}", f"own={names / 'heldout'}"]
    return {
        "development": tuple(sets),
        "development_dictionary": str(write("medic.txt", MEDIC)),
    }


def share_right(encoder, rows, terms):
    """Mentions whose nearest term is of their concept, one after the other."""
    vectors = {string: encoder.encode(string) for string in {*terms, *(one for one, _ in rows)}}
    nearest = [max(terms, key=lambda term: vectors[term] @ vectors[one]) for one, _ in rows]
    return np.mean([terms[term] == gold for term, (_, gold) in zip(nearest, rows, strict=True)])


@pytest.mark.slow
def test_the_development_score_is_a_mean_over_sets_and_types_of_mention(names, trained, write):
    system, run = load_run(trained[0])
    encoder = system.trained(run).encoder
    system = dataclasses.replace(system, **development_of(names, write))
    medic = {term: line[:7] for line in MEDIC.split("\n") for term in line[9:].split("|") if term}
    tables = [
        [line.split("\t") for line in (names / f"heldout/{name}.tsv").read_text().splitlines()[1:]]
        for name in ("mentions", "dictionary")
    ]
    expected = {
        "ncbi Disease acc@1": share_right(
            encoder, [("Pain of the heart", "D000002"), ("attack", "D000001")], medic
        ),
        "ncbi Chemical acc@1": share_right(encoder, [("Renal failure", "D000003")], medic),
        "own acc@1": share_right(encoder, [row[:2] for row in tables[0]], dict(tables[1])),
    }
    found = _development_scores(system)(encoder)
    assert found.pop("acc@1") == pytest.approx(np.mean([*expected.values()]), abs=1e-4)
    assert found == pytest.approx(expected, abs=1e-4)
    assert 0 < np.mean([*expected.values()]) < 1


@pytest.mark.slow
def test_the_checkpoint_of_the_best_development_score_is_exported(
    names, tmp_path, write, on_one_device, monkeypatch
):
    """Scores that rise and fall, as told here at steps 0, 2, 4, 6 and 8."""
    told = iter([0.8, 0.1, 0.5, 0.3, 0.5])

    def scored(encode, benchmark, ks):
        assert [fold.name for fold in benchmark.folds] == ["ncbi Disease", "ncbi Chemical", "own"]
        return SimpleNamespace(scores={"acc@1": next(told)}, folds={})

    monkeypatch.setattr(bne_module, "evaluate_normalization", scored)
    run = {"eval_steps": 2, "save_steps": 100}
    config = config_of(names, tmp_path / "run", run=run, **development_of(names, write))
    train(config, source_of(config, names))
    system, saved = load_run(tmp_path / "run")
    assert (system.best, saved.step) == ("development/acc@1", 4)
    card = _describe_names(system, saved)
    assert card["recipe"]["checkpoint"] == "the best so far by development/acc@1: 0.5"
    assert card["recipe"]["development sets"] == "ncbi, own"
    assert card["results"] == [{"benchmark": "development sets, step 4", "acc@1": 0.5}]
    told = {"provenance": {"licenses": {"A": "CC0", "B": "MIT", "C": "CC0"}}}
    changed = {**saved.identity, "dataset": {**saved.identity["dataset"], **told}}
    licensed = _describe_names(system, dataclasses.replace(saved, identity=changed))["data"]
    assert licensed["licenses, as its files say"] == "A, C: CC0; B: MIT"
    out = tmp_path / "out"
    assert main(["export", "--checkpoint", str(tmp_path / "run"), "--out", str(out)]) == 0
    assert "| checkpoint | the best so far by development/acc@1: 0.5 |" in (
        (out / "README.md").read_text()
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--development", "x.txt"], "found x.txt; expected NAME=PATH, such as ncbi=NCBIdev"),
        (["--development", "a=x", "a=y"], "found a=x a=y; expected NAME=PATH.*each NAME once"),
        (["--development-dictionary", "x"], "found no --development; expected it, too"),
        (["--development", "a=x"], "--eval-steps is 0, but bne takes the checkpoint with the best"),
    ],
)
def test_development_sets_that_cannot_be_used(words, message):
    with pytest.raises(BadInput, match=message):
        parse(["--recipe", "bne", "--init", "x", *words]).validate()


def test_a_development_set_without_mentions(write):
    pairs = write("umnsrs.csv", "Mean,Term1,Term2\n5,pain,ache\n1,pain,hand\n")
    system = dataclasses.replace(bne().system, development=(f"a={pairs}",))
    with pytest.raises(BadInput, match="--development a=.*: found a benchmark of another kind"):
        _development_scores(system)


@pytest.mark.slow
def test_a_run_from_before_there_were_development_sets_goes_on(
    names, trained, tmp_path, on_one_device
):
    shutil.copytree(trained[0], tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    saved = json.loads(path.read_text())
    for name in ("development", "development_dictionary"):
        del saved["config"]["system"][name]
    path.write_text(json.dumps(saved))
    assert load_run(tmp_path / "run")[0].best is None
    config = config_of(names, tmp_path / "run")
    assert train(config, source_of(config, names)).steps == STEPS


# -------------------------------------------------------------------------------------------------
# The losses of BNE: the paper's formulas written out, name by name, in float64.

B, G, N, D = 2, 2, 4, 5
RNG = np.random.default_rng(0)
WEIGHTS = {"synonym": 1.0, "concept": 0.7, "context": 1.3}


def small_batch():
    """Two pairs a group; a concept comes twice, concepts share names, targets are missing."""
    concepts = np.array([[[0, 1], [2, 3]], [[4, 1], [5, 6]]])
    wordings = np.arange(B * G * N).reshape(B, G, N) % 5
    known = RNG.random((2, B, G, N)) < 0.8
    known[:, 0, 0, 0] = False
    return {
        "concepts": np.concatenate([concepts, concepts], axis=2).astype(np.int32),
        "wordings": wordings.astype(np.int32),
        "name_known": known[0].astype(np.int32),
        "concept_known": known[1].astype(np.int32),
        "name_targets": RNG.normal(size=(B, G, N, D)),
        "concept_targets": RNG.normal(size=(B, G, N, D)),
    }


VECTORS = RNG.normal(size=(B, G, N, D))
BATCH = small_batch()
KEY = jax.random.key(3)


def softplus(x):
    return np.log1p(np.exp(x))


def by_loop(vectors, batch, chosen_of, scale=(1.0, 0.0)):
    """(total, {loss}): equations 3 to 6, one name after the other."""
    f = vectors.reshape(-1, D)
    concept, wording = batch["concepts"].ravel(), batch["wordings"].ravel()
    partner = np.arange(B * G * N).reshape(B, G, 2, N // 2)[:, :, ::-1].ravel()
    targets = {
        "synonym": (f[partner], f, np.ones(len(f), bool)),
        "concept": (batch["concept_targets"].reshape(-1, D),) * 2
        + (batch["concept_known"].ravel(),),
        "context": (batch["name_targets"].reshape(-1, D),) * 2 + (batch["name_known"].ravel(),),
    }
    losses = {}
    for number, name in enumerate(_LOSSES):
        right, others, known = targets[name]
        a, b = scale if name == "synonym" else (1.0, 0.0)
        found = []
        for i in range(len(f)):
            if not known[i]:
                continue
            loss = softplus(-(a * right[i] @ f[i] + b))
            may = [
                j
                for j in range(len(f))
                if known[j] and concept[j] != concept[i] and wording[j] != wording[i]
            ]
            if may:
                j = chosen_of(number, i, may, others @ f[i])
                assert j in may
                loss += softplus(a * others[j] @ f[i] + b)
            found.append(loss)
        losses[name] = np.mean(found)
    return sum(WEIGHTS[name] * loss for name, loss in losses.items()), losses


def hardest(number, i, may, scores):
    return max(may, key=lambda j: scores[j])


def ours(vectors, negatives, weights=WEIGHTS, **options):
    batch = {name: jnp.asarray(array) for name, array in BATCH.items()}
    return _bne_loss(vectors, batch, weights=weights, negatives=negatives, key=KEY, **options)


@pytest.mark.parametrize("scale", [None, (1.7, -0.4)])
def test_the_loss_is_the_paper_s_with_the_hardest_negatives(scale):
    with jax.enable_x64(True):
        given = {} if scale is None else {"scale": jnp.array(scale)}
        loss, metrics = ours(jnp.asarray(VECTORS), "hardest", **given)
        expected, losses = by_loop(VECTORS, BATCH, hardest, scale or (1.0, 0.0))
        assert float(loss) == pytest.approx(expected, abs=1e-6)
        for name in _LOSSES:
            assert float(metrics[f"loss_{name}"]) == pytest.approx(losses[name], abs=1e-6)


def random_choices():
    """Of each loss the random negatives that the key gives."""
    concept, wording = BATCH["concepts"].ravel(), BATCH["wordings"].ravel()
    other = (concept[:, None] != concept) & (wording[:, None] != wording)
    known = {
        "synonym": np.ones(len(concept), bool),
        "concept": BATCH["concept_known"].ravel() > 0,
        "context": BATCH["name_known"].ravel() > 0,
    }
    return [
        _choose_negatives(
            jnp.zeros(other.shape),
            jnp.asarray(other & known[name][None]),
            "random",
            jax.random.fold_in(KEY, number),
        )
        for number, name in enumerate(_LOSSES)
    ]


def test_the_loss_is_the_paper_s_with_random_negatives():
    with jax.enable_x64(True):
        chosen = np.array(random_choices())
        loss, _ = ours(jnp.asarray(VECTORS), "random")
        expected, _ = by_loop(VECTORS, BATCH, lambda number, i, may, scores: chosen[number, i])
        assert float(loss) == pytest.approx(expected, abs=1e-6)
    assert (chosen[0] != chosen[1]).any() and (chosen[1] != chosen[2]).any()


def test_gradients_are_differences():
    with jax.enable_x64(True):
        gradient = jax.grad(lambda vectors: ours(vectors, "hardest")[0])(jnp.asarray(VECTORS))
        for place in [(0, 0, 0, 0), (1, 1, 0, 2), (1, 0, 3, 4)]:
            moved = [VECTORS.copy(), VECTORS.copy()]
            for one, step in zip(moved, (1e-6, -1e-6), strict=True):
                one[place] += step
            up, down = (by_loop(one, BATCH, hardest)[0] for one in moved)
            assert float(gradient[place]) == pytest.approx((up - down) / 2e-6, abs=1e-5)


def test_a_loss_of_weight_zero_is_left_out():
    for name in _LOSSES:
        weights = {one: float(one == name) for one in _LOSSES}
        loss, metrics = ours(jnp.asarray(VECTORS, jnp.float32), "hardest", weights)
        assert float(loss) == pytest.approx(by_loop(VECTORS, BATCH, hardest)[1][name], rel=1e-5)
        assert metrics.keys() == {f"loss_{name}", f"nearer_{name}"}


def test_random_negatives_are_any_of_the_allowed_with_equal_chance():
    allowed = jnp.array([[0, 1, 1, 0, 1]], bool).repeat(6000, axis=0)
    scores = jnp.tile(jnp.arange(5.0), (6000, 1))
    chosen = np.asarray(_choose_negatives(scores, allowed, "random", jax.random.key(0)))
    counts = np.bincount(chosen, minlength=5)
    assert counts[[0, 3]].sum() == 0 and np.abs(counts[[1, 2, 4]] - 2000).max() < 150
    assert set(np.asarray(_choose_negatives(scores, allowed, "hardest", KEY)).tolist()) == {4}


def test_without_others_or_targets_nothing_is_not_a_number():
    alone = {
        name: jnp.asarray(array * 0 if name in ("concepts", "name_known") else array)
        for name, array in BATCH.items()
    }
    vectors = jnp.asarray(VECTORS, jnp.float32)

    def loss(vectors):
        return _bne_loss(vectors, alone, weights=WEIGHTS, negatives="random", key=KEY)

    (total, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(vectors)
    assert np.isfinite(total) and np.isfinite(gradient).all()
    assert float(metrics["loss_context"]) == 0 and float(metrics["loss_synonym"]) > 0


# -------------------------------------------------------------------------------------------------
# An export of BNE: the same vectors in PyTorch and sentence-transformers; an encoder as any.

TERMS = ["heart attack", "Attack of the heart, NOS", "zzqx", "zzqy", "", *PROBE_TERMS]


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """(folder, the run's encoder) of an export by the command."""
    out = tmp_path_factory.mktemp("export") / "bne"
    assert main(["export", "--checkpoint", str(trained[0]), "--out", str(out)]) == 0
    system, run = load_run(trained[0])
    return out, system.trained(run).encoder


@pytest.fixture
def copy(exported, tmp_path):
    return shutil.copytree(exported[0], tmp_path / "copy")


@pytest.mark.slow
def test_a_trained_run_encodes_any_string_as_alone(exported, monkeypatch):
    encoder = exported[1]
    together = encoder.encode(TERMS)
    alone = [encoder.encode(term) for term in (TERMS[1], TERMS[2], TERMS[-1])]
    np.testing.assert_allclose(together[[1, 2, -1]], alone, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    assert np.abs(together[2] - together[3]).max() > 1e-4  # unseen words keep their characters
    chunks = list(encoder.encode_chunks([TERMS[:3], TERMS[3:4] * 2]))
    np.testing.assert_allclose(np.concatenate(chunks), together[[0, 1, 2, 3, 3]], atol=1e-6)
    np.testing.assert_allclose(encoder.encode(TERMS[::-1])[::-1], together, atol=1e-6)
    monkeypatch.setattr(embed, "_NAME_ROWS_CPU", 4)
    np.testing.assert_allclose(encoder.encode(TERMS), together, atol=1e-6)


def test_a_run_is_told_by_all_that_it_knows(exported):
    """Of an encoder in memory: its parameters, its characters, and its words with their vectors."""
    reader = exported[1].reader
    known = reader.config, reader.params, reader.alphabet, reader.vectors
    changed = jax.tree.map(np.array, dict(reader.params))
    jax.tree.leaves(changed)[0].flat[0] += 1
    words = reader.vectors
    others = [
        NameReader(known[0], changed, *known[2:]),
        NameReader(*known[:2], Alphabet(known[2].characters[::-1]), words),
        NameReader(*known[:3], dataclasses.replace(words, strings=[*words.strings][::-1])),
        NameReader(*known[:3], dataclasses.replace(words, vectors=words.vectors[::-1])),
    ]
    assert NameReader(*known).hash_of_parameters() == reader.hash_of_parameters()
    assert len({one.hash_of_parameters() for one in (reader, *others)}) == 5


def test_words_and_marks_are_its_tokens(exported):
    _, encoder = exported
    assert encoder.token_counts(["heart attack", "", "pain"]).tolist() == [4, 2, 3]
    assert encoder.token_counts(["pain " * 100]).tolist() == [102], "it reads names of any length"


@pytest.mark.parity
def test_pytorch_gives_the_same(exported):
    """By the module alone: name by name, and together."""
    folder, encoder = exported
    module = load_module(folder / "name_encoder.py").NameEncoder(folder)
    ours = encoder.encode(TERMS)
    np.testing.assert_allclose(module.encode(TERMS), ours, atol=1e-5)
    alone = [module.encode([term])[0].numpy() for term in TERMS[:6]]
    np.testing.assert_allclose(alone, ours[:6], atol=1e-5)


@pytest.mark.parity
def test_sentence_transformers_opens_it_and_what_it_saves(exported, tmp_path):
    from sentence_transformers import SentenceTransformer

    folder, encoder = exported
    ours = encoder.encode(TERMS)
    model = SentenceTransformer(str(folder), device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(model.encode(TERMS), ours, atol=1e-5)
    model.save(str(tmp_path / "again"))
    again = SentenceTransformer(str(tmp_path / "again"), device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(again.encode(TERMS), ours, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parity
def test_the_released_way_is_the_same_in_pytorch(names, tmp_path, on_one_device):
    config = config_of(
        names,
        tmp_path / "run",
        model={"cell": "coupled", "projection": "tanh"},
        learned_scale=True,
        run={"eval_steps": 0},
    )
    train(config, source_of(config, names))
    system, run = load_run(tmp_path / "run")
    assert {"scale", "encoder"} == run.params.keys()
    differences = system.export(run, tmp_path / "export")
    assert max(differences.values()) <= 1e-5 and "sentence-transformers" in differences


@pytest.mark.parity
@pytest.mark.parametrize(
    "rules", ["paper", "lookup", pytest.param("mlnorm", marks=pytest.mark.slow)]
)
def test_it_cleans_by_itself_in_every_library(exported, tmp_path, rules):
    encoder = exported[1]
    cleaning = TermEncoder(encoder.reader, None, encoder.settings.changed(cleaning=rules))
    _write_files(tmp_path, cleaning, {})
    assert max(_compare_names(tmp_path, cleaning).values()) <= 1e-5
    assert "does so by itself" in (tmp_path / "README.md").read_text()


def test_term_encoder_opens_it(exported):
    folder, ours = exported
    encoder = TermEncoder.from_pretrained(folder)
    np.testing.assert_array_equal(encoder.encode(TERMS), ours.encode(TERMS))
    assert encoder.languages == ("ENG",) and encoder.settings.pooling == "bilstm-max"
    assert repr(encoder).startswith(f"TermEncoder({str(folder)!r}, width=12, pooling='bilstm-max'")
    remembering = RememberingEncoder(encoder)
    np.testing.assert_array_equal(remembering.encode(TERMS[:3]), encoder.encode(TERMS[:3]))
    found = encoder.normalize(["heart attack, acute"], {"heart attack": "C1", "limb pain": "C2"})
    assert found[0][0].concept == "C1"


def test_the_commands_take_it(exported, names, tmp_path, capsys):
    folder = str(exported[0])
    terms = tmp_path / "terms.txt"
    terms.write_text("heart attack\nlimb pain\n")
    out = tmp_path / "vectors.npy"
    assert main(["encode", "--model", folder, "--out", str(out), str(terms)]) == 0
    expected = exported[1].encode(["heart attack", "limb pain"])
    np.testing.assert_allclose(np.load(out), expected, atol=1e-6)
    record = tmp_path / "scores.json"
    heldout = names / "heldout" / "mentions.tsv"
    words = ["--model", folder, "--benchmark", f"held={heldout}", "--json", str(record)]
    assert main(["evaluate", *words]) == 0
    (scores,) = json.loads(record.read_text())["records"]
    assert scores["encoder"]["pooling"] == "bilstm-max" and "acc@1" in scores["scores"]
    capsys.readouterr()
    words = ["--model", folder, "--dictionary", str(names), str(terms)]
    assert main(["normalize", *words]) == 0
    assert "heart attack" in capsys.readouterr().out


def test_a_bert_s_settings_are_refused(exported, capsys):
    folder = exported[0]
    with pytest.raises(
        BadInput, match="found pooling 'mean'; an encoder of names .* has 'bilstm-max' alone"
    ):
        TermEncoder.from_pretrained(folder, "mean")
    with pytest.raises(BadInput, match="found attend_padding; an encoder of names"):
        TermEncoder.from_pretrained(folder, attend_padding=True)
    with pytest.raises(BadInput, match="what was asked for needs a BERT"):
        _ = TermEncoder.from_pretrained(folder).bert
    with pytest.raises(BadInput, match="max_length is 2"):
        TermEncoder.from_pretrained(folder, max_length=2)


def test_longer_names_are_cut_where_that_is_asked_for(exported):
    encoder = TermEncoder.from_pretrained(exported[0], max_length=4)
    one, other = encoder.encode(["heart attack acute", "heart attack"])
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_what_is_damaged_is_said(copy):
    def refused(message):
        with pytest.raises(BadInput, match=message):
            TermEncoder.from_pretrained(copy)

    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"word_rules": "0" * 64}))
    refused("its words were made by rules of hash 000000000000; expected those of this version")
    (copy / "config.json").write_text(json.dumps(config | {"hidden": 7}))
    refused(r"name.backward.bias: found an array \[24\]; expected \[28\]")
    (copy / "config.json").write_text(json.dumps(config | {"cell": "round"}))
    refused("config.json")
    (copy / "config.json").write_text(json.dumps(config))
    vectors = load_file(copy / "word_vectors.safetensors")["vectors"]
    save_file({"vectors": vectors[:, :9].copy()}, copy / "word_vectors.safetensors")
    refused(r"found vectors \[\d+, 9\]; expected \[\d+, 12\]")
    (copy / "words.txt").unlink()
    refused("words.txt is missing; export the run again")


def test_an_export_that_differs_is_not_kept(trained, tmp_path, monkeypatch):
    system, run = load_run(trained[0])
    monkeypatch.setattr("coder_jax.systems.bne.PROBE_TERMS", ["pain"])
    write = "coder_jax.systems.bne.write_name_encoder"

    def wrong(folder, encoder):
        from coder_jax.models.names import write_name_encoder

        encoder.params["projection"]["bias"] = encoder.params["projection"]["bias"] + 0.1
        write_name_encoder(folder, encoder)
        encoder.params["projection"]["bias"] = encoder.params["projection"]["bias"] - 0.1

    monkeypatch.setattr(write, wrong)
    with pytest.raises(
        RuntimeError, match="the export opened by PyTorch gives vectors that differ"
    ):
        system.export(run, tmp_path / "export")
    assert not (tmp_path / "export").exists()
    with pytest.raises(BadInput, match="--pytorch-bin is for BERTs"):
        system.export(run, tmp_path / "export", pytorch_bin=True)


def test_the_card_says_what_it_is_and_how_to_use_it(exported):
    card = (exported[0] / "README.md").read_text()
    for part in (
        "after BNE (Phan, Sun and Tay 2019)",
        "trust_remote_code=True",
        "NameEncoder.load(folder)",
        "synonym 1, concept 1, context 1",
        "skip-grams (names_concepts)",
    ):
        assert part in card
    assert "tokens." not in card and "AutoModel" not in card


def test_the_card_of_a_mean_of_checkpoints_has_no_scores_of_another_encoder(trained):
    system, run = load_run(trained[0])
    assert _describe_names(system, run)["results"][0].keys() >= {"benchmark", "acc@1"}
    card = _describe_names(system, averaged(trained[0], run, 2))
    assert card["recipe"]["weights"] == "the mean of steps 4, 8" and card["results"] == []


def test_a_run_proves_its_names(trained):
    """What an encoder of names answers is compared with what training gave."""
    system, run = load_run(trained[0])
    terms = run.notes.proof.terms
    assert len(terms) > 1 and check_proof(
        lambda terms: system.saved_outputs(run, terms), run, "the run"
    )
    lstm = run.params["encoder"]["name"]
    turned = dict(zip(lstm, [*lstm.values()][::-1], strict=True))
    changed = {**run.params["encoder"], "name": turned}
    other = dataclasses.replace(run, params={**run.params, "encoder": changed})
    with pytest.raises(BadInput, match="the run gives other vectors than training gave"):
        check_proof(lambda terms: system.saved_outputs(other, terms), other, "the run")
