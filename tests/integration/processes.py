"""Real heads, agents and trainers as processes, and what reached the store in the end."""

from __future__ import annotations

import itertools
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from runwatch.address import Listening, read_address
from runwatch.agent.lock import AgentLock, end_agents
from runwatch.journal.liveness import this_host
from runwatch.record import RunId
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import until
from tests.tokens import remember, urlopen

TRAINER = Path(__file__).parent / "trainer.py"
RETRY_SECONDS: Final = "0.3"
"""A head that was away is soon found again: else most of a trial is waiting."""


def _some_ports() -> Iterator[int]:
    """Others in each worker, and none of those that the system gives to connections: while a head
    is down, one of them could be anybody's, and an agent that looks for it meets itself there."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first, count = 12_000 + 2_000 * (worker % 8), 2_000
    begin = os.getpid() * 37  # somebody else may run tests on this machine, too
    return itertools.cycle([first + (begin + n) % count for n in range(count)])


_ports: Final = _some_ports()


def free_port() -> int:
    while True:
        port = next(_ports)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port


class Cluster:
    """A directory with a head and an agent that may be killed and started again."""

    python: Final = [sys.executable]

    def __init__(self, root: Path) -> None:
        self.root = root
        self.head_root = root / "head"
        self.node_root = root / "node"
        self.node_root.mkdir(parents=True)
        self.grpc_port, self.http_port = free_port(), free_port()
        self.head: subprocess.Popen[bytes] | None = None
        self.agent: subprocess.Popen[bytes] | None = None
        self.trainers: list[Trainer] = []
        self.log = (root / "log").open("ab")

    @property
    def environment(self) -> dict[str, str]:
        return self.environment_of(self.node_root)

    @staticmethod
    def environment_of(directory: Path) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
        return inherited | {
            "RUNWATCH_DIR": str(directory),
            "RUNWATCH_AGENT": "off",
            "RUNWATCH_RETRY_SECONDS": RETRY_SECONDS,
        }

    def start_head(self, *options: str) -> Listening:
        self.head = self._python(
            "-m", "runwatch.cli", "head", "--dir", str(self.head_root),
            "--grpc-port", str(self.grpc_port), "--http-port", str(self.http_port), *options,
        )  # fmt: skip
        process = self.head

        def ready() -> Listening | None:
            assert process.poll() is None, self.words()
            at = read_address(self.head_root)
            return at if at is not None and at.pid == process.pid else None

        return remember(until(ready, what="the head to start"))

    def start_agent(self, head: str = "", ca: Path | None = None) -> None:
        self.agent = self._python(
            "-m", "runwatch.agent", "--dir", str(self.node_root), "--idle", "0",
            "--head", head or f"127.0.0.1:{self.http_port}",
            environment={"RUNWATCH_CA": str(ca)} if ca else {},
        )  # fmt: skip

    def start_trainer(self, **options: Any) -> Trainer:
        trainer = Trainer(self, len(self.trainers), **options)
        self.trainers.append(trainer)
        return trainer

    def _python(
        self, *command: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.python, *command],
            env=self.environment | dict(environment or {}),
            stdout=self.log,
            stderr=self.log,
        )

    def words(self) -> str:
        self.log.flush()
        return (self.root / "log").read_text(errors="replace")[-4000:]

    def stop_head(self) -> None:
        if self.head is not None:
            end(self.head, signal.SIGTERM)
            self.head = None

    def close(self) -> None:
        for process in (*(t.process for t in self.trainers), self.agent, self.head):
            if process is not None:
                end(process, signal.SIGKILL)
        for trainer in self.trainers:
            trainer.close()
        end_agents(self.node_root)
        self.log.close()

    def wait_until_stored(self, seconds: float = 60.0) -> None:
        """Every value whose call returned is at the head, by its own API."""
        for trainer in self.trainers:
            until(lambda t=trainer: t.all_at(self.http_port), seconds, self.words())

    def stored(self) -> dict[str, list[float]]:
        """The head is stopped and its store read: values in stored order, by run."""
        self.stop_head()
        store = DuckStore.open(self.head_root / "store")
        try:
            found: dict[str, list[float]] = {}
            for trainer in self.trainers:
                values = found.setdefault(trainer.run, [])
                rows = store.series(RunId(trainer.run), metric="value")
                for columns in store.points([row.series for row in rows]):
                    values.extend(columns.value)
            return found
        finally:
            store.close()

    def check_exactly_once(self) -> None:
        for trainer in self.trainers:
            values = self._values.setdefault(trainer.run, [])
            returned = trainer.returned
            assert values == [float(i) for i in range(len(values))], trainer.run
            assert returned <= len(values) <= returned + 1, (trainer.run, returned, len(values))

    @property
    def _values(self) -> dict[str, list[float]]:
        if not hasattr(self, "_read"):
            self._read = self.stored()
        return self._read


class Trainer:
    """Records 0, 1, 2 … as metric `value`; says in shared memory how many calls have returned."""

    def __init__(
        self,
        cluster: Cluster,
        number: int,
        *,
        hertz: float = 0,
        count: int = 10**9,
        api: str = "log",
    ) -> None:
        self.run = f"trial-{number}"
        self._file = (cluster.root / f"returned-{number}").open("w+b")
        self._file.truncate(8)
        self._returned = mmap.mmap(self._file.fileno(), 8)
        self.process = cluster._python(
            str(TRAINER), self.run, self._file.name, str(hertz), str(count), api
        )

    @property
    def returned(self) -> int:
        number: int = struct.unpack_from("<q", self._returned)[0]
        return number

    def wait_for(self, count: int, seconds: float = 30.0) -> None:
        until(lambda: self.returned >= count, seconds, f"{self.run} to record {count}")

    def kill(self) -> None:
        end(self.process, signal.SIGKILL)

    def close(self) -> None:
        self._returned.close()
        self._file.close()

    def all_at(self, http_port: int) -> bool:
        """Only of a program that has ended, or pauses: one that goes on is always ahead."""
        return self.stored_at(http_port) >= self.returned > 0

    def stored_at(self, http_port: int) -> int:
        """How many of its values the head has."""
        import json
        import urllib.error

        url = f"http://127.0.0.1:{http_port}/api/v1/runs/{self.run}/curves?metric=value&buckets=1"
        try:
            with urlopen(url, timeout=10) as answer:
                curves = json.load(answer)["curves"]
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return 0
        return sum(sum(curve["count"]) for curve in curves)


def agent_sees(root: Path, pid: int) -> bool:
    """Whether the agent has a pidfd on the process."""
    holder = AgentLock(root, this_host()).holder()
    if holder is None:
        return False
    for link in Path(f"/proc/{holder}/fdinfo").glob("*"):
        try:
            if f"Pid:\t{pid}\n" in link.read_text():
                return True
        except OSError:
            continue
    return False


def end(process: subprocess.Popen[Any], number: int) -> int:
    if process.poll() is None:
        process.send_signal(number)
    try:
        return process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
