"""A session's file when its head is killed in mid-session: complete, or it says who is missing and
is completed when they come.

Most clients are shippers in this process, each with a journal of its own that the test writes: so
the truth is what the test has written, counted without our exports.  Some are real `gsprof connect`
processes, whose journals are read for the truth.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from runwatch.address import read_address
from runwatch.journal.liveness import boot_id, pid_namespace, start_ticks
from runwatch.journal.segment import new_journal_id
from runwatch.journal.writer import JournalWriter
from runwatch.record import Command, Origin
from runwatch.record.commands import Holdings, HoldingsResult
from runwatch.ship.client import Address, Shipper
from runwatch.testing import until
from tests.integration.processes import end
from tests.integration.test_gsprof import Bench
from tests.integration.test_gsprof_outages import EPOCH, _in_journal

HERTZ: Final = 4
Sampled = Counter[tuple[str, int]]
"""Host and time, in microseconds."""


class Node:
    """A client: a journal, and a shipper with its usual pauses of up to a minute."""

    def __init__(self, root: Path, number: int, port: int, token: str) -> None:
        self.host = f"node-{number:02}"
        self.written = 0
        """How many samples."""
        self._root = root / self.host
        self._port, self._token = port, token
        now_ns, pid = time.time_ns(), os.getpid()
        journal = new_journal_id(self.host, number, now_ns, os.urandom(4).hex())
        origin = Origin(journal, self.host, pid, now_ns, boot_id(), start_ticks(pid) or 0,
                        "agent", "", pid_namespace())  # fmt: skip
        self._writer = JournalWriter(self._root, origin, segment_bytes=1 << 20)
        labels = {"uuid": f"GPU-{self.host}", "name": "NVIDIA H200", "index": "0"}
        self._series = self._writer.series(
            "gpu_utilization_percent", unit="%", device="gpu0", labels=labels
        )
        self._shipper: Shipper | None = None
        self._thread: threading.Thread | None = None

    def sample(self) -> None:
        self._writer.points([self._series], [float(self.written)])
        self.written += 1

    def times(self) -> list[int]:
        """As the journal has them: one for each that was written."""
        [journal] = (self._root / "journals").iterdir()
        return [at for at, _ in _in_journal(journal)]

    def plug_in(self) -> None:
        self._shipper = Shipper(
            self._root, Address(f"127.0.0.1:{self._port}"), host=self.host,
            token=self._token, commands=(Holdings.KIND,), on_command=self._answer,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._shipper.run)
        self._thread.start()

    def _answer(self, command: Command) -> None:
        self._writer.tell(HoldingsResult(command.id, command.kind, self.host, waiting=0))

    def pull_out(self) -> None:
        if self._shipper is not None and self._thread is not None:
            self._shipper.stop()
            self._thread.join()
            self._shipper = None

    def close(self) -> None:
        self.pull_out()
        self._writer.close()


class Fleet(Bench):
    """A head, nodes in this process that sample all the time, and real clients."""

    def begin(self, count: int, real: int) -> None:
        at = read_address(self.data)
        assert at is not None
        self.in_process = [Node(self.root, n, self.port, at.token) for n in range(count)]
        self.real = [f"real-{number}" for number in range(real)]
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        for node in self.in_process:
            node.plug_in()
        for host in self.real:
            self.start_client(host)

    def _sample(self) -> None:
        while not self._ends.wait(1 / HERTZ):
            for node in self.in_process:
                node.sample()

    def close(self) -> None:
        if hasattr(self, "_ends"):
            self._ends.set()
            self._thread.join()
            for node in self.in_process:
                node.close()
        super().close()

    def truth(self, begun_ns: int, ended_ns: int) -> Sampled:
        """What was recorded in that time."""
        found = []
        for node in self.in_process:
            written, times = node.written, node.times()
            assert len(times) >= written
            found += [(node.host, at) for at in times]
        for host, folder in zip(self.real, self.nodes, strict=True):
            for journal in (folder / "journals").iterdir():
                found += [(host, at) for at, _ in _in_journal(journal)]
        return Counter((host, at // 1000) for host, at in found if begun_ns <= at < ended_ns)

    def file(self, name: str) -> Any:
        return json.loads((self.root / f"{name}.json").read_bytes())


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    try:
        yield made
    finally:
        made.close()


def sampled(document: Any) -> Sampled:
    """Real clients have two devices; a sample of both is read once, at one time."""
    return Counter(
        (id.split(":")[0], (datetime.fromisoformat(frame["time"]) - EPOCH) // MICROSECOND)
        for frame in document["frames"]
        for id in frame["gpu_id"]
    )


MICROSECOND: Final = timedelta(microseconds=1)


def by_host(samples: Sampled) -> Counter[str]:
    """Frames bear the time of their earliest sample, so hosts are compared by how many."""
    counts: Counter[str] = Counter()
    for (host, _), count in samples.items():
        counts[host] += count
    return counts


@pytest.mark.parametrize(("clients", "real"), [(8, 0), pytest.param(64, 3, marks=pytest.mark.soak)])
def test_the_head_is_killed_and_a_client_is_away(fleet: Fleet, clients: int, real: int) -> None:
    head = fleet.start_head()
    fleet.begin(clients, real)
    until(lambda: fleet.ask("/clients")["total_clients"] == clients + real, 60, "the clients")
    fleet.ask("/profiling/start", {"name": "s"})
    until(lambda: fleet.frames("s") >= 2 * HERTZ, 60, "frames")
    end(head, signal.SIGKILL)
    away = fleet.in_process[3]
    away.pull_out()
    seen = away.written
    until(lambda: away.written > seen + 4 * HERTZ, 60, "samples without a head")
    head = fleet.start_head()
    # The others come back at once: nothing of theirs is missing, although nobody waited for them.
    done = fleet.run("stop", f"localhost:{fleet.port}", "--name", "s")
    assert f"Records of {away.host}_" in done.stdout and "are missing" in done.stdout
    assert re.search(rf"Waiting for .*{away.host}", done.stderr), done.stderr
    session = fleet.ask("/api/v1/sessions/s")
    truth = by_host(fleet.truth(session["started_ns"], session["ended_ns"]))
    partial_file = fleet.file("s")
    assert not partial_file["complete"]
    assert [m["hostname"] for m in partial_file["missing_clients"]] == [away.host]
    found = by_host(sampled(partial_file))
    assert found | {away.host: 0} == truth | {away.host: 0}
    assert 0 < found[away.host] < truth[away.host]
    last = partial_file["frames"][-1]
    assert last["unhealthy_clients"] == [away.host]
    # Another head completes it.
    end(head, signal.SIGKILL)
    head = fleet.start_head()
    away.plug_in()
    until(partial(_is_complete, fleet), 60, "the rest in the file")
    whole = fleet.file("s")
    assert whole["missing_clients"] == [] and whole["completed_later"]
    assert by_host(sampled(whole)) == truth
    assert all(frame["unhealthy_clients"] == [] for frame in whole["frames"])
    assert fleet.ask("/api/v1/sessions/s")["missing_clients"] == []


def _is_complete(fleet: Fleet) -> bool:
    return bool(fleet.file("s")["complete"])


def test_when_nobody_is_away_nobody_is_named(fleet: Fleet) -> None:
    fleet.start_head()
    fleet.begin(8, 0)
    until(lambda: fleet.ask("/clients")["total_clients"] == 8, 60, "the clients")
    fleet.ask("/profiling/start", {"name": "s"})
    until(lambda: fleet.frames("s") >= HERTZ, 60, "frames")
    answer = fleet.ask("/profiling/stop", {"name": "s"})
    assert answer["message"] == "Profiling stopped. Data saved to s.json"
    assert answer["missing_clients"] == []
    session = fleet.ask("/api/v1/sessions/s")
    whole = fleet.file("s")
    assert whole["complete"] and "completed_later" not in whole
    truth = fleet.truth(session["started_ns"], session["ended_ns"])
    assert by_host(sampled(whole)) == by_host(truth)
    assert fleet.ask("/status")["unhealthy_clients"] == []
