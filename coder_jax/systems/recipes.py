"""The tables of all systems and recipes, by the names in `--recipe` and run.json."""

from collections.abc import Callable, Mapping

from coder_jax.systems import bne, coder, coder_v1, coderpp, sapbert
from coder_jax.systems.bne import BneSystem
from coder_jax.systems.coder import CoderSystem
from coder_jax.systems.coder_v1 import CoderV1System
from coder_jax.systems.coderpp import CoderPlusPlusSystem
from coder_jax.systems.mlnorm import training as mlnorm
from coder_jax.systems.mlnorm.training import MLNormClassesSystem, MLNormSystem
from coder_jax.systems.recall_rank import training as recall_rank
from coder_jax.systems.recall_rank.training import RankSystem, RecallSystem
from coder_jax.systems.sapbert import SapBertSystem
from coder_jax.training.run_folder import RunJson
from coder_jax.training.system import Config, OptimizerConfig, System, from_json
from data_pipeline.process import BadInput

_SYSTEMS: dict[str, type[System]] = {
    system.name: system
    for system in (
        CoderSystem,
        CoderV1System,
        MLNormSystem,
        MLNormClassesSystem,
        RecallSystem,
        RankSystem,
        BneSystem,
        SapBertSystem,
        CoderPlusPlusSystem,
    )
}

RECIPES: dict[str, Callable[[], Config]] = {
    recipe.__name__: recipe
    for recipe in (
        coder.coder_eng,
        coder.coder_all,
        coder_v1.coder_v1_eng,
        coder_v1.coder_v1_all,
        coder.small,
        coder.small_synonyms,
        coder.small_all,
        coder.small_transe,
        coder_v1.small_v1,
        mlnorm.mlnorm,
        mlnorm.mlnorm_classes,
        mlnorm.mlnorm_small,
        recall_rank.recall,
        recall_rank.rank,
        recall_rank.recall_small,
        recall_rank.rank_small,
        bne.bne,
        bne.bne_small,
        bne.bne_released,
        sapbert.sapbert,
        sapbert.small_sapbert,
        coderpp.coderpp,
        coderpp.coderpp_small,
    )
}


def system_of(identity: RunJson, systems: Mapping[str, type[System]] = _SYSTEMS) -> System:
    """The system of a run.

    Args:
        identity: of run.json.
        systems: by name.

    Raises:
        BadInput: if the run is of a system, or has settings, that are not known here.
    """
    values = dict(identity["config"]["system"])
    name = values.pop("name")
    if name not in systems:
        raise BadInput(
            f"the run is of the system {name!r}; this version of coder_jax knows "
            f"{', '.join(systems)}"
        )
    return from_json(systems[name], values, "the settings of the system in run.json")


def config_of(identity: RunJson) -> Config:
    """The settings of a run, of its run.json: all that its result depends on, except its data.

    Raises:
        BadInput: as `system_of`.
    """
    config = identity["config"]
    return Config(
        recipe=config["recipe"],
        system=system_of(identity),
        optimizer=from_json(
            OptimizerConfig, config["optimizer"], "the settings of the optimizer in run.json"
        ),
        start=config["start"],
    )
