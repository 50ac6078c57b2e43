"""What Kubeflow's controllers make of PyTorchJobs, MPIJobs and TrainJobs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tests.cluster.making import field, made, pod_of, tell, values

Thing = dict[str, Any]
_KUBEFLOW: Final = "training.kubeflow.org"
_INDEX: Final = "batch.kubernetes.io/job-completion-index"


def _py_torch_job(job: Thing) -> Iterator[Thing]:
    name, replicas = job["metadata"]["name"], job["spec"]["pytorchReplicaSpecs"]
    world = sum(each["replicas"] for each in replicas.values())
    for kind, start in (("master", 0), ("worker", 1)):
        its = replicas[kind.title()]
        for index in range(its["replicas"]):
            labels = _kubeflow(name, "pytorchjob-controller", kind, index)
            if kind == "master":
                labels[f"{_KUBEFLOW}/job-role"] = "master"
            pod = pod_of(its["template"], labels, name=f"{name}-{kind}-{index}")
            pod["spec"]["restartPolicy"] = its["restartPolicy"]
            tell(pod, _rendezvous(f"{name}-master-0", world, start + index))
            if kind == "worker":
                wait = {"name": "init-pytorch", "image": "alpine:3.10"}
                look = f"until nslookup {name}-master-0; do sleep 1; done;"
                pod["spec"]["initContainers"] = [{**wait, "command": ["sh", "-c", look]}]
            yield pod


def _rendezvous(master: str, world: int, rank: int) -> list[Thing]:
    return values(
        PYTHONUNBUFFERED="1", MASTER_PORT="23456", PET_MASTER_PORT="23456", MASTER_ADDR=master,
        PET_MASTER_ADDR=master, WORLD_SIZE=str(world), RANK=str(rank), PET_NPROC_PER_NODE="auto",
        PET_NODE_RANK=str(rank), PET_NNODES=str(world),
    )  # fmt: skip


def _kubeflow(job: str, operator: str, kind: str, index: int) -> dict[str, str]:
    its = {"job-name": job, "operator-name": operator, "replica-type": kind}
    return {f"{_KUBEFLOW}/{key}": value for key, value in its.items()} | {
        f"{_KUBEFLOW}/replica-index": str(index)
    }


def _mpi_job(job: Thing) -> Iterator[Thing]:
    """Its workers, and then the Job of its launcher."""
    name, replicas = job["metadata"]["name"], job["spec"]["mpiReplicaSpecs"]
    ssh = {"name": "ssh-auth", "secret": {"secretName": f"{name}-ssh", "defaultMode": 384}}
    for index in range(replicas["Worker"]["replicas"]):
        labels = _kubeflow(name, "mpi-operator", "worker", index)
        labels[f"{_KUBEFLOW}/job-role"] = "worker"
        pod = pod_of(replicas["Worker"]["template"], labels, name=f"{name}-worker-{index}")
        spec = pod["spec"]
        spec |= {"hostname": f"{name}-worker-{index}", "subdomain": name, "volumes": [ssh]}
        spec["restartPolicy"] = "Never"
        spec["containers"][0].setdefault("command", ["/usr/sbin/sshd", "-De"])
        tell(pod, values(K_MPI_JOB_ROLE="worker"))
        yield pod
    inner = copy.deepcopy(replicas["Launcher"]["template"])
    labels = {f"{_KUBEFLOW}/job-name": name, f"{_KUBEFLOW}/operator-name": "mpi-operator"}
    labels[f"{_KUBEFLOW}/job-role"] = "launcher"
    inner["metadata"]["labels"] = labels
    hosts = {"name": "mpi-job-config", "configMap": {"name": f"{name}-config"}}
    inner["spec"] |= {"restartPolicy": "OnFailure", "volumes": [ssh, hosts]}
    inner["spec"]["containers"][0]["env"] = values(
        K_MPI_JOB_ROLE="launcher",
        OMPI_MCA_orte_keep_fqdn_hostnames="true",
        OMPI_MCA_orte_default_hostfile="/etc/mpi/hostfile",
        NVIDIA_VISIBLE_DEVICES="",
    )
    of_job = {"completions": 1, "parallelism": 1, "completionMode": "NonIndexed"}
    of_job |= {"template": inner}
    yield made("batch/v1", "Job", {"name": f"{name}-launcher", "labels": dict(labels)}, of_job)


def _train_job(job: Thing) -> Iterator[Thing]:
    """A JobSet of its runtime `torch-distributed`, by the same name."""
    name, trainer = job["metadata"]["name"], job["spec"]["trainer"]
    node = {"name": "node", "image": trainer["image"], "command": trainer["command"]}
    rank = field("PET_NODE_RANK", f"metadata.annotations['{_INDEX}']")
    told = values(PET_NNODES=str(trainer["numNodes"]), PET_NPROC_PER_NODE="auto")
    told += [rank, *values(PET_MASTER_ADDR=f"{name}-node-0-0.{name}", PET_MASTER_PORT="29500")]
    spec: Thing = {"containers": [{**node, "env": told}], "restartPolicy": "Never"}
    steps = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    of_job = {
        "completions": trainer["numNodes"],
        "parallelism": trainer["numNodes"],
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"metadata": {"labels": steps}, "spec": spec},
    }
    inner = {"metadata": {"labels": steps}, "spec": of_job}
    replicated = {"name": "node", "replicas": 1, "template": inner}
    yield made(
        "jobset.x-k8s.io/v1alpha2", "JobSet", {"name": name}, {"replicatedJobs": [replicated]}
    )


CONTROLLERS: Final[Mapping[str, Callable[[Thing], Iterator[Thing]]]] = {
    "MPIJob": _mpi_job,
    "PyTorchJob": _py_torch_job,
    "TrainJob": _train_job,
}
