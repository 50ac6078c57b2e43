"""Records that somebody wrote who means no good, each made from a seed.

`body(seed)` is one of a kind that we know, with something in it that is wrong, extreme or odd:
right in its place, since what is merely random is refused at once and tries nothing.
"""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Mapping
from typing import Any, Final

from runwatch.wire import spine_pb2 as pb

NOW: Final = 1_700_000_000_000_000_000
RUNS: Final = ("hostile", "hostile", "hostile", "", "../../etc", "<script>", "x" * 5_000)
FRAME: Final = {"function": "step", "file": "train.py", "line": 7}
THREAD: Final = {
    "name": "MainThread", "native_id": 5, "ident": 6, "is_main": True, "holds_gil": False,
    "idle": False, "frames": [FRAME, FRAME],
    "tasks": [{"name": "t", "awaits": ["u"], "is_root": True, "frames": [FRAME]}],
}  # fmt: skip
PROCESS: Final = {
    "host": "node-1", "rank": 0, "pid": 7, "node": "node-1", "way": "sdk", "state": "done",
    "why": "", "framework": "torch", "files": ["a.json"], "bytes": 9, "start_ns": NOW,
    "end_ns": NOW,
}  # fmt: skip
PROFILE: Final = {
    "session": "s1", "state": "done", "why": "", "framework": "torch", "frameworks": ["torch"],
    "files": ["a.json"], "directory": "/profiles/s1", "bytes": 5, "start_ns": NOW,
    "end_ns": NOW + 9,
    "first_step": 1, "last_step": 2, "origin": "demand", "command": "c1", "problems": ["p"],
    "rank": 0, "host": "node-1", "pid": 7, "run": "hostile", "way": "sdk",
}  # fmt: skip
BEAT: Final = {
    "ns": NOW, "all": [8, 937], "threads": {"7": [5, 900, 4096]},
    "children": {"9": ["python3", "S", 4, 77]},
}  # fmt: skip
STACKS: Final = {
    "pid": 7, "rank": 0, "host": "node-1", "time_ns": NOW, "how": "outside", "state": "R",
    "fault": "SIGSEGV", "incident": "i1", "command": "c1", "round": 0, "problems": [],
    "threads": [THREAD], "pulse": {"before": BEAT, "after": BEAT}, "child_of": 3, "step": 5,
    "journal": "hostile-1", "answers": True,
}  # fmt: skip
SESSION: Final = {"id": "5", "name": "night"}
DEVICE: Final = {"device": "gpu0", "uuid": "GPU-1", "name": "H200", "why": "gone"}

BODIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "run_start": {
        "run": "hostile", "name": "hostile", "rank": 0, "local_rank": 0, "world_size": 4,
        "group": "g", "attempt_key": "a", "orchestrator": "NONE", "argv": ["train.py"], "cwd": "/",
        "python": "3.12", "executable": "/usr/bin/python", "user": "ann", "queued_at_ns": NOW,
        "imported": True, "quiet_seconds": 150.0, "pod": "llama-0", "pod_namespace": "ml",
        "pod_uid": "u-0", "container": "train", "node": "node-1", "workload": "JobSet/llama",
        "workload_uid": "w-0",
    },
    "run_end": {
        "status": "failed", "explicit": True, "done": True, "reason": "so",
        "exception": {"type": "ValueError", "message": "no"}, "exit_code": 3, "signal": "SIGKILL",
        "max_rss_bytes": 9,
    },
    "process_exit": {
        "journal": "hostile-1", "pid": 7, "code": 1, "signal": 9, "core_dumped": True, "oom": True,
        "lived_ns": NOW, "fault": "SIGSEGV",
    },
    "fork": {"parent_journal": "healthy-1", "parent_pid": 7},
    "joined": {"run": "healthy"},
    "otlp_received": {
        "digest": "c2FtZSBhZ2Fpbg==", "signal": "metrics", "refused": 1, "why": "no time",
    },
    "span_told": {
        "name": "GET /", "trace_id": "0" * 32, "span_id": "1" * 16, "parent_span_id": "2" * 16,
        "kind": "server", "status": "error", "status_message": "no", "attributes": {"a": [1]},
    },
    "pod": {
        "pod": "llama-0", "namespace": "ml", "uid": "u-0", "node": "node-1",
        "workload": "JobSet/llama", "workload_uid": "w-0", "what": "oom_killed",
        "reason": "OOMKilled", "message": "no", "container": "train", "restarts": 1,
        "exit_code": 137, "signal": 9,
    },
    "ml_run": {"resource": {"displayName": "hostile", "workload": {"workloadId": "w"}}},
    "config": {"part": "user", "values": {"lr": 0.1, "deep": {"er": [1, 2]}}},
    "log": {"name": "note", "value": "text"},
    "elapsed": {"name": "compile", "seconds": 2.5, "ago_seconds": 1.0, "source": "jax"},
    "goodput_entry": {
        "logger": "l", "entry": {"job_name": "hostile", "job_start_time": 1_700_000_000.5},
    },
    "console": {
        "stream": "err", "lines": ["epoch 1", "epoch 2"], "after_ms": [0, 12],
        "left_out_lines": 5, "left_out_bytes": 500, "of_command": True,
    },
    "exception": {
        "type": "ValueError", "message": "no", "text": "Traceback …\nValueError: no",
        "thread": "MainThread", "handled": False, "frames": ["train.py:7:step"],
        "left_out_frames": 3, "local_variables": [{"x": "1"}],
    },
    "warning": {"what": "no journal", "count": 3},
    "clock_jump": {"seconds": 5.0},
    "journal_loss": {"dropped_records": 5, "lost_records": 1},
    "journal_gap": {"reason": "dropped", "up_to_segment": 1, "records": 4, "bytes": 5},
    "job_queued": {
        "journal": "hostile-1", "by": "slurm", "job": "7", "queued_at_ns": NOW,
        "granted_at_ns": NOW,
    },
    "queue_unknown": {
        "journal": "hostile-1", "by": "slurm", "job": "7", "why": "away", "tries": 3,
    },
    "journal_aside": {"journal": "x", "why": "odd", "version": "1", "state": "aside"},
    "records_skipped": {"records": 4, "start": 1, "end": 2},
    "series_not_recorded": {"metric": "x", "device": "gpu0", "series_recorded": 9},
    "points_not_recorded": {"points": 4, "total": 9},
    "limit_reached": {"what": "events", "why": "too many"},
    "guest_connect": {"gpus": 8, "slot": 1},
    "profile": PROFILE,
    "profile_deleted": {"run": "hostile", "session": "s1"},
    "stacks": STACKS,
    "incident": {
        "id": "i1", "kind": "hang", "state": "open", "since_ns": NOW, "detected_ns": NOW,
        "named_ns": NOW, "closed_ns": None, "why": "w", "text": "rank 3", "confidence": "sure",
        "severity": "warning", "ranks": [3], "rounds": 2,
        "report": {"groups": [{"ranks": [3], "frame": FRAME}], "text": "t"},
    },
    "session_start": {
        **SESSION, "period_ns": 10**9, "bandwidth": True, "nvlink": True, "metrics": ["loss"],
    },
    "session_stop": {**SESSION, "why": "asked"},
    "session_resume": SESSION,
    "session_clock": {"host": "node-1", "ahead_ns": 5},
    "session_file": {
        **SESSION, "folder": "/tmp", "state": "partial", "missing": ["node-1_a"], "later": True,
    },
    "capture": {
        "session": "s1", "command": "c1", "start_ns": NOW, "duration_ms": 100, "steps": 3,
        "hosts": ["node-1"], "unreachable": {"node-2": "no agent"}, "ahead_ns": {"node-1": 4},
        "processes": [PROCESS],
    },
    "command_result": {
        "command": "c1", "kind": "profile", "host": "node-1", "state": "done", "why": "",
        "took_ms": 4, "looked": 1, "processes": [PROCESS], "problems": {"7": "gone"},
    },
    "agent_start": {"pid": 7, "version": "1"},
    "agent_end": {"pid": 7, "why": "idle"},
    "collector_failed": {"collector": "nvml", "error": "E: no"},
    "collector_stuck": {"collector": "nvml", "seconds": 5},
    "collector_resumed": {"collector": "nvml"},
    "device_owner": {**DEVICE, "how": "pid", "rank": "0", "pid": "7", "journal": "hostile-1"},
    "device_added": DEVICE,
    "device_lost": DEVICE,
    "device_unreadable": DEVICE,
    "device_limited": {**DEVICE, "missing": ["sm_active"]},
    "gpu_xid": {**DEVICE, "xid": 79, "meaning": "fell off the bus"},
}  # fmt: skip

