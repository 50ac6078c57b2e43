"""Much of everything, so that lists are longer than a screen: runs, processes, devices, files."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from runwatch.record import NO_STEP, Batch, Event, RunId, RunScope, Series, SpanName
from runwatch.store.duck.engine import DuckStore
from tests import tokens
from tests.e2e.page_world import MINUTE, SECOND, Journal, spanned, stacks

RUN: Final = "run-crowd"
RANKS: Final = 210
JOBS: Final = 140
HOSTS: Final = 15
PER_HOST: Final = 8
CHECKPOINTS: Final = 14
SESSIONS: Final = 22
FILES: Final = 15


def processes(start_ns: int) -> Iterator[Batch]:
    for rank in range(RANKS):
        scope = RunScope(1, RunId(RUN), "crowd", rank, RANKS)
        journal = Journal(f"crowd-{rank}", f"node-{rank % HOSTS}", start_ns, scope, pid=100 + rank)
        journal.definitions += [SpanName(1, "step", 1), SpanName(2, "checkpoint_save", 1)]
        batch = journal.batch()
        batch.events.append(Event(start_ns, "run_start", {"argv": ["train.py"]}, scope=1))
        for number in range(CHECKPOINTS if rank == 0 else 1):
            at_ns = start_ns + number * 30 * SECOND
            spanned(batch, 1, 2 * number, at_ns, 20 * SECOND, number)
            spanned(batch, 2, 2 * number + 1, at_ns + 20 * SECOND, 10 * SECOND, number)
        spanned(batch, 1, 2 * CHECKPOINTS, start_ns + 7 * MINUTE, 20 * SECOND, CHECKPOINTS)
        end_ns = start_ns + 8 * MINUTE
        batch.events.append(Event(end_ns, "run_end", {"status": "completed"}, scope=1))
        yield journal.closed(batch)


def jobs(start_ns: int) -> Iterator[Batch]:
    """A sweep of runs that are nothing but there."""
    for number in range(JOBS):
        scope = RunScope(1, RunId(f"job-{number:03d}"), f"job-{number:03d}", 0, 1, "", "sweep")
        journal = Journal(f"job-{number}", "node-0", start_ns - number * SECOND, scope)
        batch = journal.batch()
        batch.events.append(Event(journal.start_ns, "run_start", {}, scope=1))
        end = Event(journal.start_ns + SECOND, "run_end", {"status": "completed"}, scope=1)
        batch.events.append(end)
        yield journal.closed(batch)


def nodes(now_ns: int) -> Iterator[Batch]:
    for host in range(HOSTS):
        journal = Journal(f"agent-{host}", f"node-{host}", now_ns - MINUTE, None, "agent", pid=9)
        batch = journal.batch()
        for gpu in range(PER_HOST):
            about = {"uuid": f"GPU-{host}-{gpu}", "name": "NVIDIA H200", "index": str(gpu)}
            metric = "gpu_utilization_percent"
            batch.definitions.append(Series(gpu, metric, 0, "%", f"gpu{gpu}", about))
            for time_ns in (now_ns - SECOND, now_ns):
                batch.points.append(gpu, time_ns, NO_STEP, 50.0 + gpu)
        yield journal.closed(batch)


def look(start_ns: int) -> Batch:
    """One look at one rank whose stack is deep."""
    journal = Journal(
        "crowd-look", "head", start_ns, RunScope(1, RunId(RUN), RUN, -1, 0), "agent", 1
    )
    body = stacks(0, start_ns + MINUTE, "")
    deep = [{"function": f"call_{n}", "file": "/app/deep.py", "line": n} for n in range(1, 60)]
    body["threads"][0]["frames"] = deep
    batch = journal.batch()
    batch.events.append(Event(start_ns + MINUTE, "stacks", body, scope=1))
    return journal.closed(batch)


def build(root: Path, now_ns: int, ahead_ns: int) -> None:
    """Devices report until `ahead_ns` from now."""
    store = DuckStore.open(root / "store")
    start_ns = now_ns - 10 * MINUTE
    try:
        store.write([*processes(start_ns), *nodes(now_ns + ahead_ns), look(start_ns)])
        store.write([*jobs(start_ns - MINUTE)])
    finally:
        store.close()
    for session, files in (("large", FILES), ("spare", 1)):
        folder = root / "profiles" / RUN / "plugins" / "profile" / session
        folder.mkdir(parents=True)
        for number in range(files):
            (folder / f"node-0.rank{number}.trace.json").write_text('{"traceEvents": []}')


def start_sessions(address: str) -> None:
    for number in range(SESSIONS):
        made = post(f"{address}/api/v1/sessions", {"name": f"session {number}"})
        post(f"{address}/api/v1/sessions/{made['id']}/stop", {})


def post(url: str, body: Any) -> Any:
    headers = {"Content-Type": "application/json"}
    wanted = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with tokens.urlopen(wanted) as answer:
        return json.load(answer)
