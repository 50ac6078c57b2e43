from __future__ import annotations

import errno
import math
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runwatch.compat.goodput.monitor.tensorboard import job_scalars
from runwatch.errors import UsageError
from runwatch.exports.event_files import EventFile, Scalar
from tests.unit.compat.goodput.monitor_help import (
    START,
    HandClock,
    event_files,
    events_in,
    shown,
    tags,
)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def event_file(directory: Path, clock: HandClock, job: str = "job") -> EventFile:
    return EventFile(str(directory), job, clock=clock)


def test_scalars_are_read_back_as_they_were_written(tmp_path: Path, clock: HandClock) -> None:
    file = event_file(tmp_path / "a" / "b", clock)
    random.seed(7)
    numbers = [0, 1, 127, 128, 300, 2**31, 2**62, -1]
    given = [Scalar("step_deviation", n, random.uniform(-1e6, 1e6)) for n in numbers]
    given.append(Scalar("badput/größe", 3, 12.5, "größe"))
    file.write(given)
    file.close()

    (path,) = event_files(tmp_path)
    assert [(s.tag, s.step, s.display_name) for s in shown(tmp_path)] == [
        (s.tag, s.step, s.display_name) for s in given
    ]
    assert [s.value for s in shown(tmp_path)] == pytest.approx([s.value for s in given], rel=1e-7)
    assert {event.wall_time for event in events_in(path)} == {float(START)}


def test_the_tags_are_the_ones_users_know() -> None:
    badput: dict[str, float | dict[str, float]] = {
        "TPU_INITIALIZATION": 2.5,
        "CUSTOM_BADPUT_EVENTS": {"EVAL_STEP": 1.0, "my event!": 2.0},
        "OTHER": 40.0,
    }
    assert job_scalars(60.0, badput, 28) == [
        Scalar("goodput/goodput", 28, 60.0, "goodput"),
        Scalar("badput/tpu_initialization", 28, 2.5, "tpu_initialization"),
        Scalar("badput/custom_badput_events/eval_step", 28, 1.0, "eval_step"),
        Scalar("badput/custom_badput_events/my_event_", 28, 2.0, "my_event_"),
        Scalar("badput/other", 28, 40.0, "other"),
    ]


def test_a_point_is_written_once(tmp_path: Path, clock: HandClock) -> None:
    file = event_file(tmp_path, clock)
    file.write([Scalar("goodput/goodput", 5, 50.0)])
    file.write([Scalar("goodput/goodput", 5, 50.0)])
    file.write([Scalar("goodput/goodput", 5, 40.0)])  # the same step, later: a new point
    file.close()
    assert tags(tmp_path, "goodput/goodput") == [(5, 50.0), (5, 40.0)]


def test_what_is_not_a_number_is_left_out(tmp_path: Path, clock: HandClock) -> None:
    file = event_file(tmp_path, clock)
    file.write([Scalar("a", 1, math.nan), Scalar("a", 2, math.inf)])
    assert event_files(tmp_path) == []
    file.write([Scalar("a", 1, math.nan), Scalar("a", 2, 1.0)])
    file.close()
    assert tags(tmp_path, "a") == [(2, 1.0)]


def test_nothing_is_opened_before_the_first_scalar(tmp_path: Path, clock: HandClock) -> None:
    file = event_file(tmp_path / "board", clock)
    file.write([])
    file.close()
    assert not (tmp_path / "board").exists()


def test_closed_and_written_again_goes_on_in_one_file(tmp_path: Path, clock: HandClock) -> None:
    file = event_file(tmp_path, clock)
    for step in range(3):
        file.write([Scalar("a", step, float(step))])
        file.close()
        clock.move(100)
    assert len(event_files(tmp_path)) == 1
    assert tags(tmp_path, "a") == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_a_later_writer_knows_what_the_directory_has(tmp_path: Path, clock: HandClock) -> None:
    first = event_file(tmp_path, clock)
    assert first.last_step("step_deviation") is None
    first.write([Scalar("step_deviation", s, 1.0) for s in range(200)])
    first.write([Scalar("goodput/goodput", 900, 50.0)])
    first.close()
    clock.move(1)
    second = event_file(tmp_path, clock)
    assert second.last_step("step_deviation") == 199
    assert event_file(tmp_path, clock, "another job").last_step("step_deviation") is None


