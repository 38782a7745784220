"""The JobSet of gke.yaml says what the exit statuses mean; its schema was checked by hand."""

import re

import yaml
from launchers import MENDED_BY_A_NEW_START


def test_the_jobset_restarts_what_a_new_start_mends_and_fails_on_the_rest(repo):
    jobset = yaml.safe_load((repo / "launch/gke.yaml").read_text(encoding="utf-8"))
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    (replicated,) = jobset["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]

    # One lost pod ends the job and so the set, which starts again as a whole.
    assert job["parallelism"] == job["completions"] and job["completionMode"] == "Indexed"
    assert job["backoffLimit"] == 0 and pod["restartPolicy"] == "Never"
    disrupted, by_itself = job["podFailurePolicy"]["rules"]
    assert disrupted["action"] == "Count"
    assert disrupted["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert by_itself["action"] == "FailJob"
    assert by_itself["onExitCodes"] == {
        "containerName": container["name"],
        "operator": "NotIn",
        "values": MENDED_BY_A_NEW_START,
    }
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] > 0
    (rule,) = jobset["spec"]["failurePolicy"]["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])

    # The entry point of the image is train.sh, so that `args` are its arguments.
    assert "command" not in container
    text = (repo / "launch/Dockerfile").read_text(encoding="utf-8")
    assert 'ENTRYPOINT ["bash", "/coder_jax/launch/train.sh"]' in text
    assert all(word.startswith("--") for word in container["args"])
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert pod["terminationGracePeriodSeconds"] >= 60


def test_what_is_commented_out_fits_where_it_stands(repo):
    """The variables for GPUs, and the disk for `encode`."""
    text = (repo / "launch/gke.yaml").read_text(encoding="utf-8")
    block = r"(?m)^( +)# (?:env|volumeMounts|volumes):\n(?:\1#  .*\n)+"
    filled, blocks = re.subn(block, lambda found: re.sub("(?m)^( +)# ", r"\1", found[0]), text)
    assert blocks == 3
    jobset = yaml.safe_load(filled)
    (replicated,) = jobset["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    name = jobset["metadata"]["name"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert variables == {
        "JAX_COORDINATOR_ADDRESS": f"{name}-{replicated['name']}-0-0.{name}:8482",
        "JAX_NUM_PROCESSES": str(job["parallelism"]),
        "JAX_PROCESS_ID": None,
    }
    assert "fieldRef" in container["env"][2]["valueFrom"]
    (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
    assert mount["name"] == volume["name"]
    paths = re.findall(r"# - (?:--out=)?(/\S+)", text)
    assert len(paths) == 2 and all(path.startswith(mount["mountPath"] + "/") for path in paths)
