from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.compat.xprofiler.mltrace.log_entries import (
    Entry,
    Skipped,
    cloud_filter,
    cloud_pages,
    entries,
    message,
    nanoseconds,
    read_file,
)
from runwatch.compat.xprofiler.mltrace.trace import Trace, page_text, section, trace_text, worker
from runwatch.errors import RunwatchError, UsageError

SECOND = 10**9
NOON = "2026-11-15T12:00:00Z"
NOON_NS = 1_794_744_000 * SECOND


def entry(text: str, pod: str = "job-slice-job-0-0-abcde", **more: Any) -> dict[str, Any]:
    labels = {"pod_name": pod, "container_name": "jax"}
    return {"timestamp": NOON, "textPayload": text, "resource": {"labels": labels}, **more}


def made(
    job: str, found: Iterable[Entry], *, start_ns: int | None = None, end_ns: int | None = None
) -> dict[str, Any]:
    text = "".join(trace_text(Trace(job, start_ns, end_ns), found, {}))
    trace: dict[str, Any] = json.loads(text)
    return trace


def names(trace: dict[str, Any], kind: str = "process_name") -> list[str]:
    return [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == kind]


def instants(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [e for e in trace["traceEvents"] if e["ph"] == "i"]


@pytest.mark.parametrize(
    ("text", "file", "expected"),
    [
        ("[E] BAD_ICI link 3 is down", "", "BAD_ICI"),
        ("[E] BAD_ICI link 3 is down", "chip.cc", "BAD_ICI"),
        ("[E] Failed to connect to 10.0.0.7", "", "Failed to connect"),
        ("[E] Node pool error: no quota", "", "Node pool error"),
        ("E BAD ICI", "", "Other logs"),
        ("saving CHECKPOINT 5", "", "Checkpoint"),
        ("all is well", "train.py", "train.py"),
        ("I1115 12:00:00.123456    4567 reduce.cc:88] took 12 ms", "", "reduce.cc"),
        ("all is well", "", "Other logs"),
    ],
)
def test_what_a_line_speaks_of(text: str, file: str, expected: str) -> None:
    assert section(text, file) == expected


@pytest.mark.parametrize(
    ("pod", "job", "expected"),
    [
        ("job-slice-job-0-0-abcde", "job", "Coordinator"),
        ("job-slice-job-2-17-x7k2p", "job", "Slice-Worker 2-17"),
        ("job-slice-job-2-17", "job", "Slice-Worker 2-17"),
        ("job-slice-job-2-17-12345", "job", "Slice-Worker 2-17"),
        ("a.b(c-slice-2-1-x7k2p", "a.b(c", "Slice-Worker 2-1"),
        ("train-2-0-5", "train-2", "Slice-Worker 0-5"),
        ("other-job-0-5-x7k2p", "train", "Slice-Worker 0-5"),
        ("my-job-pathways-head-0-0-x7k2p", "my-job", "jax"),
        ("", "my-job", "jax"),
    ],
)
def test_whose_log_it_is(pod: str, job: str, expected: str) -> None:
    assert worker(pod, "jax", job).name == expected


def test_a_pod_that_was_started_again_is_the_same_worker() -> None:
    pods = ("job-slice-job-0-1-aaaaa", "job-slice-job-0-1-bbbbb", "job-slice-job-0-0-ccccc")
    trace = made("job", [entry("x", pod) for pod in pods])
    assert names(trace) == ["Coordinator", "Slice-Worker 0-1"]
    assert trace["otherData"] == {"job": "job", "lines": 3, "tracks": 2}


def test_every_track_has_a_name_of_its_own() -> None:
    pods = ("a-slice-0-0-aaaaa", "b-slice-0-0-bbbbb", "b-worker-0-1-ccccc", "b-worker-0-2-ddddd")
    trace = made("b", [entry("x", pod) for pod in (*pods, "lonely", "lonelier")])
    assert names(trace) == [
        "Coordinator (a-slice)", "Coordinator (b-slice)", "jax (b-worker-0-1)",
        "jax (b-worker-0-2)", "jax (lonelier)", "jax (lonely)",
    ]  # fmt: skip


def test_an_instant_has_all_that_is_known() -> None:
    place = {"file": "train.py", "line": "7"}
    late = "2026-11-15T12:00:01.123456789Z"
    line = entry("hello\n", sourceLocation=place, severity="ERROR", labels={"a/b": "c"})
    (found,) = instants(made("job", [line | {"timestamp": late}]))
    assert found["ts"] == pytest.approx((NOON_NS + 1_123_456_789) / 1e3, abs=0.3)
    assert (found["name"], found["cat"]) == ("hello", "ERROR")
    assert found["args"] == {
        "message": "hello", "severity": "ERROR", "timestamp": late, "file": "train.py",
        "line": "7", "pod_name": "job-slice-job-0-0-abcde", "container_name": "jax",
        "labels.a/b": "c",
    }  # fmt: skip


def test_only_the_time_that_was_asked_for() -> None:
    times = [f"2026-11-15T12:00:0{second}Z" for second in range(5)]
    found = [entry(time) | {"timestamp": time} for time in times]
    limits = {"start_ns": NOON_NS + SECOND, "end_ns": NOON_NS + 3 * SECOND}
    assert [e["name"] for e in instants(made("job", found, **limits))] == times[1:4]


@pytest.mark.parametrize("broken", [None, 7, "", "yesterday", "2026-06-31T12:00:00Z"])
def test_entries_without_a_time_are_counted(broken: object) -> None:
    trace = Trace("job")
    assert trace.item({**entry("x"), "timestamp": broken}) is None
    assert (trace.lines, trace.without_time) == (0, 1)


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"resource": 3},
        {"resource": {"labels": []}},
        {"jsonPayload": "x", "sourceLocation": "y", "labels": 1},
    ],
)
def test_odd_entries_lie_somewhere(odd: dict[str, Any]) -> None:
    trace = made("job", [{"timestamp": NOON, **odd}])
    assert names(trace) == ["no pod"]
    assert len(instants(trace)) == 1


