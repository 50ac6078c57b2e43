"""kopf, somebody else's client, with the tests' API server.

It resumes after dropped watches, forgotten versions and restarts.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import threading
from collections.abc import Callable
from typing import Any, Final

import kopf
import pytest

from runwatch.testing import until
from tests.cluster.server import Cluster

# kopf's client leaves a connection that is cut during its TLS handshake to the garbage collector.
pytestmark = [
    pytest.mark.xdist_group("cluster_kopf"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

Thing = dict[str, Any]


class Operator(threading.Thread):
    """Somebody else's operator, which writes down what it is told."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(name="kopf of a test")
        self.told: list[tuple[str, str, object]] = []
        self._cluster = cluster
        self._registry = kopf.OperatorRegistry()
        self._settings = kopf.OperatorSettings()
        self._settings.persistence.finalizer = "example.com/kopf"
        self._settings.posting.enabled = False
        self._settings.networking.error_backoffs = [0.05] * 200
        self._settings.watching.reconnect_backoff = 0.05
        self._settings.scanning.disabled = True
        self._ending = threading.Event()
        self._ready = threading.Event()

    def run(self) -> None:
        group, version, plural = "example.com", "v1", "lamps"

        @kopf.on.login(registry=self._registry)
        def login(**_: object) -> kopf.ConnectionInfo:
            return kopf.ConnectionInfo(
                server=self._cluster.server,
                ca_data=base64.b64encode(self._cluster.ca).decode(),
                token=self._cluster.admin_token,
            )

        for name, on in (
            ("created", kopf.on.create),
            ("resumed", kopf.on.resume),
            ("updated", kopf.on.update),
            ("deleted", kopf.on.delete),
        ):
            on(group, version, plural, id=name, registry=self._registry)(self._handler(name))
        asyncio.run(
            kopf.operator(
                registry=self._registry,
                settings=self._settings,
                clusterwide=True,
                standalone=True,
                stop_flag=self._ending,
                ready_flag=self._ready,
            )
        )

    def _handler(self, what: str) -> Callable[..., Thing]:
        def handle(name: str, spec: Thing, **_: object) -> Thing:
            self.told.append((what, name, spec.get("level")))
            return {"level": spec.get("level")}

        handle.__name__ = what
        return handle

    def __enter__(self) -> Operator:
        self.start()
        assert self._ready.wait(100)
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join(100)
        assert not self.is_alive()
        gc.collect()


LAMPS: Final[Thing] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "lamps.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "lamps", "kind": "Lamp"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"level": {"type": "integer"}},
                            },
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}


def lamp(name: str, level: int) -> Thing:
    head = {"apiVersion": "example.com/v1", "kind": "Lamp"}
    return {**head, "metadata": {"name": name}, "spec": {"level": level}}


@pytest.fixture(scope="module")
def lamps(cluster: Cluster) -> None:
    cluster.apply([LAMPS])


def test_kopf_sees_a_lamp_made_changed_and_deleted(cluster: Cluster, lamps: None) -> None:
    with Operator(cluster) as operator:
        cluster.create(lamp("life", 1))
        until(lambda: ("created", "life", 1) in operator.told)
        status = until(lambda: cluster.get("lamp", "life").get("status"))
        assert status == {"created": {"level": 1}}
        cluster.patch("lamp", "life", {"spec": {"level": 2}})
        until(lambda: ("updated", "life", 2) in operator.told)
        until(lambda: cluster.get("lamp", "life")["status"].get("updated") == {"level": 2})
        cluster.delete("lamp", "life")
        until(lambda: cluster.find("lamp", "life") is None)
    assert [each for each in operator.told if each[1] == "life"] == [
        ("created", "life", 1),
        ("updated", "life", 2),
        ("deleted", "life", 2),
    ]


def test_kopf_misses_nothing_and_sees_nothing_twice_when_watches_break(
    cluster: Cluster, lamps: None
) -> None:
    def compacted() -> None:
        cluster.faults.compact()
        cluster.faults.drop_watches()

    breaks = (
        cluster.faults.drop_watches,
        cluster.faults.end_watches,
        compacted,
        cluster.faults.restart,
    )
    with Operator(cluster) as operator:
        cluster.create(lamp("broken", 0))
        until(lambda: ("created", "broken", 0) in operator.told)
        for level, broken in enumerate(breaks, 1):
            until(lambda: cluster.watching() > 0)
            broken()
            cluster.patch("lamp", "broken", {"spec": {"level": level}})
            until(lambda n=level: ("updated", "broken", n) in operator.told)
    levels = [each[2] for each in operator.told if each[:2] == ("updated", "broken")]
    assert levels == [1, 2, 3, 4]
    with Operator(cluster) as another:
        until(lambda: ("resumed", "broken", 4) in another.told)
        cluster.delete("lamp", "broken")
        until(lambda: cluster.find("lamp", "broken") is None)
