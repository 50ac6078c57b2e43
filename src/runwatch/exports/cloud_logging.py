"""Stack dumps as entries of Google Cloud Logging, where people know to look for them:

    logName="projects/<project>/logs/tpu.googleapis.com%2Fruntime_monitor"
    jsonPayload.verb="stacktraceanalyzer"

`send` is the only part that talks to the service; it needs the `[gcp]` extra.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from runwatch.record.stacks import Stacks

LOG: Final = "tpu.googleapis.com%2Fruntime_monitor"
VERB: Final = "stacktraceanalyzer"
MAX_TEXT: Final = 200_000
"""An entry may have 256 KB."""


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
            "message": "\n".join(_text(stacks))[:MAX_TEXT],
            "how": stacks.how,
            "fault": stacks.fault or "",
        },
    }


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
