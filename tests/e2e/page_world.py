"""A small cluster's last half hour, as a store that a real head serves to the page's tests.

The run `llama`: eight ranks on two hosts, killed once and restarted, hung once; a slow data loader,
120 metrics, eight GPUs of which one is hot and one had an XID; two profile sessions.  Beside it
`bert`, small and completed with another configuration, `mistral`, which still trains, and a third
host that fell silent.  No agent runs: nobody can be asked for stacks or captures.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from runwatch.record import (
    BEGIN,
    END,
    NO_STEP,
    Batch,
    Definition,
    Event,
    JournalId,
    Origin,
    Position,
    Role,
    RunId,
    RunScope,
    Series,
    SpanName,
)
from runwatch.store.duck.engine import DuckStore

SECOND: Final = 10**9
MINUTE: Final = 60 * SECOND
LENGTH: Final = 24 * MINUTE
AHEAD: Final = 20 * MINUTE
"""So far into the future it is to be built: a device that has not reported for half a minute is
silent, and to look at everything takes longer, on a slow machine many minutes."""
QUEUED: Final = 6 * MINUTE
RUN: Final = "run-llama"
RANKS: Final = 8
PER_HOST: Final = 4
METRICS: Final = 120
TRACES: Final = Path(__file__).parents[1] / "fixtures" / "profiles"
SPANS: Final = ("step", "checkpoint_save", "checkpoint_restore", "data_loading")
UNITS: Final = {
    "loss": "", "learning_rate": "", "step_seconds": "s", "tokens_per_second": "tokens/s",
    "gpu_utilization_percent": "%", "gpu_tensor_activity_percent": "%",
    "gpu_memory_used_bytes": "B", "gpu_memory_total_bytes": "B", "gpu_power_watts": "W",
    "gpu_power_limit_watts": "W", "gpu_temperature_celsius": "°C", "gpu_throttle_reasons": "",
}  # fmt: skip
SESSIONS: Final = {
    "warm-up": (12, ("jax.xplane.pb", "torch.kineto.json.gz")),
    "step-200": (15, ("torch.kineto.json.gz",)),
}
"""Profiles: in which minute, and what of."""
HANG: Final = (
    "ranks 0–4, 6–7 wait in all_reduce (train.py:88); rank 5 waits in a read from a socket "
    "(loader.py:41)"
)


@dataclass(slots=True)
class Journal:
    """One process's journal, as consecutive batches."""

    name: str
    host: str
    start_ns: int
    scope: RunScope | None = None
    role: Role = "process"
    pid: int = 100
    definitions: list[Definition] = field(default_factory=list)
    at: int = 0

    def batch(self) -> Batch:
        origin = Origin(
            JournalId(self.name), self.host, self.pid, self.start_ns, "boot", 0, self.role
        )
        made = Batch(origin, Position(self.at), Position(self.at), [])
        if self.at == 0:
            made.definitions += [*([self.scope] if self.scope else []), *self.definitions]
        return made

    def closed(self, batch: Batch) -> Batch:
        batch.end = Position(self.at + 30 * max(batch.records, 1))
        self.at = batch.end
        return batch


def host_of(rank: int) -> str:
    return f"gpu-{rank // PER_HOST + 1}"


# ── training ───────────────────────────────────────────────────────────────────────────────────


def metric_names() -> list[str]:
    named = ["loss", "learning_rate", "step_seconds", "tokens_per_second"]
    return named + [f"layer_{i:03d}/gradient_norm" for i in range(METRICS - len(named))]


def value(metric: str, step: int, rank: int) -> float:
    wave = math.sin(step * 0.7 + rank + len(metric))
    if metric == "loss":
        return 2 + 8 * math.exp(-step / 60) + 0.25 * wave
    if metric == "learning_rate":
        return 3e-4 * min(1.0, (step + 1) / 40)
    if metric == "step_seconds":
        return 2.0 + 0.05 * wave + (3.0 if 90 <= step < 120 else 0.0)
    return 1000 + 20 * wave if metric == "tokens_per_second" else 1 + 0.2 * wave


