"""Where a process belongs: the environments of clusters, faked; nothing is started."""

import os
import sys

import pytest
from jax._src.clusters import cloud_tpu_cluster, cluster

from coder_jax.devices.place import Place, find_place
from data_pipeline.process.errors import BadInput

SLURM = {
    "SLURM_JOB_ID": "4096",
    "SLURM_STEP_NODELIST": "node[007-008]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_NTASKS": "16",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
}
OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}
EXPLICIT = {
    "JAX_COORDINATOR_ADDRESS": "10.0.0.1:1234",
    "JAX_NUM_PROCESSES": "4",
    "JAX_PROCESS_ID": "3",
}
# Any of them on the machine that runs the tests would be found too.
READ = [
    *(SLURM | OPEN_MPI | EXPLICIT),
    *("JAX_LOCAL_DEVICE_IDS", "JAX_COORDINATOR_PORT", "CUDA_VISIBLE_DEVICES"),
    *("KUBERNETES_SERVICE_HOST", "TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES", "TPU_WORKER_ID"),
    *("MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID"),
]


@pytest.fixture
def place(monkeypatch):
    """find_place() in an environment that has of the variables above only those given."""

    def in_environment(variables: dict[str, str]) -> Place | None:
        for name in READ:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return find_place(os.environ)

    return in_environment


@pytest.fixture
def tpu_machine(monkeypatch):
    """A machine with TPU chips, whose metadata server answers from a dictionary."""
    metadata: dict[str, str] = {"tpu-env": "ACCELERATOR_TYPE: 'v5litepod-16'"}

    def get_metadata(key: str) -> tuple[str, int]:
        return (metadata[key], 200) if key in metadata else ("", 404)

    monkeypatch.setattr(cloud_tpu_cluster, "get_metadata", get_metadata)
    monkeypatch.setattr(cloud_tpu_cluster, "running_in_cloud_tpu_vm", True)
    monkeypatch.setattr(cluster, "running_in_cloud_tpu_vm", True)
    monkeypatch.delenv("TPU_SKIP_MDS_QUERY", raising=False)
    return metadata


def test_a_laptop_is_one_host(place):
    assert place({}) is None


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (SLURM, Place("node007:61440", 16, 9, (1,))),
        (SLURM | {"JAX_COORDINATOR_PORT": "5000"}, Place("node007:5000", 16, 9, (1,))),
        # One task per node has all GPUs of its node, not only the first.
        (
            SLURM | {"SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "0"},
            Place("node007:61440", 2, 1, None),
        ),
        # A task that was bound to one GPU sees that one alone, as number 0.
        (SLURM | {"CUDA_VISIBLE_DEVICES": "3"}, Place("node007:61440", 16, 9, None)),
        (SLURM | {"CUDA_VISIBLE_DEVICES": "0,1,2"}, Place("node007:61440", 16, 9, (1,))),
        (SLURM | {"JAX_LOCAL_DEVICE_IDS": "2,3"}, Place("node007:61440", 16, 9, (2, 3))),
        (SLURM | {"JAX_COORDINATOR_ADDRESS": "ib0:7000"}, Place("ib0:7000", 16, 9, (1,))),
        (SLURM | EXPLICIT, Place("10.0.0.1:1234", 4, 3, None)),
        (OPEN_MPI, Place("10.96.0.1:62624", 4, 3, (1,))),
        (EXPLICIT, Place("10.0.0.1:1234", 4, 3, None)),
        (EXPLICIT | {"JAX_COORDINATOR_ADDRESS": "[::1]:1234"}, Place("[::1]:1234", 4, 3, None)),
    ],
)
def test_clusters_and_explicit_variables(place, variables, expected):
    assert place(variables) == expected


@pytest.mark.parametrize(
    "variables",
    [
        SLURM | {"SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"},
        SLURM | {"JAX_NUM_PROCESSES": "1"},
        {"JAX_NUM_PROCESSES": "1"},
        dict.fromkeys(EXPLICIT, ""),
        {name: value for name, value in SLURM.items() if "STEP" not in name},  # salloc's shell
    ],
)
def test_one_process_is_one_host(place, variables):
    assert place(variables) is None


def test_a_tpu_slice_on_google_cloud(place, tpu_machine):
    tpu_machine["agent-worker-number"] = "2"
    tpu_machine["worker-network-endpoints"] = "a:b:127.0.0.1,a:b:127.0.0.2,a:b:127.0.0.3"
    assert place({}) == Place("127.0.0.1:8482", 3, 2, None)


def test_several_tpu_slices_on_google_cloud(place, tpu_machine):
    tpu_machine["agent-worker-number"] = "1"
    tpu_machine["worker-network-endpoints"] = "127.0.0.3,127.0.0.4"
    tpu_machine["tpu-env"] = (
        "MEGASCALE_COORDINATOR_ADDRESS: '127.0.0.1:8080'\n"
        "MEGASCALE_NUM_SLICES: '2'\nMEGASCALE_SLICE_ID: '1'"
    )
    assert place({}) == Place("127.0.0.1:8482", 4, 3, None)


def test_one_tpu_machine_is_one_host(place, tpu_machine):
    tpu_machine["agent-worker-number"] = "0"
    tpu_machine["worker-network-endpoints"] = "127.0.0.1"
    assert place({}) is None


def test_a_tpu_slice_on_kubernetes(place, tpu_machine):
    variables = {"TPU_WORKER_HOSTNAMES": "localhost,other", "TPU_WORKER_ID": "1"}
    assert place(variables) == Place("localhost:8482", 2, 1, None)


def test_a_pod_without_the_package_of_kubernetes_is_one_host(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    assert place({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) is None


def test_a_cluster_that_cannot_be_asked_is_named(place, tpu_machine):
    tpu_machine["agent-worker-number"] = "0"
    tpu_machine["worker-network-endpoints"] = "what:is"
    with pytest.raises(BadInput, match="what:is.*JAX_NUM_PROCESSES=1"):
        place({})


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"JAX_PROCESS_ID": "0"}, "JAX_COORDINATOR_ADDRESS and JAX_NUM_PROCESSES must be set too"),
        ({"JAX_COORDINATOR_ADDRESS": "a:1"}, "JAX_NUM_PROCESSES and JAX_PROCESS_ID must be set"),
        (EXPLICIT | {"JAX_PROCESS_ID": ""}, "^JAX_PROCESS_ID must be set too"),
        (EXPLICIT | {"JAX_PROCESS_ID": "4"}, "is 4, but there are 4 processes.* 0 to 3"),
        (EXPLICIT | {"JAX_PROCESS_ID": "-1"}, "JAX_PROCESS_ID is '-1'"),
        (EXPLICIT | {"JAX_NUM_PROCESSES": "0"}, "JAX_NUM_PROCESSES is '0'.* 1 or more"),
        (EXPLICIT | {"JAX_NUM_PROCESSES": "two"}, "JAX_NUM_PROCESSES is 'two'"),
        (EXPLICIT | {"JAX_COORDINATOR_ADDRESS": "10.0.0.1"}, "expected HOST:PORT"),
        (EXPLICIT | {"JAX_COORDINATOR_ADDRESS": ":1234"}, "expected HOST:PORT"),
        (EXPLICIT | {"JAX_COORDINATOR_ADDRESS": "a:65536"}, "expected HOST:PORT"),
        (EXPLICIT | {"JAX_LOCAL_DEVICE_IDS": "a,b"}, "JAX_LOCAL_DEVICE_IDS is 'a,b'"),
    ],
)
def test_what_is_half_set_or_wrong_is_named(place, variables, message):
    with pytest.raises(BadInput, match=message):
        place(variables)
