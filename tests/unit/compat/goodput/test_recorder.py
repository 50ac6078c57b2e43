from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runwatch
from runwatch.clock import system_clock
from runwatch.compat.goodput.log import backend
from runwatch.compat.goodput.log.backend import JournalLogger
from runwatch.compat.goodput.log.entries import Entry
from runwatch.compat.goodput.log.recorder import ElasticGoodputRecorder, GoodputRecorder
from runwatch.sdk.guard import tally
from runwatch.testing import read_stories
from tests.integration.sdk_programs import run_program

WHEN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
SECONDS = WHEN.timestamp()

Call = Callable[[Any], None]

CALLS: list[tuple[Call, Entry]] = [
    (lambda r: r.record_job_start_time(WHEN), {"job_start_time": SECONDS}),
    (lambda r: r.record_job_end_time(WHEN), {"job_end_time": SECONDS}),
    (
        lambda r: r.record_step_start_time(7, WHEN),
        {"step_count": 7, "step_start_time": SECONDS},
    ),
    (lambda r: r.record_tpu_init_start_time(WHEN), {"tpu_init_start_time": SECONDS}),
    (lambda r: r.record_tpu_init_end_time(WHEN), {"tpu_init_end_time": SECONDS}),
    (
        lambda r: r.record_training_preparation_start_time(WHEN),
        {"training_prep_start_time": SECONDS},
    ),
    (
        lambda r: r.record_training_preparation_end_time(WHEN),
        {"training_prep_end_time": SECONDS},
    ),
    (lambda r: r.record_data_loading_start_time(WHEN), {"data_loading_start_time": SECONDS}),
    (lambda r: r.record_data_loading_end_time(WHEN), {"data_loading_end_time": SECONDS}),
    (
        lambda r: r.record_custom_badput_event_start_time(WHEN),
        {"custom_badput_event_type": "unknown", "custom_badput_event_start_time": SECONDS},
    ),
    (
        lambda r: r.record_custom_badput_event_end_time(WHEN, "eval_step"),
        {"custom_badput_event_type": "eval_step", "custom_badput_event_end_time": SECONDS},
    ),
    (
        lambda r: r.record_elastic_slice_counts(2, 4, 3, WHEN),
        {
            "active_slices": 2,
            "total_slices": 4,
            "available_slices": 3,
            "elastic_slice_counts_timestamp": SECONDS,
        },
    ),
    (
        lambda r: r.record_elastic_wait_start_time("slice_down", WHEN),
        {"elastic_wait_event_type": "slice_down", "elastic_wait_start_time": SECONDS},
    ),
    (
        lambda r: r.record_elastic_wait_end_time("slice_down", WHEN),
        {"elastic_wait_event_type": "slice_down", "elastic_wait_end_time": SECONDS},
    ),
    (lambda r: r.record_elastic_reinit_start_time(WHEN), {"elastic_reinit_start_time": SECONDS}),
    (lambda r: r.record_elastic_reinit_end_time(WHEN), {"elastic_reinit_end_time": SECONDS}),
]
EXPECTED = [{"job_name": "job"} | fields for _, fields in CALLS]


