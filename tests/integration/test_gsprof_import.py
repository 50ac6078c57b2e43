"""What the original's client left on disk, real bytes, brought into a store and out again."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import sys
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from gsprof.command import main as gsprof

from runwatch.cli.__main__ import main
from runwatch.wire import gswarm_pb2 as pb
from runwatch.wire.gswarm_pickle import NotABuffer, read
from tests.integration.processes import end
from tests.integration.test_gsprof import Bench

LEFT: Final = Path(__file__).parents[1] / "fixtures" / "gswarm"
BUFFER: Final = next((LEFT / "on-the-path").glob("buffered_metrics_*.pkl"))
HISTORY: Final = next((LEFT / "as-installed").glob("metrics_history_*.pkl"))
SENT: Final = pb.MetricsUpdate(hostname="a", timestamp=1.5)
GPUS: Final = ["node-7:0:NVIDIA H100", "node-7:1:NVIDIA H100"]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    try:
        yield made
    finally:
        made.close()


def expected(path: Path) -> list[tuple[float, list[float], list[float]]]:
    """When, utilisations in percent, and bytes sent over PCIe in GB/s, by the file's own words."""
    return [
        (
            update.timestamp,
            [round(100 * gpu.gpu_util, 4) for gpu in update.gpus_metrics],
            [gpu.dram_bw_gbps_rx * 1024 / 1e9 for gpu in update.gpus_metrics],
        )
        for update in read(path)
    ]


def check(document: Any, path: Path) -> None:
    """The frames are the file's samples: each once, at its own time, with its own numbers."""
    frames, wanted = document["frames"], expected(path)
    assert len(frames) == len(wanted) == 12
    for frame, (when, utils, sent) in zip(frames, wanted, strict=True):
        assert datetime.fromisoformat(frame["time"]).timestamp() == pytest.approx(when, abs=1e-5)
        assert frame["gpu_id"] == GPUS
        assert frame["gpu_util"] == pytest.approx(utils)
        assert frame["gpu_memory"] == [12.5, 12.5]
        assert frame["dram_bandwidth_tx"] == pytest.approx(sent, abs=1e-6)
    samples = {device["samples"] for device in document["summary_by_device"].values()}
    assert samples == {12}


def test_the_fixtures_are_what_the_original_wrote() -> None:
    assert pickle.dumps([1]) and b"profiler_pb2" in BUFFER.read_bytes()
    assert next((LEFT / "as-installed").glob("buffered_*")).read_bytes() == b""
    utils = [update.gpus_metrics[1].gpu_util for update in read(BUFFER)]
    assert utils == sorted(set(utils)) and max(utils) < 1


def test_e2_15_what_an_old_client_left_is_imported_once(bench: Bench) -> None:
    """Into the data of a head that does not run, by `gsprof`; then by `runwatch`, again."""
    bench.data.mkdir()
    before = BUFFER.read_bytes()
    for _ in range(2):
        done = bench.run("recover", "--import-pkl", str(BUFFER))
        assert "12 samples of 2 GPUs" in done.stdout and "is left as it is" in done.stderr
    assert BUFFER.read_bytes() == before
    copy = bench.root / "renamed.pkl"
    shutil.copy(BUFFER, copy)
    words = ["session", "import", str(copy), "--dir", str(bench.data), "--remove"]
    assert main(words) == 0
    assert not copy.exists()
    lines = bench.run("recover", "--list").stdout.splitlines()
    [session] = [line for line in lines if "completed" in line]
    name = session.split()[0]
    bench.run("recover", "--export", "--name", name, "-o", "out.json")
    check(json.loads((bench.root / "out.json").read_text()), BUFFER)


def test_e2_15_into_a_head_that_runs(bench: Bench) -> None:
    """A folder of both kinds of files; and it is no client for it."""
    head = bench.start_head()
    for folder in ("as-installed", "on-the-path", "on-the-path"):
        done = bench.run("recover", "--import-pkl", str(LEFT / folder))
        assert "12 samples of 2 GPUs" in done.stdout
    to_head = ("--head", f"localhost:{bench.port}")
    bench.run("recover", "--import-pkl", str(HISTORY), *to_head)
    sessions = bench.ask("/profiling/sessions")["sessions"]
    assert [(s["frame_count"], s["is_active"]) for s in sessions] == [(12, False)] * 2
    for session, path in zip(sessions, (BUFFER, HISTORY), strict=True):
        assert session["name"].startswith("imported_node-7_")
        check(bench.ask(f"/api/v1/sessions/{session['session_id']}/export"), path)
    assert bench.ask("/clients") == {"total_clients": 0, "clients": []}
    assert bench.ask("/profiling/start", {"name": "next"})["success"]
    end(head, signal.SIGTERM)
    assert json.loads((bench.root / "next.json").read_text())["frames"] == []


# ── files that are none ────────────────────────────────────────────────────────────────────────


