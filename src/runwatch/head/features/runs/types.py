"""Runs as the HTTP API answers with them."""

from __future__ import annotations

from typing import Literal

from runwatch.head.http.types import Answer, AttemptInfo, EventFields, JsonObject, RunInfo
from runwatch.views.life import State


class RunList(Answer):
    runs: list[RunInfo]
    total: int
    next_offset: int | None


class RunDetail(RunInfo, kw_only=True):
    history: list[AttemptInfo]
    limit: str = ""
    """The limit that the run has reached, so that the rest of its data stays on its nodes."""


class ConfigsInfo(Answer):
    run: str
    user: JsonObject
    software: JsonObject
    system: JsonObject


class EventInfo(EventFields):
    """An event with its whole body."""


class EventList(Answer):
    run: str
    events: list[EventInfo]


class ProcessInfo(Answer):
    journal: str
    host: str
    pid: int
    rank: int
    world_size: int
    attempt: int
    state: State
    reason: str
    started_ns: int
    ended_ns: int | None
    last_ns: int
    exit_code: int | None
    signal: str | None
    out_of_memory: bool
    role: Literal["process", "launcher"] = "process"
    """launcher: what `runwatch exec` runs; it waits for the ranks and is none itself."""
    pod: str = ""
    """In a cluster: the pod that it runs in, as it says …"""
    pod_namespace: str = ""
    pod_uid: str = ""
    node: str = ""
    """… and the cluster's name for the pod's node."""
    workload: str = ""
    """What the pod is a part of, by kind and name: JobSet/llama."""
    workload_uid: str = ""


class ProcessList(Answer):
    run: str
    processes: list[ProcessInfo]
