"""A small head with something of everything.  Its time stands still."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from runwatch.head.access.main_token import MainToken
from runwatch.head.features.stacks.api import StacksApi
from runwatch.head.features.stacks.incidents import evidence_of
from runwatch.head.forward.report import Report
from runwatch.head.http.access import AccessSettings
from runwatch.head.main import LocalHead, LocalSettings
from runwatch.head.settings import ServingSettings
from runwatch.head.stream import AgentState
from runwatch.record import Batch, Command, JournalId, RunId
from runwatch.record.commands import StacksWanted
from runwatch.testing import FakeClock
from runwatch.views.diagnosis.progress import Stall
from tests.integration.head_history import (
    SECOND,
    Producer,
    exited,
    when,
)
from tests.unit.head.session_world import Node

TOKEN: Final = "the-heads-own-token"
RUN, DELETED = RunId("run-1"), RunId("run-2")
NOW: Final = when(120)
_HOST: Final = "host-a"
_TRACES: Final = Path(__file__).parents[1] / "fixtures" / "traces"
_TORCH: Final = "/usr/lib/python3.11/site-packages/torch/distributed"
_FRAMES: Final = {
    0: [("all_reduce", f"{_TORCH}/distributed_c10d.py", 9), ("step", "/me/train.py", 7)],
    1: [("read", "/me/data.py", 3), ("step", "/me/train.py", 5)],
}


class _Refused:
    """A service that takes nothing more."""

    def start(self) -> None:
        pass

    def stored(self, batches: Sequence[Batch]) -> None:
        pass

    def reports(self) -> list[Report]:
        why, todo = "the service refuses (403)", "grant roles/logging.logWriter"
        told = Report("cloud_logging", "Cloud Logging", 204, 3, when(100), 1, "too long")
        return [replace(told, problem=why, todo=todo, problem_since_ns=when(101))]

    def close(self) -> None:
        pass


class World:
    """One run that was killed and began again, another that was deleted, two of one name."""

    def __init__(self, root: Path) -> None:
        self._agent = AgentState(
            _HOST, "1", 0, NOW, commands=("profile", "stacks"), send=self._obey,
            alive=frozenset(map(JournalId, ("j-b0", "j-b1"))),
        )  # fmt: skip
        self.root = root
        self.head = LocalHead(
            root,
            agents=lambda: {"peer": self._agent},
            settings=LocalSettings(
                access=AccessSettings(token=TOKEN),
                main=MainToken(TOKEN, root),
                serving=ServingSettings(price_per_device_hour=2.0),
            ),
            clock=FakeClock(NOW),
        )
        self.head.forwarding.append(_Refused())
        self._speaker = self._producer("agent-a", run="", name="", role="agent")
        self._looker = self._producer("agent-b", role="agent")
        self.ranks: list[Producer] = []
        """Those that live."""
        self._run()
        self._others()
        self._devices()
        self._profile()
        self.incident = self._hang()

    def close(self) -> None:
        self.head.close()

    def _producer(self, journal: str, **more: Any) -> Producer:
        return Producer(_Door(self.head), journal, **more)  # type: ignore[arg-type]

    # ── what happened ─────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        for rank in (0, 1):
            first = self._producer(f"j-a{rank}", rank=rank, group="sweep", start_ns=when(rank / 10))
            first.write(
                [("loss", i, i, 10.0 - i + rank) for i in range(1, 9)],
                [("run_start", rank / 10, {"run": RUN, "user": "ada"})],
                steps=[(i, i, i + 0.9) for i in range(1, 9)],
            )
        self._speaker.write(
            [], [exited("j-a1", 10, signal=9, oom=True), exited("j-a0", 11, code=1)], scope=0
        )
        for rank in (0, 1):
            again = self._producer(f"j-b{rank}", rank=rank, group="sweep", start_ns=when(39))
            self.ranks.append(again)
            begun = {"run": RUN, "user": "ada", **_pod(rank)}
            again.write(
                [("loss", 40 + i, 4 + i, 7.0 - i / 10 + rank) for i in range(60)]
                + [("step_seconds", 40.9 + i, 4 + i, 0.9) for i in range(60)],
                [("run_start", 39, begun)] + (_TOLD if rank == 0 else []),
                steps=[(4 + i, 40 + i, 40.9 + i) for i in range(60)],
            )
            again.write(
                [("gpu_utilization_percent", 40 + i, None, 80.0 + i / 10) for i in range(60)],
                device=f"gpu{rank}",
            )

    def _others(self) -> None:
        done = self._producer("j-done", run=DELETED, name="bert", start_ns=when(5))
        done.write(
            [("loss", 5 + i, i, 1.0 / (i + 1)) for i in range(5)],
            [("run_end", 20, {"status": "completed", "reason": "", "explicit": True})],
        )
        for number in (4, 5):
            twin = self._producer(f"j-twin-{number}", run=f"run-{number}", name="twin")
            twin.write([("loss", 0, 0, 2.0), ("loss", 1, 1, float("nan"))])

    def _devices(self) -> None:
        node = Node(_Door(self.head), host=_HOST)  # type: ignore[arg-type]
        for seconds in (117, 118, 119):
            node.sample(seconds, 0, 1, **_DEVICE)
        self._speaker.write(
            [],
            [
                ("gpu_xid", 100, {"device": "gpu0", "xid": 31, "meaning": "not mapped"}),
                ("journal_aside", 90, {"journal": "j-x", "why": "it is damaged", "version": "1"}),
            ],
            scope=0,
        )

    def _profile(self) -> None:
        """Two ranks told of a session, and its files lie here."""
        folder = self.root / "profiles" / RUN / "plugins" / "profile" / "s1"
        folder.mkdir(parents=True)
        for name in ("jax-cpu.xplane.pb", "h200/torch-25.json.gz"):
            copied = folder / f"host-a.{Path(name).name}"
            shutil.copyfile(_TRACES / name, copied)
            os.utime(copied, ns=(when(80), when(80)))
        told = {
            "session": "s1", "state": "done", "framework": "jax", "bytes": 3, "first_step": 44,
            "files": ["host-a.jax-cpu.xplane.pb"], "directory": str(folder), "last_step": 46,
        }  # fmt: skip
        self.ranks[0].write([], [("profile", 80, told)])

    def _hang(self) -> str:
        incidents = self.head.feature(StacksApi).incidents
        id = incidents.new_id()
        wanted = StacksWanted(rounds=2, native=False, incident=id)
        look = incidents.look(RUN, wanted, [_HOST], evidence_of, 2, lambda: False)
        stall = Stall("run", (0, 1), when(101), 10 * SECOND, SECOND, {0: 63, 1: 63}, silent=(2,))
        return incidents.opened(RUN, id, stall, look, NOW).id

    # ── the node ──────────────────────────────────────────────────────────────────────────────

    def _obey(self, command: Command) -> None:
        body: dict[str, Any] = {"command": command.id, "state": "done", "why": "", "host": _HOST}
        if command.kind == "profile":
            body["processes"] = [
                {"rank": r, "pid": 100 + r, "way": "sdk", "ready_ms": 40, "frameworks": ["torch"]}
                for r in (0, 1)
            ]
        else:
            stacks = [
                self._stack(command, rank, number)
                for number in range(command.body["rounds"])
                for rank in _FRAMES
            ]
            self._looker.write([], [("stacks", 120, stack) for stack in stacks])
        self._speaker.write([], [("command_result", 120, body)], scope=0)

    @staticmethod
    def _stack(command: Command, rank: int, number: int) -> dict[str, Any]:
        frames = [{"function": f, "file": file, "line": n} for f, file, n in _FRAMES[rank]]
        task = {"name": "Task-1", "awaits": ["Task-2"], "is_root": True, "frames": frames[:1]}
        main = {
            "name": "MainThread", "native_id": 1, "is_main": True, "idle": True, "frames": frames,
            "tasks": [task],
        }  # fmt: skip
        return {
            "rank": rank, "pid": 100 + rank, "host": _HOST, "time_ns": NOW, "how": "outside",
            "state": "S", "round": command.body["first_round"] + number,
            "incident": command.body["incident"], "command": command.id, "threads": [main],
        }  # fmt: skip


class _Door:
    """Stores a batch as if it had come from a node, so that everyone who listens is told."""

    def __init__(self, head: LocalHead) -> None:
        self._head = head

    def write(self, batches: Sequence[Batch]) -> list[Any]:
        return [self._head.ingest.submit(batch).result(60) for batch in batches]


def _pod(rank: int) -> dict[str, str]:
    return {
        "pod": f"llama-{rank}", "pod_namespace": "team", "pod_uid": f"uid-{rank}",
        "container": "main", "node": "gpu-17", "workload": "JobSet/llama", "workload_uid": "uid-w",
    }  # fmt: skip


_DEVICE: Final = {
    "gpu_utilization_percent": 80.0,
    "gpu_tensor_activity_percent": 40.0,
    "gpu_sm_activity_percent": 60.0,
    "gpu_memory_used_bytes": 40e9,
    "gpu_memory_total_bytes": 80e9,
    "gpu_dram_bytes_per_second": 1e12,
    "gpu_power_watts": 500.0,
    "gpu_power_limit_watts": 700.0,
    "gpu_temperature_celsius": 88.0,
    "gpu_memory_temperature_celsius": 80.0,
    "gpu_sm_clock_hz": 1.9e9,
    "gpu_memory_clock_hz": 2.6e9,
    "gpu_throttle_reasons": float(0x20),
}
"""Too hot."""
_TOLD: Final[list[tuple[str, float, dict[str, Any]]]] = [
    ("config", 39, {"part": "user", "values": {"lr": 0.1, "layers": [1, 2], "total_steps": 100}}),
    ("config", 39, {"part": "software", "values": {"python": "3.11"}}),
    ("config", 39, {"part": "system", "values": {"cpus": 2}}),
    ("console", 45, {"stream": "out", "lines": ["epoch 1", "epoch 2"], "after_ms": [0, 250]}),
    (
        "console",
        50,
        {"stream": "err", "lines": ["warn"], "left_out_lines": 5, "left_out_bytes": 90},
    ),
    (
        "exception",
        55,
        {
            "type": "ValueError",
            "message": "no",
            "text": "Traceback (most recent call last):\n  …\nValueError: no",
            "thread": "loader",
            "frames": ["train.py:7:step"],
            "left_out_frames": 2,
            "local_variables": [{"x": "1"}],
        },
    ),
    ("log", 50, {"name": "note", "value": {"deep": [1, None, {"x": "y"}]}}),
    ("goodput_entry", 60, {"logger": "log", "entry": {"job_name": "llama", "note": 1}}),
]


@contextmanager
def world(root: Path) -> Iterator[World]:
    with patch.dict(os.environ, RUNWATCH_HOST="head-1"):
        made = World(root)
        try:
            yield made
        finally:
            made.close()
