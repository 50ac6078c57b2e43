from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import runwatch
from runwatch.compat.goodput.log import backend, following
from runwatch.compat.goodput.log.backend import JournalLogger
from runwatch.compat.goodput.log.entries import Entry, to_record
from runwatch.compat.goodput.log.recorder import GoodputRecorder
from runwatch.errors import HeadUnreachable, UsageError, WireError
from runwatch.journal.segment import MIN_SEGMENT_BYTES, segment_name
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId, Origin, Role, RunId, RunScope
from runwatch.record.life import GoodputEntry
from runwatch.sdk.guard import tally

SAVE = {"job_name": "job", "event_type": "save", "step": 1, "directory": "gs://b"}


def step(number: int, seconds: float | None = None) -> Entry:
    moment = float(number) if seconds is None else seconds
    return {"job_name": "job", "step_count": number, "step_start_time": moment}


def numbers(entries: Sequence[Entry]) -> list[Any]:
    return [entry.get("step_count", entry.get("event_type")) for entry in entries]


class Book:
    """A journal whose clock the test sets."""

    def __init__(
        self,
        root: Path,
        name: str,
        start_ns: int = 0,
        *,
        run: str = "job",
        logger: str = "log",
        role: Role = "process",
    ) -> None:
        self.time_ns = start_ns
        self.logger = logger
        # Of a host that cannot be asked whether the writer lives.
        origin = Origin(JournalId(name), "elsewhere", 1, start_ns, role=role)
        self.writer = JournalWriter(root, origin, segment_bytes=MIN_SEGMENT_BYTES, clock=self)
        self.scope = self.writer.scope(RunScope(0, RunId(run), run))

    def wall_ns(self) -> int:
        return self.time_ns

    def mono_ns(self) -> int:
        return self.time_ns

    def wait(self, seconds: float, wake: Callable[[float], bool]) -> bool:
        return wake(seconds)

    def write(self, entry: Entry, time_ns: int | None = None) -> None:
        self.time_ns = self.time_ns + 1 if time_ns is None else time_ns
        record = to_record(entry, self.logger)
        if isinstance(record, GoodputEntry):
            self.writer.tell(record, scope=self.scope)
        else:
            series = self.writer.series(record.metric, scope=self.scope, labels=record.labels)
            self.writer.point(series, record.value, record.step)

    def log(self, value: float) -> None:
        self.writer.point(self.writer.series("loss", scope=self.scope), value)

    def close(self) -> None:
        self.writer.close()


@pytest.fixture
def book(place: Path) -> Iterator[Callable[..., Book]]:
    books: list[Book] = []

    def make(name: str, start_ns: int = 0, **options: Any) -> Book:
        books.append(Book(place, name, start_ns, **options))
        return books[-1]

    yield make
    for one in books:
        one.close()


@pytest.fixture
def reader(place: Path) -> Iterator[JournalLogger]:
    logger = JournalLogger("job", "log")
    yield logger
    logger.close()


# ── what is read ──────────────────────────────────────────────────────────────────────────────


def test_nothing_recorded_is_an_empty_log(reader: JournalLogger) -> None:
    assert reader.read_cloud_logging_entries() == ([], None)
    assert list(reader.read_columns()) == []


