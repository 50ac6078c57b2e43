from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from runwatch.compat.goodput.log import backend
from runwatch.compat.goodput.log.backend import JournalLogger
from runwatch.compat.goodput.log.entries import Entry
from runwatch.compat.goodput.log.imports import (
    Imported,
    Logged,
    cloud_filter,
    import_entries,
    read_cloud_logging,
    read_log,
)
from runwatch.compat.goodput.log.recorder import GoodputRecorder
from runwatch.errors import NotFound, UsageError
from runwatch.testing import read_stories

T0 = 1_767_322_800.0  # 2026-01-02T03:00:00Z

LOG: list[Entry] = [
    {"job_name": "job", "job_start_time": T0},
    {"job_name": "job", "step_count": 0, "step_start_time": T0 + 5},
    {"job_name": "job", "step_count": 1, "step_start_time": T0 + 8},
    {
        "job_name": "job",
        "event_type": "save",
        "step": 1,
        "directory": "gs://b",
        "checkpoint_manager_blocking_start_time": T0 + 6,  # logged when it was done
        "checkpoint_manager_blocking_duration_secs": 1.0,
        "synchronous": False,
    },
    {"job_name": "job", "step_count": 2, "step_start_time": T0 + 11},
    {
        "job_name": "job",
        "custom_badput_event_type": "eval",
        "custom_badput_event_start_time": T0 + 12,
    },
    {"job_name": "job", "job_end_time": T0 + 14},
]


def exported(number: int, payload: Entry) -> dict[str, Any]:
    """As Cloud Logging hands an entry out."""
    return {
        "insertId": f"1abc{number}",
        "jsonPayload": payload,
        "logName": "projects/p/logs/goodput%20job",
        "receiveTimestamp": "2026-01-02T03:05:00Z",
        "resource": {"type": "global"},
        "severity": "INFO",
        "timestamp": f"2026-01-02T03:00:{number:02}.123456789Z",
    }


def lines(objects: list[Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in objects)


def read(job: str, logger: str, root: Path) -> list[Entry]:
    source = JournalLogger(job, logger, root=root)
    try:
        return source.read_cloud_logging_entries()[0]
    finally:
        source.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "job_timeline.jsonl"


# ── reading ───────────────────────────────────────────────────────────────────────────────────


def test_the_originals_own_cache(file: Path) -> None:
    file.write_text(lines(LOG))
    read_so_far: list[int] = []
    assert list(read_log(file, progress=read_so_far.append)) == [Logged(entry) for entry in LOG]
    assert sum(read_so_far) == len(LOG)


@pytest.mark.parametrize("form", ["list", "lines", "newest first"])
def test_what_cloud_logging_exported(file: Path, form: str) -> None:
    objects = [exported(number, entry) for number, entry in enumerate(LOG)]
    objects.append(objects[2])  # pages may overlap
    objects.append({"textPayload": "hello", "timestamp": "2026-01-02T03:00:00Z", "insertId": "t"})
    if form == "newest first":
        objects = objects[::-1]
        objects = [objects[1], objects[0], *objects[2:]]
    file.write_text(lines(objects) if form == "lines" else json.dumps(objects, indent=2))
    logged = list(read_log(file))
    assert [one.entry for one in logged] == LOG
    assert {one.logger for one in logged} == {"goodput job"}
    assert logged[1].time_ns == int(T0) * 10**9 + 1_123_456_789


def test_a_log_larger_than_what_is_read_at_once(file: Path) -> None:
    steps = [
        {"job_name": "job", "step_count": i, "step_start_time": i + 0.5} for i in range(30_000)
    ]
    file.write_text(json.dumps(steps))
    assert file.stat().st_size > 1 << 20
    counted: list[int] = []
    assert [one.entry for one in read_log(file, progress=counted.append)] == steps
    assert (sum(counted), max(counted)) == (30_000, 1000)


def test_a_log_that_ends_in_the_middle_of_an_entry(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text(lines(LOG)[:-10])
    assert [one.entry for one in read_log(file)] == LOG[:-1]
    assert "in the middle of an entry" in caplog.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"job_name": "job"}\nnot json\n{"job_name": "job"}', "not JSON at character 20"),
        ("[1, 2]", "1 where an entry should be"),
        ('{"loss": 1.0}', "holds no goodput log"),
        ("\x00", "not JSON"),
    ],
)
def test_a_file_that_is_something_else(file: Path, text: str, words: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError, match=words):
        list(read_log(file))


def test_a_file_that_is_not_there_not_text_or_empty(tmp_path: Path, file: Path) -> None:
    with pytest.raises(NotFound, match="No such file"):
        list(read_log(file))
    with pytest.raises(UsageError, match="cannot read"):
        list(read_log(tmp_path))
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot read"):
        list(read_log(file))
    file.write_text("[]\n")
    assert list(read_log(file)) == []


# ── writing ───────────────────────────────────────────────────────────────────────────────────