@pytest.mark.parametrize("lost", [1, 7, 20])
def test_a_torn_end_of_an_earlier_file_is_no_trouble(
    tmp_path: Path, clock: HandClock, lost: int
) -> None:
    first = event_file(tmp_path, clock)
    first.write([Scalar("step_deviation", s, 1.0) for s in range(10)])
    first.close()
    (path,) = event_files(tmp_path)
    path.write_bytes(path.read_bytes()[:-lost])
    assert event_file(tmp_path, clock).last_step("step_deviation") == 8


def test_two_writers_in_the_same_second_have_two_files(tmp_path: Path, clock: HandClock) -> None:
    """B3: no two of them may ever write to one file."""
    first, second = event_file(tmp_path, clock), event_file(tmp_path, clock, "another")
    for step in range(50):
        first.write([Scalar("a", step, 1.0)])
        second.write([Scalar("b", step, 2.0)])
    first.close()
    second.close()
    assert len(event_files(tmp_path)) == 2
    assert len(tags(tmp_path, "a")) == len(tags(tmp_path, "b")) == 50


@pytest.fixture
def small_files() -> Iterator[int]:
    """Files may not grow beyond this: the nearest thing to a full disk."""
    limit = 2_000
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_tears_no_frame(tmp_path: Path, clock: HandClock, small_files: int) -> None:
    file = event_file(tmp_path, clock)
    file.write([Scalar("a", 0, 1.0)])
    with pytest.raises(OSError) as caught:
        file.write([Scalar("a", step, 1.0) for step in range(1, 100)])
    assert caught.value.errno == errno.EFBIG
    assert tags(tmp_path, "a") == [(0, 1.0)]
    file.write([Scalar("a", 1, 2.0)])
    file.close()
    assert tags(tmp_path, "a") == [(0, 1.0), (1, 2.0)]


def test_a_directory_needs_the_standard_library_only(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from runwatch.exports.event_files import EventFile, Scalar\n"
        f"file = EventFile({str(tmp_path)!r}, 'job')\n"
        "file.write([Scalar('a', 1, 1.0)]); file.close()\n"
        "heavy = {'numpy', 'torch', 'tensorboardX', 'google.protobuf'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert tags(tmp_path, "a") == [(1, 1.0)]


class Objects:
    """A store of whole objects, as tensorboardX lets programs add one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.uploads = 0

    def directory_check(self, path: str) -> None:
        pass

    def open(self, path: str) -> Writer:
        return Writer(self, path.rpartition("/")[2])


class Writer:
    def __init__(self, store: Objects, name: str) -> None:
        self.store, self.name, self.data = store, name, b""

    def write(self, data: bytes) -> None:
        self.data += data

    def flush(self) -> None:
        (self.store.root / self.name).write_bytes(self.data)
        self.store.uploads += 1

    def close(self) -> None:
        self.flush()


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[Objects]:
    from tensorboardX import record_writer

    store = Objects(tmp_path)
    record_writer.register_writer_factory("objects", store)
    yield store
    del record_writer.REGISTERED_FACTORIES["objects"]


def test_an_object_store_takes_the_same_files(
    tmp_path: Path, clock: HandClock, objects: Objects
) -> None:
    file = EventFile("objects://bucket/board", "job", clock=clock)
    assert file.last_step("a") is None
    file.write([Scalar("a", 0, 1.0)])
    file.write([Scalar("a", 1, 2.0)])
    file.close()
    clock.move(1)
    file.write([Scalar("a", 2, 3.0)])  # objects are replaced: what is there must not be
    file.close()
    assert len(event_files(tmp_path)) == 2
    assert tags(tmp_path, "a") == [(0, 1.0), (1, 2.0), (2, 3.0)]


def test_without_tensorboardx_an_object_store_says_what_to_install(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX.record_writer", None)  # as if not installed
    with pytest.raises(UsageError, match=r"pip install \"runwatch\[tensorboard\]\"") as caught:
        EventFile("gs://bucket/board", "job", clock=clock).write([Scalar("a", 0, 1.0)])
    assert "gs://bucket/board" in str(caught.value)


def test_a_forked_child_leaves_the_file_alone(tmp_path: Path, clock: HandClock) -> None:
    file = event_file(tmp_path, clock)
    file.write([Scalar("a", 0, 1.0)])
    child = os.fork()
    if child == 0:
        del file  # closes the child's copy
        os._exit(0)
    os.waitpid(child, 0)
    file.write([Scalar("a", 1, 2.0)])
    file.close()
    assert tags(tmp_path, "a") == [(0, 1.0), (1, 2.0)]