NUMBERS: Final = (
    0, 1, -1, 2, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**62, 2**62 + 1, 2**63 - 1, 2**63,
    -(2**63), 2**64, 10**30, 10**300, -(10**400), 0.0, -0.0, 0.5, -1e-320, 1e308, float("inf"),
    float("-inf"), float("nan"), NOW, -NOW, NOW * 2, 86_400 * 10**9, 1 << 20, (1 << 20) + 1,
)  # fmt: skip
TEXTS: Final = (
    "", "0", "healthy", "hostile", "healthy-1", "node-1", "../../../etc/passwd", "/", ".", "a\0b",
    "\x1b[31m", "\ud800", "é" * 300, "x" * 5_000, "x" * 70_000, "<script>alert(1)</script>",
    "'; DROP TABLE points_1; --", "{}", "null", "%s%n", "\u202e", "\r\n", "s1", "completed",
    "started", "open", "user", "software", "gpu0", "1e400", "-5",
)  # fmt: skip


def value(draw: random.Random, depth: int = 0) -> Any:
    """Anything that JSON can say, and what people do not expect of it."""
    choice = draw.randrange(10)
    if choice < 3:
        return draw.choice(NUMBERS)
    if choice < 6:
        return draw.choice(TEXTS)
    if choice == 6:
        return draw.choice((None, True, False))
    if choice == 7 and depth < 4:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    if choice == 8 and depth < 4:
        keys = ("host", "rank", "pid", "frames", "type", "processes", "x")
        return {draw.choice(keys): value(draw, depth + 1) for _ in range(draw.randrange(4))}
    return draw.choice((_deep(draw.choice((3, 23, 24, 60))), [0] * 5_000, {"k": "v" * 9_000}))


def _deep(depth: int) -> Any:
    made: Any = []
    for _ in range(depth):
        made = [made]
    return made


def body(draw: random.Random, kind: str) -> Any:
    """One of that kind: in one place or several, at any depth, something else than is meant."""
    if draw.random() < 0.03:
        return value(draw)
    made = _copy(BODIES.get(kind, {}))
    for _ in range(draw.choice((0, 1, 1, 1, 2, 5))):
        _spoil(draw, made)
    return made


def kind(draw: random.Random) -> str:
    return draw.choice((*BODIES, *BODIES, "note", "", "x" * 300, "run_\ufffdend"))


def time_ns(draw: random.Random) -> int:
    extreme = (0, 1, 2**62, 2**62 + 1, 2**63 - 1, -1, -(2**63), NOW - 10**18, NOW * 2)
    return draw.choice(extreme) if draw.random() < 0.3 else NOW + draw.randrange(-(10**12), 10**12)


def _copy(plain: Any) -> Any:
    if isinstance(plain, Mapping):
        return {key: _copy(item) for key, item in plain.items()}
    return [_copy(item) for item in plain] if isinstance(plain, list) else plain


def _spoil(draw: random.Random, made: Any) -> None:
    if isinstance(made, dict) and made:
        key: Any = draw.choice(list(made))
    elif isinstance(made, list) and made:
        key = draw.randrange(len(made))
    else:
        return
    if isinstance(made[key], dict | list) and made[key] and draw.random() < 0.6:
        _spoil(draw, made[key])
    elif draw.random() < 0.1:
        del made[key]
    elif draw.random() < 0.1 and isinstance(made, dict):
        made[draw.choice(("extra", "type", "id", "run"))] = value(draw)
    else:
        made[key] = value(draw)


# ── messages ───────────────────────────────────────────────────────────────────────────────────

METRICS: Final = (
    "loss", "step_seconds", "data_wait_seconds", "gpu_utilization_percent", "gpu_memory_used_bytes",
    "host_memory_used_bytes", "", "x" * 5_000,
)  # fmt: skip
_WILD: Final = (
    ("host", "../../x"), ("host", "\x1b[31m"), ("host", ""), ("host", "node-2"), ("pid", 0),
    ("pid", -1), ("pid", 2**40), ("start_ns", 0), ("start_ns", 2**62), ("start_ns", 2**63 - 1),
    ("start_ns", -1), ("boot", "x" * 500), ("role", "root"), ("process_start_ticks", 2**64 - 1),
    ("process_start_ticks", 2**62), ("version", "x" * 9_000),
)  # fmt: skip
SPAN_NAMES: Final = ("step", "checkpoint_save", "data_loading", "evaluation", "")


