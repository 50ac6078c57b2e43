"""`runwatch devices`: a line for each device, in any terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from runwatch.cli.__main__ import main
from runwatch.cli.pictures import devices as device_picture
from runwatch.journal.liveness import boot_id
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId, Origin
from runwatch.views.device_metrics import DEVICE_METRICS

SECOND = 10**9
NOW = 1_700_000_000 * SECOND


def device(host: str = "gpu-node-01", index: int = 0, **changed: Any) -> dict[str, Any]:
    made = {
        "host": host, "device": f"gpu{index}", "index": str(index), "name": "NVIDIA H200",
        "uuid": f"{host}-{index}", "run": "r1", "run_name": "llama-70b-pretraining", "rank": 12,
        "state": "reporting", "time_ns": NOW, "age_seconds": 1.0,
        "utilization_percent": 98.0, "tensor_percent": 41.0, "sm_activity_percent": 95.0,
        "memory_percent": 50.0, "memory_used_bytes": 75e9, "memory_total_bytes": 150e9,
        "dram_bytes_per_second": 2.5e12, "power_watts": 685.0, "power_limit_watts": 700.0,
        "temperature_celsius": 61.0, "memory_temperature_celsius": 70.0, "sm_clock_hz": 1.47e9,
        "memory_clock_hz": 3.2e9, "throttle_reasons": [], "ecc_corrected": 0,
        "ecc_uncorrected": 0, "xid": None, "troubles": [],
    }  # fmt: skip
    assert changed.keys() <= made.keys()
    return made | changed


def trouble(hurt: str, words: str, ago: float | None = None) -> dict[str, Any]:
    since = None if ago is None else NOW - int(ago * SECOND)
    return {"hurt": hurt, "words": words, "since_ns": since}


ABSENT: dict[str, Any] = dict.fromkeys(
    (name for name, value in device().items() if isinstance(value, float)), None
)
LOST = device(
    index=3, state="lost", **ABSENT | {"age_seconds": 240.0},
    troubles=[trouble("lost", "lost: GPU is lost", 240), trouble("xid", "XID 79: off", 241)],
)  # fmt: skip


def answer(*devices: dict[str, Any], total: int | None = None, **sums: Any) -> dict[str, Any]:
    totals = {
        "devices": total or len(devices), "reporting": len(devices), "hosts": 2,
        "hurting": {"lost": 1}, "utilization_percent": 87.5, "tensor_percent": 41.0,
        "memory_used_bytes": 2.4e12, "memory_total_bytes": 3.6e12, "power_watts": 15_500.0,
    }  # fmt: skip
    return {"devices": list(devices), "totals": totals | sums, "time_ns": NOW, "next_offset": None}


def seen(width: int, *devices: dict[str, Any], **sums: Any) -> list[str]:
    out = Console(width=width, file=io.StringIO(), color_system=None)
    out.print(device_picture.devices(answer(*devices, **sums), width))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


# ── the picture ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 200, 300])
def test_one_line_per_device_in_any_terminal(width: int) -> None:
    many = [device(host="a-very-long-host-name.of.some.cluster.example", index=i) for i in range(5)]
    lines = seen(width, LOST, *many)
    assert max(map(len, lines)) <= width
    assert len(lines) == 4 + 6
    assert sum("example:" in line for line in lines) == 5  # the end tells hosts apart


def test_what_fits_into_eighty_columns() -> None:
    lines = seen(80, LOST, device(index=5, troubles=[trouble("power", "power cap")]))
    assert lines[0] == "2 devices on 2 hosts · 88 % busy · tensor cores 41 % · 2.4 TB of 3.6 TB"
    assert lines[1] == "1 lost"
    assert lines[3].split() == [
        "device", "run·rank", "busy", "tensor", "memory", "power", "°C", "trouble",
    ]  # fmt: skip
    assert lines[4].startswith("✘ gpu-node-01:3 llama-…·12")
    assert lines[4].rstrip().endswith("lost 4m · XI…")
    assert lines[5] == (
        "▲ gpu-node-01:5 llama-…·12 ███▉  98% █▋    41% ██    50% 685 W  61 power cap"
    )


def test_more_room_tells_more() -> None:
    narrow, wide, widest = ("\n".join(seen(w, LOST, device(index=5))) for w in (80, 120, 200))
    assert "DRAM GB/s" not in narrow and "DRAM GB/s" in wide and "2,500" in wide
    assert "lost 4m ago: GPU is lost" in wide
    assert "GB used/all" not in wide and "75 / 150" in widest
    assert "685 / 700 W" in widest and "1470" in widest and "H200" in widest


def test_absent_is_not_zero() -> None:
    lines = seen(120, device(tensor_percent=None, power_watts=None), device(index=1))
    cells = lines[4].split()
    assert "–" in cells
    assert "0%" not in cells and "W" not in cells
    nothing = seen(120, device(tensor_percent=None))
    assert "tensor" not in nothing[3]  # a column that nobody has is no column


def test_devices_whose_agent_has_ended() -> None:
    ended = device(state="ended", **ABSENT | {"age_seconds": 7200.0})
    assert "○ gpu-node-01:0" in (line := seen(120, ended)[4])
    assert "agent ended 2h ago" in line


def test_how_many_more_there_are() -> None:
    assert seen(80, device(), total=41)[-1] == "… 40 more (--limit, --host, --run)"
    assert "more" not in seen(80, device())[-1]


def test_colour_says_nothing_that_words_do_not() -> None:
    out = Console(width=120, file=io.StringIO(), force_terminal=True, color_system="standard")
    out.print(device_picture.devices(answer(LOST), 120))
    assert isinstance(out.file, io.StringIO)
    assert "\x1b[1;31m" in out.file.getvalue()


# ── the command ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory in which an agent has just written about four devices."""
    now = time.time_ns()
    origin = Origin(JournalId("an-agent"), "node1", 1, now, boot_id(), 0, "agent", "1")
    writer = JournalWriter(tmp_path, origin)
    for index in range(4):
        labels = {"uuid": f"GPU-{index}", "name": "NVIDIA H200", "index": str(index)}
        numbers = {"gpu_utilization_percent": 30.0 * index, "gpu_power_watts": 100.0}
        series = [
            writer.series(metric, scope=0, unit="", device=f"gpu{index}", labels=labels)
            for metric in numbers
        ]
        writer.points(series, list(numbers.values()))
    writer.event("device_lost", {"device": "gpu2", "uuid": "GPU-2", "why": "off the bus"})
    writer.close()
    return tmp_path


