"""The JobSet of gke.yaml says what the exit statuses mean; its schema was checked by hand."""

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

    assert container["command"] == ["bash", "/coder_jax/launch/train.sh"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert pod["terminationGracePeriodSeconds"] >= 60

    # The variables for GPUs are comments, but must name what is above them.
    text = (repo / "launch/gke.yaml").read_text(encoding="utf-8")
    address = f"{jobset['metadata']['name']}-{replicated['name']}-0-0.{jobset['metadata']['name']}"
    assert f"value: {address}:8482" in text
    assert f'#   value: "{job["parallelism"]}"' in text
