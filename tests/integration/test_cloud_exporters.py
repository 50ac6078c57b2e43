"""What a head sends to Google Cloud: the real client libraries against services on loopback.

The services refuse, are over quota, slow, half open or away.  Whatever they do, all that is stored
arrives in the end, once, and the head takes in records meanwhile.
"""

from __future__ import annotations

import json
import logging
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from runwatch.compat.goodput.log.imports import HOST, read_log
from runwatch.head.cloud.exporters import CloudExporters
from runwatch.head.cloud.settings import GcpSettings
from runwatch.head.forward.report import Report
from runwatch.head.main import LocalHead
from runwatch.record import Batch, Event, RunId, RunScope, Series
from runwatch.record.life import GoodputEntry
from runwatch.record.stacks import Frame, Stacks, Thread
from runwatch.testing import SECOND, BatchWriter, FakeClock, origin, until
from tests.cloud_services import (
    CREATE,
    WRITE,
    CloudServices,
    Fault,
    cloud_services,
    over_quota,
    refuse,
)
from tests.unit.leftovers import nothing_is_left, our_threads

NOW = 1_790_000_000 * SECOND
BEGIN = NOW - 600 * SECOND
STACKS_LOG = "/logs/tpu.googleapis.com%2Fruntime_monitor"
GOODPUT_LOG = "/logs/goodput_job%201"
_TIMES = ("job_start_time", "step_start_time", "job_end_time")
LABELS = {"logger": "goodput_job 1"}
SETTINGS = GcpSettings(
    project="mine", timeout_seconds=5.0, retry_seconds=0.02, interval_seconds=60.0
)


@dataclass
class World:
    """A head without ports, whose exporters can be ended and started again."""

    root: Path
    services: CloudServices
    settings: GcpSettings = SETTINGS
    endpoint: str = ""
    clock: FakeClock = field(default_factory=lambda: FakeClock(NOW))
    steps: int = 0

    def __post_init__(self) -> None:
        self.services.now = lambda: self.clock.wall / SECOND
        self.local = LocalHead(self.root, clock=self.clock)
        self.writer = job()

    def start(self, *services: str, **changes: Any) -> CloudExporters:
        endpoint = self.endpoint or self.services.endpoint
        where: dict[str, Any] = {
            "logging_endpoint": endpoint,
            "monitoring_endpoint": endpoint,
            "insecure": True,
        }
        changes = where | dict.fromkeys(services, "true") | changes
        settings = replace(self.settings, **changes)
        local = self.local
        exporters = CloudExporters(
            settings,
            self.root,
            local.store,
            local.accounts,
            lambda: local.board.summaries()[0],
            clock=self.clock,
        )
        local.forwarding[:] = [exporters]
        exporters.start()
        return exporters

    def end(self) -> None:
        for each in self.local.forwarding:
            each.close()
        self.local.forwarding.clear()

    def keep(self, batch: Batch) -> None:
        assert self.local.ingest.submit(batch).result(100).accepted

    def train(self, count: int) -> None:
        """The job takes so many steps, one in a second."""
        if not self.steps:
            self.keep(self.writer.batch([(1, BEGIN, None, BEGIN / SECOND)]))
        rows = [
            (2, BEGIN + n * SECOND, n, BEGIN / SECOND + n)
            for n in range(self.steps + 1, self.steps + count + 1)
        ]
        self.keep(self.writer.batch(rows))
        self.steps += count

    def arrived(self, count: int) -> None:
        until(lambda: len(self.services.entries) >= count, what=str(self.report()))

    def report(self) -> Report:
        return self.local.reports()[0]

    def minutes(self, metric: str) -> int:
        """How many points its one series has."""
        (found,) = self.services.named(metric).values() or ((),)
        return len(found)

    def settled(self) -> Report:
        """When nothing waits any more."""
        return until(lambda: self.report() if _is_settled(self.report()) else None)

    def troubled(self) -> Report:
        return until(lambda: self.report() if self.report().problem else None)


def _is_settled(report: Report) -> bool:
    return not report.problem and report.waiting_since_ns is None


def job(name: str = "job 1", journal: str = "journal-a") -> BatchWriter:
    series = [
        Series(n, f"goodput.{time}", scope=1, unit="s", labels=LABELS)
        for n, time in enumerate(_TIMES, start=1)
    ]
    scope = RunScope(1, RunId(f"id of {name}"), name)
    begun = replace(origin(journal), start_ns=BEGIN)
    return BatchWriter(begun, [scope, *series, Series(9, "loss", scope=1)])