def test_several_journals_are_one_log_in_order_of_time(
    book: Callable[..., Book], reader: JournalLogger
) -> None:
    first, second, third = book("a"), book("b", 15), book("c", 60)
    first.write(step(0), 10)
    second.write(step(1), 20)
    first.write(SAVE, 30)
    second.write(step(3), 40)
    first.write(step(4), 50)
    third.write(step(5), 70)
    entries, _ = reader.read_cloud_logging_entries()
    assert numbers(entries) == [0, 1, "save", 3, 4, 5]
    columns = list(reader.read_columns())
    assert [e for c in columns for e in c.entries("job")] == entries
    assert sum(map(len, columns)) == 6


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 10**6), st.booleans()), unique_by=lambda one: one[0]),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.integers(0, 10**6), max_size=3),
)
def test_however_it_is_split_and_asked_the_log_is_the_same(
    tmp_path: Path, journals: list[list[tuple[int, bool]]], ends: list[int]
) -> None:
    root = tmp_path / "root"
    shutil.rmtree(root, ignore_errors=True)
    truth = []
    for number, moments in enumerate(journals):
        book = Book(root, f"j{number}", min((m for m, _ in moments), default=0))
        for moment, plain in sorted(moments):
            entry = step(moment) if plain else SAVE | {"step": moment}
            book.write(entry, moment)
            truth.append((moment, number, entry))
        book.close()
    expected = [entry for _, _, entry in sorted(truth, key=lambda one: one[:2])]
    reader = JournalLogger("job", "log", root=root)
    found, cursor = reader.read_cloud_logging_entries()
    assert [m["step"] if "step" in m else m["step_count"] for m in found] == [
        m["step"] if "step" in m else m["step_count"] for m in expected
    ]
    found, cursor = [], (datetime(1970, 1, 1, tzinfo=UTC), "journals:")
    for end in sorted(ends):
        until = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=end // 1000)
        some, cursor = reader.read_cloud_logging_entries(None, until, cursor)
        found += some
        reader.close()  # as if another process went on
    found += reader.read_cloud_logging_entries(None, None, cursor)[0]
    reader.close()
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_only_what_is_new(book: Callable[..., Book], reader: JournalLogger) -> None:
    one = book("a")
    for number in range(1000):
        one.write(step(number))
    entries, cursor = reader.read_cloud_logging_entries()
    assert len(entries) == 1000
    assert reader.read_cloud_logging_entries(last_entry_info=cursor) == ([], cursor)
    for number in range(1000, 1100):
        one.write(step(number))
    entries, later = reader.read_cloud_logging_entries(last_entry_info=cursor)
    assert numbers(entries) == list(range(1000, 1100))
    assert later != cursor
    assert len(reader.read_cloud_logging_entries(last_entry_info=cursor)[0]) == 100
    assert len(reader.read_cloud_logging_entries()[0]) == 1100


def test_columns_go_on_where_they_were(book: Callable[..., Book], reader: JournalLogger) -> None:
    one = book("a")
    one.write(step(0))
    assert [len(c) for c in reader.read_columns()] == [1]
    reader.read_cloud_logging_entries()  # another question, another place in the log
    assert list(reader.read_columns()) == []
    one.write(step(1))
    one.write(SAVE)
    (columns,) = reader.read_columns()
    assert list(columns.step) == [1]
    assert columns.others == [(1, 3, SAVE)]


def test_what_comes_late_is_not_lost(book: Callable[..., Book], reader: JournalLogger) -> None:
    book("a").write(step(5), 500)
    entries, cursor = reader.read_cloud_logging_entries()
    assert numbers(entries) == [5]
    book("b").write(step(1), 100)  # from a node whose directory was out of sight
    entries, _ = reader.read_cloud_logging_entries(last_entry_info=cursor)
    assert numbers(entries) == [1]


def test_two_threads_a_little_out_of_order(
    book: Callable[..., Book], reader: JournalLogger
) -> None:
    one = book("a")
    one.write(step(0), 10)
    one.write(step(1), 9)
    book("b").write(step(2), 5)
    entries, cursor = reader.read_cloud_logging_entries()
    assert numbers(entries) == [2, 0, 1]
    one.write(step(3), 8)
    assert numbers(reader.read_cloud_logging_entries(None, None, cursor)[0]) == [3]


def test_other_metrics_jobs_logs_and_agents_are_left_out(
    book: Callable[..., Book], reader: JournalLogger
) -> None:
    one = book("a")
    one.log(1.0)
    one.write(step(1))
    one.log(0.5)
    one.write(step(2))
    book("b", run="job2").write(step(3))
    book("c", logger="another").write(step(4))
    book("d", role="agent").write(step(5))
    assert numbers(reader.read_cloud_logging_entries()[0]) == [1, 2]


def test_a_run_is_found_by_name_under_any_id(place: Path, reader: JournalLogger) -> None:
    for job in ("11", "12"):
        with runwatch.init("job", id=f"experiment-{job}"):
            GoodputRecorder("job", "log", True).record_step_start_time(int(job))
    assert numbers(reader.read_cloud_logging_entries()[0]) == [11, 12]


