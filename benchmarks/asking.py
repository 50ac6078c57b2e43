"""People who ask a head over HTTP while it works, and what the head costs meanwhile."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from agent import memory_mb
from trial import HEADERS, TrialFailed

ANSWERS: Final = 40
WARM_PART: Final = 1 / 2
"""The first part of a series of memory readings is warming up."""


class Asking(threading.Thread):
    """Asks for one path over and over on one connection; milliseconds until the last byte."""

    def __init__(self, address: str, path: str, every: float, after: float = 0.0) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.milliseconds: list[float] = []
        self.bytes = 0
        self._address = address
        self._every, self._after = every, after
        self._ended = threading.Event()

    def run(self) -> None:
        connection = connect(self._address)
        due = time.perf_counter() + self._after
        while not self._ended.wait(max(0.0, due - time.perf_counter())):
            begin = time.perf_counter()
            body = ask(connection, self.path)
            self.milliseconds.append(1e3 * (time.perf_counter() - begin))
            self.bytes = len(body)
            due = max(due + self._every, begin)
        connection.close()

    def stop(self) -> None:
        self._ended.set()

    def end(self) -> dict[str, float]:
        self.stop()
        self.join()
        return _summary([self])


class Crowd:
    """Many who ask for one path, in turn, each on a connection of their own.

    One who waits for an answer asks nothing meanwhile, and so a wait counts once however long it
    is.  Here the next one asks, and whoever would have waited, too, is counted.
    """

    def __init__(self, address: str, path: str, every: float, people: int) -> None:
        self._people = [
            Asking(address, path, people * every, number * every) for number in range(people)
        ]
        for one in self._people:
            one.start()

    def end(self) -> dict[str, float]:
        for one in self._people:
            one.stop()
        for one in self._people:
            one.join()
        return _summary(self._people)


def _summary(people: Sequence[Asking]) -> dict[str, float]:
    waited = [each for one in people for each in one.milliseconds]
    if not waited:
        raise TrialFailed(f"{people[0].path} was never answered")
    size = max(one.bytes for one in people)
    return {**spread(waited), "bytes": size, "asked": len(waited)}


def connect(address: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(address.removeprefix("http://"), timeout=120)


def ask(connection: http.client.HTTPConnection, path: str, said: Any = None) -> bytes:
    body = None if said is None else json.dumps(said)
    kind = HEADERS | ({} if said is None else {"Content-Type": "application/json"})
    connection.request("GET" if said is None else "POST", path, body, kind)
    reply = connection.getresponse()
    found = reply.read()
    if reply.status != 200:
        raise TrialFailed(f"{path}: {reply.status} {found[:200]!r}")
    return found


def ask_once(address: str, path: str, said: Any = None) -> bytes:
    connection = connect(address)
    try:
        return ask(connection, path, said)
    finally:
        connection.close()


def at_rest(address: str, pid: int, path: str) -> dict[str, float]:
    """What one answer costs a head that has nothing else to do."""
    connection, milliseconds = connect(address), []
    used = cpu_seconds(pid)
    for _ in range(ANSWERS):
        begin = time.perf_counter()
        ask(connection, path)
        milliseconds.append(1e3 * (time.perf_counter() - begin))
    used = cpu_seconds(pid) - used
    connection.close()
    return {**spread(milliseconds), "cpu_ms": 1e3 * used / ANSWERS}


def spread(values: Sequence[float]) -> dict[str, float]:
    middle, most = np.percentile(values, [50, 95]).tolist()
    return {"p50": middle, "p95": most, "max": max(values)}


def cpu_seconds(pid: int) -> float:
    """Of the whole process: threads that answered and have ended count, too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_percent(pid: int, meanwhile: Callable[[], object]) -> float:
    """Of one core."""
    begin, used = time.perf_counter(), cpu_seconds(pid)
    meanwhile()
    return 100 * (cpu_seconds(pid) - used) / (time.perf_counter() - begin)


def memory_each_second(
    others: subprocess.Popen[bytes], pid: int, seconds: float = 1e9
) -> Iterator[float]:
    """As long as the others live."""
    end = time.perf_counter() + seconds
    while others.poll() is None and time.perf_counter() < end:
        yield memory_mb(pid)
        time.sleep(1)


def growth_mb_per_minute(memory: Sequence[float]) -> float:
    """The slope of the line through all readings but those of warming up."""
    warm = list(memory[int(len(memory) * WARM_PART) :])
    if len(warm) < 2:
        return 0.0
    slope: float = np.polyfit(np.arange(len(warm)), warm, 1)[0]
    return 60 * slope