def dump(seconds: float, **more: Any) -> Event:
    frames = (Frame("step", "train.py", 88),)
    thread = Thread("MainThread", 7, is_main=True, frames=frames)
    time_ns = BEGIN + int(seconds * SECOND)
    stacks = Stacks(7, time_ns, "asked", threads=(thread,), rank=0, host="gpu-1", **more)
    return Event(time_ns, Stacks.KIND, stacks.body(), scope=1)


@pytest.fixture
def services() -> Iterator[CloudServices]:
    with cloud_services() as started:
        yield started


@pytest.fixture
def world(tmp_path: Path, services: CloudServices) -> Iterator[World]:
    world = World(tmp_path / "head", services)
    yield world
    world.local.close()
    nothing_is_left(world.root)


# ── what arrives ──────────────────────────────────────────────────────────────────────────────


def test_entries_are_found_where_people_look_for_them(
    world: World, services: CloudServices, caplog: pytest.LogCaptureFixture
) -> None:
    world.train(2)
    saved = {"event_type": "save", "step": 2, "checkpoint_manager_blocking_duration_secs": 1.5}
    entry = GoodputEntry("goodput_job 1", {"job_name": "job 1", **saved, "odd": float("nan")})
    kept = Event(BEGIN + 3 * SECOND, GoodputEntry.KIND, entry.body(), scope=1)
    world.keep(world.writer.batch(events=[kept, dump(4), dump(5, fault="Bus error")]))
    with caplog.at_level(logging.INFO):
        world.start("logging")
        world.arrived(6)
        report = world.settled()
    assert (report.sent, report.lost, report.waiting, report.todo) == (6, 0, 0, "")
    assert caplog.text == ""  # all is well, and nobody hears about it
    begin = BEGIN / SECOND
    assert services.payloads(GOODPUT_LOG) == [
        {"job_name": "job 1", "job_start_time": begin},
        {"job_name": "job 1", "step_count": 1.0, "step_start_time": begin + 1},
        {"job_name": "job 1", "step_count": 2.0, "step_start_time": begin + 2},
        {"job_name": "job 1", **saved, "odd": "nan"},
    ]
    calm, fault = services.payloads(STACKS_LOG)
    assert calm["verb"] == "stacktraceanalyzer"
    assert 'File "train.py", line 88 in step' in calm["message"]
    assert fault["message"].startswith("Fatal Python error: Bus error")
    (last,) = [e for e in services.entries.values() if e.get("severity") == "CRITICAL"]
    assert last["labels"] == {"run": "job 1", "host": "gpu-1", "rank": "0", "pid": "7"}
    assert last["resource"] == {"type": "global", "labels": {"project_id": "mine"}}


def test_what_was_sent_can_be_read_as_a_log_of_the_original(
    world: World, services: CloudServices, tmp_path: Path
) -> None:
    world.train(3)
    world.start("logging")
    world.arrived(4)
    exported = tmp_path / "exported.json"  # as `gcloud logging read --format=json` prints it
    exported.write_text(json.dumps(list(services.entries.values())))
    logged = list(read_log(exported))
    assert [each.entry for each in logged] == services.payloads()
    assert {each.logger for each in logged} == {"goodput_job 1"}
    assert [each.time_ns for each in logged] == [BEGIN + n * SECOND for n in range(4)]


def test_an_imported_log_is_not_sent_back(world: World, services: CloudServices) -> None:
    theirs = job("theirs", "journal-b")
    theirs.origin = replace(theirs.origin, host=HOST)
    world.keep(theirs.batch([(1, BEGIN, None, 1.0)]))
    world.train(1)
    world.start("logging")
    world.arrived(2)
    assert world.settled().sent == 2
    assert {payload["job_name"] for payload in services.payloads()} == {"job 1"}