def test_a_job_keeps_its_run_when_slurm_starts_it_again_under_another_number(
    place: Path, reader: JournalLogger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in ("11", "12"):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        logger = JournalLogger("job", "log")
        logger.mark("step_start_time", None, int(job))
        assert logger._run is not None
        assert (logger._run.id, logger._run._identity.attempt_key) == ("job", f"slurm-{job}.0")
        backend.finish_runs()
    assert numbers(reader.read_cloud_logging_entries()[0]) == [11, 12]


# ── windows and cursors ───────────────────────────────────────────────────────────────────────


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_a_window_of_the_log(book: Callable[..., Book], reader: JournalLogger) -> None:
    one = book("a")
    for number in range(10):
        one.write(step(number), number * 10**9)
    _, cursor = reader.read_cloud_logging_entries()
    assert numbers(reader.read_cloud_logging_entries(at(3), at(6))[0]) == [4, 5, 6]
    assert numbers(reader.read_cloud_logging_entries(None, at(1))[0]) == [0, 1]
    assert numbers(reader.read_cloud_logging_entries(at(8).astimezone())[0]) == [9]
    assert reader.read_cloud_logging_entries(at(20), at(30))[0] == []
    one.write(step(10), 10 * 10**9)
    assert numbers(reader.read_cloud_logging_entries(None, None, cursor)[0]) == [10]


def test_what_lies_behind_the_end_comes_with_the_next_question(
    book: Callable[..., Book], reader: JournalLogger
) -> None:
    one, two = book("a"), book("b")
    for number in range(10):
        (one, two)[number % 2].write(step(number), number * 10**9)
        if number == 5:
            two.write(SAVE, number * 10**9 + 1)
    cursor: Any = (None, None)
    found = []
    for end in (2, 2, 5, 7):
        entries, cursor = reader.read_cloud_logging_entries(None, at(end), cursor)
        found.append(numbers(entries))
    assert found == [[0, 1, 2], [], [3, 4, 5], ["save", 6, 7]]
    other = JournalLogger("job", "log")
    assert numbers(other.read_cloud_logging_entries(None, None, cursor)[0]) == [8, 9]
    other.close()


def test_a_cursor_of_longer_stretches_is_understood(
    book: Callable[..., Book], reader: JournalLogger, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = book("a")
    for number in range(300):
        one.write(step(number), number * 10**9)
    entries, cursor = reader.read_cloud_logging_entries(None, at(250), (None, None))
    assert len(entries) == 251 and cursor[1].endswith(f"+{251:x}")
    monkeypatch.setattr(following, "_AT_A_TIME", 1000)  # 25 entries
    other = JournalLogger("job", "log")
    rest = numbers(other.read_cloud_logging_entries(None, None, cursor)[0])
    other.close()
    assert rest == list(range(251, 300))


@pytest.mark.parametrize(
    "form",
    [
        lambda moment, name: (moment, name),
        lambda moment, name: [moment.isoformat(), name],
        lambda moment, name: (None, name),
    ],
)
def test_a_cursor_goes_on_in_another_process(
    book: Callable[..., Book], reader: JournalLogger, form: Callable[[Any, str], Any]
) -> None:
    one = book("a")
    for number in range(60_000):  # several segments
        one.write(step(number))
    entries, cursor = reader.read_cloud_logging_entries()
    assert len(entries) == 60_000
    for number in range(60_000, 60_010):
        one.write(step(number))
    one.write(SAVE)
    other = JournalLogger("job", "log")
    entries, _ = other.read_cloud_logging_entries(last_entry_info=form(*cursor))
    assert numbers(entries) == [*range(60_000, 60_010), "save"]
    other.close()


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [
        ((at(2), at(2)), [3, 4]),  # as a test's own logger may give
        ((at(2), "an insertId of Cloud Logging"), [3, 4]),
        (("1970-01-01T00:00:02+00:00", None), [3, 4]),
        ((2.0, 17), [3, 4]),
        (at(3), [4]),
        (("yesterday", object()), [0, 1, 2, 3, 4]),
        ({}, [0, 1, 2, 3, 4]),
        ((at(2), "journals:nonsense"), [3, 4]),
        ((at(2), "head:17"), [3, 4]),
    ],
)
def test_of_a_cursor_of_another_kind_its_time_counts(
    book: Callable[..., Book], reader: JournalLogger, cursor: Any, expected: list[int]
) -> None:
    one = book("a")
    for number in range(5):
        one.write(step(number), number * 10**9)
    entries, new = reader.read_cloud_logging_entries(last_entry_info=cursor)
    assert numbers(entries) == expected
    assert reader.read_cloud_logging_entries(last_entry_info=new) == ([], new)


# ── writing ───────────────────────────────────────────────────────────────────────────────────


def test_entries_that_others_write_into_the_log(place: Path, reader: JournalLogger) -> None:
    logger = JournalLogger("job", "log")
    logger.write_cloud_logging_entry(step(1))
    logger.write_cloud_logging_entry(SAVE)
    logger.flush()
    assert reader.read_cloud_logging_entries()[0] == [step(1), SAVE]


def test_odd_values_become_what_every_reader_takes(place: Path, reader: JournalLogger) -> None:
    odd = {"step_count": np.int64(7), "step_start_time": np.float64(2.5)}
    reader.write_cloud_logging_entry({"job_name": "job"} | odd)
    reader.write_cloud_logging_entry(step(2**63, float("nan")))
    reader.write_cloud_logging_entry(SAVE | {"directory": Path("/a"), "text": "\ud800"})
    first, second, third = reader.read_cloud_logging_entries()[0]
    assert first == step(7, 2.5)
    assert second == step(0) | {"step_count": hex(2**63), "step_start_time": "nan"}
    assert third == SAVE | {"directory": "/a", "text": "?"}


def test_an_entry_of_another_job_is_left_out(place: Path, reader: JournalLogger) -> None:
    reader.write_cloud_logging_entry(step(1) | {"job_name": "other"})
    reader.write_cloud_logging_entry(None)
    assert reader.read_cloud_logging_entries()[0] == []
    assert tally.counts == {"goodput entry of another job": 2}
    assert not place.exists()


def test_an_entry_too_long_for_a_record_does_no_harm(place: Path, reader: JournalLogger) -> None:
    reader.write_cloud_logging_entry(SAVE | {f"field {i}": "x" * 10_000 for i in range(100)})
    reader.write_cloud_logging_entry(SAVE)
    assert reader.read_cloud_logging_entries()[0] == [SAVE]


# ── a head ────────────────────────────────────────────────────────────────────────────────────


class Head(ThreadingHTTPServer):
    """Answers as a head does, in pages of two."""

    entries: list[Entry]
    token = ""
    reply: bytes | None = None
    run = "job"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.entries = []
        self.asked: list[str] = []
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()


class _Answer(BaseHTTPRequestHandler):
    server: Head

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.server.asked.append(self.path)
        status, body = self._answer(unquote(parts.path), parse_qs(parts.query))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, bytes]:
        head = self.server
        if head.token and self.headers["Authorization"] != f"Bearer {head.token}":
            return 401, b'{"error": {"code": "unauthorized", "message": "this head wants a token"}}'
        if path != f"/api/v1/runs/{head.run}/goodput/entries":
            return 404, b'{"error": {"code": "not_found", "message": "no such run"}}'
        assert query["logger"] == ["log"]
        after = int(query.get("after", ["0"])[0])
        page = head.entries[after : after + 2]
        answer = {"entries": page, "next": str(after + len(page))}
        return 200, head.reply if head.reply is not None else json.dumps(answer).encode()

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def head() -> Iterator[Head]:
    server = Head()
    yield server
    server.close()


