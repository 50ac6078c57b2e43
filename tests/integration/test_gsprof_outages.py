"""gsprof when its head is away, a client is killed, GPUs are many, or a file is an old one."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from runwatch.agent.settings import AgentSettings
from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import points_body, segment_indexes
from runwatch.record import Series
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import until
from tests.integration.processes import end
from tests.integration.test_gsprof import Bench
from tests.sampling import sampled

RECORDED: Final = Path(__file__).parents[1] / "fixtures" / "replay" / "h200-10hz.jsonl"
METRIC: Final = "gpu_utilization_percent"
HERTZ: Final = 5
MANY: Final = 2048
DROPPED: Final = re.compile(
    r"the agent dropped \d+ of its records, the oldest, before a head had them"
)
EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")

Sample = tuple[int, float]
"""When, in nanoseconds, and the utilisation."""


class Away(Bench):
    """A bench whose head can be away, with one client that plays what an H200 once showed."""

    def connect(
        self, host: str = "node-1", words: Sequence[str] = (), **more: str
    ) -> subprocess.Popen[bytes]:
        folder = self.root / host
        if folder not in self.nodes:
            self.nodes.append(folder)
        told = {"RUNWATCH_DEVICE_REPLAY": str(RECORDED), "RUNWATCH_DEVICE_HZ": str(HERTZ), **more}
        return self._process(
            "connect", f"localhost:{self.port}", "--resilient", *words,
            RUNWATCH_DIR=str(folder), RUNWATCH_HOST=host, **told,
        )  # fmt: skip

    def written(self) -> list[Sample]:
        """What the client's journals hold, in the order of writing."""
        found: list[Sample] = []
        for folder in sorted((self.nodes[0] / "journals").glob("*")):
            found += _in_journal(folder)
        return sorted(found, key=lambda sample: sample[0])

    def in_session(self, name: str, samples: list[Sample]) -> list[Sample]:
        session = self.ask(f"/api/v1/sessions/{name}")
        begun, ended = session["started_ns"], session["ended_ns"]
        return [each for each in samples if begun <= each[0] and (not ended or each[0] < ended)]

    def wait_for_all(self, name: str, seconds: float = 60.0) -> None:
        """Until the head has what is written by now; of a session that has ended, all."""
        ended = self.ask(f"/api/v1/sessions/{name}")["ended_ns"]
        if ended:  # its last sample may have been taken and not yet been written
            until(lambda: self.written()[-1][0] >= ended, seconds, "a sample after the session")
        due = len(self.in_session(name, self.written()))
        until(lambda: self.frames(name) >= due, seconds, f"{due} samples at the head")

    def stored(self) -> list[Sample]:
        """What a head that has ended left in its store, in the order in which it gives it out."""
        store = DuckStore.open(self.data / "store")
        try:
            found: list[Sample] = []
            for row in store.series(metric=METRIC):
                for columns in store.points([row.series]):
                    found += zip(columns.time_ns, columns.value, strict=True)
            return found
        finally:
            store.close()


def _in_journal(folder: Path) -> Iterator[Sample]:
    reader, ours = JournalReader(folder), set[int]()
    try:
        while (batch := reader.read()) is not None:
            definitions = [d for d in batch.definitions if isinstance(d, Series)]
            ours |= {d.id for d in definitions if d.metric == METRIC}
            points = batch.points
            for series, time_ns, value in zip(
                points.series, points.time_ns, points.value, strict=True
            ):
                if series in ours:
                    yield time_ns, value
    finally:
        reader.close()


@pytest.fixture
def away(tmp_path: Path) -> Iterator[Away]:
    made = Away(tmp_path)
    try:
        yield made
    finally:
        made.close()