def attempt(
    number: int,
    rank: int,
    start_ns: int,
    steps: range,
    ends: list[tuple[str, dict[str, Any]]],
    more: list[Event],
) -> Iterator[Batch]:
    scope = RunScope(1, RunId(RUN), "llama", rank, RANKS, f"a{number}", "pretraining")
    journal = Journal(f"llama-{number}-{rank}", host_of(rank), start_ns, scope, pid=4000 + rank)
    names = metric_names() if rank == 0 else ["step_seconds"]
    journal.definitions += [Series(i + 1, n, 1, UNITS.get(n, "")) for i, n in enumerate(names)]
    journal.definitions += [SpanName(i + 1, name, 1) for i, name in enumerate(SPANS)]
    batch = journal.batch()
    batch.events += [*beginning(start_ns, number), *more]
    clock_ns, span = start_ns + 20 * SECOND, 0
    if number > 1:
        span = spanned(batch, 3, span, clock_ns, 15 * SECOND, steps[0])
        clock_ns += 15 * SECOND
    for step in steps:
        took_ns = int(value("step_seconds", step, rank) * SECOND)
        waited_ns = took_ns - 2 * SECOND if 90 <= step < 120 else 0
        if waited_ns > 0:
            span = spanned(batch, 4, span, clock_ns, waited_ns, step)
        span = spanned(batch, 1, span, clock_ns, took_ns, step)
        clock_ns += took_ns
        batch.events.append(printed(clock_ns, f"step {step} of rank {rank}, attempt {number}"))
        for i, name in enumerate(names):
            batch.points.append(i + 1, clock_ns, step, value(name, step, rank))
        if step % 50 == 49:
            span = spanned(batch, 2, span, clock_ns, 8 * SECOND, step)
            clock_ns += 8 * SECOND
    batch.events += [Event(clock_ns, kind, body, scope=1) for kind, body in ends]
    yield journal.closed(batch)


def printed(at_ns: int, *lines: str, stream: str = "out", **more: int) -> Event:
    return Event(at_ns, "console", {"stream": stream, "lines": list(lines), **more}, scope=1)


def fallen(at_ns: int) -> list[Event]:
    """What rank 3 said before it was killed."""
    text = 'Traceback (most recent call last):\n  File "train.py", line 7\nMemoryError: no room'
    told = {"type": "MemoryError", "message": "no room", "text": text, "thread": "MainThread"}
    more = {"left_out_lines": 1200, "left_out_bytes": 90_000}
    return [
        printed(at_ns, "the allocator is nearly full", stream="err", **more),
        Event(at_ns + SECOND, "exception", told, scope=1),
    ]


def spanned(batch: Batch, name: int, span: int, start_ns: int, took_ns: int, step: int) -> int:
    batch.spans.append(name, span + 1, BEGIN, start_ns, step)
    batch.spans.append(name, span + 1, END, start_ns + took_ns, step)
    return span + 1


def beginning(start_ns: int, number: int) -> list[Event]:
    user = {
        "optimizer": {"name": "adamw", "learning_rate": 3e-4, "betas": [0.9, 0.95]},
        "model": {"layers": 32, "width": 4096, "heads": 32},
        "data": {"path": "gs://corpus/shards", "workers": 8, "shuffle": True},
        "max_steps": 400,
    }
    software = {"python": "3.11.9", "torch": "2.13.0", "git": {"commit": "41f8a7e", "dirty": False}}
    system = {"cpus": 96, "memory_bytes": 2 * 10**12, "gpu": "NVIDIA H200"}
    parts = {"user": user, "software": software, "system": system}
    said: dict[str, Any] = {"argv": ["train.py", "--attempt", str(number)], "user": "ada"}
    if number == 1:
        said["queued_at_ns"] = start_ns - QUEUED
    return [
        Event(start_ns, "run_start", said, scope=1),
        *(
            Event(start_ns + 1, "config", {"part": part, "values": values}, scope=1)
            for part, values in parts.items()
        ),
    ]


def training(start_ns: int, root: Path) -> Iterator[Batch]:
    second_ns = start_ns + 9 * MINUTE
    warning = {"category": "UserWarning", "message": "the gradient overflowed; scale halved"}
    for rank in range(RANKS):
        last_words = fallen(start_ns + 2 * MINUTE) if rank == 3 else []
        yield from attempt(1, rank, start_ns, range(130), [], last_words)
        said = [("warning", warning)] if rank in (0, 3) else []
        done = ("run_end", {"status": "completed", "explicit": True})
        told = list(profiled(start_ns, root)) if rank == 0 else []
        yield from attempt(2, rank, second_ns, range(100, 360), [*said, done], told)


# ── nodes ──────────────────────────────────────────────────────────────────────────────────────


def gpu_value(metric: str, gpu: int, at: float) -> float:
    """`at` counts tens of seconds."""
    stands = 38.6 <= at < 43 or 56 <= at < 62
    busy = 8.0 if stands else 92.0 - 4 * (gpu % 3)
    hot = gpu == 6 and at > 100
    wave = math.sin(at * 0.5 + gpu)
    numbers = {
        "gpu_utilization_percent": busy + 3 * wave,
        "gpu_tensor_activity_percent": busy * 0.6 + 2 * wave,
        "gpu_memory_used_bytes": 1.1e11 + 1e9 * wave,
        "gpu_memory_total_bytes": 1.43e11,
        "gpu_power_watts": 150 + busy * 5 + 10 * wave + 30 * (round(10 * at) % 2),
        "gpu_power_limit_watts": 700.0,
        "gpu_temperature_celsius": 58 + 2 * gpu + wave + (16 if hot else 0),
        "gpu_throttle_reasons": float(0x20) if hot else 0.0,
    }
    return numbers[metric]


