"""Stack dumps as entries of Google Cloud Logging, where people know to look for them:

    logName="projects/<project>/logs/tpu.googleapis.com%2Fruntime_monitor"
    jsonPayload.verb="stacktraceanalyzer"

`send` is the only part that talks to the service; it needs the `[gcp]` extra.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

LOG: Final = "tpu.googleapis.com%2Fruntime_monitor"
VERB: Final = "stacktraceanalyzer"
MAX_TEXT: Final = 200_000
"""An entry may have 256 KB."""


def entry(body: Mapping[str, Any], *, run: str = "") -> dict[str, Any]:
    """One `stacks` event's body as a log entry, in the JSON form of the service."""
    fault = str(body.get("fault") or "")
    labels = {"run": run, **{key: str(body.get(key, "")) for key in ("host", "rank", "pid")}}
    return {
        "timestamp": _time(int(body.get("time_ns") or 0)),
        "severity": "CRITICAL" if fault else "INFO",
        "labels": {key: value for key, value in labels.items() if value},
        "jsonPayload": {
            "verb": VERB,
            "message": "\n".join(_text(body, fault))[:MAX_TEXT],
            "how": str(body.get("how", "")),
            "fault": fault,
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
    found = request(str(client.project), entries)
    number = len(found["entries"])
    if number:
        named = [{**each, "logName": found["logName"]} for each in found["entries"]]
        client.logging_api.write_entries(
            named,
            logger_name=found["logName"],
            resource=found["resource"],
            partial_success=True,
        )
    return number


def _time(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def _text(body: Mapping[str, Any], fault: str) -> Iterator[str]:
    if fault:
        yield f"Fatal Python error: {fault}"
    for thread in body.get("threads") or ():
        name = thread.get("name") or f"{int(thread.get('ident') or 0):#x}"
        main = ", main" if thread.get("is_main") else ""
        yield f"Thread {name}{main} (most recent call first):"
        for frame in thread.get("frames") or ():
            yield f'  File "{frame["file"]}", line {frame["line"]} in {frame["function"]}'