def test_an_imported_log_is_a_run(place: Path) -> None:
    assert import_entries(LOG, place) == Imported("job", "job", 7, 7)  # type: ignore[arg-type]
    assert read("job", "goodput_job", place) == LOG
    (story,) = read_stories(place)
    assert (story.origin.host, story.origin.pid) == ("imported", 0)
    assert story.end["status"] == "completed"
    moments = [n.time_ns for n in story.numbers]
    assert moments == sorted(set(moments))
    assert moments[0] == int(T0 * 1e9)
    assert list(place.iterdir()) == [place / "journals"]


def test_the_time_of_the_log_is_the_records(place: Path) -> None:
    logged = [Logged(entry, 10**9 * (i + 1), "from the log") for i, entry in enumerate(LOG)]
    import_entries(logged, place)
    assert read("job", "from the log", place) == LOG
    source = JournalLogger("job", "from the log", root=place)
    until = datetime.fromtimestamp(3, UTC)
    assert source.read_cloud_logging_entries(None, until)[0] == LOG[:3]
    source.close()


def test_importing_again_doubles_nothing(place: Path) -> None:
    import_entries(LOG[:4], place)
    before = sorted(place.rglob("*.seg"))
    assert import_entries(LOG[:4], place).written == 0
    assert sorted(place.rglob("*.seg")) == before
    assert import_entries(LOG, place).written == 3  # the job went on
    assert import_entries([*LOG, *LOG], place).written == 0
    assert read("job", "goodput_job", place) == LOG


def test_the_same_log_makes_the_same_journal_anywhere(tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        import_entries(LOG, tmp_path / name)
        (segment,) = (tmp_path / name).rglob("*.seg")
        found.append((segment.parent.name, segment.read_bytes()[:56], segment.stat().st_size))
    assert found[0] == found[1]


def test_what_was_recorded_here_is_not_imported_again(place: Path) -> None:
    recorder = GoodputRecorder("job", "log", True)
    recorder.record_job_start_time(datetime.fromtimestamp(T0, UTC))
    backend.finish_runs()
    imported = import_entries(LOG, place, logger_name="log")
    assert (imported.read, imported.written) == (7, 6)
    assert len(read("job", "log", place)) == 7


def test_a_job_that_did_not_end(place: Path) -> None:
    import_entries(LOG[:-1], place)
    (story,) = read_stories(place)
    assert story.bodies("run_end") == []


def test_one_job_of_several(place: Path) -> None:
    both = [*LOG, *({**entry, "job_name": "b/c"} for entry in LOG[:3])]
    with pytest.raises(UsageError, match="2 jobs, choose one: 'b/c', 'job'"):
        import_entries(both, place)
    with pytest.raises(NotFound, match="no entry of job 'other'; it has 'b/c', 'job'"):
        import_entries(both, place, job_name="other")
    with pytest.raises(UsageError, match="no entry with a 'job_name'"):
        import_entries([{"a": 1}], place)
    assert not place.exists()
    assert import_entries(both, place, job_name="b/c").read == 3
    assert len(read("b/c", "goodput_b/c", place)) == 3
    assert read("job", "goodput_job", place) == []


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        import_entries(LOG, tmp_path / "file" / "runwatch")


def test_an_import_that_was_cut_short_leaves_nothing(place: Path) -> None:
    import_entries(LOG, place)
    (journal,) = (place / "journals").iterdir()
    stage = place / f"{journal.name}.tmp"
    journal.rename(place / "elsewhere")
    (stage / "journals" / journal.name).mkdir(parents=True)
    (stage / "journals" / journal.name / "00000000.seg").write_bytes(b"half")
    import_entries(LOG, place)
    assert not stage.exists()
    assert read("job", "goodput_job", place) == LOG


# ── Cloud Logging ─────────────────────────────────────────────────────────────────────────────


@dataclass
class CloudEntry:
    payload: Any
    timestamp: datetime | None


class CloudClient:
    """What we use of google-cloud-logging's client."""

    project = "p"

    def __init__(self, entries: list[CloudEntry]) -> None:
        self.entries = entries
        self.asked: dict[str, Any] = {}

    def list_entries(self, **asked: Any) -> list[CloudEntry]:
        self.asked = asked
        return self.entries


def test_entries_from_cloud_logging_itself() -> None:
    moment = datetime.fromtimestamp(T0, UTC)
    client = CloudClient([CloudEntry(LOG[0], moment), CloudEntry("text", moment)])
    since = datetime(2026, 1, 1, tzinfo=UTC)
    found = list(read_cloud_logging("job", "log", since=since, client=client))
    assert found == [Logged(LOG[0], int(T0) * 10**9, "log")]
    assert client.asked == {
        "filter_": 'logName="projects/p/logs/log" AND severity=INFO AND '
        'jsonPayload.job_name="job" AND timestamp>="2026-01-01T00:00:00+00:00"',
        "order_by": "timestamp asc",
        "page_size": 1000,
    }


def test_names_cannot_end_the_filter() -> None:
    text = cloud_filter('a" OR "b\\', "log", None, datetime(2026, 1, 1, tzinfo=UTC))
    assert 'jsonPayload.job_name="a\\" OR \\"b\\\\"' in text
    assert "logName" not in text


def test_without_the_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.cloud.logging", None)
    with pytest.raises(UsageError, match=r'pip install "runwatch\[gcp\]"'):
        list(read_cloud_logging("job", "log"))