def test_a_head_is_asked_when_one_is_named(
    place: Path, reader: JournalLogger, head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_HEAD", head.address)
    monkeypatch.setenv("RUNWATCH_TOKEN", "secret")
    head.token = "secret"
    head.entries = [step(0), SAVE | {"start_time": 0.5}, *map(step, range(1, 6))]
    entries, cursor = reader.read_cloud_logging_entries()
    assert entries == head.entries
    assert reader.read_cloud_logging_entries(last_entry_info=cursor) == ([], cursor)
    head.entries.append(step(6))
    other = JournalLogger("job", "log")
    assert numbers(other.read_cloud_logging_entries(last_entry_info=cursor)[0]) == [6]
    assert [e for c in other.read_columns() for e in c.entries("job")] == head.entries
    assert numbers(other.read_cloud_logging_entries(at(1), at(4))[0]) == [2, 3, 4]
    some, cursor = other.read_cloud_logging_entries(None, at(2), (None, "head:3"))
    assert numbers(some) == [2]
    assert {2, 3, 4, 5, 6} >= set(numbers(other.read_cloud_logging_entries(None, None, cursor)[0]))


def test_a_job_with_a_slash_is_asked_for_by_its_id(
    place: Path, head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_HEAD", head.address)
    head.run = "team-job-" + JournalLogger("team/job", "log")._open_log()._runs[0][-8:]  # type: ignore[union-attr]
    head.entries = [step(0)]
    assert len(JournalLogger("team/job", "log").read_cloud_logging_entries()[0]) == 1


def test_a_run_under_another_id_is_asked_for_by_its_name(
    place: Path, head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_HEAD", head.address)
    head.run, head.entries = "My Job", [step(0)]
    reader = JournalLogger("My Job", "log")
    assert len(reader.read_cloud_logging_entries()[0]) == 1
    assert len(head.asked) == 3  # the id that the name gives, the name, and what comes after


def test_a_run_that_the_head_does_not_know_is_an_empty_log(
    place: Path, reader: JournalLogger, head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_HEAD", head.address)
    head.run = "another"
    assert reader.read_cloud_logging_entries() == ([], None)
    head.run, head.entries = "job", [step(0)]  # it has come
    assert numbers(reader.read_cloud_logging_entries()[0]) == [0]


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        (b"<html>", WireError, "not a Runwatch head"),
        (b"[]", WireError, "something else"),
        (b'{"entries": [1], "next": ""}', WireError, "something else"),
    ],
)
def test_a_head_that_answers_nonsense(
    place: Path, reader: JournalLogger, head: Head, monkeypatch: pytest.MonkeyPatch,
    reply: bytes, error: type[Exception], words: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("RUNWATCH_HEAD", head.address)
    head.reply = reply
    with pytest.raises(error, match=words):
        reader.read_cloud_logging_entries()


def test_a_head_that_wants_another_token_or_is_gone(
    place: Path, reader: JournalLogger, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = Head()
    monkeypatch.setenv("RUNWATCH_HEAD", head.address)
    head.token = "secret"
    with pytest.raises(UsageError, match="set RUNWATCH_TOKEN"):
        reader.read_cloud_logging_entries()
    head.close()
    for question in (reader.read_cloud_logging_entries, lambda: list(reader.read_columns())):
        with pytest.raises(HeadUnreachable, match="Does it run"):
            question()
    monkeypatch.delenv("RUNWATCH_HEAD")
    assert reader.read_cloud_logging_entries() == ([], None)


def test_the_head_of_the_directory_has_what_retention_took(
    place: Path, book: Callable[..., Book], head: Head
) -> None:
    one = book("a")
    for number in range(60_000):
        one.write(step(number))
    head.entries = [step(1), step(2)]
    (place / "head.json").write_text(
        json.dumps({"http": head.address, "grpc": "", "token": "", "pid": 1})
    )
    reader = JournalLogger("job", "log")
    assert len(reader.read_cloud_logging_entries()[0]) == 60_000  # all is here: no need to ask
    reader.close()
    assert head.asked == []
    (place / "journals" / "a" / segment_name(0)).unlink()
    entries, cursor = reader.read_cloud_logging_entries()
    assert numbers(entries) == [1, 2]
    head.entries.append(step(3))
    assert numbers(reader.read_cloud_logging_entries(last_entry_info=cursor)[0]) == [3]
    reader.close()
    head.run = "another"  # nor does the head know it: what is left must do
    assert 0 < len(reader.read_cloud_logging_entries()[0]) < 60_000
    reader.close()
