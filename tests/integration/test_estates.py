"""A pod that comes back with another name on the same volume: what the old one left is sent.

Host names and process numbers are those of namespaces of their own, as in containers.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from runwatch.testing import until
from tests.integration.processes import Cluster, Trainer, end
from tests.integration.test_head_faults import ask

_POD: Final = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]
_NAMED: Final = 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"'


def pod(name: str) -> list[str]:
    return [*_POD, _NAMED, name, sys.executable]


def _can_be_pods() -> bool:
    try:
        command = [*_POD, _NAMED, "pod", "true"]
        return subprocess.run(command, capture_output=True, timeout=100).returncode == 0
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not _can_be_pods(), reason="no namespaces to be had here")


class Site(Cluster):
    inherit_seconds = 1.0

    def be(self, name: str) -> None:
        """What is started from now on is in this pod."""
        self.python = pod(name)  # type: ignore[misc]

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"RUNWATCH_INHERIT_SECONDS": str(self.inherit_seconds)}

    def left(self) -> list[dict[str, Any]]:
        health: dict[str, Any] = ask(self.http_port, "/api/v1/health")[1]
        return list(health.get("aside", []))

    def has_some_of(self, trainer: Trainer) -> bool:
        path = f"/api/v1/runs/{trainer.run}/curves?metric=value&buckets=1"
        status, answer = ask(self.http_port, path)
        return status == 200 and any(sum(curve["count"]) for curve in answer["curves"])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def leave(site: Site) -> None:
    """The agent dies first: half of what is recorded is sent, the other half is not."""
    site.be("pod-old")
    site.start_agent()
    trainer = site.start_trainer(hertz=2000)
    until(lambda: site.has_some_of(trainer), what="some of it to be sent")
    assert site.agent is not None
    end(site.agent, signal.SIGKILL)
    trainer.wait_for(trainer.returned + 1000)
    trainer.kill()


def test_what_a_pod_left_is_sent_by_the_one_in_its_place_exactly_once(site: Site) -> None:
    site.start_head()
    leave(site)
    site.be("pod-new")
    site.start_agent()
    own = site.start_trainer(hertz=1000, count=2000)
    site.wait_until_stored()
    own.process.wait(60)
    site.wait_until_stored()
    site.check_exactly_once()
    assert "host 'pod-old' is gone: this agent now sends" in site.words()


def test_what_lies_unsent_is_told_and_whose_it_is(site: Site) -> None:
    site.start_head()
    leave(site)
    site.inherit_seconds = 100_000.0
    site.be("pod-new")
    site.start_agent()
    left = until(site.left, what="the head to know of it")
    assert {each["host"] for each in left} == {"pod-new"}
    assert all("it belongs to host pod-old, which has no agent" in each["why"] for each in left)
    assert any("-pod-old-" in each["journal"] for each in left)


def test_a_host_that_is_served_keeps_what_is_its(site: Site) -> None:
    """Its agent is there all the time; the other takes what a third one left."""
    site.start_head()
    leave(site)
    site.be("pod-there")
    site.inherit_seconds = 0.0
    site.start_agent()
    there = site.start_trainer(hertz=200)
    first, site.agent = site.agent, None
    try:
        until(lambda: site.has_some_of(there), what="what it records to be sent")
        site.be("pod-new")
        site.inherit_seconds = 1.0
        site.start_agent()
        until(lambda: site.trainers[0].all_at(site.http_port), 60, site.words())
        there.kill()
        site.wait_until_stored()
        assert "'pod-there', which" not in site.words()
        assert site.words().count("host 'pod-old' is gone: this agent now sends") >= 1
        site.check_exactly_once()
    finally:
        assert first is not None
        end(first, signal.SIGKILL)
