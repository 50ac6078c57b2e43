"""A program that begins on a full disk records elsewhere, and is found there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runwatch.agent.lock import end_agents
from runwatch.testing import until
from tests.integration.file_systems import fill, mount_of
from tests.integration.processes import Cluster
from tests.integration.test_head_faults import ask

PROGRAM = """
import runwatch
run = runwatch.init("moved")
for number in range(100):
    run.log(value=float(number), step=number)
run.finish()
"""


class Site(Cluster):
    """Its node's disk is small; what does not fit there goes to `aside`."""

    @property
    def aside(self) -> Path:
        [found] = (self.root / "aside").iterdir()
        return found

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"TMPDIR": str(self.root / "aside")}

    def record(self) -> str:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stderr

    def say(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "runwatch.cli", *words]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60
        )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = mount_of("tmpfs", disk, tmp_path / "image")
    if subprocess.run(mount.split(), capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    site = Site(tmp_path / "site")
    (site.root / "aside").mkdir()
    site.node_root = disk / "node"
    site.node_root.mkdir()
    yield site
    for place in (site.root / "aside").iterdir():
        end_agents(place)
    site.close()
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("is_there", [True, False], ids=["agent before", "agent after"])
def test_what_is_recorded_elsewhere_is_sent_by_the_agent_of_where_it_was_wanted(
    site: Site, is_there: bool
) -> None:
    site.start_head()
    if is_there:
        site.start_agent()
        until(lambda: list((site.node_root / "agent").glob("*.head")), what="the agent")
    fill(site.node_root.parent)
    assert f"recording to {site.root / 'aside'}" in site.record()
    if not is_there:
        site.start_agent()

    def count() -> float:
        path = "/api/v1/runs/moved/curves?metric=value&buckets=1"
        status, answer = ask(site.http_port, path)
        return sum(sum(curve["count"]) for curve in answer["curves"]) if status == 200 else 0

    until(lambda: count() == 100, 60, site.words())
    assert ask(site.http_port, "/api/v1/runs/moved")[1]["state"] == "completed"


def test_commands_say_where_it_is(site: Site) -> None:
    fill(site.node_root.parent)
    site.record()
    done = site.say("runs", "--dir", str(site.node_root))
    assert f"could not record in {site.node_root}" in done.stderr, done
    assert f"`runwatch runs --dir {site.aside}`" in done.stderr
    found = site.say("runs", "--dir", str(site.aside), "--json")
    assert [run["name"] for run in json.loads(found.stdout)["runs"]] == ["moved"]
    assert "could not record" not in found.stderr
