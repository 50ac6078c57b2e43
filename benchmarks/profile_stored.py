"""A trace on its way: left on a node, brought by its agent, kept and summarised by the head.

Head and agent are the real ones, each a process.  The file appears as a capture leaves it, under
its name at once, and a process tells of it; then the head is asked until it answers the summary,
and beside that for `/status`.  Memory is the most that a process had resident while that went on,
beyond what it had before; of the process that reads the trace, all of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
from asking import Asking, ask_once
from profile_files import repeated_kineto, repeated_xplane
from report import Table, at_most
from trial import TrialFailed, directory, environment, until

from runwatch.address import Listening, read_address

RUN: Final = "stored"
SECONDS_BAR, MEMORY_BAR, STATUS_BAR = 10.0, 300.0, 100.0
PATIENCE_SECONDS: Final = 180
STATUS_EVERY: Final = 0.05
FILES: Final = {
    "Kineto JSON": ("node.kineto.json", repeated_kineto),
    "Kineto JSON, gzipped": ("node.kineto.json.gz", repeated_kineto),
    "XSpace": ("node.xplane.pb", repeated_xplane),
}


class Process:
    """A head or an agent, and how much memory it takes."""

    def __init__(self, place: Path, *words: str) -> None:
        with (place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *words], env=environment(place), stdout=log, stderr=log
            )
        self.pid = self._process.pid

    def base_mb(self) -> float:
        """Resident now; the highest is counted anew from here."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return highest_mb(self.pid)

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def highest_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)
    return found / 1024


class Children(threading.Thread):
    """The most that any process which `pid` started had resident."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.highest_mb = 0.0
        self._parent = psutil.Process(pid)
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.02):
            with contextlib.suppress(psutil.Error, OSError):
                for child in self._parent.children():
                    self.highest_mb = max(self.highest_mb, highest_mb(child.pid))

    def end(self) -> float:
        self._ended.set()
        self.join()
        return self.highest_mb


class Site:
    def __init__(self, place: Path, running: ExitStack) -> None:
        self.node, self.root = place / "node", place / "head"
        self.node.mkdir()
        self.head = Process(
            place, "runwatch.cli", "head", "--dir", str(self.root), "--grpc-port", "0",
            "--http-port", "0",
        )  # fmt: skip
        running.callback(self.head.close)
        self.at: Listening = until(lambda: read_address(self.root), 60, "the head to listen")
        self.agent = Process(
            place, "runwatch.agent", "--dir", str(self.node), "--idle", "0", "--head", self.at.grpc
        )
        running.callback(self.agent.close)

    def folder(self, root: Path, session: str) -> Path:
        return root / "profiles" / RUN / "plugins" / "profile" / session

    def summary(self, session: str) -> dict[str, Any] | None:
        with contextlib.suppress(TrialFailed):
            told = json.loads(ask_once(self.at.http, f"/api/v1/profiles/{RUN}/{session}"))
            if told["summary_state"] == "failed":
                raise AssertionError(told["summary_why"])
            if told["summary_state"] == "done":
                found: dict[str, Any] = told
                return found
        return None


@contextmanager
def site() -> Iterator[Site]:
    with directory() as place, ExitStack() as running:
        made = Site(place, running)
        once(made, "first", made_file(place, "Kineto JSON", 1))  # all that is done once
        yield made


def once(made: Site, session: str, file: Path) -> dict[str, Any]:
    """Bring one file; the file itself is used up."""
    digest = hashlib.file_digest(file.open("rb"), "sha256").hexdigest()
    size = file.stat().st_size
    before = {who.pid: who.base_mb() for who in (made.head, made.agent)}
    left = made.folder(made.node, session)
    left.mkdir(parents=True)
    reading, status = Children(made.head.pid), Asking(made.at.http, "/status", STATUS_EVERY)
    reading.start()
    status.start()
    os.utime(file)
    os.replace(file, left / file.name)
    begin = time.perf_counter()
    kept = made.folder(made.root, session) / file.name
    until(kept.exists, PATIENCE_SECONDS, f"{file.name} to be at the head")
    brought = time.perf_counter() - begin
    told = until(lambda: made.summary(session), PATIENCE_SECONDS, f"a summary of {file.name}")
    took = time.perf_counter() - begin
    asked = status.end()
    with kept.open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != digest:
            raise TrialFailed(f"{file.name} is another file at the head")
    found = {
        "bytes": size, "brought_seconds": brought, "seconds": took, "status": asked,
        "events": sum(trace["events"] for trace in told["summary"]["traces"]),
        "agent_mb": highest_mb(made.agent.pid) - before[made.agent.pid],
        "head_mb": highest_mb(made.head.pid) - before[made.head.pid],
        "reader_mb": reading.end(),
    }  # fmt: skip
    (left / file.name).unlink()
    kept.unlink()
    return found


def made_file(place: Path, name: str, megabytes: int) -> Path:
    file_name, make = FILES[name]
    plain = place / file_name.removesuffix(".gz")
    with plain.open("wb") as stream:
        make(stream, megabytes * 1_000_000)
    if not file_name.endswith(".gz"):
        return plain
    # As captures pack them; gzip itself is quicker at it than we are.
    subprocess.run(["gzip", "-1", str(plain)], check=True)
    return place / file_name


def measure(megabytes: int, rounds: int) -> tuple[Table, dict[str, Any]]:
    numbers: dict[str, Any] = {}
    with site() as made, directory() as place:
        for name in FILES:
            numbers[name] = [
                once(made, f"s{number}-{len(numbers)}", made_file(place, name, megabytes))
                for number in range(rounds)
            ]
    return table(megabytes, numbers), numbers


def table(megabytes: int, numbers: dict[str, Any]) -> Table:
    head = ("trace", "what", "measured", "bar", "")
    made = Table(f"A trace of {megabytes} MB, from the node's disk to its summary", head)
    for name, rounds in numbers.items():
        slowest = max(rounds, key=lambda one: one["seconds"])
        said = f"{slowest['seconds']:.1f} s (at the head after {slowest['brought_seconds']:.1f})"
        made.rows.append(
            (name, "summary is answered", said, *at_most(slowest["seconds"], SECONDS_BAR, "s"))
        )
        for who in ("agent", "head", "reader"):
            most = max(one[f"{who}_mb"] for one in rounds)
            bar = at_most(most, MEMORY_BAR, "MB")
            made.rows.append((name, f"memory of the {who}", f"{most:.0f} MB", *bar))
        worst = max((one["status"] for one in rounds), key=lambda found: found["p95"])
        words = f"{worst['p50']:.1f} / {worst['p95']:.1f} / {worst['max']:.0f} ms"
        bar = at_most(worst["p95"], STATUS_BAR, "ms")
        made.rows.append((name, "/status, median / 95 % / longest", words, *bar))
        made.notes.append(
            f"{name}: {slowest['bytes']:,} bytes on disk, {slowest['events']:,} events read."
        )
    return made
