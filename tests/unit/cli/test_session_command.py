"""`runwatch session` over a directory without a head."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from runwatch.cli.__main__ import main
from runwatch.head.main import LocalHead
from runwatch.record import NO_STEP, Batch, JournalId, Origin, Position, Series


def run(root: Path, *words: str) -> int:
    return main(["session", words[0], "--dir", str(root), *words[1:]])


def test_a_session_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "list") == 0
    assert "no sessions" in capsys.readouterr().out
    assert run(tmp_path, "start", "warmup") == 0
    assert "session warmup" in capsys.readouterr().out
    assert run(tmp_path, "start", "warmup") == 1
    assert "already active" in capsys.readouterr().err
    assert run(tmp_path, "stop", "warmup") == 0
    assert run(tmp_path, "resume", "warmup") == 0
    capsys.readouterr()
    assert run(tmp_path, "list", "--json") == 0
    [session] = json.loads(capsys.readouterr().out)["sessions"]
    assert (session["name"], session["active"], len(session["stretches"])) == ("warmup", True, 2)
    assert run(tmp_path, "list") == 0
    assert "running" in capsys.readouterr().out


def test_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "warmup.json"
    run(tmp_path, "start", "warmup")
    capsys.readouterr()
    assert run(tmp_path, "export", "warmup") == 0
    assert json.loads(capsys.readouterr().out)["session_name"] == "warmup"
    assert run(tmp_path, "export", "warmup", "-o", str(out)) == 0
    assert json.loads(out.read_text())["frames"] == []
    capsys.readouterr()
    assert run(tmp_path, "export", "warmup", "-o", str(out)) == 2
    assert "--force" in capsys.readouterr().err
    assert run(tmp_path, "export", "warmup", "-o", str(out), "--force") == 0


@pytest.mark.parametrize("verb", ["start", "stop", "resume", "export"])
@pytest.mark.parametrize("name", ["../x", "a/b", "", "x" * 201])
def test_bad_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, name: str
) -> None:
    assert run(tmp_path, verb, name) == 2
    assert "session" in capsys.readouterr().err


# ── stat ───────────────────────────────────────────────────────────────────────────────────────

DOCUMENT = {
    "session_name": "warmup",
    "start_time": "2026-11-15T10:00:00Z",
    "end_time": "2026-11-15T10:00:03Z",
    "frames": [
        {
            "frame_id": second + 1,
            "time": f"2026-11-15T10:00:0{second}Z",
            "gpu_id": ["a:0:NVIDIA H200", "a:1:NVIDIA H200"],
            "gpu_util": [10.0 * second, 80.0],
            "gpu_memory": [50.0, 60.0],
        }
        for second in range(4)
    ],
    "summary_by_device": {},
}


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    path = tmp_path / "warmup.json"
    path.write_text(json.dumps(DOCUMENT))
    return path


@pytest.mark.parametrize(
    ("suffix", "magic"), [(".pdf", b"%PDF"), (".png", b"\x89PNG"), (".svg", b"<?xml")]
)
def test_stat_of_a_file(
    tmp_path: Path,
    exported: Path,
    capsys: pytest.CaptureFixture[str],
    suffix: str,
    magic: bytes,
) -> None:
    plot = tmp_path / f"warmup{suffix}"
    assert run(tmp_path, "stat", "--data", str(exported), "--plot", str(plot)) == 0
    out = capsys.readouterr().out
    assert "a:1:NVIDIA H200" in out
    assert "80.0 %" in out
    assert f"Wrote {plot}" in out
    assert plot.read_bytes().startswith(magic)


def test_stat_without_a_drawing_and_for_programs(
    tmp_path: Path, exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "stat", "--data", str(exported)) == 0
    assert "2 devices on 1 host" in capsys.readouterr().out
    assert run(tmp_path, "stat", "--data", str(exported), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["session_name"], told["frames"]) == ("warmup", 4)
    first = told["devices"][0]
    assert first["gpu_util"] == {"mean": 15.0, "max": 30.0, "unit": "%"}
    assert first["samples"] == 4
    assert "gpu_power" not in first
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".pdf"] == []


def test_stat_of_a_session_that_is_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = LocalHead(tmp_path)
    try:
        head.sessions.start("stored")
        origin = Origin(JournalId("agent"), "a", 1, 0, role="agent")
        batch = Batch(origin, Position(0), Position(1))
        labels = {"uuid": "GPU-0", "index": "0", "name": "NVIDIA H200"}
        batch.definitions.append(
            Series(1, "gpu_utilization_percent", unit="%", device="gpu0", labels=labels)
        )
        batch.points.append(1, time.time_ns(), NO_STEP, 42.0)
        assert head.ingest.submit(batch).result(100).accepted
        head.sessions.stop("stored")
    finally:
        head.close()
    plot = tmp_path / "stored.svg"
    assert run(tmp_path, "stat", "stored", "--plot", str(plot)) == 0
    assert "42.0 %" in capsys.readouterr().out
    assert plot.exists()
    assert run(tmp_path, "stat", "nobody") == 1
    assert "nobody" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "either a session or a file"),
        (("warmup", "--data", "x.json"), "either a session or a file"),
        (("--data", "x.json", "--plot", "x.gif"), "its name must end with .pdf"),
        (("--data", "no-such-file.json"), "no-such-file.json"),
    ],
)
def test_stat_that_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert run(tmp_path, "stat", *words) == 2
    assert told in capsys.readouterr().err


def test_a_drawing_is_not_overwritten(
    tmp_path: Path, exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "there.svg"
    plot.write_text("mine")
    assert run(tmp_path, "stat", "--data", str(exported), "--plot", str(plot)) == 2
    assert "--force" in capsys.readouterr().err
    assert plot.read_text() == "mine"
    assert run(tmp_path, "stat", "--data", str(exported), "--plot", str(plot), "--force") == 0
    assert plot.read_text() != "mine"
