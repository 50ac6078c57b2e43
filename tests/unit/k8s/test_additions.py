"""Containers and volumes of ours, with Pod Security, quotas and names that are taken."""

from __future__ import annotations

from typing import Any

import pytest

from runwatch.k8s.additions import agent, files, needs, node_volume, own_volume, users, volume_named
from runwatch.k8s.settings import WebhookSettings
from tests.cluster import objects
from tests.cluster.podsecurity import violations
from tests.unit.k8s.admitted import SETTINGS

Thing = dict[str, Any]


def with_user(user: int | None, **more: Any) -> Thing:
    whole: Thing = {} if user is None else {"runAsUser": user}
    return objects.pod(spec=objects.pod_spec(securityContext=whole, **more))


@pytest.mark.parametrize("user", [None, 1, 1000])
def test_what_we_add_meets_the_restricted_profile(user: int | None) -> None:
    pod = with_user(user)
    spec = {"containers": [agent(pod, user, SETTINGS), files(pod, SETTINGS)]}
    assert violations("restricted", {"spec": spec}) == []


def test_our_files_are_never_put_there_by_root() -> None:
    """The pod's own user is root: the init container still is not."""
    security = files(with_user(0), SETTINGS)["securityContext"]
    assert (security["runAsUser"], security["runAsNonRoot"]) == (65532, True)


def test_what_we_ask_for_is_what_we_may_use() -> None:
    """A pod whose containers do so has a guaranteed share, and keeps it."""
    for made in (agent(with_user(1), 1, SETTINGS), files(with_user(1), SETTINGS)):
        asked, most = made["resources"]["requests"], made["resources"]["limits"]
        assert {key: asked[key] for key in ("cpu", "memory")} == {
            key: most[key] for key in ("cpu", "memory")
        }


@pytest.mark.parametrize("place", ["containers", "initContainers"])
def test_a_program_without_a_limit_of_disk_gets_none_by_ours(place: str) -> None:
    """The kubelet adds up the limits that there are, and evicts a pod that takes more."""
    free = with_user(1)
    assert "ephemeral-storage" not in agent(free, 1, SETTINGS)["resources"]["limits"]
    limited = with_user(1)
    container = {"name": "x", "image": "x", "resources": {"limits": {"ephemeral-storage": "1Gi"}}}
    limited["spec"].setdefault(place, []).append(container)
    assert agent(limited, 1, SETTINGS)["resources"]["limits"]["ephemeral-storage"] == "2Gi"


def test_a_share_of_the_whole_pod_is_not_exceeded() -> None:
    assert needs(with_user(1, resources={"limits": {"cpu": "1"}}), {"cpu": "1"}) == {}


def test_the_token_is_a_reference_and_may_be_missing() -> None:
    """Without it the pod starts, and its agent says what it lacks."""
    (token,) = [each for each in agent(with_user(1), 1, SETTINGS)["env"] if "valueFrom" in each]
    assert token["name"] == "RUNWATCH_TOKEN"
    assert token["valueFrom"]["secretKeyRef"]["optional"] is True


@pytest.mark.parametrize(
    ("whole", "each", "found"),
    [
        (None, [None], set()),
        (5, [None, None], {5}),
        (5, [7, None], {5, 7}),
        (None, [7, None], {7}),
        (0, [None], {0}),
    ],
)
def test_as_whom_programs_run(whole: int | None, each: list[int | None], found: set[int]) -> None:
    def security(user: int | None) -> Thing:
        return {} if user is None else {"runAsUser": user}

    containers = [
        objects.container(f"c{number}", securityContext=security(user))
        for number, user in enumerate(each)
    ]
    spec = objects.pod_spec(*containers, securityContext=security(whole))
    assert users(objects.pod(spec=spec)) == found


def test_a_volume_that_is_ours_already_is_used() -> None:
    """The API server has filled in what we left out."""
    filled = {"path": "/var/lib/runwatch", "type": ""}
    volumes: list[Any] = [{"name": "runwatch-records", "hostPath": filled}]
    assert volume_named(node_volume(SETTINGS), volumes) == "runwatch-records"
    assert len(volumes) == 1


def test_another_ones_name_is_not_taken() -> None:
    volumes: list[Any] = [
        {"name": "runwatch-tmp", "secret": {"secretName": "x"}},
        {"name": "runwatch-tmp-2", "hostPath": {"path": "/tmp"}},
    ]
    assert volume_named(own_volume("runwatch-tmp"), volumes) == "runwatch-tmp-3"
    assert volume_named(own_volume("runwatch-tmp"), volumes) == "runwatch-tmp-3"
    assert volumes[2:] == [{"name": "runwatch-tmp-3", "emptyDir": {}}]


def test_another_folder_of_the_node_is_another_volume() -> None:
    volumes: list[Any] = [{"name": "runwatch-records", "hostPath": {"path": "/other"}}]
    assert volume_named(node_volume(WebhookSettings()), volumes) == "runwatch-records-2"
