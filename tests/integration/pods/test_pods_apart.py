"""Pods of several users are on one node, and share the folder of its agent."""

from __future__ import annotations

import json

import pytest

from tests.integration.pods import release
from tests.integration.pods.kubelet import Node
from tests.integration.pods.site import Site
from tests.integration.pods.workloads import PROGRAMS, JobSet, ours

pytestmark = pytest.mark.xdist_group("pods")


def test_one_user_gets_at_nothing_of_another(site: Site, node: Node) -> None:
    """Though the agent reads both."""
    job = ours("owned")
    owned = site.process(site.started(job, node), job, state="running")
    command = ["python", f"{PROGRAMS}/curious.py", owned["journal"]]
    looking = JobSet("curious", command, user=2000, image=release.image())
    pod = site.play(looking.admitted(), node)
    assert pod.finish() == {"trainer": 0}, pod.words()
    answers = json.loads(pod.main.words())
    assert answers.pop("record oneself") == "done"
    assert set(answers.values()) == {"PermissionError"}, answers
    beside = ours("of-another-user", user=2000)
    told = site.process(site.started(beside, node), beside, state="running")
    assert told["rank"] == 0 and site.values(beside) == (5, sum(range(5)))
    folder = node.path("/var/lib/runwatch/journals")
    assert (folder / owned["journal"]).stat().st_uid == 1000
    assert (folder / told["journal"]).stat().st_uid == 2000
