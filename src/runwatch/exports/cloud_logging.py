"""Records as entries of Google Cloud Logging, where people know to look for them.

Stack dumps, as the monitor of TPU hosts writes them:

    logName="projects/<project>/logs/tpu.googleapis.com%2Fruntime_monitor"
    jsonPayload.verb="stacktraceanalyzer"

Entries of a goodput log, in the log with the name that the program gave it, so that the original's
calculators can read them.  Points of metrics, in `ml_diagnostics_metric`.

All are in the JSON form of the service.  The head sends them (`head/cloud/`); `send` is for
programs that have a client of their own, and needs the `[gcp]` extra.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final
from urllib.parse import quote

from runwatch.record.stacks import Stacks

LOG_NAME: Final = "tpu.googleapis.com/runtime_monitor"
LOG: Final = "tpu.googleapis.com%2Fruntime_monitor"
VERB: Final = "stacktraceanalyzer"
METRIC_LOG: Final = "ml_diagnostics_metric"
MAX_TEXT: Final = 200_000
"""Bytes: an entry may have 256 KB."""


def entry(stacks: Stacks, *, run: str = "") -> dict[str, Any]:
    """Stacks as a log entry, in the JSON form of the service."""
    rank = "" if stacks.rank is None else str(stacks.rank)
    labels = {"run": run, "host": stacks.host, "rank": rank, "pid": str(stacks.pid)}
    return {
        "timestamp": _time(stacks.time_ns),
        "severity": "CRITICAL" if stacks.fault else "INFO",
        "labels": {key: value for key, value in labels.items() if value},
        "jsonPayload": {
            "verb": VERB,
            "message": _cut("\n".join(_text(stacks))),
            "how": stacks.how,
            "fault": stacks.fault or "",
        },
    }


def goodput_entry(entry: Mapping[str, Any], time_ns: int) -> dict[str, Any]:
    """An entry of a goodput log; `time_ns` is when it was recorded."""
    payload = {str(name): plain(value) for name, value in entry.items()}
    return {"timestamp": _time(time_ns), "severity": "INFO", "jsonPayload": payload}


def metric_entry(
    name: str,
    value: float,
    *,
    time_ns: int,
    step: int | None,
    labels: Mapping[str, str],
    run: str,
    location: str,
    project: str,
) -> dict[str, Any]:
    """A point of a metric.  `labels` go into the payload, as `unit` and `hostname` do."""
    where = {"project_id": project, "location": location, "namespace": name, "node_id": run}
    payload: dict[str, Any] = {**labels, "values": [plain(value)]}
    if step is not None:
        payload["step_index"] = step
    return {
        "timestamp": _time(time_ns),
        "severity": "INFO",
        "resource": {"type": "generic_node", "labels": where},
        "jsonPayload": payload,
    }


def log_name(project: str, log: str) -> str:
    """`log` as a program names it; it may have any characters."""
    return f"projects/{project}/logs/{quote(log, safe='')}"


def plain(value: Any) -> Any:
    """What a payload can hold: it knows no NaN and no infinity, and all its numbers are floats."""
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def request(project: str, entries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The body of `entries:write`."""
    return {
        "logName": f"projects/{project}/logs/{LOG}",
        "resource": {"type": "global", "labels": {"project_id": project}},
        "entries": list(entries),
        "partialSuccess": True,
    }


def send(client: Any, entries: Iterable[Mapping[str, Any]]) -> int:
    """Through a `google.cloud.logging.Client`; returns how many there were."""
    written = request(str(client.project), entries)
    named = [{**each, "logName": written["logName"]} for each in written["entries"]]
    if named:
        client.logging_api.write_entries(
            named,
            logger_name=written["logName"],
            resource=written["resource"],
            partial_success=True,
        )
    return len(named)


def _cut(text: str) -> str:
    return text.encode("utf-8", "replace")[:MAX_TEXT].decode("utf-8", "ignore")


def _time(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def _text(stacks: Stacks) -> Iterator[str]:
    if stacks.fault:
        yield f"Fatal Python error: {stacks.fault}"
    for thread in stacks.threads:
        main = ", main" if thread.is_main else ""
        yield f"Thread {thread.name or f'{thread.ident:#x}'}{main} (most recent call first):"
        for frame in thread.frames:
            yield f'  File "{frame.file}", line {frame.line} in {frame.function}'
