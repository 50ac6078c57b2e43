"""Writes what an API server asks about pods of each kind: `python -m tests.cluster.record_reviews`.

Each file of `tests/fixtures/admission` has a review and the objects that own its pod (without their
specs).  Uids are numbered, so that what tests expect of them can be written by hand.
"""

from __future__ import annotations

import itertools
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster import objects
from tests.cluster.controllers import played
from tests.cluster.server import Cluster

Thing = dict[str, Any]
FOLDER: Final = Path(__file__).parents[1] / "fixtures/admission"
NAMESPACE: Final = "team"
_SIX_O_CLOCK: Final = 1_795_068_000.0
_LABELS: Final = {"managed-mldiagnostics-gke": "true", "queue": "night"}
_TWO: Final = objects.pod_spec(
    objects.container(env={"SEED": "7"}),
    objects.container("logs", command=("tail", "-F", "/logs/out")),
    restartPolicy="Never",
)
WORKLOADS: Final[dict[str, tuple[Thing, int]]] = {
    # By the name of its file: a workload, and which of its pods.
    "pod": (objects.pod("alone", labels=_LABELS), 0),
    "job": (objects.job("nightly", _TWO, labels=_LABELS), 1),
    "cron-job": (objects.cron_job("hourly", labels=_LABELS), 0),
    "job-set": (objects.job_set("gpt", jobs=2, labels=_LABELS), 3),
    "ray-cluster-head": (objects.ray_cluster("shared", labels=_LABELS), 0),
    "ray-job-worker": (objects.ray_job("tune", labels=_LABELS), 1),
    "ray-job-submitter": (objects.ray_job("tune-2", labels=_LABELS), 2),
    "ray-service-worker": (objects.ray_service("serve", labels=_LABELS), 1),
    "leader-worker-set-leader": (objects.leader_worker_set("llama", labels=_LABELS), 0),
    "leader-worker-set-worker": (objects.leader_worker_set("mixtral", labels=_LABELS), 1),
    "pytorch-job-worker": (objects.py_torch_job("resnet", labels=_LABELS), 1),
    "train-job": (objects.train_job("finetune", labels=_LABELS), 1),
    "mpi-job-worker": (objects.mpi_job("bert", labels=_LABELS), 1),
    "mpi-job-launcher": (objects.mpi_job("bert-2", labels=_LABELS), 2),
    "stateful-set": (objects.stateful_set("notebook", labels=_LABELS), 1),
    "deployment": (objects.deployment("eval", labels=_LABELS), 0),
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    ticks = itertools.count()  # no two objects are made at the same time
    with (
        tempfile.TemporaryDirectory() as place,
        Cluster(Path(place), clock=lambda: _SIX_O_CLOCK + next(ticks)) as cluster,
    ):
        cluster.namespace(NAMESPACE)
        cluster.apply([_asked_about_all()])
        for name, (workload, at) in WORKLOADS.items():
            before = len(cluster.reviews)
            played(cluster, workload, NAMESPACE)
            request = cluster.reviews[before + at].request
            review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
            found = {"owners": list(_owners(cluster, request["object"]))}
            _write(name, {**found, "review": {**review, "request": request}})


def _asked_about_all() -> Thing:
    """Nobody is there: what was asked is on the cluster's list, and the pod is made."""
    webhook = {
        "name": "all.example.com",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "clientConfig": {"service": {"name": "nobody", "namespace": NAMESPACE}},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }
        ],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "all"},
        "webhooks": [webhook],
    }


def _owners(cluster: Cluster, thing: Thing) -> Iterator[Thing]:
    for each in thing["metadata"].get("ownerReferences", ()):
        owner = cluster.get(each["kind"], each["name"], NAMESPACE)
        about = {key: its for key, its in owner["metadata"].items() if key != "managedFields"}
        yield {**{key: owner[key] for key in ("apiVersion", "kind")}, "metadata": about}
        yield from _owners(cluster, owner)


def _write(name: str, found: Thing) -> None:
    alone = json.loads(json.dumps(found))  # no part is there twice: YAML would refer to it
    words = yaml.safe_dump(alone, sort_keys=False, width=100)
    seen: dict[str, str] = {}
    for uid in re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", words):
        seen.setdefault(uid, f"00000000-0000-4000-8000-{len(seen) + 1:012}")
    for uid, number in seen.items():
        words = words.replace(uid, number)
    (FOLDER / f"{name}.yaml").write_text(words)


if __name__ == "__main__":
    main()
