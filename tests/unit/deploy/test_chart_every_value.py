"""Every value that people may set, alone and with others: what is made is valid and as careful."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.unit.deploy.kubernetes import NEWEST, complaints
from tests.unit.deploy.releases import Release, Thing, with_values
from tests.unit.deploy.restricted import breaches
from tests.unit.deploy.test_chart_values import VALUES

WORDS: Final = {"a": "b", "c.example/d": "e"}
ACCOUNT: Final[Thing] = {
    "serviceAccount.create": [False],
    "serviceAccount.name": ["somebody"],
    "serviceAccount.annotations": [WORDS],
}
PLACED: Final[Thing] = {
    "resources": [
        {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
    ],
    "podAnnotations": [WORDS],
    "podLabels": [WORDS],
    "nodeSelector": [WORDS],
    "tolerations": [[], [{"operator": "Exists"}, {"key": "a", "effect": "NoExecute"}]],
    "priorityClassName": ["high"],
    "extraEnv": [
        [
            {"name": "A", "value": "b: c # d"},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ]
    ],
}
VOLUMES: Final[Thing] = {
    "extraVolumes": [[]],  # with mounts, or a pod would not start: tried in the set `everything`
    "extraVolumeMounts": [[]],
}
AFFINITY: Final[Thing] = {
    "affinity": [
        {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {"matchLabels": WORDS}}
                ]
            }
        }
    ]
}


def _in(part: str, *groups: Thing) -> Thing:
    return {f"{part}.{name}": tried for group in groups for name, tried in group.items()}


TRIED: Final[dict[str, list[Any]]] = {
    "nameOverride": ["watcher"],
    "fullnameOverride": ["all-of-it"],
    "labels": [WORDS],
    "image.repository": ["registry.example:5000/a/b"],
    "image.tag": ["1.2.3", "sha-0123"],
    "image.digest": ["sha256:" + "0" * 64],
    "image.pullPolicy": ["Always", "Never"],
    "imagePullSecrets": [["one", "two"]],
    "address": ["https://head.example/path", "grpcs://head.example:8091"],
    "publicUrl": ["https://public.example"],
    "caSecret": ["authority"],
    "tokens.existingSecret": ["own"],
    "watch.namespaces": [["team-a", "team-b"]],
    "crds.install": [False],
    "crds.connections": [False],
    "rbac.create": [False],
    "rbac.workloads": [[{"apiGroups": ["a.example"], "resources": ["b", "c"]}]],
    "head.enabled": [True],  # false needs more: the set `outside-head`
    "head.basePath": ["a", "/a/b/"],
    "head.grpcAddress": ["grpcs://a.example:1"],
    "head.config.head": [{"points_days": 1.5, "hang_watch": False, "session_dir": "/tmp/s"}],
    "head.config.telemetry": [{"otlp_export": "http://a:4318"}],
    "head.config.gcp": [{"project": "p", "stacks": True}],
    "head.persistence.enabled": [False],
    "head.persistence.existingClaim": ["claim"],
    "head.persistence.size": ["1Ti"],
    "head.persistence.storageClassName": ["-", "fast"],
    "head.persistence.accessModes": [["ReadWriteMany"]],
    "head.tls.secretName": ["tls"],
    "head.tls.hasCa": [False],
    "head.service.type": ["NodePort", "LoadBalancer"],
    "head.service.annotations": [WORDS],
    "head.service.httpPort": [80],
    "head.service.grpcPort": [443],
    **_in("head", ACCOUNT, PLACED, VOLUMES, AFFINITY),
    "agent.enabled": [False],
    "agent.hostPID": [False],
    "agent.directory": ["/mnt/disks/runwatch"],
    "agent.readPods": [True],
    "agent.nvidia": [False],
    "agent.runtimeClassName": ["nvidia"],
    "agent.seccompProfile.type": ["RuntimeDefault"],
    "agent.nodeSelectorTerms": [[], [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]],
    "agent.maxUnavailable": [1, "50%"],
    **_in("agent", ACCOUNT, PLACED, VOLUMES),
    "webhook.enabled": [False],
    "webhook.replicas": [1, 3],
    "webhook.timeoutSeconds": [1],
    "webhook.mode": ["sidecar", "none"],
    "webhook.workloadLabels": [[], ["a.example/b"]],
    "webhook.exemptNamespaces": [["a", "kube-system"]],
    "webhook.certificate.source": ["certManager"],
    "webhook.certificate.secretName": ["unused"],
    "webhook.certificate.caBundle": ["YQ=="],
    "webhook.certificate.issuerRef": [{"kind": "ClusterIssuer", "name": "a"}],
    "webhook.clusterName": ['projects/p/locations/l/clusters/"c"'],
    **_in("webhook", ACCOUNT, PLACED, AFFINITY),
    "operator.enabled": [False],
    "operator.replicas": [1],
    "operator.namespaces": [["runwatch", "team-a"]],
    "operator.files": ["/var/lib/profiles"],
    "operator.storageSchemes": [[], ["gs"]],
    "operator.wideNamespaces": [["platform"]],
    "operator.ttlSecondsAfterFinished": [0, 31_536_000],
    **_in("operator", ACCOUNT, PLACED, VOLUMES, AFFINITY),
    "ingress.enabled": [True],
    "ingress.className": ["nginx"],
    "ingress.annotations": [WORDS],
    "ingress.host": ["a.example", "*.example"],
    "ingress.tlsSecretName": ["tls"],
    "gateway.enabled": [False],  # true needs a Gateway: the set `everything`
    "gateway.parentRefs": [[{"name": "a"}]],
    "gateway.hostnames": [["a.example"]],
    "gateway.annotations": [WORDS],
    "networkPolicy.enabled": [False],
    "networkPolicy.headFrom": [[{"podSelector": {}}], [{"ipBlock": {"cidr": "10.0.0.0/8"}}]],
    "networkPolicy.apiServerPorts": [[6443]],
    "monitoring.serviceMonitor": [True],
    "monitoring.podMonitor": [True],
    "monitoring.labels": [WORDS],
    "monitoring.interval": ["1m"],
    "podDisruptionBudget.enabled": [False],
    "tests.enabled": [False],
}


def leaves(value: Thing, path: str = "") -> Iterator[str]:
    """Values of values.yaml that are no sections."""
    for key, inner in value.items():
        name = f"{path}{key}"
        if isinstance(inner, dict) and inner and name.rpartition(".")[2] != "resources":
            yield from leaves(inner, f"{name}.")
        else:
            yield name


def test_every_value_is_tried() -> None:
    assert sorted(leaves(VALUES)) == sorted(TRIED)


def nested(chosen: dict[str, Any]) -> Thing:
    found: Thing = {}
    for path, value in chosen.items():
        place = found
        *sections, last = path.split(".")
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return found


def check(of: Release) -> None:
    for thing in of.things:
        called = f"{thing['kind']} {thing['metadata']['name']}"
        assert complaints(thing, (1, 28)) == complaints(thing, NEWEST) == [], called
    for run in of.runs():
        if run.part != "agent":
            assert breaches(run.meta, run.spec) == set()
        for container in run.containers():
            assert not container["image"].endswith((":latest", ":"))
    pods = [run.meta["labels"] for run in of.runs()]
    for thing in of.of("Service", "NetworkPolicy", "PodDisruptionBudget", "PodMonitor"):
        spec = thing["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        wanted = selector.get("matchLabels", selector)
        assert any(wanted.items() <= labels.items() for labels in pods), thing


def some(seed: int) -> dict[str, Any]:
    """A dozen values at once."""
    chance = random.Random(seed)
    names = chance.sample(sorted(TRIED), 12)
    return {name: chance.choice(TRIED[name]) for name in names}


def goes_together(chosen: dict[str, Any]) -> bool:
    """What the chart refuses with words has tests of its own."""
    return not {"tokens.existingSecret", "watch.namespaces"} <= chosen.keys()


@pytest.mark.parametrize("seed", range(4))
def test_some_values_together_make_valid_objects(seed: int) -> None:
    assert goes_together(some(seed))
    check(with_values(**nested(some(seed))))


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(TRIED))
def test_each_value_alone_makes_valid_objects(name: str) -> None:
    for value in TRIED[name]:
        check(with_values(**nested({name: value})))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4, 204))
def test_many_values_together_make_valid_objects(seed: int) -> None:
    if goes_together(chosen := some(seed)):
        check(with_values(**nested(chosen)))