def test_metrics_are_logged_if_somebody_names_them(world: World, services: CloudServices) -> None:
    rows = [(9, BEGIN + SECOND, 1, 0.5), (9, BEGIN + 2 * SECOND, 2, float("inf"))]
    world.keep(world.writer.batch(rows))
    world.train(1)
    world.start("logging", metrics="l*", goodput=False, location="us-east1")
    world.arrived(2)
    world.settled()
    assert {name.rpartition("/")[2] for name, *_ in services.entries} == {"ml_diagnostics_metric"}
    entry, other = services.entries.values()
    assert entry["resource"] == {
        "type": "generic_node",
        "labels": {
            "project_id": "mine",
            "location": "us-east1",
            "namespace": "loss",
            "node_id": "id of job 1",
        },
    }
    said = {"unit": "1", "hostname": "host-a", "process_index": "0"}
    assert entry["jsonPayload"] == {"values": [0.5], "step_index": 1.0, **said}
    assert other["jsonPayload"]["values"] == ["inf"]


def test_nothing_of_runs_that_are_not_chosen(world: World, services: CloudServices) -> None:
    world.train(3)
    other = job("other", "journal-b")
    world.keep(other.batch([(1, BEGIN, None, 1.0)], events=[dump(1)]))
    world.start("logging", "monitoring", runs="oth*")
    world.arrived(2)
    until(lambda: services.points)
    assert {payload.get("job_name", "other") for payload in services.payloads()} == {"other"}
    assert {dict(key[2])["workload_id"] for key in services.points} == {"other"}


def test_the_goodput_of_a_run_every_minute(world: World, services: CloudServices) -> None:
    world.train(300)
    world.keep(world.writer.batch([(3, BEGIN + 301 * SECOND, None, BEGIN / SECOND + 301)]))
    world.start("monitoring", rolling_windows="60", cluster_name="c", location="us-east1-a")
    until(lambda: world.minutes("/interval_goodput") == 6)
    ((key, elapsed),) = services.named("/total_elapsed_time").items()
    assert key[0] == "compute.googleapis.com/workload/total_elapsed_time"
    assert key[1] == "compute.googleapis.com/Workload"
    assert dict(key[2]) == {"location": "us-east1-a", "workload_id": "job 1", "replica_id": "0"}
    assert dict(key[3]) == {
        "accelerator_type": "UNKNOWN", "cluster_name": "c", "window_type": "cumulative",
    }  # fmt: skip
    ends = [end for end, _ in elapsed]
    assert all(end % 60 == 0 for end in ends) and ends == sorted(set(ends))
    assert [b - a for a, b in zip(ends, ends[1:], strict=False)] == [60.0] * (len(ends) - 1)
    # Up to the end of the run, and no longer.
    assert [value for _, value in elapsed] == [min(end - BEGIN / SECOND, 301.0) for end in ends]
    ((_, goodput),) = services.named("/goodput_time").items()
    wasted = services.named("/badput_time").values()
    for at, (end, value) in enumerate(elapsed):
        assert goodput[at][0] == end
        assert goodput[at][1] + sum(found[at][1] for found in wasted) == pytest.approx(value)
    ((_, steps),) = services.named("/max_productive_steps").items()
    assert steps[-1][1] in (299, 300) and [v for _, v in steps] == sorted(v for _, v in steps)
    ((_, ideal),) = services.named("/performance").items()
    assert ideal[-1][1] == pytest.approx(1.0, rel=0.01)
    ((_, apart),) = services.named("/step_time_deviation").items()
    assert apart[-1][1] == pytest.approx(0.0, abs=0.01)
    ((window, shares),) = services.named("/interval_goodput").items()
    assert dict(window[3])["rolling_window_size"] == "60"
    assert shares[2][1] == pytest.approx(100.0, abs=0.5)
    assert world.report().lost == 0


