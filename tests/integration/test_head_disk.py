"""A head whose disk is full, for real: a small file system of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.processes import Cluster, until
from tests.integration.test_head_faults import ask


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
