"""Watches of the tests' API server: from a version on, in order, with bookmarks, or gone."""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPSConnection
from typing import Any

import pytest

from runwatch.testing import until
from tests.cluster.server import HOST, Cluster

pytestmark = pytest.mark.xdist_group("cluster_watches")

Thing = dict[str, Any]
Event = tuple[str, Thing]


@contextmanager
def watching(cluster: Cluster, path: str) -> Iterator[tuple[int, Iterator[Event]]]:
    """The status, and the events as they come."""
    trust = ssl.create_default_context(cadata=cluster.ca.decode())
    connection = HTTPSConnection(HOST, cluster.port, context=trust, timeout=60)
    try:
        headers = {"Authorization": f"Bearer {cluster.admin_token}"}
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()

        def events() -> Iterator[Event]:
            while line := response.readline():
                told = json.loads(line)
                yield told["type"], told["object"]

        yield response.status, events()
    finally:
        connection.close()


@pytest.fixture
def place(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, without what controllers put into it."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:50].strip("-")
    cluster.namespace(name)
    cluster.delete("configmap", "kube-root-ca.crt", name)
    yield name
    cluster.delete("namespace", name)


def put(cluster: Cluster, place: str, name: str, **labels: str) -> int:
    """Its version."""
    meta = {"name": name, "labels": labels}
    made = cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}, place)
    return int(made["metadata"]["resourceVersion"])


def seen(event: Event) -> tuple[str, str]:
    return event[0], event[1]["metadata"].get("name", "")


def maps(place: str, **query: object) -> str:
    words = "&".join(f"{name}={value}" for name, value in query.items())
    return f"/api/v1/namespaces/{place}/configmaps?watch=true&{words}"


def test_a_watch_from_a_version_tells_each_later_change_once_and_in_order(
    cluster: Cluster, place: str
) -> None:
    put(cluster, place, "before")
    listed = cluster.ask("GET", maps(place).partition("?")[0]).thing
    version = int(listed["metadata"]["resourceVersion"])
    put(cluster, place, "a")
    with watching(cluster, maps(place, resourceVersion=version)) as (status, events):
        assert status == 200 and seen(next(events)) == ("ADDED", "a")
        cluster.patch("configmap", "a", {"data": {"x": "1"}}, place)
        changed = next(events)
        assert seen(changed) == ("MODIFIED", "a") and changed[1]["data"] == {"x": "1"}
        put(cluster, place, "b")
        cluster.delete("configmap", "a", place)
        assert seen(next(events)) == ("ADDED", "b")
        deleted = next(events)
        assert seen(deleted) == ("DELETED", "a") and deleted[1]["data"] == {"x": "1"}
        versions = [int(each[1]["metadata"]["resourceVersion"]) for each in (changed, deleted)]
        assert version < versions[0] < versions[1]


def test_a_watch_without_a_version_begins_with_what_is_there(cluster: Cluster, place: str) -> None:
    put(cluster, place, "b")
    put(cluster, place, "a")
    with watching(cluster, maps(place)) as (_, events):
        assert [seen(next(events)) for _ in range(2)] == [("ADDED", "a"), ("ADDED", "b")]
        put(cluster, place, "c")
        assert seen(next(events)) == ("ADDED", "c")


def test_what_begins_or_ends_to_match_a_selector_comes_and_goes(
    cluster: Cluster, place: str
) -> None:
    version = put(cluster, place, "x", tier="db")
    query = {"labelSelector": "tier%3Dweb", "resourceVersion": version}
    with watching(cluster, maps(place, **query)) as (_, events):
        for labels in ({"tier": "web"}, {"tier": "web", "n": "1"}, {"tier": "db"}):
            cluster.patch("configmap", "x", {"metadata": {"labels": labels}}, place)
        told = [next(events) for _ in range(3)]
        assert [kind for kind, _ in told] == ["ADDED", "MODIFIED", "DELETED"]
        newest = cluster.get("configmap", "x", place)["metadata"]["resourceVersion"]
        assert told[2][1]["metadata"]["resourceVersion"] == newest


def test_a_watch_of_one_object_sees_no_other(cluster: Cluster, place: str) -> None:
    version = put(cluster, place, "one")
    query = {"fieldSelector": "metadata.name%3Done", "resourceVersion": version}
    with watching(cluster, maps(place, **query)) as (_, events):
        put(cluster, place, "two")
        cluster.patch("configmap", "one", {"data": {"a": "b"}}, place)
        assert seen(next(events)) == ("MODIFIED", "one")


def test_bookmarks_say_how_far_a_watch_is(cluster: Cluster, place: str) -> None:
    version = put(cluster, place, "x")
    put(cluster, "default", f"elsewhere-{version}")  # of no interest here, and yet a version
    cluster.faults.bookmark_seconds = 0.05
    try:
        query = {"allowWatchBookmarks": "true", "resourceVersion": version}
        with watching(cluster, maps(place, **query)) as (_, events):
            kind, mark = next(events)
    finally:
        cluster.faults.bookmark_seconds = 60.0
    assert (kind, mark["kind"]) == ("BOOKMARK", "ConfigMap")
    assert int(mark["metadata"]["resourceVersion"]) > version


def test_a_watch_ends_cleanly_when_its_time_is_over(cluster: Cluster, place: str) -> None:
    query = {"timeoutSeconds": 1, "resourceVersion": put(cluster, place, "x")}
    with watching(cluster, maps(place, **query)) as (status, events):
        assert (status, list(events)) == (200, [])


@pytest.mark.parametrize("as_status", [False, True])
def test_a_version_that_is_forgotten_is_gone(cluster: Cluster, place: str, as_status: bool) -> None:
    version = put(cluster, place, "x")
    put(cluster, place, "y")
    cluster.faults.compact()
    cluster.faults.gone_as_status = as_status
    try:
        with watching(cluster, maps(place, resourceVersion=version)) as (status, events):
            if as_status:
                assert status == 410
                return
            kind, told = next(events)
            assert (status, kind, told["code"], told["reason"]) == (200, "ERROR", 410, "Expired")
            assert list(events) == []
    finally:
        cluster.faults.gone_as_status = False


def test_the_newest_version_is_not_forgotten(cluster: Cluster, place: str) -> None:
    version = put(cluster, place, "x")
    cluster.faults.compact()
    put(cluster, place, "y")
    with watching(cluster, maps(place, resourceVersion=version)) as (_, events):
        assert seen(next(events)) == ("ADDED", "y")


def test_a_version_of_the_future_waits_or_is_refused(cluster: Cluster, place: str) -> None:
    answer = cluster.ask("GET", f"/api/v1/namespaces/{place}/configmaps?resourceVersion=99999999")
    assert answer.status == 504 and "Too large resource version" in answer.thing["message"]


def test_who_leaves_a_watch_is_forgotten(cluster: Cluster, place: str) -> None:
    before = cluster.watching()
    with watching(cluster, maps(place, resourceVersion=put(cluster, place, "x"))):
        until(lambda: cluster.watching() == before + 1)
    put(cluster, place, "y")  # the server writes, and finds nobody
    until(lambda: cluster.watching() == before)


def test_after_the_server_s_end_nobody_listens(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Cluster(tmp_path_factory.mktemp("short")) as short:
        port = short.port
        with watching(short, "/api/v1/pods?watch=true&resourceVersion=1") as (status, _):
            assert status == 200
    assert not short.thread.is_alive()
    with socket.socket() as probe:
        assert probe.connect_ex((HOST, port)) != 0
