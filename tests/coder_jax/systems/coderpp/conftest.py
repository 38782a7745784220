"""What tests of CODER++ share: a dataset whose concepts share names, and a whole run on it."""

import dataclasses

import jax
import numpy as np
import pytest
from neighbour_run import config_of
from short_run import licensed_model
from tiny_run import dataset_for

import coder_jax.training.step
from coder_jax.devices.mesh import make_mesh, step_cut
from coder_jax.training.train import train
from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.batches.spec import RowPlan


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    return licensed_model(tmp_path_factory.mktemp("model") / "bert")


@pytest.fixture(scope="session")
def data(model):
    """A dataset in memory, in which the first name of three concepts is that of the next, too."""
    data = dataset_for(model, model.parent / "dataset")
    tokens, start, term_start = data.tokens.copy(), data.token_start, data.term_start
    lengths = np.diff(start)
    copies = 0
    for concept in range(0, 40):
        for term in range(term_start[concept], term_start[concept + 1]):
            others = np.flatnonzero(lengths == lengths[term])
            others = others[others >= term_start[concept + 1]]
            if copies < 3 and len(others):
                tokens[start[others[0]] : start[others[0] + 1]] = tokens[
                    start[term] : start[term + 1]
                ]
                copies += 1
                break
    assert copies == 3
    return dataclasses.replace(data, tokens=tokens)


@pytest.fixture
def run(data, model, monkeypatch):
    """Train: run(out, devices=1, spec, **changes of the system); the devices are all there are."""

    def run(out, *, devices=1, **changes):
        chosen = jax.devices()[:devices]
        mesh = lambda groups, _=None: make_mesh(groups, chosen)  # noqa: E731
        with monkeypatch.context() as patch:
            patch.setattr(coder_jax.training.step, "make_mesh", mesh)
            patch.setattr(jax, "local_devices", lambda: chosen)
            config = config_of(model, out, **changes)
            maker = BatchMaker(data, config.system.batch, step_cut(mesh(2), 1))
            maker.plan = RowPlan((maker.plan.ample,))  # compile one shape
            train(config, maker)

    return run


@pytest.fixture(scope="session")
def straight(data, model, tmp_path_factory):
    """The folder of a whole run on one device."""
    out = tmp_path_factory.mktemp("straight") / "run"
    with pytest.MonkeyPatch.context() as patch:
        run.__wrapped__(data, model, patch)(out)
    return out