class Evil:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("inside", ["alone", "list", "deque", "tuple", "attribute"])
def test_e2_15_a_pickle_that_would_run_something(
    tmp_path: Path, protocol: int, inside: str
) -> None:
    mark, file = tmp_path / "run", tmp_path / "buffered_metrics_x_1.pkl"
    evil: Any = Evil(mark)
    shapes: dict[str, Any] = {
        "alone": evil, "list": [evil], "deque": deque([evil], maxlen=10), "tuple": [(1, (evil,))],
        "attribute": [{"timestamp": evil, "metrics": {}}],
    }  # fmt: skip
    file.write_bytes(pickle.dumps(shapes[inside], protocol))
    with pytest.raises(NotABuffer, match=r"posix\.system.*nothing of it was executed"):
        read(file)
    assert not mark.exists()


MESSAGE: Final = b"cprofiler_pb2\nMetricsUpdate\n"
# By hand: what no pickler writes.
CRAFTED: Final = {
    "eval": b"cbuiltins\neval\n(S'1'\ntR.",
    "getattr": b"\x80\x04\x8c\x08builtins\x8c\x07getattr\x93)R.",
    "dotted": b"\x80\x04\x8c\x0cprofiler_pb2\x8c\x1aMetricsUpdate.FromString.x\x93)R.",
    "object": b"\x80\x04\x8c\x08copyreg\x8c\x0e_reconstructor\x93)R.",
    "instance": b"(ios\nsystem\n.",
    "made": b"\x80\x02cos\nsystem\n)\x81.",
    "extension": b"\x80\x02\x82\x01.",
    "elsewhere": b"P1\n.",
    "huge memory": b"\x80\x02]r\xff\xff\xff\x7f" + b"0" * 3 + b".",
    "huge bytes": b"\x80\x05\x8e\xff\xff\xff\xff\xff\xff\xff\x7fx.",
    "huge array": b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7fx.",
    "no list": b"\x80\x02K\x01.",
    "never ends": b"]",
    "takes what is not there": b"\x80\x02e.",
    "message of numbers": b"\x80\x03]" + MESSAGE + b")R}X\x0a\0\0\0serializedK\x01sba.",
    "message of noise": b"\x80\x03]" + MESSAGE + b")R}X\x0a\0\0\0serializedC\x02\xff\xffsba.",
    "message called": b"\x80\x02" + MESSAGE + b"K\x01\x85R.",
    "text": b"hello, this is no pickle",
    "json": b'{"frames": []}',
}  # fmt: skip


@pytest.mark.parametrize("what", CRAFTED)
def test_crafted_files_are_refused(tmp_path: Path, what: str) -> None:
    file = tmp_path / "x.pkl"
    file.write_bytes(CRAFTED[what])
    with pytest.raises(NotABuffer, match=r"x\.pkl"):
        read(file)


def test_every_cut_is_seen(tmp_path: Path) -> None:
    whole, file = BUFFER.read_bytes(), tmp_path / "x.pkl"
    for length in range(1, len(whole), 7):
        file.write_bytes(whole[:length])
        with pytest.raises(NotABuffer, match="incomplete"):
            read(file)


def test_what_a_user_reads_of_files_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps([Evil(tmp_path / "run")]))
    (tmp_path / "cut.pkl").write_bytes(BUFFER.read_bytes()[:-20])
    (tmp_path / "empty").mkdir()
    shutil.copy(HISTORY, tmp_path / "history.pkl")
    zero = next((LEFT / "as-installed").glob("buffered_*"))
    for given, word in {
        "evil.pkl": "posix.system", "cut.pkl": "incomplete", "empty": "holds neither",
        "history.pkl": "rename it", str(zero): "metrics_history", "nowhere.pkl": "No such file",
    }.items():  # fmt: skip
        words = ["recover", "--import-pkl", str(tmp_path / given), "--data-dir", str(tmp_path)]
        assert gsprof(words) == 1
        said = capsys.readouterr().err
        assert word in said and given in said
    assert not (tmp_path / "run").exists() and not (tmp_path / "store").exists()


def test_a_head_that_wants_a_token(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.start_head("--token", "secret")
    words = ["recover", "--import-pkl", str(BUFFER), "--head", f"localhost:{bench.port}"]
    assert gsprof(words) == 1
    assert "unauthenticated" in capsys.readouterr().err
    assert gsprof([*words, "--token", "secret"]) == 0
    assert "session imported_node-7_" in capsys.readouterr().out


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("kind", [list, deque])
def test_deques_and_other_protocols_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int, kind: Any
) -> None:
    """The buffer is a deque before it is written; and picklers differ."""

    class MetricsUpdate:
        def __reduce__(self) -> Any:
            return MetricsUpdate, (), {"serialized": SENT.SerializeToString()}

    MetricsUpdate.__module__, MetricsUpdate.__qualname__ = "profiler_pb2", "MetricsUpdate"
    theirs = ModuleType("profiler_pb2")
    theirs.__dict__["MetricsUpdate"] = MetricsUpdate
    monkeypatch.setitem(sys.modules, "profiler_pb2", theirs)
    file = tmp_path / "x.pkl"
    file.write_bytes(pickle.dumps(kind([MetricsUpdate(), MetricsUpdate()]), protocol))
    assert read(file) == [SENT, SENT]
