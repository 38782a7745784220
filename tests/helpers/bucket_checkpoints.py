"""A process that saves a checkpoint at each step in OUT: `OUT steps [process processes port]`.

Prints a line for what it found, restored and saved. Every value of step s is s plus its place.
"""

import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from coder_jax.training.checkpoints import _atomicity, _checkpoint_folder


def main(out, steps, process=0, processes=1, port=0):
    jax.config.update("jax_num_cpu_devices", 2)
    if processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", processes, process)
    mesh = Mesh(np.array(jax.devices()), ("all",))
    spread = NamedSharding(mesh, PartitionSpec("all"))
    state = jax.jit(
        lambda step: {"values": step + jnp.arange(400_000, dtype=jnp.float32)},
        out_shardings={"values": spread},
    )
    folder = _checkpoint_folder(out)
    options = ocp.CheckpointManagerOptions(max_to_keep=2, atomicity_options=_atomicity(folder))
    manager = ocp.CheckpointManager(folder, options=options)
    latest = manager.latest_step() or 0
    print("found", *sorted(manager.all_steps()), flush=True)
    if latest:
        like = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=spread),
            jax.eval_shape(state, 0.0),
        )
        arrays = ocp.args.Composite(
            params=ocp.args.StandardRestore(like), identity=ocp.args.JsonRestore()
        )
        restored = manager.restore(latest, args=arrays)
        assert restored.identity == {"step": latest}
        expected = state(float(latest))["values"]
        assert bool((restored.params["values"] == expected).all())
        print("restored", latest, flush=True)
    for step in range(latest + 1, latest + 1 + steps):
        items = ocp.args.Composite(
            params=ocp.args.StandardSave(state(float(step))),
            identity=ocp.args.JsonSave({"step": step}),
        )
        manager.save(step, args=items, force=True)
        manager.wait_until_finished()
        print("saved", step, flush=True)
    manager.close()


if __name__ == "__main__":
    # Gloo writes to the standard output, too, in pieces that may end up within a line of ours.
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main(sys.argv[1], *map(int, sys.argv[2:]))
