from __future__ import annotations

from typing import Any

from runwatch.exports.cloud_logging import entry, request, send
from runwatch.record.stacks import Frame, Stacks, Thread

FRAMES = (Frame("step", "train.py", 88), Frame("<module>", "train.py", 99))
STACKS = Stacks(
    pid=771,
    time_ns=1_700_000_000_123_456_789,
    how="fault",
    threads=(Thread(ident=17, is_main=True, frames=FRAMES),),
    rank=3,
    host="gpu-1",
    fault="Bus error",
)


class Api:
    """What `google.cloud.logging.Client.logging_api` offers."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[Any], dict[str, Any]]] = []

    def write_entries(self, entries: list[Any], **options: Any) -> None:
        self.calls.append((entries, options))


class Client:
    project = "mine"

    def __init__(self) -> None:
        self.logging_api = Api()


def test_an_entry_is_found_by_the_seeds_query() -> None:
    found = entry(STACKS, run="llama")
    assert found["jsonPayload"]["verb"] == "stacktraceanalyzer"
    assert found["jsonPayload"]["message"] == (
        "Fatal Python error: Bus error\n"
        "Thread 0x11, main (most recent call first):\n"
        '  File "train.py", line 88 in step\n'
        '  File "train.py", line 99 in <module>'
    )
    assert found["timestamp"] == "2023-11-14T22:13:20.123456789Z"
    assert found["severity"] == "CRITICAL"
    assert found["labels"] == {"run": "llama", "host": "gpu-1", "rank": "3", "pid": "771"}
    assert request("mine", [found]) == {
        "logName": "projects/mine/logs/tpu.googleapis.com%2Fruntime_monitor",
        "resource": {"type": "global", "labels": {"project_id": "mine"}},
        "entries": [found],
        "partialSuccess": True,
    }


def test_a_periodic_dump_is_no_crash_and_long_ones_are_cut() -> None:
    many = tuple(frame for _ in range(10_000) for frame in FRAMES)
    deep = Stacks(1, 0, "watchdog", threads=(Thread("main", 1, frames=many),))
    found = entry(deep)
    assert found["severity"] == "INFO"
    assert len(found["jsonPayload"]["message"]) == 200_000
    assert found["labels"] == {"pid": "1"}


def test_sending_through_a_client() -> None:
    client = Client()
    assert send(client, []) == 0
    assert client.logging_api.calls == []
    assert send(client, [entry(STACKS)]) == 1
    ((sent,), options) = client.logging_api.calls[0]
    assert sent["logName"].endswith("%2Fruntime_monitor")
    assert options["partial_success"] is True
