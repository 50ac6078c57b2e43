"""Reads the frames of gswarm's sessions: the JSON file that a head writes when a session stops, and
`frames.jsonl`, which has a frame to a line.

A frame has a time (the head's local time, with no zone), `gpu_id` as "host:index:name", and a list
for each metric in the same order; numbers are text.  Shares are 0 to 1, bandwidths KiB/s, as the
clients send them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from runwatch.errors import UsageError
from runwatch.wire import gswarm_pb2 as pb

FILES: Final = (".json", ".jsonl")
MOST_BYTES: Final = 256 << 20
_FIELDS: Final = {
    "gpu_util": "gpu_util",
    "gpu_memory": "mem_util",
    "dram_bandwidth_rx": "dram_bw_gbps_rx",
    "dram_bandwidth_tx": "dram_bw_gbps_tx",
}
"""A frame's name for what the clients send, and theirs."""


def is_frame(value: Any) -> bool:
    """gswarm writes numbers as text.  Frames of our own exports have numbers, in other units."""
    if not isinstance(value, Mapping) or not {"frame_id", "time", "gpu_id"} <= value.keys():
        return False
    shares = value.get("gpu_util")
    return isinstance(shares, list) and all(isinstance(share, str) for share in shares)


def read(path: Path) -> list[Any]:
    """The samples as messages of the clients: one for each host in each frame."""
    return [update for frame in _frames(path) for update in _updates(path, frame)]


def first_frame(path: Path) -> Mapping[str, Any] | None:
    """None if the file holds no frames."""
    try:
        return next(_frames(path), None)
    except UsageError:
        return None


def _frames(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} is larger than {MOST_BYTES >> 20} MiB")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    if path.suffix == ".jsonl":
        # A head that was killed leaves an unfinished line.
        lines = (_parsed(line) for line in text.splitlines())
        yield from filter(is_frame, lines)
        return
    document = _parsed(text)
    frames = document.get("frames") if isinstance(document, dict) else None
    if not isinstance(frames, list):
        raise UsageError(f"{path} is no session of gswarm: it has no list of frames")
    yield from filter(is_frame, frames)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _updates(path: Path, frame: Mapping[str, Any]) -> Iterator[Any]:
    try:
        seconds = datetime.fromisoformat(str(frame["time"])).timestamp()
    except ValueError:
        raise UsageError(f"{path}, frame {frame['frame_id']}: no time: {frame['time']!r}") from None
    by_host: dict[str, Any] = {}
    for at, id in enumerate(frame["gpu_id"]):
        host, _, rest = str(id).partition(":")
        index, _, name = rest.partition(":")
        update = by_host.setdefault(host, pb.MetricsUpdate(hostname=host, timestamp=seconds))
        gpu = update.gpus_metrics.add(
            physical_idx=int(index) if index.isdecimal() else at, name=name or "GPU"
        )
        for ours, theirs in _FIELDS.items():
            if (value := _value(frame.get(ours), at)) is not None:
                setattr(gpu, theirs, value)
    yield from by_host.values()


def _value(values: Any, at: int) -> float | None:
    if not isinstance(values, list) or at >= len(values):
        return None
    try:
        number = float(values[at])
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
