"""Sessions as figures and tables: whatever shape the document has, and whoever came and went."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runwatch.errors import RunwatchError, UsageError
from runwatch.exports import figure, recorded
from runwatch.exports.recorded import BANDWIDTH, BUS, MEMORY, POWER, UTILISATION, load
from tests.sampling import sampled

START = datetime(2026, 11, 15, 8, 30, tzinfo=UTC)
A, B, C = "a:0:H200", "a:1:H200", "b:0:H200"


def frame(at: float, ids: list[str], **columns: list[Any]) -> dict[str, Any]:
    time = (START + timedelta(seconds=at)).isoformat()
    return {"frame_id": int(at) + 1, "time": time, "gpu_id": ids, **columns}


def document(frames: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"session_name": "warm-up", "frames": frames, "summary_by_device": {}} | more


def steady(devices: int, frames: int, *, step: float = 1.0, per_host: int = 8) -> dict[str, Any]:
    ids = [f"node{d // per_host}:{d % per_host}:H200" for d in range(devices)]
    return document(
        [
            frame(
                i * step,
                ids,
                gpu_util=[float((i + d) % 101) for d in range(devices)],
                gpu_memory=[50.0] * devices,
                memory_bandwidth=[1000.0 + d for d in range(devices)],
                gpu_power=[400.0] * devices,
            )
            for i in range(frames)
        ]
    )


# ── reading ────────────────────────────────────────────────────────────────────────────────────


def test_our_own_document() -> None:
    found = load(
        document(
            [
                frame(0, [B, A], gpu_util=[20.0, 10.0], gpu_memory=[2, 1], gpu_power=[None, 500]),
                frame(1, [B, A], gpu_util=[40.0, 30.0], gpu_memory=[4, 3], gpu_power=[600, 700]),
            ]
        )
    )
    assert (found.name, list(found.devices)) == ("warm-up", [A, B])
    assert found.values[UTILISATION].tolist() == [[10, 30], [20, 40]]
    assert found.values[POWER][0].tolist() == [500, 700]
    assert np.isnan(found.values[POWER][1, 0])
    assert found.seconds.tolist() == [START.timestamp(), START.timestamp() + 1]
    assert list(found.values) == [UTILISATION, MEMORY, POWER]


@pytest.mark.parametrize("more", [{}, {"request_time_info": {}, "extra": [1, {"a": "b"}]}])
def test_documents_of_the_originals_are_put_into_our_units(more: dict[str, Any]) -> None:
    old = {"gpu_util": ["0.37"], "gpu_memory": ["0.50"], "dram_bandwidth": ["976562.5"]}
    old |= {"dram_util": ["10.00"], "disk_util": ["20.00"], "gpu_bandwidth": [], **more}
    local = {"time": "2026-11-15T09:00:00.5", "frame_id": 1, "gpu_id": [A]}
    found = load({"frames": [local | old], "summary_by_device": {}, "summary_by_client": {}})
    assert found.values[UTILISATION][0, 0] == pytest.approx(37)
    assert found.values[MEMORY][0, 0] == pytest.approx(50)
    assert found.values[BUS][0, 0] == pytest.approx(1.0)  # 976,562.5 KiB/s
    assert found.seconds[0] == datetime(2026, 11, 15, 9, 0, 0, 500_000).timestamp()


def test_text_that_is_percent_already_stays() -> None:
    found = load(document([frame(0, [A], gpu_util=["37.5"], dram_bandwidth=["3.0"])]))
    assert found.values[UTILISATION][0, 0] == 37.5
    assert found.values[BUS][0, 0] == 3


def test_columns_are_found_by_id_when_nodes_come_and_go() -> None:
    found = load(
        document(
            [
                frame(0, [A, B], gpu_util=[1.0, 2.0]),
                frame(1, [C, A], gpu_util=[30.0, 10.0]),
                frame(2, [], gpu_util=[]),
                frame(3, [C], gpu_util=[31.0]),
                frame(4, [A, B, C], gpu_util=[11.0]),  # and an array that ends early
            ]
        )
    )
    expected = [[1, 10, None, None, 11], [2, None, None, None, None], [None, 30, None, 31, None]]
    told = [[None if np.isnan(v) else v for v in row] for row in found.values[UTILISATION].tolist()]
    assert told == expected


def test_a_device_that_is_named_twice_is_two() -> None:
    found = load(document([frame(0, [A, A], gpu_util=[1.0, 2.0])]))
    assert list(found.devices) == [A, f"{A}#2"]


def test_what_is_no_number_is_a_gap() -> None:
    values = ["N/A", None, "nan", True, "0.5"]
    ids = [f"h:{n}:x" for n in range(5)]
    found = load(document([frame(0, ids, gpu_util=values)]))
    assert np.isfinite(found.values[UTILISATION][:, 0]).tolist() == [False] * 4 + [True]


def test_frames_out_of_order_are_put_in_order() -> None:
    frames = [frame(at, [A], gpu_util=[float(at)]) for at in (2, 0, 1)]
    assert load(document(frames)).values[UTILISATION][0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("read", [7, 64, 1 << 20])
def test_a_file_is_read_a_piece_at_a_time(
    tmp_path: Path, indent: int | None, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "_FIRST_READ", read)
    made = steady(3, 20) | {"end_time": "x", "number": 12345678}
    path = tmp_path / "s.json"
    path.write_text(json.dumps(made, indent=indent))
    found, expected = load(path), load(made)
    assert (found.name, list(found.devices)) == ("warm-up", list(expected.devices))
    for quantity, values in expected.values.items():
        assert np.array_equal(found.values[quantity], values)


def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    text = json.dumps(steady(2, 10))
    path = tmp_path / "cut.json"
    path.write_text(text[: text.index('"frame_id": 8') + 30])
    found = load(path)
    assert len(found.seconds) == 7
    assert "truncated" in recorded.summary(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no frames"),
        ("[1, 2]", "is not a session's export"),
        ('{"frames": 3}', "is not a session's export"),
        ('{"frames": []}', "has no frames"),
        ('{"a": 1}', "has no frames"),
        ("\xff", "is not a session's export"),
    ],
)
def test_files_that_are_something_else(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        load(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe{")
    for name in ("binary.json", "none.json"):
        with pytest.raises(UsageError, match=f"cannot read .*{name}"):
            load(tmp_path / name)


def curve(metric: str, unit: str, device: str, means: list[float | None]) -> dict[str, Any]:
    position = [i * 10**9 for i in range(len(means))]
    about = {"metric": metric, "unit": unit, "device": device, "host": "a", "rank": 0}
    return about | {"position": position, "mean": means}


def test_curves_as_the_api_tells_them() -> None:
    curves = [
        curve("gpu_dram_bytes_per_second", "B/s", "gpu0", [1e12, None]),
        curve("gpu_dram_bytes_per_second", "B/s", "gpu1", [2e12, 3e12, 4e12]),
        curve("loss", "1", "", [0.5]),
    ]
    found = load({"run": "llama", "curves": curves})
    assert (found.name, list(found.devices)) == ("llama", ["a:0:", "a:1:", "a:rank 0:"])
    assert found.values[BANDWIDTH._replace(factor=1e-9)][1].tolist() == [2000, 3000, 4000]
    assert [q.title for q in found.values] == ["Memory bandwidth", "loss"]
    with pytest.raises(UsageError, match="empty"):
        load({"curves": [curve("loss", "1", "", [])]})


# ── the table ──────────────────────────────────────────────────────────────────────────────────


def test_the_summary_counts_samples_and_gaps() -> None:
    frames = [frame(at, [A], gpu_util=[50.0], gpu_power=[600.0]) for at in range(10)]
    for at in (2, 3, 6):
        frames[at]["gpu_id"].append(B)
        frames[at]["gpu_util"].append(10.0 * at)
    lines = recorded.summary(document(frames)).splitlines()
    assert lines[0] == "warm-up"
    assert lines[1] == (
        "2026-11-15 08:30:00 – 08:30:09 UTC · 9 s · 2 devices on 1 host · 10 frames · H200"
    )
    assert lines[-2].split() == [A, "50.0", "%", "50.0", "%", "600", "W", "10", "–"]
    assert lines[-1].split() == [B, "36.7", "%", "60.0", "%", "–", "3", "3"]
    assert lines[3].split() == ["utilisation", "power"]
    assert lines[4].split() == ["device", "mean", "max", "mean", "samples", "gaps"]


def test_when_nothing_at_all_was_recorded_it_is_said() -> None:
    frames = [frame(at, [A], gpu_util=[1.0]) for at in (0, 1, 2, 60, 61)]
    last = recorded.summary(document(frames)).splitlines()[-1]
    assert last.strip() == "nothing was recorded for 58 s from 2026-11-15 08:30:02"


# ── drawing ────────────────────────────────────────────────────────────────────────────────────

BEGINS = {".pdf": b"%PDF-", ".png": b"\x89PNG", ".svg": b"<?xml"}


@pytest.mark.parametrize("suffix", BEGINS)
@pytest.mark.parametrize("devices", sampled([17, 1, 16], 1))
def test_the_suffix_says_how(tmp_path: Path, suffix: str, devices: int) -> None:
    out = tmp_path / f"plot{suffix}"
    assert figure.draw(steady(devices, 30), out) == out
    assert out.read_bytes().startswith(BEGINS[suffix])
    assert os.listdir(tmp_path) == [out.name]


def words_in(tmp_path: Path, made: Any) -> str:
    return figure.draw(made, tmp_path / "plot.svg").read_text()


def test_few_devices_are_lines_with_a_legend(tmp_path: Path) -> None:
    text = words_in(tmp_path, steady(9, 30))
    for word in ("warm-up", "9 devices on 2 hosts", "Utilisation (%)", "Memory in use (%)",
                 "Memory bandwidth (GB/s)", "Power (W)", "seconds since the start",
                 "node0:7", "node1:0", "mean 400"):  # fmt: skip
        assert word in text, word
    assert "<image" not in text


def test_many_devices_are_heat_maps_by_host(tmp_path: Path) -> None:
    text = words_in(tmp_path, steady(40, 400, step=60))
    assert text.count("<image") >= 4
    for word in ("40 devices on 5 hosts", "hatched: no sample", "node4", "hours since the start"):
        assert word in text, word


def test_bandwidth_that_was_not_recorded_has_no_panel(tmp_path: Path) -> None:
    text = words_in(tmp_path, document([frame(0, [A], gpu_util=[1.0], gpu_memory=[2.0])]))
    assert "Memory in use" in text
    assert "GB/s" not in text


def test_lines_do_not_cross_what_is_missing() -> None:
    frames = [frame(at, [A], gpu_util=[1.0]) for at in (0, 1, 2, 60, 61)]
    found = load(document(frames))
    elapsed = found.seconds - found.seconds[0]
    where, line = figure._broken(elapsed, found.values[UTILISATION][0], found)
    assert where.tolist() == [0, 1, 2, 31, 60, 61]
    assert np.isnan(line[3])
    assert np.isfinite(line).sum() == 5


def test_long_sessions_are_reduced_without_losing_extremes() -> None:
    made = steady(1, 5000)
    made["frames"][2500]["gpu_util"] = [100.0]
    made["frames"] = [f for i, f in enumerate(made["frames"]) if not 3000 <= i < 4000]
    found = load(made)
    elapsed = found.seconds - found.seconds[0]
    where, low, mean, high = figure._reduced(elapsed, found.values[UTILISATION][0], found)
    assert len(where) == len(mean) == figure._BUCKETS
    assert np.nanmax(high) == 100 and np.nanmin(low) == 0
    empty = np.isnan(mean)
    assert 0.19 < empty.mean() < 0.21
    assert ((where[empty] > 2990) & (where[empty] < 4010)).all()


def test_a_heat_map_has_no_holes_but_those_that_were_there() -> None:
    rng = np.random.default_rng(1)
    elapsed = np.arange(0, 700.0) + rng.uniform(-0.4, 0.4, 700)
    values = np.ones((3, 700), np.float32)
    values[1, 300:400] = np.nan
    assert np.isfinite(figure._binned(elapsed, values)[0]).all()
    assert np.isnan(figure._binned(elapsed, values)[1]).mean() == pytest.approx(1 / 7, abs=0.01)
    kept = np.r_[0:200, 500:700]
    paused = figure._binned(elapsed[kept], values[:, kept])
    assert np.isnan(paused[0]).mean() == pytest.approx(3 / 7, abs=0.01)


@pytest.mark.parametrize(
    ("made", "out", "words"),
    [
        (steady(1, 1), "plot.gif", "must end with .pdf, .png, .svg"),
        (steady(1, 1), "plot", "must end with"),
        (document([frame(0, [A], gpu_util=[None])]), "plot.png", "nothing to draw"),
    ],
)
def test_what_cannot_be_drawn(tmp_path: Path, made: Any, out: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        figure.draw(made, tmp_path / out)
    assert os.listdir(tmp_path) == []


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunwatchError, match="cannot write"):
        figure.draw(steady(1, 2), tmp_path / "nowhere" / "plot.png")


def test_without_matplotlib_the_way_out_is_named_and_the_summary_works(tmp_path: Path) -> None:
    """In a process of its own, in which it cannot be imported."""
    path = tmp_path / "s.json"
    path.write_text(json.dumps(steady(1, 2)))
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from runwatch.errors import UsageError\n"
        "from runwatch.exports.figure import draw, summary\n"
        "print(summary(sys.argv[1]))\n"
        "try: draw(sys.argv[1], sys.argv[1] + '.png')\n"
        "except UsageError as error: print(error)\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "node0:0:H200" in said
    assert "pip install 'runwatch[plots]'" in said


def test_matplotlib_is_loaded_only_to_draw() -> None:
    program = "import sys, runwatch.exports.figure; print('matplotlib' in sys.modules)"
    said = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60)
    assert said.strip() == "False"
