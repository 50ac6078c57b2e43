"""No single request makes a head grow by much, whatever a run holds."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import pytest

from runwatch.testing import until
from tests.fork_server import COLD_START
from tests.fuzz.children import MEMORY
from tests.integration.fat_store import BEGUN, FAT, Size, fat_store
from tests.integration.processes import Cluster
from tests.tokens import urlopen

SIZE: Final = Size(
    points=200_000, steps=40_000, series=800, logs=20_000, of_each_kind=200, large=100, runs=50
)
ENDLESS: Final = "/api/v1/live"
NAMES: Final = {
    "run": FAT, "session": "s1", "id": "i1", "incident": "i1", "name": "a.json", "command": "c1",
    "file": "a.json", "host": "node-1",
}  # fmt: skip
GIVEN: Final[dict[str, list[str]]] = {
    "metric": ["loss"],
    "time": [str(BEGUN + 10**9)],
    "format": ["csv", "json", "parquet", "perfetto"],
}  # fmt: skip
"""What must be given, or is worth giving in turn."""
LARGEST: Final = ("limit", "pixels", "buckets", "intervals", "columns", "rows", "events")
"""Given as large as they may be."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("fat")
    fat_store(root / "head" / "store", SIZE)
    made = Cluster(root)
    yield made
    made.close()


def targets(described: Any) -> Iterator[str]:
    """Every question that is asked with GET, each as large as it may be."""
    for path, methods in described["paths"].items():
        if "get" not in methods or path == ENDLESS:
            continue
        asked = path
        for name, given in NAMES.items():
            asked = asked.replace("{" + name + "}", quote(given, safe=""))
        schemas = {
            p["name"]: p["schema"]
            for p in methods["get"].get("parameters", ())
            if p["in"] == "query" and (p["name"] != "metric" or p["required"])
        }
        base = {n: str(s["maximum"]) for n, s in schemas.items() if n in LARGEST and "maximum" in s}
        base |= {n: GIVEN[n][0] for n in schemas if n in GIVEN}
        yield f"{asked}?{urlencode(base)}"
        for name in (n for n in schemas if n in GIVEN):
            yield from (f"{asked}?{urlencode(base | {name: one})}" for one in GIVEN[name][1:])
    yield from ("/metrics", "/status", "/sessions", "/profiles", "/gswarm/status")


class Watched:
    """A head's memory, by what the kernel says."""

    def __init__(self, pid: int) -> None:
        self._proc = Path(f"/proc/{pid}")

    def bytes(self, field: str) -> int:
        lines = (self._proc / "status").read_text().splitlines()
        (found,) = (line for line in lines if line.startswith(f"{field}:"))
        return int(found.split()[1]) * 1024

    def begin(self) -> int:
        """From here on the most counts; what it has now."""
        (self._proc / "clear_refs").write_text("5")
        return self.bytes("VmRSS")


def test_no_request_takes_more_than_it_may(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COLD_START, "1")  # a fork shares memory until it writes there
    at = cluster.start_head()
    head = Watched(at.pid)

    def ask(target: str) -> int:
        try:
            with urlopen(at.http + target, timeout=120) as answer:
                while answer.read(1 << 20):
                    pass
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    with urlopen(f"{at.http}/api/v1/openapi.json") as answer:
        described = json.load(answer)
    until(lambda: ask("/api/v1/runs") == 200, 60)
    for part in ("configs", "incidents"):  # what the engine caches is not the request's
        assert ask(f"/api/v1/runs/{FAT}/{part}") == 200
    found, grew = {}, {}
    for target in targets(described):
        before = head.begin()
        found[target] = ask(target)
        grew[target] = head.bytes("VmHWM") - before
    assert {t: s for t, s in found.items() if s >= 500} == {}
    assert sum(status == 200 for status in found.values()) > 30, found
    assert {t: f"{b >> 20} MB" for t, b in grew.items() if b > MEMORY} == {}