class MemoryLogger:
    """As tests of the original's users bring one."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.flushed = 0

    def write_cloud_logging_entry(self, entry: Entry) -> None:
        self.entries.append(entry)

    def flush(self) -> None:
        self.flushed += 1


def read(job: str = "job", logger: str = "log") -> list[Entry]:
    source = JournalLogger(job, logger)
    try:
        return source.read_cloud_logging_entries()[0]
    finally:
        source.close()


# ── what is written ───────────────────────────────────────────────────────────────────────────


def test_entries_for_a_logger_that_was_brought_along(place: Path) -> None:
    logger = MemoryLogger()
    recorder = ElasticGoodputRecorder("job", "log", True, logger)
    for call, _ in CALLS:
        call(recorder)
    recorder.record_checkpoint_progress(7, WHEN)
    recorder.flush()
    assert logger.entries == EXPECTED
    assert logger.flushed == 1
    assert not place.exists()


def test_the_same_entries_from_a_journal(place: Path) -> None:
    recorder = ElasticGoodputRecorder("job", "log", True)
    for call, _ in CALLS:
        call(recorder)
    recorder.flush()
    assert read() == EXPECTED
    for call, _ in CALLS:  # once more, now that the journal is open
        call(recorder)
    assert read() == EXPECTED * 2
    assert tally.counts == {}


def test_a_point_carries_its_step_its_unit_and_its_log(place: Path) -> None:
    recorder = GoodputRecorder("job", "log", True)
    begin_ns = system_clock.wall_ns()
    recorder.record_step_start_time(3)
    end_ns = system_clock.wall_ns()
    recorder.record_custom_badput_event_start_time(custom_badput_event_type="Eval")
    backend.finish_runs()
    (story,) = read_stories(place)
    step, custom = story.numbers
    assert (step.metric, step.step, step.unit) == ("goodput.step_start_time", 3, "s")
    assert step.labels == {"logger": "log"}
    assert custom.labels == {"logger": "log", "type": "Eval"}
    assert custom.step is None
    assert begin_ns <= step.time_ns <= end_ns
    assert begin_ns - 1000 <= step.value * 1e9 <= end_ns + 1000  # as exact as a float


def test_the_run_is_one_like_any_other(place: Path) -> None:
    GoodputRecorder("job", "log", True).record_job_start_time()
    assert runwatch.current_run() is None
    backend.finish_runs()
    (story,) = read_stories(place)
    (scope,) = story.scopes
    assert (scope.run, scope.name, scope.rank) == ("job", "job", 0)
    assert story.bodies("run_start")[0]["orchestrator"] == "NONE"
    assert story.end["status"] == "completed"


def test_without_logging_nothing_is_recorded_or_made(place: Path) -> None:
    logger = MemoryLogger()
    for recorder in (
        ElasticGoodputRecorder("job", "log"),
        ElasticGoodputRecorder("job", "log", False, logger),
    ):
        for call, _ in CALLS:
            call(recorder)
        recorder.flush()
    assert (logger.entries, logger.flushed) == ([], 0)
    assert not place.exists()


@pytest.mark.parametrize("brought", [True, False])
def test_the_default_time_is_now(place: Path, brought: bool) -> None:
    logger = MemoryLogger()
    recorder = ElasticGoodputRecorder("job", "log", True, logger if brought else None)
    before = system_clock.wall_ns() / 1e9
    recorder.record_job_start_time()
    recorder.record_step_start_time(0)
    recorder.record_step_start_time(1)
    recorder.record_elastic_slice_counts(1, 1, 1)
    after = system_clock.wall_ns() / 1e9
    entries = logger.entries if brought else read()
    moments = [value for entry in entries for name, value in entry.items() if "time" in name]
    assert len(moments) == 4
    assert before <= moments[0] <= moments[1] <= moments[2] <= moments[3] <= after


def test_a_time_without_a_zone_is_local_time(place: Path) -> None:
    recorder = GoodputRecorder("job", "log", True)
    recorder.record_job_start_time(WHEN.astimezone().replace(tzinfo=None))
    recorder.record_job_start_time(WHEN.astimezone(timezone(timedelta(hours=-8))))
    assert [entry["job_start_time"] for entry in read()] == [SECONDS, SECONDS]


# ── what programs hand over ───────────────────────────────────────────────────────────────────


def test_steps_of_any_kind_that_int_takes(place: Path) -> None:
    recorder = GoodputRecorder("job", "log", True)
    for step in (*np.arange(3), np.int32(3), np.uint8(4), 5.0, "6", True, -1, 2**63 - 1):
        recorder.record_step_start_time(step)
    assert [e["step_count"] for e in read()] == [0, 1, 2, 3, 4, 5, 6, 1, -1, 2**63 - 1]
    assert tally.counts == {}


@pytest.mark.parametrize("brought", [True, False])
def test_a_wrong_step_or_time_is_counted_and_said_once(
    place: Path, brought: bool, caplog: pytest.LogCaptureFixture
) -> None:
    logger = MemoryLogger()
    recorder = ElasticGoodputRecorder("job", "log", True, logger if brought else None)
    wrong: Any
    for wrong in (None, "seven", [7], 2**63, float("nan")):
        recorder.record_step_start_time(wrong)
        recorder.record_step_start_time(wrong)
    for wrong in ("noon", 5.0, datetime.min):
        recorder.record_job_start_time(wrong)
        recorder.record_elastic_slice_counts(1, 1, 1, wrong)
    recorder.record_elastic_slice_counts("many", 1, 1)  # type: ignore[arg-type]
    recorder.record_job_end_time(WHEN)
    entries = logger.entries if brought else read()
    assert entries == [{"job_name": "job", "job_end_time": SECONDS}]
    assert sum(tally.counts.values()) == 17
    assert len(caplog.records) == len(tally.counts) == 5
    assert {r.levelno for r in caplog.records} == {logging.WARNING}


def test_types_that_are_no_labels_are_recorded_all_the_same(place: Path) -> None:
    recorder = ElasticGoodputRecorder("job", "log", True)
    wrong: Any
    for wrong in (7, "", "x" * 1000):
        recorder.record_custom_badput_event_start_time(WHEN, wrong)
    recorder.record_elastic_wait_start_time(None, WHEN)  # type: ignore[arg-type]
    types = [e.get("custom_badput_event_type", e.get("elastic_wait_event_type")) for e in read()]
    assert types == ["7", "", "x" * 1000, "None"]


def test_more_types_than_there_is_room_for_series(place: Path) -> None:
    recorder = GoodputRecorder("job", "log", True)
    types = [f"step {i}" for i in range(backend.MAX_SERIES + 50)]
    for name in types:
        recorder.record_custom_badput_event_start_time(custom_badput_event_type=name)
    recorder.record_job_end_time()
    found = read()
    assert [e.get("custom_badput_event_type") for e in found] == [*types, None]
    assert "job_end_time" in found[-1]


def test_a_logger_that_fails_does_not_stop_training(place: Path) -> None:
    class Broken:
        def write_cloud_logging_entry(self, entry: Entry) -> None:
            raise ConnectionError("no quota")

        def flush(self) -> None:
            raise ConnectionError("no quota")

    recorder = ElasticGoodputRecorder("job", "log", True, Broken())
    for call, _ in CALLS:
        call(recorder)
    recorder.flush()
    assert sum(tally.counts.values()) == len(CALLS) + 1


def test_there_is_no_end_of_a_step_to_record() -> None:
    assert not hasattr(GoodputRecorder, "record_step_end_time")
    assert not hasattr(ElasticGoodputRecorder, "record_step_end_time")


@pytest.mark.parametrize(
    "name", ["team/llama 70b", "ünïcode 模型", "", "a" * 300, "tab\there", ".."]
)
def test_any_job_name(place: Path, name: str) -> None:
    GoodputRecorder(name, "log", True).record_step_start_time(1)
    GoodputRecorder(name + "x", "log", True).record_step_start_time(2)
    (entry,) = read(name)
    assert (entry["job_name"], entry["step_count"]) == (name, 1)


# ── which run ─────────────────────────────────────────────────────────────────────────────────


def test_the_current_run_is_recorded_to_if_it_has_the_name(place: Path) -> None:
    recorder = GoodputRecorder("job", "log", True)
    with runwatch.init("job") as run:
        run.log(loss=1.0)
        recorder.record_step_start_time(1)
        run.log(loss=0.5)
    (story,) = read_stories(place)
    assert [n.metric for n in story.numbers] == ["loss", "goodput.step_start_time", "loss"]
    assert [e["step_count"] for e in read()] == [1]


def test_init_takes_over_the_run_that_a_recorder_began(place: Path) -> None:
    recorder = GoodputRecorder("job", "log", True)
    recorder.record_step_start_time(0)
    with runwatch.init("job", config={"lr": 0.1}) as run:
        recorder.record_step_start_time(1)
        assert runwatch.current_run() is run
        assert run.config["lr"] == 0.1
    (story,) = read_stories(place)
    assert story.steps("goodput.step_start_time") == [0, 1]
    assert [e.kind for e in story.events].count("run_start") == 1


def test_a_current_run_of_another_name_is_left_alone(place: Path) -> None:
    with runwatch.init("other") as run:
        GoodputRecorder("job", "log", True).record_step_start_time(1)
        assert runwatch.current_run() is run
        backend.finish_runs()
    assert {s.scopes[0].name: len(s.numbers) for s in read_stories(place)} == {"other": 0, "job": 1}


def test_recorders_of_one_job_share_its_run(place: Path) -> None:
    first, second = GoodputRecorder("job", "log", True), GoodputRecorder("job", "log", True)
    third = GoodputRecorder("job", "another log", True)
    for step, recorder in enumerate((first, second, third)):
        recorder.record_step_start_time(step)
    assert [e["step_count"] for e in read()] == [0, 1]
    assert [e["step_count"] for e in read(logger="another log")] == [2]
    backend.finish_runs()
    assert len(read_stories(place)) == 1


def test_after_the_end_nothing_is_recorded_and_no_attempt_is_made(place: Path) -> None:
    recorder = GoodputRecorder("job", "log", True)
    with runwatch.init("job"):
        recorder.record_step_start_time(1)
    recorder.record_step_start_time(2)
    recorder.record_job_end_time()
    assert tally.counts == {"after finish": 2}
    assert [e["step_count"] for e in read()] == [1]
    assert len(read_stories(place)) == 1


def test_a_new_attempt_in_the_same_process_is_recorded_to(place: Path) -> None:
    recorder = GoodputRecorder("job", "log", True)
    for step in range(3):
        with runwatch.init("job"):
            recorder.record_step_start_time(step)
    assert [e["step_count"] for e in read()] == [0, 1, 2]
    assert len(read_stories(place)) == 3


def test_where_nothing_can_be_written_training_goes_on(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.parent.joinpath("file").write_text("")
    monkeypatch.setenv("RUNWATCH_DIR", str(place.parent / "file" / "runwatch"))
    monkeypatch.setenv("TMPDIR", str(place.parent / "file"))
    recorder = ElasticGoodputRecorder("job", "log", True)
    for call, _ in CALLS:
        call(recorder)
    assert tally.counts == {"no journal": 1 + len(CALLS)}


def test_a_forked_child_records_in_a_journal_of_its_own(place: Path) -> None:
    done = run_program(
        """
        import os
        from runwatch.compat.goodput import goodput
        recorder = goodput.GoodputRecorder("job", "log", True)
        recorder.record_step_start_time(0)
        if os.fork() == 0:
            for step in range(10, 13):
                recorder.record_step_start_time(step)
            os._exit(0)
        os.wait()
        recorder.record_step_start_time(1)
        """,
        place,
    )
    assert (done.returncode, done.stderr) == (0, "")
    stories = read_stories(place)
    assert {s.origin.role: s.steps("goodput.step_start_time") for s in stories} == {
        "process": [0, 1],
        "child": [10, 11, 12],
    }
    assert [e["step_count"] for e in read()] == [0, 10, 11, 12, 1]


def test_recording_loads_the_standard_library_only(place: Path) -> None:
    done = run_program(
        """
        import sys
        before = set(sys.modules)
        from runwatch.compat import goodput
        recorder = goodput.goodput.GoodputRecorder("job", "log", True)
        recorder.record_job_start_time()
        used = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(sorted(used - set(sys.stdlib_module_names)))
        print(sorted(used & {"asyncio", "socketserver", "http", "subprocess", "multiprocessing"}))
        """,
        place,
    )
    assert (done.stdout, done.stderr) == ("['runwatch']\n[]\n", "")
