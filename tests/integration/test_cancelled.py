"""A caller who hangs up costs a head nothing more, also where Python works and others may share."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.testing import until
from tests.integration.fat_store import FAT, OTHER_SERIES, Size, fat_store
from tests.integration.processes import Cluster
from tests.tokens import urlopen

SIZE = Size(ranks=4, points=0, steps=800_000, series=4, logs=0, of_each_kind=0, runs=3_000)
CALM_SECONDS = 1.0
CALM = 0.1
"""Of one core: a head that has nothing to do looks after its clocks and the like."""
TICK = os.sysconf("SC_CLK_TCK")
ALL_RUNS = "/api/v1/runs?order=-devices&limit=10000" + "".join(
    f"&metrics=other-{number}" for number in range(OTHER_SERIES)
)


# One store for all of them: it takes long to make.
pytestmark = pytest.mark.xdist_group("cancelled")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fat")
    fat_store(root / "head" / "store", SIZE)
    return root


class Asked:
    """A head as a process, and what it has spent."""

    def __init__(self, cluster: Cluster) -> None:
        self.at = cluster.start_head()

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.at.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def is_calm(self) -> None:
        """Its CPU time stands still."""
        since, spent = time.monotonic(), self.cpu()

        def stands_still() -> bool:
            nonlocal since, spent
            now, cpu = time.monotonic(), self.cpu()
            if now - since < CALM_SECONDS:
                return False
            is_still = cpu - spent < CALM * (now - since)
            since, spent = now, cpu
            return is_still

        until(stands_still, 90, "the head to have nothing to do")

    def hang_up(self, path: str) -> float:
        """Ask, leave as soon as it works, and wait until it does not; what it did after that."""
        before = self.cpu()
        host, port = self.at.http.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 30) as caller:
            said = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n"
            caller.sendall(f"{said}Authorization: Bearer {self.at.token}\r\n\r\n".encode())
            until(lambda: self.cpu() - before > 0.05, 30, "it to begin")
        before = self.cpu()
        self.is_calm()
        return self.cpu() - before

    def cost(self, path: str) -> float:
        """Of the whole answer."""
        before = self.cpu()
        self.get(path)
        return self.cpu() - before

    def get(self, path: str) -> Any:
        with urlopen(self.at.http + path, timeout=120) as answer:
            return json.load(answer)


@pytest.fixture
def head(kept: Path) -> Iterator[Asked]:
    for folder in ("node", "head/store/folds"):  # what the last head worked out and kept
        shutil.rmtree(kept / folder, ignore_errors=True)
    cluster = Cluster(kept)
    try:
        made = Asked(cluster)
        made.is_calm()  # it reads the list of runs at first
        yield made
    finally:
        cluster.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("path", "whole"),
    [
        ("/api/v1/goodput", "/api/v1/goodput"),
        (f"/api/v1/runs/{FAT}/goodput", f"/api/v1/runs/{FAT}/goodput"),
        (f"/api/v1/runs/{FAT}/timeline", f"/api/v1/runs/{FAT}/goodput"),
    ],
)
def test_an_account_that_nobody_waits_for_is_not_drawn_up(
    head: Asked, path: str, whole: str
) -> None:
    given_up = head.hang_up(path)
    assert given_up < head.cost(whole) / 2, "or else it would be at hand now"


@pytest.mark.timeout(300)
def test_a_list_of_runs_that_nobody_waits_for_is_not_made(head: Asked) -> None:
    given_up = head.hang_up(ALL_RUNS)
    assert given_up < head.cost(ALL_RUNS) / 2, "or else it would be at hand now"
    assert head.get(ALL_RUNS)["total"] == SIZE.runs + 1
