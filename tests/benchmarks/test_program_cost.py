"""The cost of compiled programs whose work and communication are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.program_cost import Collective, _find_collectives, read_cost

ROWS, WIDTH = 1024, 256
WHOLE = 4 * ROWS * WIDTH  # bytes


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("pairs", "fours"))


def compiled(mesh, function, inside, outside, manual=None):
    """The program of a function of one float32 [ROWS, WIDTH] array, or of its parts."""
    if manual is not None:
        function = jax.shard_map(
            function, mesh=mesh, in_specs=inside, out_specs=outside, check_vma=False
        )
    array = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32, sharding=NamedSharding(mesh, inside))
    return jax.jit(function, out_shardings=NamedSharding(mesh, outside)).lower(array).compile()


def exchanges(program):
    return [(c.kind, c.size, c.group, c.times) for c in read_cost(program).collectives]


ALL = PartitionSpec(("pairs", "fours"))
NONE = PartitionSpec()


def test_a_sum_over_all_devices_is_an_all_reduce_of_the_result(mesh):
    cost = read_cost(compiled(mesh, lambda x: x.sum(axis=0), ALL, NONE))
    (found,) = cost.collectives
    assert (found.kind, found.size, found.group, found.times) == ("all-reduce", 4 * WIDTH, 8, 1)
    assert found.sent == cost.sent == 2 * 4 * WIDTH * 7 // 8
    assert "reduce_sum" in found.origin
    assert cost.devices == 8
    assert cost.arguments == WHOLE // 8


def test_the_group_is_the_devices_along_the_axis(mesh):
    pairs = compiled(mesh, lambda x: x.sum(axis=0), PartitionSpec("pairs"), NONE)
    assert exchanges(pairs) == [("all-reduce", 4 * WIDTH, 2, 1)]
    fours = compiled(mesh, lambda x: x.sum(axis=0), PartitionSpec("fours"), NONE)
    assert exchanges(fours) == [("all-reduce", 4 * WIDTH, 4, 1)]


def test_an_all_gather_counts_the_whole_array(mesh):
    cost = read_cost(compiled(mesh, lambda x: 2 * x, ALL, NONE))
    (found,) = cost.collectives
    assert (found.kind, found.size, found.group) == ("all-gather", WHOLE, 8)
    assert cost.sent == WHOLE * 7 // 8
    assert cost.sent_by_kind() == {"all-gather": WHOLE * 7 // 8}


def test_a_reduce_scatter_counts_the_array_before_it(mesh):
    def scatter(part):
        return jax.lax.psum_scatter(part, "fours", tiled=True)

    program = compiled(mesh, scatter, NONE, PartitionSpec("fours"), manual=True)
    assert exchanges(program) == [("reduce-scatter", WHOLE, 4, 1)]
    assert read_cost(program).sent == WHOLE * 3 // 4


def test_a_permutation_sends_the_array_once(mesh):
    def shift(part):
        return jax.lax.ppermute(part, "fours", [(i, (i + 1) % 4) for i in range(4)])

    program = compiled(mesh, shift, ALL, ALL, manual=True)
    assert [kind for kind, *_ in exchanges(program)] == ["collective-permute"]
    assert read_cost(program).sent == WHOLE // 8


def test_an_exchange_in_a_loop_counts_as_often_as_it_runs(mesh):
    def loops(part):
        def once(total, _):
            return 0.5 * jax.lax.psum(total, "fours"), None

        def seven(total, _):
            return jax.lax.scan(once, total, None, length=7)[0] + 1, None

        return jax.lax.scan(seven, part, None, length=3)[0]

    program = compiled(mesh, loops, ALL, ALL, manual=True)
    assert exchanges(program) == [("all-reduce", WHOLE // 8, 4, 21)]
    assert read_cost(program).sent == 21 * 2 * (WHOLE // 8) * 3 // 4


def test_a_loop_of_unknown_length_with_an_exchange_is_refused(mesh):
    def until(part):
        return jax.lax.while_loop(
            lambda x: x[0, 0] < 9, lambda x: jax.lax.psum(x, "fours") + 1, part
        )

    program = compiled(mesh, until, ALL, ALL, manual=True)
    with pytest.raises(ValueError, match="all-reduce in a loop"):
        read_cost(program)


def test_a_program_of_one_device_exchanges_nothing():
    array = jax.ShapeDtypeStruct((64, 32), jnp.float32)
    program = jax.jit(lambda x: x @ x.T).lower(array).compile()
    cost = read_cost(program)
    assert cost.devices == 1
    assert cost.collectives == ()
    assert cost.flops is not None and cost.flops >= 2 * 64 * 64 * 32
    assert cost.bytes_accessed is not None and cost.bytes_accessed >= 4 * (64 * 32 + 64 * 64)
    assert cost.arguments == 4 * 64 * 32
    assert cost.peak >= 4 * (64 * 32 + 64 * 64)


def test_donated_arguments_are_not_counted_twice():
    array = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    own = read_cost(jax.jit(lambda x: x + 1).lower(array).compile())
    donated = read_cost(jax.jit(lambda x: x + 1, donate_argnums=0).lower(array).compile())
    assert own.peak - donated.peak == 4 * 512 * 512


def test_a_compiler_that_counts_no_operations_leaves_them_out(monkeypatch):
    program = jax.jit(lambda x: x + 1).lower(jax.ShapeDtypeStruct((8,), jnp.float32)).compile()
    monkeypatch.setattr(program, "cost_analysis", lambda: None)
    cost = read_cost(program)
    assert cost.flops is None and cost.bytes_accessed is None
    assert cost.arguments == 32


# Lines as compilers for TPUs and GPUs write them, where their form differs from the CPU's.
PROGRAM = """HloModule jit_step, is_scheduled=true, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {{
  ROOT %sum = f32[] add(%a, %b)
}}

