"""Whoever tells of pods may be killed at any moment: nothing is doubled, and nothing is missed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from runwatch.k8s.operator.head import HeadError
from runwatch.testing import read_stories
from tests.integration.operator_pods.site import Operator, Program, Site, operator
from tests.integration.processes import free_port

WHOLE = ["created", "ended", "oom_killed", "scheduled", "started"]


@pytest.fixture
def token(site: Site, tmp_path: Path) -> Path:
    """A file with the token by which records are sent.  While it is wrong, none are."""
    file = tmp_path / "token"
    file.write_text("wrong")
    file.chmod(0o600)
    return file


class Teller:
    def __init__(self, site: Site, directory: Path, token: Path) -> None:
        command = [directory, site.cluster.server, site.account, site.at.http, site.at.token, token]
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.teller", *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={key: value for key, value in os.environ.items() if "RUNWATCH" not in key},
        )

    def looks(self, pod: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{pod}\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline().strip()
        assert said.startswith("told"), said
        return said

    def killed(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self._wait()

    def ended(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._wait()

    def _wait(self) -> None:
        self.process.wait(100)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def teller(site: Site, directory: Path, token: Path) -> Iterator[Teller]:
    found = Teller(site, directory, token)
    try:
        yield found
    finally:
        found.killed()


def lives(site: Site, run: str) -> Iterator[str]:
    """A pod, after each thing that happens to it."""
    pod = site.pod(run)
    yield pod
    for deed, more in (
        ("scheduled", {}),
        ("accepted", {}),
        ("starts", {}),
        ("program", {}),
        ("ends", {"exit_code": 137, "reason": "OOMKilled"}),
        ("over", {"phase": "Failed"}),
    ):
        site.time.passes(5)
        if deed == "program":
            site.program(pod, run)
        else:
            site.kubelet.does(pod, deed, **more)
        yield pod


def whats(site: Site, run: str) -> Sequence[str]:
    return sorted(what for _, _, what in site.told(run))


def test_killed_between_its_journal_and_the_head_it_is_delivered_once(
    site: Site, tmp_path: Path, token: Path
) -> None:
    run = site.name("killed")
    *_, pod = lives(site, run)
    with teller(site, tmp_path, token) as first:
        assert first.looks(pod) == "told 5"
    assert whats(site, run) == []
    [story] = read_stories(tmp_path / "operator")
    assert len(story.bodies("pod")) == 5
    token.write_text(site.at.token)
    with teller(site, tmp_path, token) as second:
        assert second.looks(pod) == "told 0"
        assert len(site.arrives(run, 5)) == 5
        second.ended()
    site.settled(replace(site.settings, dir=tmp_path))
    assert whats(site, run) == WHOLE


def killed_at(site: Site, directory: Path, token: Path, moments: Sequence[int]) -> None:
    run = site.name("moments")
    token.write_text(site.at.token)
    with teller(site, directory, token) as first:
        told = first
        for moment, pod in enumerate(lives(site, run)):
            told.looks(pod)
            if moment in moments:
                told.killed()
                told = Teller(site, directory, token)
        told.looks(pod)
        site.settled(replace(site.settings, dir=directory))
        told.ended()
    assert whats(site, run) == WHOLE


def test_killed_at_a_moment_of_a_pod_s_life(site: Site, tmp_path: Path, token: Path) -> None:
    killed_at(site, tmp_path, token, [4])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12))
def test_killed_at_any_moments(site: Site, tmp_path: Path, token: Path, seed: int) -> None:
    draw = Random(seed)
    killed_at(site, tmp_path, token, draw.sample(range(7), draw.randint(1, 7)))


def test_who_begins_again_tells_nothing_again(site: Site, tmp_path: Path) -> None:
    run, settings = site.name("again"), replace(site.settings, dir=tmp_path)
    *_, pod = lives(site, run)
    for expected in (5, 0):
        with operator(site, settings) as told:
            told.looks(pod, pod)
            assert told.telling.told == expected
            site.settled(settings)
    assert whats(site, run) == WHOLE


def test_another_operator_does_not_tell_what_the_head_knows(
    site: Site, tmp_path: Path, told: Operator
) -> None:
    """It is a pod of its own, and its disk is empty."""
    run, settings = site.name("rollout"), replace(site.settings, dir=tmp_path)
    *_, pod = lives(site, run)
    told.looks(pod)
    site.settled()
    with operator(site, settings) as second:
        second.looks(pod)
        assert second.telling.told == 0
        site.kubelet.does(pod, "deleted")
        second.looks(pod)
        assert second.telling.told == 1
        site.settled(settings)
    assert whats(site, run) == sorted([*WHOLE, "deleted"])


def test_two_that_saw_the_same_told_the_same(site: Site, tmp_path: Path, token: Path) -> None:
    """Each before the head had it of the other."""
    run = site.name("two")
    *_, pod = lives(site, run)
    both = [replace(site.settings, dir=tmp_path / each) for each in ("one", "two")]
    for settings in both:
        with operator(site, replace(settings, ingest_token_file=token)) as told:
            told.looks(pod)
            assert told.telling.told == 5
    for settings in both:
        with operator(site, settings):
            site.settled(settings)
    rows = site.told(run)
    assert len(rows) == 10 and len(set(rows)) == 5
    seen = site.run(run)
    assert (seen["state"], "out of memory" in seen["reason"]) == ("killed", True)
    shown = site.get(f"/runs/{run}/timeline?start={site.began_ns}")["events"]
    assert sum(each["kind"] == "pod" for each in shown) == 5


def test_a_pod_that_went_while_nobody_looked_is_told_of(site: Site, tmp_path: Path) -> None:
    run, settings = site.name("vanished"), replace(site.settings, dir=tmp_path)
    with operator(site, settings) as first:
        for pod in lives(site, run):
            first.looks(pod)
            if site.thing(pod)["status"]["phase"] == "Running" and first.telling.told:
                break
    site.kubelet.removes(pod)
    site.time.passes(20)
    with operator(site, settings) as second:
        second.looks(pod)
        second.looks(pod)
        site.settled(settings)
    assert whats(site, run) == ["created", "deleted", "scheduled", "started"]
    assert "deleted" in site.run(run)["reason"]


def test_a_pod_that_was_gone_before_its_run_was_named_is_told_of(
    site: Site, told: Operator
) -> None:
    """Its program's records come late: from its node, when the head is back."""
    run = site.name("late")
    pod = site.pod(run)
    for deed in ("scheduled", "accepted", "starts", "ends", "deleted"):
        site.time.passes(5)
        site.kubelet.does(pod, deed)
    told.looks(pod)
    last = site.kubelet.removes(pod)
    told.telling.gone(last)
    Program(site, last, run, rank=0, ranks=1)
    told.minds()
    found = [what for _, _, what in site.arrives(run, 5)]
    assert sorted(found) == ["container_ended", "created", "deleted", "scheduled", "started"]


def test_while_the_head_is_away_the_journal_is_kept(site: Site, tmp_path: Path) -> None:
    run, settings = site.name("away"), replace(site.settings, dir=tmp_path)
    *_, pod = lives(site, run)
    with operator(site, settings) as told:
        told.looks(pod)
        site.arrives(run, 5)
    site.kubelet.does(pod, "deleted")
    with operator(site, replace(settings, head=f"http://127.0.0.1:{free_port()}")) as told:
        with pytest.raises(HeadError, match="does not answer"):
            told.looks(pod)
        assert told.telling.told == 1 and told.telling.problem
        others = [site.pod(site.name("others")) for _ in range(3)]
        assert all(told.comes_again(each) for each in others)  # and it is said once
    with operator(site, settings) as told:
        assert len(site.arrives(run, 6)) == 6
        told.looks(pod)
        assert told.telling.told == 0
