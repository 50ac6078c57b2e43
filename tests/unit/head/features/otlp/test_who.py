"""Resource attributes as run, rank and host."""

from __future__ import annotations

from typing import Any

import pytest

from runwatch.head.features.otlp.who import QUIET_SECONDS, sender_of


@pytest.mark.parametrize(
    ("resource", "run", "name"),
    [
        ({"service.name": "trainer"}, "trainer", "trainer"),
        ({"service.name": "My Job", "runwatch.run": "llama-70b"}, "llama-70b", "llama-70b"),
        ({"runwatch.run": "a", "runwatch.run_id": "b"}, "b", "a"),
        ({"service.name": "api", "service.namespace": "shop"}, "shop-api-0ef54f95", "shop/api"),
        ({"service.name": "unknown_service:python", "k8s.job.name": "j"}, "j", "j"),
        ({}, "unknown_service", "unknown_service"),
        ({"service.name": "a\x1b\nb"}, "a-b-bb6d2d4c", "a  b"),
    ],
)
def test_the_run(resource: dict[str, Any], run: str, name: str) -> None:
    sender = sender_of(resource, "peer")
    assert (sender.name, sender.host, sender.is_wheel) == (name, "peer", False)
    assert str(sender.run).split("-")[0] == run.split("-")[0]
    assert sender.run == run or name != run


def test_rank_and_host() -> None:
    sender = sender_of(
        {"host.name": "../x", "k8s.pod.name": "pod-1", "runwatch.rank": "3", "process.pid": 12,
         "runwatch.world_size": 8, "runwatch.group": "g", "runwatch.attempt": "2",
         "runwatch.quiet_seconds": 600},
        "peer",
    )  # fmt: skip
    assert (sender.host, sender.rank, sender.pid, sender.world_size) == ("pod-1", 3, 12, 8)
    assert (sender.group, sender.attempt_key, sender.quiet_seconds) == ("g", "2", 600.0)
    wrong = sender_of({"runwatch.rank": "first", "process.pid": -1}, "peer")
    assert (wrong.rank, wrong.pid, wrong.quiet_seconds) == (None, 0, QUIET_SECONDS)
    index = "k8s.pod.label.batch.kubernetes.io/job-completion-index"
    assert sender_of({index: "5"}, "peer").rank == 5


def test_the_wheel_says_its_run_as_its_host() -> None:
    id = "856c57b7-4552-4c26-b11a-cb6e7f9bc70c"
    sender = sender_of({"service.name": "diagon_sdk_workload", "host.name": id}, "peer")
    assert (sender.run, sender.host, sender.is_wheel) == (id, "peer", True)


def test_the_same_process_has_the_same_journal() -> None:
    one = {"service.name": "a", "service.instance.id": "1"}
    assert sender_of(one, "p").journal == sender_of({**one, "more": 1}, "p").journal
    others: list[dict[str, Any]] = [one, one | {"service.instance.id": "2"}]
    others.append({**one, "runwatch.rank": 1})
    journals = {sender_of(each, "p").journal for each in others}
    assert len(journals) == 3