def node(number: int, start_ns: int, end_ns: int, *, run: bool = True) -> Batch:
    name = f"gpu-{number}"
    scope = RunScope(1, RunId(RUN), "llama", 0, RANKS, "a2") if run else None
    journal = Journal(f"agent-{name}", name, start_ns, scope, "agent", pid=9)
    metrics = [metric for metric in UNITS if metric.startswith("gpu_")]
    batch = journal.batch()
    for gpu in range(PER_HOST):
        total = (number - 1) * PER_HOST + gpu
        about = {"uuid": f"GPU-{total:04d}", "name": "NVIDIA H200", "index": str(gpu)}
        about |= {"rank": str(total)} if run else {}
        for metric in metrics:
            series = len(batch.definitions)
            device = f"gpu{gpu}"
            batch.definitions.append(Series(series, metric, int(run), UNITS[metric], device, about))
            # Power swings from second to second: of a map's column there is a least and a most.
            every_ns = SECOND if metric == "gpu_power_watts" else 10 * SECOND
            for time_ns in range(start_ns, end_ns, every_ns):
                at = (time_ns - start_ns) / (10 * SECOND)
                batch.points.append(series, time_ns, NO_STEP, gpu_value(metric, total, at))
    return journal.closed(batch)


def agents(start_ns: int, now_ns: int) -> Iterator[Batch]:
    first = node(1, start_ns, now_ns)
    crash_ns = start_ns + 7 * MINUTE + 10 * SECOND
    for rank in range(RANKS):
        how = {"signal": 9, "code": None, "oom": True} if rank == 3 else {"signal": None, "code": 1}
        body = {"journal": f"llama-1-{rank}", "pid": 4000 + rank, "run": RUN, **how}
        at_ns = crash_ns + (0 if rank == 3 else SECOND)
        first.definitions.append(RunScope(10 + rank, RunId(RUN), "llama", rank, RANKS, "a1"))
        first.events.append(Event(at_ns, "process_exit", body, scope=10 + rank))
    yield first
    second = node(2, start_ns, now_ns)
    xid = {"device": "gpu1", "uuid": "GPU-0005", "xid": 31, "meaning": "memory page fault"}
    second.events.append(Event(start_ns + 16 * MINUTE, "gpu_xid", xid))
    yield second
    yield node(3, start_ns, now_ns - AHEAD - 7 * MINUTE, run=False)


# ── what was found out ─────────────────────────────────────────────────────────────────────────


def frames(rank: int) -> list[dict[str, Any]]:
    waiting = [("recv", "loader.py", 41), ("next_batch", "loader.py", 88)]
    if rank != 5:
        waiting = [("all_reduce", "distributed.py", 2806), ("backward", "train.py", 88)]
    both = [*waiting, ("train_step", "train.py", 140), ("main", "train.py", 201)]
    return [{"function": f, "file": f"/app/{name}", "line": line} for f, name, line in both]


def stacks(rank: int, time_ns: int, incident: str) -> dict[str, Any]:
    loader = {"name": "loader-0", "native_id": 8000 + rank, "idle": True, "frames": frames(5)[:2]}
    main = {"name": "MainThread", "native_id": 4000 + rank, "is_main": True, "frames": frames(rank)}
    return {
        "pid": 4000 + rank, "time_ns": time_ns, "how": "outside", "state": "S", "problems": [],
        "threads": [main, loader], "rank": rank, "host": host_of(rank),
        "journal": f"llama-2-{rank}", "incident": incident, "round": 0, "command": "c1",
    }  # fmt: skip


def incident(time_ns: int) -> dict[str, Any]:
    odd = {"ranks": [5], "text": "rank 5 waits in a read from a socket (loader.py:41)"}
    rest = {"ranks": [0, 1, 2, 3, 4, 6, 7], "text": "ranks 0–4, 6–7 wait in all_reduce"}
    seen = {"wait": None, "thread": "MainThread", "state": "S", "ended": "", "moves": False}
    groups = [
        {**odd, **seen, "frames": frames(5), "problems": []},
        {**rest, **seen, "frames": frames(0), "problems": []},
    ]
    report = {"rule": "elsewhere", "ranks": [5], "confidence": "likely", "text": HANG,
              "groups": groups, "evidence": ["rank 5 is in no collective"],
              "look_at": ["the data loader of rank 5"], "stuck": True, "looked_at": 8}  # fmt: skip
    return {
        "id": "i1", "kind": "hang", "state": "closed", "since_ns": time_ns,
        "detected_ns": time_ns + 12 * SECOND, "named_ns": time_ns + 15 * SECOND,
        "closed_ns": time_ns + 60 * SECOND, "why": "the run went on", "text": HANG,
        "confidence": "likely", "ranks": [5], "rounds": 2, "report": report,
    }  # fmt: skip


