"""`runwatch status --cluster` in a large cluster: a handful of requests, and a page that fits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runwatch.cli.__main__ import main
from tests.cluster.hands import Hands
from tests.integration.cluster.estate import WATCH, Estate

Thing = dict[str, Any]
PAGE = 500
"""So many objects kubectl asks for at once."""


@pytest.mark.parametrize(
    ("nodes", "pods"), [(60, 1_200), pytest.param(1_000, 10_000, marks=pytest.mark.soak)]
)
def test_many_nodes_and_pods_are_asked_for_in_pages_and_told_in_few_lines(
    nodes: int,
    pods: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    estate = Estate(tmp_path)
    with estate.cluster as cluster:
        cluster.namespace("team", {WATCH: "true"})
        for number in range(nodes):
            _quick(cluster, ("", "nodes"), _node(f"n{number:04}"))
        for number in range(pods):
            _quick(cluster, ("", "pods"), _pod(f"p{number:05}", f"n{number % nodes:04}"))
        estate.at(6000)
        estate.install(start=False)
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        before = len(cluster.asked)
        assert main(["status", "--cluster"]) == 1
        asked = Counter(each.path for each in cluster.asked[before:])
    said = capsys.readouterr().out
    text = " ".join(said.split())
    assert f"{pods:,} pods are not watched (Pod team/p00000, Pod team/p00001, " in text
    assert f"{nodes:,} nodes (n0000, n0001, n0002, n0003, n0004 and {nodes - 5:,} more)" in text
    assert len(said.splitlines()) < 60
    # Those of the release by their label, all of them page by page; nothing is asked for each.
    assert asked["/api/v1/pods"] == 1 + -(-pods // PAGE)
    assert asked["/api/v1/nodes"] == -(-nodes // PAGE)
    assert sum(asked.values()) < 60 + pods // PAGE


def _quick(cluster: Hands, resource: tuple[str, str], thing: Thing) -> None:
    """Past admission, which is not what is measured here."""
    cluster._now(lambda: cluster.storage.put(resource, thing))


def _node(name: str) -> Thing:
    ready = {"type": "Ready", "status": "True"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _meta(name),
        "spec": {},
        "status": {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [ready]},
    }


def _pod(name: str, node: str) -> Thing:
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    env = [{"name": f"VARIABLE_{n}", "value": "of some length"} for n in range(20)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**_meta(name), "namespace": "team"},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "x:1", "env": env}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "main", "state": running}]},
    }


def _meta(name: str) -> Thing:
    return {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