# ── what goes wrong ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fault", "problem", "todo"),
    [
        (refuse(7, "The caller does not have permission"), "403", "roles/logging.logWriter"),
        (refuse(16, "invalid authentication credentials"), "401", "gcloud auth"),
        (over_quota(0.05), "over quota (429)", "raise the quota"),
        (refuse(14, "the service is away"), "the service is away", "by itself"),
        (refuse(13, "internal"), "internal", "by itself"),
        (refuse(5, "no such project"), "404", "mine"),
    ],
)
def test_what_is_refused_waits_and_is_sent_later(
    world: World,
    services: CloudServices,
    fault: Fault,
    problem: str,
    todo: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    services.fault = fault
    world.train(10)
    world.start("logging")
    report = world.troubled()
    assert problem in report.problem and todo in report.todo
    until(lambda: world.report().waiting == 11)
    assert world.report().waiting_since_ns == BEGIN
    world.train(5)  # ingest goes on
    until(lambda: world.report().waiting == 16)
    asked = len(services.requests)
    until(lambda: len(services.requests) > asked + 1)
    assert (services.entries, world.report().sent) == ({}, 0)
    services.fault = None
    world.arrived(16)
    report = world.settled()
    assert (report.sent, report.waiting, report.lost, services.repeats) == (16, 0, 0, 0)
    words = [record.getMessage() for record in caplog.records]
    assert len(words) == 2 and words[1] == "Cloud Logging takes data again"


def test_a_service_that_never_answers_holds_nothing_up(
    world: World, services: CloudServices
) -> None:
    services.fault = services.never_answers
    world.train(10)
    world.start("logging", "monitoring", timeout_seconds=0.2)
    until(lambda: all("no answer within" in each.problem for each in world.local.reports()))
    world.train(5)
    services.fault = None
    services.released.set()
    world.arrived(16)
    until(lambda: services.points)
    world.settled()


def test_a_head_ends_at_once_though_a_request_is_under_way(
    world: World, services: CloudServices
) -> None:
    services.fault = services.never_answers
    world.train(10)
    world.start("logging", "monitoring", timeout_seconds=500.0)
    until(lambda: {WRITE, CREATE} <= set(services.requests))
    world.end()  # or the test would take 500 s
    assert "runwatch-forward" not in our_threads()
    services.fault = None
    world.start("logging")
    world.arrived(11)


def test_an_answer_that_comes_too_late_makes_no_second_entry(
    world: World, services: CloudServices
) -> None:
    """The service has taken the request, and says so after we have stopped to listen."""
    late = 3

    def fault(request: Any, context: Any) -> None:
        nonlocal late
        late -= 1
        if late < 0:
            return
        services.fault = None
        services.write(request, context)
        services.fault = fault
        services.never_answers(request, context)

    services.fault = fault
    world.train(10)
    world.start("logging", timeout_seconds=0.1)
    until(lambda: services.repeats >= 33)
    world.settled()
    assert len(services.entries) == 11


def test_a_service_that_is_always_slow_gets_more_time(
    world: World, services: CloudServices, caplog: pytest.LogCaptureFixture
) -> None:
    """Slower than the deadline that was set: with that one nothing would ever arrive."""
    services.fault = lambda request, context: time.sleep(0.4)
    world.train(3)
    world.start("logging", timeout_seconds=0.15)
    until(lambda: world.report().sent == 4)
    assert "no answer within" in caplog.text
    assert len(services.entries) == 4


def test_a_connection_that_is_half_open(tmp_path: Path) -> None:
    """Something accepts and says nothing; later the service is there."""
    services = CloudServices()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        world = World(tmp_path / "head", services, endpoint=f"127.0.0.1:{port}")
        world.train(3)
        world.start("logging", timeout_seconds=0.3)
        assert "no answer within" in world.troubled().problem
    try:
        with cloud_services(port, services):
            world.arrived(4)
            world.settled()
    finally:
        world.local.close()


def test_a_name_that_nobody_knows(world: World, services: CloudServices) -> None:
    world.endpoint = "logging.invalid:443"
    world.train(3)
    world.start("logging", timeout_seconds=1.0)
    report = world.troubled()
    assert "does not answer" in report.problem or "no answer within" in report.problem
    world.end()
    world.endpoint = ""
    world.start("logging")
    world.arrived(4)


@pytest.mark.parametrize("says_which", [True, False])
def test_a_wrong_entry_is_set_aside_alone(
    world: World, services: CloudServices, says_which: bool, caplog: pytest.LogCaptureFixture
) -> None:
    services.says_which = says_which
    services.is_bad = lambda entry: entry["jsonPayload"].get("step_count") in (3.0, 17.0)
    world.train(20)
    world.start("logging")
    world.arrived(19)
    report = world.settled()
    assert (report.sent, report.lost, report.problem) == (19, 2, "")
    assert "malformed" in report.lost_why
    told = [record for record in caplog.records if "will not take" in record.getMessage()]
    assert len(told) == 2 and "id of job 1" in told[0].getMessage()
    world.end()
    world.start("logging")
    world.train(1)
    world.arrived(20)
    assert world.settled().lost in (2, 4)  # a new head may ask once more


@pytest.mark.parametrize("says_which", [True, False])
def test_where_all_are_refused_none_is_given_up(
    world: World, services: CloudServices, says_which: bool
) -> None:
    """A wrong setting is no reason to lose everything."""
    services.says_which = says_which
    services.is_bad = lambda entry: True
    world.train(20)
    world.start("logging")
    report = world.troubled()
    assert "takes none of" in report.problem and "check the project" in report.todo
    services.is_bad = lambda entry: False
    world.arrived(21)
    assert (world.settled().sent, world.report().lost) == (21, 0)
    services.is_bad = lambda entry: True
    world.train(20)
    assert "takes none of" in world.troubled().problem
    services.is_bad = lambda entry: False
    world.arrived(41)
    assert world.settled().lost == 0


def test_an_entry_that_is_too_long_is_set_aside(world: World, services: CloudServices) -> None:
    entry = GoodputEntry("log", {"job_name": "job 1", "text": "x" * 260_000})
    world.keep(world.writer.batch(events=[Event(BEGIN, GoodputEntry.KIND, entry.body(), scope=1)]))
    world.train(1)
    world.start("logging")
    world.arrived(2)
    report = world.settled()
    assert (report.sent, report.lost) == (2, 1)
    assert "an entry may have" in report.lost_why


def test_large_entries_go_in_several_requests(world: World, services: CloudServices) -> None:
    text = "x" * 200_000
    events = [
        Event(BEGIN + n, GoodputEntry.KIND, GoodputEntry("l", {"n": n, "t": text}).body(), scope=1)
        for n in range(12)
    ]
    world.keep(world.writer.batch(events=events))
    world.start("logging")
    world.arrived(12)
    assert len(services.requests) == 3


# ── Cloud Monitoring ──────────────────────────────────────────────────────────────────────────


def test_moments_that_were_missed_are_sent_afterwards(
    world: World, services: CloudServices
) -> None:
    services.fault = refuse(14, "away")
    world.train(600)
    exporters = world.start("monitoring")
    until(lambda: exporters.reports()[0].waiting > 0)
    world.clock.advance(300)
    world.end()  # and no head for an hour
    world.clock.advance(3600)
    services.fault = None
    world.start("monitoring")
    # Ten within the run, and the one after its end.
    until(lambda: world.minutes("/performance") == 11)
    ((_, elapsed),) = services.named("/total_elapsed_time").items()
    ends = [end for end, _ in elapsed]
    assert [b - a for a, b in zip(ends, ends[1:], strict=False)] == [60.0] * (len(ends) - 1)
    assert world.report().lost == 0


def test_points_that_are_too_old_are_lost_and_counted(
    world: World, services: CloudServices, caplog: pytest.LogCaptureFixture
) -> None:
    services.fault = refuse(7, "no permission")
    world.train(300)
    world.start("monitoring")
    assert "roles/monitoring.metricWriter" in world.troubled().todo
    waited = until(lambda: world.report().waiting)
    world.clock.advance(26 * 3600)
    report = until(lambda: world.report() if _is_settled(world.report()) else None)
    assert (report.lost, report.sent) == (waited, 0)  # the run ended before
    assert "25 hours" in report.lost_why
    assert caplog.text.count("will not take") == 1
    assert services.points == {}


def test_minutes_without_a_head_that_are_too_old_are_counted(
    world: World, services: CloudServices
) -> None:
    world.train(200)
    world.clock.wall -= 400 * SECOND
    world.start("monitoring")
    until(lambda: world.minutes("/performance") == 3)
    world.end()
    world.train(400)
    world.clock.advance(26 * 3600)
    world.start("monitoring")
    report = until(lambda: world.report() if world.report().lost else None)
    assert "25 hours" in report.lost_why and report.problem == ""
    assert world.minutes("/performance") == 3


def test_points_whose_answer_comes_too_late_are_no_loss(
    world: World, services: CloudServices
) -> None:
    def late(request: Any, context: Any) -> None:
        services.fault = None
        services.create(request, context)
        services.never_answers(request, context)

    services.fault = late
    world.train(300)
    world.start("monitoring", timeout_seconds=0.2)
    until(lambda: world.minutes("/performance") == 6)
    report = until(lambda: world.report() if _is_settled(world.report()) else None)
    points = sum(map(len, services.points.values()))
    until(lambda: world.report().sent == points)
    assert report.lost == 0


def test_a_point_that_is_sent_again_is_no_loss(world: World, services: CloudServices) -> None:
    """A head was killed after it had sent a moment, and before it could note that."""
    world.train(300)
    world.start("monitoring")
    until(lambda: world.minutes("/performance") == 6)
    world.end()
    cursor = world.root / "cloud" / "monitoring.json"
    kept = json.loads(cursor.read_text())
    cursor.write_text(json.dumps(kept | {"at_ns": kept["at_ns"] - 60 * SECOND * 5}))
    before = {key: list(found) for key, found in services.points.items()}
    world.start("monitoring")
    until(lambda: world.report().sent > kept["sent"])
    assert _is_settled(until(lambda: world.report() if _is_settled(world.report()) else None))
    assert (services.points, world.report().lost) == (before, 0)


def test_one_that_the_service_refuses_is_counted_and_the_rest_goes_on(
    world: World, services: CloudServices
) -> None:
    world.train(200)
    world.clock.wall -= 400 * SECOND
    world.start("monitoring")
    until(lambda: world.minutes("/disruptions") == 3)
    (ahead,) = services.named("/disruptions").values()
    ahead.append((1e12, 0.0))  # somebody else writes it, too
    world.train(100)
    world.clock.advance(120)
    until(lambda: world.minutes("/performance") == 5)
    report = until(lambda: world.report() if world.report().lost == 2 else None)
    assert report.problem == "" and "in order" in report.lost_why


def test_of_two_runs_with_one_name_the_newest_counts(world: World, services: CloudServices) -> None:
    world.train(200)
    twin = job("job 1", "journal-b")
    twin.definitions = [RunScope(1, RunId("another id"), "job 1"), *twin.definitions[1:]]
    begin_ns = BEGIN + 100 * SECOND
    twin.origin = replace(twin.origin, start_ns=begin_ns)
    rows = [(2, begin_ns + n * SECOND, n, begin_ns / SECOND + n) for n in range(200)]
    world.keep(twin.batch([(1, begin_ns, None, begin_ns / SECOND), *rows]))
    world.start("monitoring")
    until(lambda: world.minutes("/total_elapsed_time") == 6)
    ((_, elapsed),) = services.named("/total_elapsed_time").items()
    assert (world.report().problem, world.report().lost) == ("", 0)
    assert elapsed[0][1] == 40.0 and elapsed[-1][1] <= 200.0


@pytest.mark.soak
def test_only_so_many_runs_at_a_time(world: World, services: CloudServices) -> None:
    for number in range(60):
        writer = job(f"job {number}", f"journal-{number}")
        world.keep(writer.batch([(1, BEGIN, None, BEGIN / SECOND), (2, BEGIN + SECOND, 1, 1.0)]))
    world.start("monitoring")
    assert "10 runs are not sent" in until(lambda: world.report().note)
    until(lambda: len(services.named("/disruptions")) == 50)


# ── what is missing here ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("service", ["logging", "monitoring"])
def test_without_the_libraries_the_head_works_and_says_which(
    world: World,
    service: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    version = "logging_v2" if service == "logging" else "monitoring_v3"
    for name in [name for name in sys.modules if name.startswith(f"google.cloud.{version}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, f"google.cloud.{version}", None)
    world.start(service)
    report = world.troubled()
    assert report.problem == f"google-cloud-{service} is not installed"
    assert report.todo == 'pip install "runwatch[gcp]"'
    world.train(3)
    assert len(caplog.records) == 1


def test_without_credentials_the_way_to_them_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nowhere.json"))
    world.start("logging", insecure=False, logging_endpoint="")
    report = world.troubled()
    assert "no Google credentials" in report.problem and "nowhere.json" in report.problem
    assert "gcloud auth application-default login" in report.todo


def test_without_a_project(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    world.start("logging", project="")
    assert "set gcp.project" in world.troubled().todo


# ── for people ────────────────────────────────────────────────────────────────────────────────


def test_the_scrape_and_the_health_tell(world: World, services: CloudServices) -> None:
    services.fault = refuse(7, "no permission")
    world.train(4)
    world.start("logging")
    until(lambda: world.report().waiting == 5)
    text = world.local.context.metrics.text().decode()
    assert 'runwatch_forward_waiting{to="cloud_logging"} 5.0' in text
    assert 'runwatch_forward_healthy{to="cloud_logging"} 0.0' in text
    services.fault = None
    world.arrived(5)
    world.settled()
    text = world.local.context.metrics.text().decode()
    assert 'runwatch_forwarded_total{to="cloud_logging"} 5.0' in text
    assert 'runwatch_forward_healthy{to="cloud_logging"} 1.0' in text
    assert "runwatch_forward_waiting_since" not in text