def test_a_directory_without_a_head(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--dir", str(root)]) == 0
    said = capsys.readouterr().out
    assert "4 devices on 1 host" in said
    found = [line.split()[1] for line in said.splitlines()[-4:]]
    assert found == ["node1:2", "node1:0", "node1:1", "node1:3"]
    assert main(["devices", "--dir", str(root), "--json", "--sort", "utilization"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [device["index"] for device in answer["devices"]] == ["3", "1", "0", "2"]
    assert main(["devices", "--dir", str(root), "--limit", "1"]) == 0
    assert "… 3 more" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "in the last 1 h 00 min"),
        (["--host", "node1"], "No accelerator on node1 reported"),
        (["--within", "60"], "in the last 1 min 00 s"),
    ],
)
def test_no_devices_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], part: str
) -> None:
    assert main(["devices", "--dir", str(tmp_path), *words]) == 0
    said = capsys.readouterr().out
    assert " ".join(part.split()) in " ".join(said.split())
    assert "runwatch agent --head" in said


def test_what_is_sampled_and_what_it_means(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["devices", "--dir", str(root), "--metrics"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["metric", "unit", "called", "what", "it", "means"]
    power = next(line for line in lines if line.startswith("gpu_power_watts "))
    assert re.split(r"  +", power.strip()) == [
        "gpu_power_watts", "W", "power", "Power that the board draws.",
    ]  # fmt: skip
    assert main(["devices", "--dir", str(root), "--metrics", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [metric["name"] for metric in answer["metrics"]] == [m.name for m in DEVICE_METRICS]


def test_an_unknown_run_is_an_error(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--dir", str(root), "--run", "nope"]) == 1
    assert "'nope'" in capsys.readouterr().err


def read_until(terminal: int, words: str, seconds: float = 100) -> str:
    """What was written to the terminal so far, once it holds the words."""
    text, deadline = "", time.monotonic() + seconds
    while words not in text:
        left = deadline - time.monotonic()
        assert left > 0, f"{words!r} did not come: {text[-300:]!r}"
        if select.select([terminal], [], [], left)[0]:
            text += os.read(terminal, 65536).decode(errors="replace")
    return text


def test_watching_ends_cleanly_with_ctrl_c(root: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "runwatch.cli", "devices", "--watch", "--dir", str(root)]
    size = {"COLUMNS": "80", "LINES": "9", "TERM": "xterm"}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, **size}
    )
    os.close(theirs)
    try:
        shown = read_until(ours, "more (--limit")  # nine lines have room for three
        assert "node1:2" in shown
        read_until(ours, "more (--limit")  # drawn anew
        process.send_signal(signal.SIGINT)
        read_until(ours, "\x1b[?25h")  # the cursor is back
        assert process.wait(100) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
