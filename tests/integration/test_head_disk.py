"""A head whose disk is full, for real: a small file system of its own."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from runwatch.address import read_address
from runwatch.testing import until
from tests.integration.file_systems import empty, fill, mount_of
from tests.integration.processes import Cluster, end
from tests.integration.test_head_faults import ask
from tests.sampling import sampled


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a file system here: {error}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_stops_acknowledging_and_resumes_by_itself(
    tmp_path: Path, small_disk: Path
) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.head_root = small_disk / "head"
    filler = small_disk / "filler"
    try:
        cluster.start_head()
        filler.write_bytes(bytes(80 << 20))
        cluster.start_agent()
        trainer = cluster.start_trainer(hertz=1000, count=3000)
        health = until(
            lambda: (said := ask(cluster.http_port, "/api/v1/health")[1])["problem"] and said,
            30,
            "the head to say that it is full",
        )
        assert health["status"] == "degraded" and "no space left" in health["problem"]
        trainer.process.wait(60)
        assert ask(cluster.http_port, f"/api/v1/runs/{trainer.run}")[0] == 404
        filler.unlink()
        cluster.wait_until_stored(60)
        until(
            lambda: ask(cluster.http_port, "/api/v1/health")[1]["status"] == "ok",
            what="the head to say that all is well",
        )
        cluster.check_exactly_once()
    finally:
        cluster.close()


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small file system of the kind that is asked for."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = mount_of(request.param, place, tmp_path / "image", 160)
    if subprocess.run(mount.split(), capture_output=True).returncode:
        pytest.skip(f"{request.param} cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def noted(root: Path) -> int:
    at = read_address(root)
    return at.pid if at is not None else 0


def begin_head(cluster: Cluster) -> subprocess.Popen[bytes]:
    """On a full disk it can leave no note of where it is."""
    cluster.head = head = cluster._python(
        "-m", "runwatch.cli", "head", "--dir", str(cluster.head_root),
        "--grpc-port", str(cluster.grpc_port), "--http-port", str(cluster.http_port),
    )  # fmt: skip

    def answers() -> bool:
        assert head.poll() is None, cluster.words()
        try:
            return ask(cluster.http_port, "/api/v1/health")[0] == 200
        except OSError:
            return False

    until(answers, what="the head to answer")
    return head


@pytest.mark.parametrize(
    ("disk", "how"),
    sampled([("ext4", signal.SIGTERM), ("tmpfs", signal.SIGKILL), ("btrfs", signal.SIGKILL)], 1),
    indirect=["disk"],
)
def test_a_head_begins_on_a_full_disk_and_serves_what_it_has(
    disk: Path, how: signal.Signals, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.head_root = disk / "head"
    try:
        cluster.start_head()
        cluster.start_agent()
        before = cluster.start_trainer(hertz=2000, count=1000)
        before.process.wait(60)
        cluster.wait_until_stored()
        assert cluster.agent is not None and cluster.head is not None
        end(cluster.agent, signal.SIGTERM)
        end(cluster.head, how)
        fill(disk)
        at = begin_head(cluster)
        assert before.all_at(cluster.http_port)
        health = ask(cluster.http_port, "/api/v1/health")[1]
        assert health["status"] == "degraded" and "no space left" in health["problem"]
        cluster.start_agent()
        later = cluster.start_trainer(hertz=2000, count=1000)
        later.process.wait(60)
        until(lambda: "nothing is acknowledged until there is room" in cluster.words())
        assert ask(cluster.http_port, f"/api/v1/runs/{later.run}")[0] == 404
        empty(disk)
        cluster.wait_until_stored()
        until(lambda: ask(cluster.http_port, "/api/v1/health")[1]["status"] == "ok")
        until(lambda: noted(cluster.head_root) == at.pid, what="its note")
        cluster.check_exactly_once()
    finally:
        cluster.close()


@pytest.mark.parametrize("disk", ["tmpfs"], indirect=True)
def test_a_head_that_has_nothing_yet_says_why_it_cannot_begin(disk: Path, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.head_root = disk / "head"
    try:
        fill(disk)
        with pytest.raises(AssertionError, match="no space left to"):
            begin_head(cluster)
        assert "Traceback" not in cluster.words()
        empty(disk)
        cluster.start_head()
    finally:
        cluster.close()
