"""Recorded devices, played again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runwatch.agent.collectors import Sample
from runwatch.agent.collectors.base import Owner
from runwatch.agent.collectors.replay import Recording, ReplayCollector, load, save
from runwatch.errors import UsageError
from runwatch.testing import FakeClock
from tests.unit.agent.recorded_nvml import FewOwners

UNITS = {"gpu_power_watts": "W", "gpu_energy_joules_total": "J"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Ten seconds of two GPUs: power each second, energy each fifth; gpu1 fails after four."""
    rows: list[tuple[float, str, dict[str, float]]] = []
    for second in range(10):
        for number in range(2):
            values = {"gpu_power_watts": 100.0 * number + second}
            if second % 5 == 0:
                values["gpu_energy_joules_total"] = 1000.0 + second
            if number == 0 or second < 4:
                rows.append((float(second), f"gpu{number}", values))
    devices = {"gpu0": {"name": "H200", "uuid": "GPU-a"}, "gpu1": {"name": "H200"}}
    path = tmp_path / "two.jsonl"
    save(path, period_seconds=1.0, units=UNITS, devices=devices, rows=rows, about="made up")
    return path


@pytest.fixture
def recording(path: Path) -> Recording:
    return load(path)


def play(collector: ReplayCollector, clock: FakeClock, seconds: int) -> list[list[Sample]]:
    rounds = []
    for _ in range(seconds):
        rounds.append(list(collector.collect()))
        clock.advance(1.0)
    return rounds


def power(rounds: list[list[Sample]], device: str = "gpu0") -> list[float | None]:
    found = []
    for samples in rounds:
        values = [s.value for s in samples if (s.metric, s.device) == ("gpu_power_watts", device)]
        assert len(values) <= 1
        found.append(values[0] if values else None)
    return found


def test_what_was_recorded_comes_back(recording: Recording) -> None:
    clock = FakeClock()
    rounds = play(ReplayCollector(recording, FewOwners(), clock=clock), clock, 10)
    assert power(rounds) == [float(n) for n in range(10)]
    # A value stays for two periods, then it is absent: not zero, and not the last one for ever.
    assert power(rounds, "gpu1") == [100.0, 101.0, 102.0, 103.0, 103.0, 103.0, *[None] * 4]
    energy = [s for samples in rounds for s in samples if s.metric == "gpu_energy_joules_total"]
    # It was read each fifth second, so that is its period.
    assert [s.value for s in energy if s.device == "gpu0"] == [1000.0] * 5 + [1005.0] * 5
    sample = rounds[0][0]
    assert (sample.unit, dict(sample.labels)) == ("W", {"name": "H200", "uuid": "GPU-a"})


def test_over_and_over_or_once(recording: Recording) -> None:
    clock = FakeClock()
    looped = play(ReplayCollector(recording, FewOwners(), clock=clock), clock, 25)
    assert power(looped) == [float(n % 10) for n in range(25)]
    once = play(ReplayCollector(recording, FewOwners(), clock=clock, loop=False), clock, 12)
    assert power(once) == [*(float(n) for n in range(10)), None, None]


def test_faster_and_shifted(recording: Recording) -> None:
    clock = FakeClock()
    fast = play(ReplayCollector(recording, FewOwners(), clock=clock, speed=3.0), clock, 4)
    assert power(fast) == [0.0, 3.0, 6.0, 9.0]
    later = ReplayCollector(recording, FewOwners(), clock=clock, shift_seconds=4.0)
    assert power(play(later, clock, 3)) == [4.0, 5.0, 6.0]


def test_more_devices_than_were_recorded(recording: Recording) -> None:
    clock, owners = FakeClock(), FewOwners()
    collector = ReplayCollector(recording, owners, devices=8, clock=clock)
    (samples,) = play(collector, clock, 1)
    named = {s.device for s in samples}
    assert {"gpu0", "gpu1", "gpu2", "gpu4", "gpu6"} <= named
    assert len({held.device for held in owners.told["replay"]}) == 8
    assert len({s.labels.get("uuid") for s in samples if s.device != "gpu1"}) == len(named) - 1
    assert power([samples], "gpu2") == [7.0]  # a copy, some periods later
    collector.close()
    assert owners.told["replay"] == []


def test_played_devices_belong_to_runs_too(recording: Recording) -> None:
    clock, owners = FakeClock(), FewOwners()
    owners.devices["gpu1"] = Owner(7, {"rank": "3"}, "environment")
    (samples,) = play(ReplayCollector(recording, owners, clock=clock), clock, 1)
    assert {(s.device, s.scope) for s in samples} == {("gpu0", 0), ("gpu1", 7)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a recording"),
        ("{}\n", "its first line names no runwatch-replay"),
        ('{"format": "runwatch-replay", "version": 2}\n', "version 2"),
        ('{"format": "runwatch-replay", "version": 1}\n', "period_seconds"),
        ("not JSON", "is not a recording"),
    ],
)
def test_what_is_no_recording_is_refused_in_words(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        load(path)


def test_a_row_of_an_unknown_device_and_a_missing_file(path: Path) -> None:
    with path.open("a") as file:
        file.write(json.dumps([1.0, "gpu9", {"gpu_power_watts": 1.0}]) + "\n")
    with pytest.raises(UsageError, match="gpu9"):
        load(path)
    with pytest.raises(UsageError, match="cannot read"):
        load(path.parent / "none")


@pytest.mark.parametrize("name", ["h200-1hz.jsonl", "h200-10hz.jsonl"])
def test_the_recorded_h200_read_what_its_load_had_to_give(name: str) -> None:
    path = Path(__file__).parents[2] / "fixtures" / "replay" / name
    recording = load(path)
    head = json.loads(path.read_text(encoding="utf-8").partition("\n")[0])
    figures = {row["phase"]: row for row in head["figures"]}
    compared = 0
    for phase, begin, end in head["phases"]:
        for metric, due in (
            ("gpu_tensor_activity_percent", figures[phase]["tensor_percent_due"]),
            ("gpu_dram_bytes_per_second", figures[phase]["dram_bytes_per_second_due"]),
            ("gpu_power_watts", figures[phase]["watts_due"]),
        ):
            if due is None:
                continue
            moments = range(int(begin) + 2, int(end))
            read = [dict(recording.at("gpu0", float(second)))[metric] for second in moments]
            assert sum(read) / len(read) == pytest.approx(due, rel=0.10), (phase, metric)
            compared += 1
    assert compared == 5  # power in all three, tensor cores in one, memory in one