def findings(start_ns: int) -> Batch:
    time_ns = start_ns + 18 * MINUTE
    scope = RunScope(1, RunId(RUN), RUN, -1, 0)
    journal = Journal("head-own", "head", start_ns, scope, "agent", pid=1)
    batch = journal.batch()
    for rank in range(RANKS):
        taken_ns = time_ns + 14 * SECOND
        batch.events.append(Event(taken_ns, "stacks", stacks(rank, taken_ns, "i1"), scope=1))
    batch.events.append(Event(time_ns + 15 * SECOND, "incident", incident(time_ns), scope=1))
    return journal.closed(batch)


def folder_of(root: Path, session: str) -> Path:
    return root / "profiles" / RUN / "plugins" / "profile" / session


def profiles(root: Path) -> None:
    for session, (_, names) in SESSIONS.items():
        folder = folder_of(root, session)
        folder.mkdir(parents=True)
        for name in names:
            shutil.copy(TRACES / name, folder / f"gpu-1.rank0.{name.split('.', 1)[1]}")


def profiled(start_ns: int, root: Path) -> Iterator[Event]:
    """What the process that captured told of it."""
    for session, (minute, names) in SESSIONS.items():
        begin_ns = start_ns + minute * MINUTE
        body = {
            "session": session, "state": "started", "why": "", "framework": "torch", "files": [],
            "directory": folder_of(root, session).as_uri(), "bytes": 0, "start_ns": begin_ns,
            "end_ns": None, "first_step": 200, "last_step": None, "origin": "program",
            "command": "",
        }  # fmt: skip
        yield Event(begin_ns, "profile", body, scope=1)
        files = [f"gpu-1.rank0.{name.split('.', 1)[1]}" for name in names]
        done = {"state": "done", "end_ns": begin_ns + 40 * SECOND, "last_step": 203, "bytes": 10**5}
        yield Event(begin_ns + 40 * SECOND, "profile", body | done | {"files": files}, scope=1)


def running(now_ns: int) -> Iterator[Batch]:
    """Two ranks on two hosts that are at it."""
    every_ns = 15 * SECOND
    for rank in range(2):
        start_ns = now_ns - AHEAD - 5 * MINUTE
        scope = RunScope(1, RunId("run-mistral"), "mistral", rank, 2)
        journal = Journal(f"mistral-{rank}", f"gpu-{rank + 1}", start_ns, scope, pid=5000 + rank)
        journal.definitions += [Series(1, "loss", 1, ""), Series(2, "mfu", 1, "")]
        journal.definitions.append(SpanName(1, "step", 1))
        batch = journal.batch()
        batch.events.append(Event(start_ns, "run_start", {"argv": ["train.py"]}, scope=1))
        for step, time_ns in enumerate(range(start_ns, now_ns - every_ns, every_ns)):
            spanned(batch, 1, step, time_ns, every_ns, step)
            batch.points.append(1, time_ns + every_ns, step, 4.0 / (1 + step / 30))
            batch.points.append(2, time_ns + every_ns, step, 0.42)
        yield journal.closed(batch)


def other(start_ns: int) -> Batch:
    scope = RunScope(1, RunId("run-bert"), "bert", 0, 1, "", "pretraining")
    journal = Journal("bert-0", "gpu-1", start_ns, scope)
    journal.definitions.append(Series(1, "loss", 1, ""))
    batch = journal.batch()
    for step in range(50):
        batch.points.append(1, start_ns + step * SECOND, step, 3.0 / (step + 1))
    user = {
        "optimizer": {"name": "sgd", "learning_rate": 0.1, "momentum": 0.9},
        "model": {"layers": 12, "width": 768, "heads": 12},
        "data": {"path": "gs://corpus/shards", "workers": 8, "shuffle": True},
        "max_steps": 50,
    }
    batch.events += [
        Event(start_ns, "run_start", {"argv": ["train.py"], "user": "bob"}, scope=1),
        Event(start_ns + 1, "config", {"part": "user", "values": user}, scope=1),
        Event(start_ns + MINUTE, "run_end", {"status": "completed", "explicit": True}, scope=1),
    ]
    return journal.closed(batch)


def build(root: Path, now_ns: int) -> None:
    """`now_ns`: when it all ends, since a head tells what is silent by its own clock."""
    start_ns = now_ns - LENGTH - AHEAD
    store = DuckStore.open(root / "store")
    try:
        store.write([*training(start_ns, root), *agents(start_ns, now_ns), findings(start_ns)])
        store.write([other(start_ns - 20 * MINUTE), *running(now_ns)])
    finally:
        store.close()
    profiles(root)
