"""Devices seen by a real agent: played from a recording, tied to the run that holds them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from runwatch.agent.collectors.replay import save
from runwatch.agent.lock import end_agents
from runwatch.journal.reader import JournalReader
from runwatch.record import Event, RunScope, Series
from runwatch.testing import until
from tests.integration.test_agent import environment, series, start_program

UNITS = {"gpu_power_watts": "W", "gpu_utilization_percent": "%"}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_agents(tmp_path)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "gpus.jsonl"
    devices = {f"gpu{n}": {"uuid": f"GPU-{n}", "name": "NVIDIA H200"} for n in range(2)}
    rows = [
        (second / 10, device, {"gpu_power_watts": 100.0 + second, "gpu_utilization_percent": 50.0})
        for second in range(100)
        for device in devices
    ]
    save(path, period_seconds=0.1, units=UNITS, devices=devices, rows=rows)
    return path


def start_agent(root: Path, recording: Path, **more: str) -> subprocess.Popen[bytes]:
    variables = {"RUNWATCH_DEVICE_REPLAY": str(recording), "RUNWATCH_DEVICE_HZ": "20", **more}
    command = [sys.executable, "-m", "runwatch.agent", "--dir", str(root), "--idle", "0"]
    return subprocess.Popen(
        [*command, "--period", "0.05"],
        env=environment(root, **variables),
        stderr=subprocess.DEVNULL,
    )


class Point(NamedTuple):
    device: str
    metric: str
    run: str
    rank: str
    time_ns: int


def agent_journal(root: Path) -> tuple[list[Point], list[Event], dict[int, str]]:
    """What the agent has written so far: points of devices, events, and its runs by scope."""
    points: list[Point] = []
    events: list[Event] = []
    names: dict[int, str] = {0: ""}
    for folder in sorted((root / "journals").glob("*")):
        reader = JournalReader(folder)
        known: dict[int, Series] = {}
        while (batch := reader.read()) is not None and batch.origin.role == "agent":
            known |= {d.id: d for d in batch.definitions if isinstance(d, Series)}
            names |= {d.id: d.run for d in batch.definitions if isinstance(d, RunScope)}
            events += batch.events
            for number, time_ns in zip(batch.points.series, batch.points.time_ns, strict=True):
                of = known[number]
                if of.device.startswith("gpu"):
                    rank = of.labels.get("rank", "")
                    points.append(Point(of.device, of.metric, names[of.scope], rank, time_ns))
        reader.close()
    return points, events, names


def count(root: Path, device: str, run: str) -> int:
    return sum((p.device, p.run) == (device, run) for p in agent_journal(root)[0])


def test_samples_go_to_the_run_that_holds_the_device(root: Path, recording: Path) -> None:
    agent = start_agent(root, recording)
    try:
        until(lambda: count(root, "gpu1", ""), 30, "the host's samples")
        program = start_program(
            root, RUNWATCH_AGENT="off", RANK="9", LOCAL_RANK="1", LOCAL_WORLD_SIZE="2"
        )
        until(lambda: count(root, "gpu1", "watched") > 20, 30, "the run's samples")
        program.communicate(b"go\n", timeout=100)
        done = count(root, "gpu1", "")
        until(lambda: count(root, "gpu1", "") > done + 20, 30, "the host's samples again")
    finally:
        end_agents(root)
        agent.wait(100)
    points, events, names = agent_journal(root)
    of_run = [point for point in points if point.run]
    assert {(point.device, point.run, point.rank) for point in of_run} == {("gpu1", "watched", "9")}
    for device in ("gpu0", "gpu1"):  # every sample once, and none out of its time
        for metric in UNITS:
            times = [p.time_ns for p in points if (p.device, p.metric) == (device, metric)]
            assert len(times) == len(set(times)) > 20
    owners = [event for event in events if event.kind == "device_owner"]
    assert [(names[e.scope], e.body["device"], e.body["how"]) for e in owners] == [
        ("watched", "gpu1", "environment"),
        ("", "gpu1", ""),
    ]


def test_the_store_knows_whose_device_it_is(root: Path, recording: Path) -> None:
    agent = start_agent(root, recording)
    program = start_program(root, RUNWATCH_AGENT="off", RANK="3", LOCAL_RANK="0")
    try:
        until(lambda: count(root, "gpu0", "watched") > 5, 30, "the run's samples")
    finally:
        program.communicate(b"go\n", timeout=100)
        end_agents(root)
        agent.wait(100)
    rows = [row for row in series(root, "watched") if row.device]
    # One process and no word of more on this node: both devices that it may see are its.
    assert {(row.device, row.metric, row.rank) for row in rows} == {
        (device, metric, 3) for device in ("gpu0", "gpu1") for metric in UNITS
    }
    assert {row.labels["name"] for row in rows} == {"NVIDIA H200"}


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"RUNWATCH_DEVICE_HZ": "50"}, "from 0 (off) to 20"),
        ({"RUNWATCH_DEVICE_HZ": "-1"}, "from 0 (off) to 20"),
        ({"RUNWATCH_DEVICE_HZ": "often"}, "not a float"),
        ({"RUNWATCH_DEVICE_REPLAY": "/no/such/file"}, "cannot read the recording"),
        ({"RUNWATCH_DEVICE_REPLAY_SPEED": "0"}, "the speed must be above 0"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_words(
    root: Path, variables: dict[str, str], words: str
) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "runwatch.cli", "agent", "--dir", str(root)],
        env=environment(root, **variables),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.returncode == 2
    assert words in said.stderr + said.stdout
    assert "Traceback" not in said.stderr


def test_devices_are_set_by_flags_too(root: Path, recording: Path) -> None:
    """A recording is named from where the command is given, wherever the agent goes."""
    command = [sys.executable, "-m", "runwatch.cli", "agent", "--dir", str(root), "--idle", "0"]
    flags = ["--device-replay", recording.name, "--device-hz", "20", "--device-replay-count", "3"]
    agent = subprocess.Popen(
        [*command, *flags], env=environment(root), cwd=recording.parent, stderr=subprocess.DEVNULL
    )
    try:
        devices = until(
            lambda: len({point.device for point in agent_journal(root)[0]}) == 3 or agent.poll(),
            what="three devices",
        )
        assert devices is True
    finally:
        end_agents(root)
        agent.wait(100)


def test_a_flag_that_cannot_be_is_refused(root: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "runwatch.cli", "agent", "--dir", str(root), "--device-hz", "50"],
        env=environment(root),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.returncode == 2
    assert "--device-hz" in said.stderr
    assert "from 0 (off) to 20" in said.stderr