def microseconds(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


def check_frames(found: Any, samples: list[Sample]) -> None:
    """One device: each sample is a frame, at the sample's own time and with its value."""
    frames = found["frames"]
    assert [frame["frame_id"] for frame in frames] == list(range(1, len(frames) + 1))
    times = [microseconds(frame["time"]) for frame in frames]
    assert times == sorted(set(times))
    assert times == [time_ns // 1000 for time_ns, _ in samples]
    assert all(frame["gpu_id"] == ["node-1:0:NVIDIA H200"] for frame in frames)
    assert [frame["gpu_util"] for frame in frames] == [[value] for _, value in samples]


# ── outages ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("outage", [2, pytest.param(60, marks=pytest.mark.soak)])
def test_e2_14_what_was_sampled_while_the_head_was_away(away: Away, outage: int) -> None:
    head = away.start_head("--freq", str(1000 // HERTZ))
    away.connect()
    until(lambda: away.ask("/clients")["total_clients"] == 1, 60, "the client")
    away.ask("/profiling/start", {"name": "outage"})
    until(lambda: away.frames("outage") > HERTZ, what="frames")
    end(head, signal.SIGKILL)
    before = len(away.written())
    due = before + outage * HERTZ
    until(lambda: len(away.written()) >= due, outage * 2 + 30, "samples without a head")
    head = away.start_head("--freq", str(1000 // HERTZ))
    until(lambda: len(away.written()) >= due + HERTZ, what="samples after the outage")
    # A client may be in the middle of its longest pause between two tries.
    away.wait_for_all("outage", outage + 60)
    assert away.ask("/profiling/stop", {"name": "outage"})["success"]
    away.wait_for_all("outage")
    samples = away.in_session("outage", away.written())
    assert len(samples) >= (outage + 2) * HERTZ
    check_frames(away.ask("/api/v1/sessions/outage/export"), samples)
    end(head, signal.SIGTERM)
    stored = away.stored()
    assert stored == sorted(set(stored)) and stored == away.written()[: len(stored)]
    assert set(samples) <= set(stored)


def test_a_client_that_ends_has_sent_its_last_word(away: Away) -> None:
    """A head that knows of the end does not take the node for lost."""
    head = away.start_head("--freq", str(1000 // HERTZ))
    client = away.connect()
    until(lambda: away.ask("/clients")["total_clients"] == 1, 60, "the client")
    folder = Follower(away.nodes[0])
    until(lambda: len(folder.times) > HERTZ, 60, "samples")
    assert end(client, signal.SIGTERM) == 0
    folder.close()
    assert end(head, signal.SIGTERM) == 0
    store = DuckStore.open(away.data / "store")
    try:
        times, events = stored_of(store, folder.folder.name)
    finally:
        store.close()
    assert events[-1][1] == "agent_end" and events == folder.events
    assert times == sorted(folder.times)


class Follower:
    """Reads along while a journal is written, so that it knows also what is dropped later."""

    def __init__(self, node: Path) -> None:
        [self.folder] = (node / "journals").iterdir()
        self.times: list[int] = []
        """Of each record of numbers."""
        self.events: list[tuple[int, str]] = []
        self.missed = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    @property
    def first(self) -> int:
        """The oldest segment that is left."""
        return segment_indexes(self.folder)[0]

    def _follow(self) -> None:
        reader, last = JournalReader(self.folder), False
        try:
            while not last:
                last = self._ended.wait(0.01)
                while (batch := reader.read()) is not None:
                    self.missed += batch.skipped_records
                    self.times += dict.fromkeys(batch.points.time_ns)
                    self.events += [(event.time_ns, event.kind) for event in batch.events]
        finally:
            reader.close()

    def close(self) -> None:
        """After which it has read all that there is."""
        self._ended.set()
        self._thread.join()


def stored_of(store: DuckStore, journal: str) -> tuple[list[int], list[tuple[int, str]]]:
    """Times of records of numbers, as they are given out; and what happened."""
    series = [row.series for row in store.series() if row.journal == journal]
    times: Counter[int] = Counter()
    for columns in store.points(series):
        values = Counter(zip(columns.series, columns.time_ns, strict=True))
        assert max(values.values()) == 1, "twice"
        times.update(columns.time_ns.tolist())
    events = [
        (event.time_ns, event.kind)
        for event in store.events(None)
        if event.journal == journal and event.kind not in ("journal_gap", "records_skipped")
    ]
    return sorted(times), events


@pytest.mark.soak
def test_e2_14_at_the_limit_the_oldest_are_dropped_and_counted(away: Away) -> None:
    """80 GPUs at 20 Hz fill 6 MB in seconds."""
    head = away.start_head("--freq", "50")
    client = away.connect(
        words=("--buffer-mb", "6"),
        RUNWATCH_DEVICE_REPLAY_COUNT="80",
        RUNWATCH_DEVICE_HZ="20",
    )
    until(lambda: away.ask("/status")["total_gpus"] == 80, 60, "the client")
    assert away.ask("/clients")["clients"][0]["dropped_records"] == 0
    follower = Follower(away.nodes[0])
    try:
        until(lambda: len(follower.times) > 20, 60, "samples")
        end(head, signal.SIGKILL)
        until(lambda: follower.first >= 2, 120, "the oldest to be dropped")
        head = away.start_head("--freq", "50")
        until(lambda: away.ask("/status")["dropped_records"], 90, "what is left at the head")
        # A client that is told to end waits some seconds for its head, and it has kept much.
        written = follower.times[-1]
        until(lambda: newest(away) >= written, 90, "all that it kept at the head")
        until(lambda: DROPPED.search((away.root / "log").read_text()), what="a word in its log")
        assert end(client, signal.SIGTERM) == 0
    finally:
        follower.close()
    [dropped] = away.ask("/status")["dropped_records"].values()
    assert away.ask("/clients")["clients"][0]["dropped_records"] == dropped
    said = away.run("http-status", f"localhost:{away.http_port}").stdout
    assert f"{dropped:,} records dropped" in said
    said = away.run("status", f"localhost:{away.port}").stdout
    assert f"Dropped: {dropped:,} records while no head took them\n" in said
    assert end(head, signal.SIGTERM) == 0
    check_loss(away, follower, dropped)


def newest(away: Away) -> int:
    """Up to when the head has samples of every device."""
    devices = away.ask("/api/v1/devices")["devices"]
    return int(min(device["time_ns"] for device in devices))


def check_loss(away: Away, follower: Follower, dropped: int) -> None:
    """All but one stretch is stored, once: between what the head had and the oldest left."""
    store = DuckStore.open(away.data / "store")
    try:
        times, events = stored_of(store, follower.folder.name)
    finally:
        store.close()
    written, there = follower.times, set(times)
    assert follower.missed == 0 and len(written) == len(set(written)), "who looks has seen all"
    missing = [place for place, time_ns in enumerate(written) if time_ns not in there]
    first, last = missing[0], missing[-1]
    assert missing == list(range(first, last + 1)) and len(missing) > 20
    assert first > 0 and last < len(written) - 20, "the newest are there"
    assert times == sorted(written[:first] + written[last + 1 :])
    assert not Counter(events) - Counter(follower.events)
    lost_events = Counter(follower.events) - Counter(events)
    assert dropped == len(missing) + lost_events.total()


def test_e2_14_there_is_room_for_more_than_the_original_keeps() -> None:
    """10,000 samples of a node with 16 GPUs, and of all else that an agent records with them."""
    series = 16 * 23 + 100
    assert AgentSettings().own_bytes >= 10_000 * points_body(series).size


def test_e2_15_a_client_killed_while_the_head_is_away(away: Away) -> None:
    head = away.start_head("--freq", str(1000 // HERTZ))
    away.ask("/profiling/start", {"name": "kept"})
    end(head, signal.SIGKILL)
    client = away.connect()
    until(lambda: len(away.written()) >= 3 * HERTZ, 60, "samples without a head")
    end(client, signal.SIGKILL)
    lost_and_found = away.written()
    head = away.start_head("--freq", str(1000 // HERTZ))
    assert away.frames("kept") == 0
    away.connect()
    until(lambda: len(away.written()) > len(lost_and_found) + HERTZ, 60, "the next client")
    away.wait_for_all("kept")
    away.ask("/profiling/stop", {"name": "kept"})
    away.wait_for_all("kept")
    samples = away.in_session("kept", away.written())
    assert samples[: len(lost_and_found)] == lost_and_found
    check_frames(away.ask("/api/v1/sessions/kept/export"), samples)


# ── many ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.soak
def test_e2_19_stop_with_2048_gpus(away: Away) -> None:
    """The head goes on to answer while it is stopping and writing; how fast is a benchmark's."""
    away.start_head("--freq", "1000")
    for host in ("node-1", "node-2"):
        away.connect(
            host,
            RUNWATCH_DEVICE_REPLAY=str(away.recording),
            RUNWATCH_DEVICE_REPLAY_COUNT=str(MANY // 2),
            RUNWATCH_DEVICE_HZ="1",
        )
    until(lambda: away.ask("/status")["total_gpus"] == MANY, 90, "the devices")
    away.ask("/profiling/start", {"name": "many"})
    # Of the two nodes, each sends when it likes: frames may be there of which one has its half.
    until(lambda: len(_full(away.ask("/api/v1/sessions/many/export"))) >= 2, 90, "full frames")
    told: list[Any] = []
    stop = threading.Thread(target=lambda: told.append(away.ask("/profiling/stop", {})))
    stop.start()
    file = away.root / "many.json"
    asked = 0
    while stop.is_alive() or not (asked and file.exists()):
        assert stop.is_alive() or told[0]["success"]
        status = away.ask("/status")
        assert status["total_gpus"] == len(set(_ids(status))) == MANY
        asked += 1
    stop.join()
    assert "many.json" in told[0]["message"]
    found = json.loads(file.read_text())
    assert len(found["summary_by_device"]) == MANY
    full = _full(found)
    assert len(full) >= 2 and all(len(frame["gpu_util"]) == MANY for frame in full)


def _full(document: Any) -> list[Any]:
    return [frame for frame in document["frames"] if len(set(frame["gpu_id"])) == MANY]


def _ids(status: Any) -> Iterator[str]:
    for gpus in status["gpu_info"].values():
        yield from (gpu["id"] for gpu in gpus)


# ── files of three kinds ───────────────────────────────────────────────────────────────────────

GPUS: Final = ["a:0:NVIDIA H200", "a:1:NVIDIA H200"]


def documents() -> dict[str, Any]:
    """As the document promises it, and as the two releases wrote it: the same measurements."""
    old: list[dict[str, Any]] = [
        {
            "frame_id": number,
            "time": f"2026-11-15T09:00:{number:02}.250000",
            "gpu_id": GPUS,
            "gpu_util": ["0.25", "0.75"],
            "gpu_memory": ["0.50", "0.50"],
            "dram_bandwidth": ["1953125.0", "976562.5"],
            "dram_bandwidth_rx": ["976562.50", "488281.25"],
            "dram_bandwidth_tx": ["976562.50", "488281.25"],
            "gpu_bandwidth": [],
            "dram_util": ["10.00"],
            "disk_util": ["20.00"],
        }
        for number in range(1, 11)
    ]
    devices = {gpu: {"avg_gpu_util": "0.25", "avg_gpu_memory": "0.50"} for gpu in GPUS}
    clients = {"a": {"avg_dram_util": "10.00", "avg_disk_util": "20.00"}}
    times = {"request_time_info": {"app": [{"queue_time": 1.0, "processing_time": 2.0}]}}
    numbers = {
        "gpu_util": [25.0, 75.0],
        "gpu_memory": [50.0, 50.0],
        "dram_bandwidth": [2.0, 1.0],
        "dram_bandwidth_rx": [1.0, 0.5],
        "dram_bandwidth_tx": [1.0, 0.5],
    }
    promised = {
        "session_name": "training_run_1",
        "start_time": old[0]["time"],
        "end_time": old[-1]["time"],
        "frames": [frame | numbers for frame in old],
        "summary_by_device": {},
    }
    summaries = {"summary_by_device": devices, "summary_by_client": clients}
    newer = [frame | {"extra_metrics": [{}, {"temperature": 40.0}]} for frame in old]
    return {
        "readme": promised,
        "0.2.1": {"frames": old, **summaries},
        "0.4.3": {**summaries, **times, "frames": newer},
    }


@pytest.mark.parametrize("shape", sampled(["readme", "0.2.1", "0.4.3"], 1))
def test_e2_20_stat_of_every_shape(away: Away, shape: str) -> None:
    (away.root / "f.json").write_text(json.dumps(documents()[shape], indent=2))
    said = away.run("stat", "--data", "f.json", "--plot", "f.pdf").stdout
    lines = {gpu: next(line for line in said.splitlines() if gpu in line) for gpu in GPUS}
    assert re.search(r"\b25\b", lines[GPUS[0]]) and re.search(r"\b75\b", lines[GPUS[1]])
    assert all(re.search(r"\b50\b", line) for line in lines.values())
    words = pdf_words((away.root / "f.pdf").read_bytes())
    for panel in (
        "Utilisation",
        "Memory in use",
        "between host and GPU",
    ):  # "Tra" and a ligature apart
        assert panel in words, words


def pdf_words(document: bytes) -> str:
    """The text that a PDF draws, a line for each piece."""
    assert document.startswith(b"%PDF") and document.rstrip().endswith(b"%%EOF")
    lines = []
    for packed in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", document, re.DOTALL):
        try:
            drawn = zlib.decompress(packed).decode("latin-1")
        except zlib.error:
            continue
        for shown in re.findall(r"\[([^\]]*)\]\s*TJ", drawn):
            letters = re.findall(r"\((?:\\.|[^\\)])*\)", shown)
            lines.append("".join(letter[1:-1] for letter in letters).replace("\0", ""))
    return "\n".join(lines)
