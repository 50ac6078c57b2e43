"""What happened to a pod, in a line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runwatch.record.pods import PodTold, What
from runwatch.views.pod_words import is_trouble, once, programs, words
from tests.unit.views.test_pods import ended, row


@pytest.mark.parametrize(
    "what, more, line, bad",
    [
        ("created", {}, "pod p: was made", False),
        ("scheduled", {"node": "n"}, "pod p has node n", False),
        ("unschedulable", {"message": "no GPU"}, "pod p: waits for a node: no GPU", True),
        ("pulling", {"message": "Pulling x"}, "pod p: its image comes", False),
        ("pull_failed", {"reason": "E"}, "pod p: cannot get its image: E", True),
        ("started", {"container": "c"}, "pod p: container c started", False),
        ("started", {"container": "c", "restarts": 2}, "pod p: container c started again (2)", 0),
        ("container_ended", {"container": "c", "exit_code": 0}, "pod p: container c ended", False),
        (
            "container_ended",
            {"container": "c", "exit_code": 3, "reason": "Error"},
            "pod p: container c ended with exit code 3",
            True,
        ),
        (
            "container_ended",
            {"container": "c", "exit_code": 128, "reason": "StartError"},
            "pod p: container c ended with exit code 128: StartError",
            True,
        ),
        ("oom_killed", {"container": "c"}, "pod p: container c was killed: out of memory", True),
        ("evicted", {"message": "low on memory. "}, "pod p evicted: low on memory.", True),
        ("preempted", {}, "pod p preempted", True),
        ("deleted", {}, "pod p deleted", True),
        ("ended", {"reason": "Succeeded"}, "pod p completed", False),
        ("ended", {"reason": "Failed"}, "pod p failed", False),
        ("ended", {"reason": "OutOfcpu"}, "pod p failed: OutOfcpu", False),
        ("node_not_ready", {"message": "x"}, "pod p: its node is not heard of: x", True),
        ("node_ready", {}, "pod p: its node is heard of again", True),
        ("", {}, "pod p: something happened", False),
    ],
)  # fmt: skip
def test_a_line_for_each(what: What, more: dict[str, Any], line: str, bad: bool) -> None:
    told = PodTold(pod="p", what=what, **more)
    assert (words(told), is_trouble(told, [("", "c")])) == (line, bad)


@pytest.mark.parametrize("code, bad", [(0, False), (1, True), (137, False), (143, False)])
def test_a_sidecar_that_is_killed_at_the_end_is_no_trouble(code: int, bad: bool) -> None:
    proxy = PodTold(pod="p", uid="u", what="container_ended", container="proxy", exit_code=code)
    main = PodTold(pod="p", uid="u", what="started", container="train")
    assert is_trouble(proxy, programs([main])) is bad
    assert is_trouble(proxy, programs([replace(main, container="proxy")])) is bool(code)


def test_what_was_told_twice_is_one() -> None:
    twice = [row(0, "created"), ended(5), row(0, "created"), ended(5), ended(6, restarts=1)]
    assert list(once(twice)) == [twice[0], twice[1], twice[4]]