%fused.1 (p: f32[1,64]) -> f32[8,64] {{
  {fused}
}}

%fused.2 (p: f32[1,64]) -> f32[8,64] {{
  {fused}
}}

ENTRY %main (p: f32[1,64]) -> f32[8,64] {{
  %start = f32[8,64]{{1,0}} fusion(%p), kind=kCustom, calls=%fused.1
  %end = f32[8,64]{{1,0}} fusion(%start), kind=kCustom, calls=%fused.2
  {line}
}}
"""
GATHER = "all-gather(%p), channel_id=4, replica_groups=[1,8]<=[8], dimensions={0}"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (  # an operation that goes on in the background: operands and results in one tuple
            "%s = (f32[2,64]{1,0:T(8,128)}, f32[8,64]{1,0:T(8,128)S(1)}) all-gather-start(%p), "
            'channel_id=1, replica_groups=[2,4]<=[8], metadata={op_name="jit(step)/dot"}',
            Collective("all-gather", 4 * 8 * 64, 4, 1, "jit(step)/dot"),
        ),
        (
            "%s = ((bf16[2,64]{1,0}, s4[2,4]{1,0}), (bf16[8,64]{1,0}, s4[8,4]{1,0})) "
            "all-gather-start(%p, %q), channel_id=1, replica_groups=[2,4]<=[8]",
            Collective("all-gather", 2 * 8 * 64 + 16, 4, 1, ""),
        ),
        (
            "%r = (bf16[3,12]{1,0:T(8,128)(2,1)S(1)}, /*index=5*/f32[768]{0}) all-reduce(%p, %q), "
            "replica_groups=mesh['data'=2,'model'=4] {'data'}, to_apply=%add",
            Collective("all-reduce", 2 * 36 + 4 * 768, 2, 1, ""),
        ),
        (  # a part of an axis
            "%r = pred[16]{0} all-reduce(%p), channel_id=1, "
            "replica_groups=mesh['data'=2,'model'=4] {'data','model':(1)2}, to_apply=%add",
            Collective("all-reduce", 16, 4, 1, ""),
        ),
        (
            "%r = f32[16]{0} all-reduce-start(%p), channel_id=1, replica_groups={}, to_apply=%add",
            Collective("all-reduce", 64, 8, 1, ""),
        ),
        ("%d = f32[8,64]{1,0} all-gather-done(%s)", None),
    ],
)
def test_forms_of_other_compilers(line, expected):
    text = PROGRAM.format(line=line, fused="ROOT %n = f32[8,64]{1,0} negate(%p)")
    assert list(_find_collectives(text)) == [expected] * (expected is not None)


def test_one_collective_over_several_fused_operations_counts_once():
    fused = f"ROOT %g = f32[8,64]{{1,0}} {GATHER}"
    text = PROGRAM.format(line="ROOT %e = f32[8,64]{1,0} negate(%end)", fused=fused)
    assert list(_find_collectives(text)) == [Collective("all-gather", 4 * 8 * 64, 8, 1, "")]


def test_sums_that_are_scattered_are_counted_each_though_they_share_a_number():
    """As the compiler of TPUs writes them: a sum of the whole array, of which a part is kept."""
    body = """
%all-reduce-scatter{0} (input: bf16[64,8]) -> bf16[8,8] {{
  %sum{0} = bf16[64,8] all-reduce(%input{0}), channel_id=1, replica_groups={{{{0,1,2,3,4,5,6,7}}}}
}}
"""
    calls = [
        f"  %f{n} = bf16[8,8] fusion(%p), kind=kCustom, calls=%all-reduce-scatter{n}"
        for n in ("", 1)
    ]
    text = "HloModule x, num_partitions=8\n" + body.format("") + body.format("1")
    text += "ENTRY %main (p: bf16[64,8]) -> bf16[8,8] {\n" + "\n".join(calls) + "\n}\n"
    found = [(one.kind, one.sent) for one in _find_collectives(text)]
    assert found == [("reduce-scatter", 64 * 8 * 2 * 7 // 8)] * 2