def test_moments() -> None:
    for text in (NOON, "2026-11-15 12:00:00 UTC", "2026-11-15T13:30:00.0000000000+01:30"):
        assert nanoseconds(text) == NOON_NS
    assert nanoseconds("2026-11-15T12:00:00.5Z") == NOON_NS + SECOND // 2


def test_messages() -> None:
    assert message({"jsonPayload": {"message": "a", "b": 1}}) == "a"
    assert message({"jsonPayload": {"b": 1}}) == '{"b": 1}'
    assert message({}) == ""


# ── files ──────────────────────────────────────────────────────────────────────────────────────


def read(file: Path) -> tuple[list[Entry], Skipped]:
    skipped = Skipped()
    return list(read_file(file, skipped)), skipped


def test_all_kinds_of_files_say_the_same(tmp_path: Path) -> None:
    found = [entry(f"line {number}, «ü» \u2028") for number in range(3)]
    lines = "".join(json.dumps(each, ensure_ascii=False) + "\r\n" for each in found)
    table = "timestamp,textPayload,resource.labels.pod_name,resource.labels.container_name\n"
    table += "".join(
        f'{NOON},"{each["textPayload"]}",job-slice-job-0-0-abcde,jax\n' for each in found
    )
    texts = {"a.jsonl": lines, "a.json": json.dumps(found, indent=2), "b.json": "\n" + lines,
             "a.csv": table, "c.jsonl": "\ufeff" + lines}  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        for file in (tmp_path / name, tmp_path / f"{name}.gz"):
            assert read(file) == (found, Skipped()), file.name


def test_what_is_no_entry_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    deep = "[" * 100_000
    file.write_text(f'[E] what\n{json.dumps(entry("a"))}\n\n3\n{deep}\n{{"textPayload": "to')
    found, skipped = read(file)
    assert found == [entry("a")]
    assert skipped == Skipped(count=4, first=1)


@pytest.mark.parametrize("text", ['[{"a": 1}, {"b": ', '[{"a": 1}', '[{"a": 1} what'])
def test_a_damaged_array_is_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(RunwatchError, match=r"x\.json is not an array of log entries"):
        read(file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*none\.jsonl"):
        read(tmp_path / "none.jsonl")
    torn = tmp_path / "torn.jsonl.gz"
    torn.write_bytes(gzip.compress(json.dumps(entry("a" * 9999)).encode())[:-20])
    with pytest.raises(RunwatchError, match=r"torn\.jsonl\.gz is damaged"):
        read(torn)


@pytest.mark.parametrize("as_array", [False, True])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, as_array: bool) -> None:
    file = tmp_path / "x.json"
    with file.open("w") as out:
        out.write("[" if as_array else "")
        for number in range(8_000):
            out.write("," if as_array and number else "")
            out.write(json.dumps(entry(f"{number} " + "x" * 1000)) + "\n")
        out.write("]" if as_array else "")
    trace = Trace("job")
    tracemalloc.start()
    try:
        size = sum(map(len, trace_text(trace, read_file(file, Skipped()), {})))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert trace.lines == 8_000
    assert size > 10_000_000
    assert peak < 8_000_000


# ── the service ────────────────────────────────────────────────────────────────────────────────


class Told:
    """An entry as the client has it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def to_api_repr(self) -> dict[str, Any]:
        return entry(self._text)


class Pager:
    """What older clients answer with: it can be gone through once."""

    def __init__(self, pages: list[list[Told]]) -> None:
        self.pages = iter(pages)


class Client:
    def __init__(self, answer: object) -> None:
        self._answer = answer
        self.asked: dict[str, Any] = {}

    def list_entries(self, **asked: Any) -> object:
        self.asked = asked
        return self._answer


PAGES = [["a", "b"], [], ["c"]]


def flat() -> Iterator[Told]:
    for page in PAGES:
        yield from map(Told, page)


@pytest.mark.parametrize("answer", ["pager", "generator"])
def test_the_first_page_is_kept(answer: str) -> None:
    pager = Pager([[Told(text) for text in page] for page in PAGES])
    client = Client(pager if answer == "pager" else flat())
    found = entries(cloud_pages(client, "mine", "severity>=ERROR"))
    assert [e["name"] for e in instants(made("job", found))] == ["a", "b", "c"]
    assert client.asked["resource_names"] == ["projects/mine"]
    assert client.asked["filter_"] == "severity>=ERROR"


def test_the_question_is_bracketed_and_quoted() -> None:
    asked = cloud_filter('a"b', NOON_NS, NOON_NS + SECOND, "x=1 OR y=2")
    assert asked == (
        '(resource.type="k8s_container") AND (resource.labels.pod_name:"a\\"b")'
        ' AND (timestamp>="2026-11-15T12:00:00.000000000Z")'
        ' AND (timestamp<="2026-11-15T12:00:01.000000000Z") AND (x=1 OR y=2)'
    )
    assert cloud_filter("a", 0, 1, " ").count(" AND ") == 3


def test_the_page_has_the_trace_inside_and_no_address() -> None:
    packed = bytes(range(256)) * 2000
    page = "".join(page_text("<job> & co", io.BytesIO(packed)))
    assert "<title>&lt;job&gt; &amp; co</title>" in page
    assert "http://" not in page
    assert "https://" not in page
    assert "@T" not in page