def message(draw: random.Random, number: int) -> pb.Batch:
    """A batch of a journal of its own, as an agent would send it that is not ours."""
    found = pb.Batch(start=0, end=draw.choice((1_000, 1_000, 2**62, 2**63 - 1)))
    found.origin.journal = f"hostile-{number}"
    origin = found.origin
    origin.host, origin.pid, origin.start_ns, origin.boot = "node-1", 7, NOW, "boot"
    origin.role = draw.choice(("process", "process", "process", "agent", "child"))
    if draw.random() < 0.1:
        wild = draw.choice(_WILD)
        setattr(origin, *wild)
    found.definitions.extend(_definition(draw, id) for id in range(1, draw.randrange(2, 8)))
    if draw.random() < 0.5:
        _add_points(draw, found.points)
    if draw.random() < 0.5:
        _add_spans(draw, found.spans)
    first = kind(draw)
    for _ in range(draw.randrange(5)):
        what = first if draw.random() < 0.7 else kind(draw)
        found.events.add(
            time_ns=time_ns(draw),
            kind=what,
            body_json=json.dumps(body(draw, what)),
            scope=draw.choice((0, 1, 1, 2**32 - 1)),
            step=draw.choice((0, 5, -(2**63), 2**63 - 1)),
        )
    found.skipped_records = draw.choice((0, 0, 0, 1, 2**64 - 1))
    return found


def _definition(draw: random.Random, id: int) -> pb.Definition:
    id = id if draw.random() < 0.95 else draw.choice((0, 2**22, 2**32 - 1))
    choice, scope = draw.randrange(10), draw.choice((1, 1, 0, 2**32 - 1))
    if id == 1 or choice < 2:
        run = pb.RunScope(id=id, run=draw.choice(RUNS), name=draw.choice(RUNS))
        run.rank = draw.choice((0, 1, 2, 3, 3, 2, 1, -1, 1 << 20, 2**31 - 1, -(2**31)))
        run.world_size = draw.choice((4, 4, 4, 4, 1, 0, 1 << 20, 2**31 - 1, 2**32 - 1))
        run.attempt_key = draw.choice(("", "", "a", "b", "x" * 5_000))
        return pb.Definition(run=run)
    if choice < 6:
        labels = {draw.choice(("index", "uuid", "rank", "name", "é")): draw.choice(("0", "-1", ""))}
        metric, device = draw.choice(METRICS), draw.choice(("", "gpu0", "gpu1", "x" * 9_000))
        series = pb.Series(id=id, metric=metric, scope=scope, device=device, labels=labels)
        return pb.Definition(series=series)
    if choice < 9:
        return pb.Definition(span=pb.SpanName(id=id, name=draw.choice(SPAN_NAMES), scope=scope))
    return pb.Definition()


def _add_points(draw: random.Random, points: pb.Points) -> None:
    rows = draw.choice((1, 5, 40))
    points.series = array(
        "I", [draw.choice((1, 2, 3, 4, 2**32 - 1)) for _ in range(rows)]
    ).tobytes()
    points.time_ns = array("q", [_any_time(draw) for _ in range(rows)]).tobytes()
    points.step = array("q", [_any_step(draw) for _ in range(rows)]).tobytes()
    values = (0.0, -1.0, 5e-324, 1e308, -1e308, float("nan"), float("inf"), 3.5, 1e19)
    points.value = array("d", [draw.choice(values) for _ in range(rows)]).tobytes()
    if draw.random() < 0.05:
        points.value = points.value[: draw.randrange(len(points.value))]


def _add_spans(draw: random.Random, spans: pb.Spans) -> None:
    rows = draw.choice((1, 6, 40))
    spans.name = array("I", [draw.choice((1, 2, 3, 4, 2**32 - 1)) for _ in range(rows)]).tobytes()
    spans.span = array(
        "I", [draw.choice((1, 2, 3, 2**31, 2**32 - 1)) for _ in range(rows)]
    ).tobytes()
    edges = (0, 1) if draw.random() < 0.9 else (0, 1, 2, 255)
    spans.edge = bytes(draw.choice(edges) for _ in range(rows))
    spans.time_ns = array("q", [_any_time(draw) for _ in range(rows)]).tobytes()
    spans.step = array("q", [_any_step(draw) for _ in range(rows)]).tobytes()


def _any_time(draw: random.Random) -> int:
    wild = (0, -1, 2**63 - 1, -(2**63), 2**62, NOW * 2, NOW - 10**18)
    return draw.choice(wild) if draw.random() < 0.1 else NOW + draw.randrange(10**11)


def _any_step(draw: random.Random) -> int:
    wild = (-(2**63), 2**63 - 1, -1, 2**53)
    return draw.choice(wild) if draw.random() < 0.2 else draw.randrange(100)
