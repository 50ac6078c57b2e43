"""Import samples that gswarm clients left on disk: see `wire/gswarm_pickle.py`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runwatch.address import read_address, token_for
from runwatch.agent.old_buffers import Written, write
from runwatch.cli import source
from runwatch.cli.local_source import LocalSource
from runwatch.cli.pictures import tables
from runwatch.cli.pictures.progress import progress
from runwatch.errors import UsageError
from runwatch.settings import runwatch_dir, token_of
from runwatch.ship.finding import find
from runwatch.ship.once import ship_once
from runwatch.wire import gswarm_frames, gswarm_pickle


def run(arguments: argparse.Namespace) -> int:
    """`arguments` has path, remove, dir, head, json; token is optional."""
    report = bring(arguments)
    if arguments.json:
        tables.print_json(report)
    _leave(gswarm_pickle.find(arguments.path), remove=arguments.remove)
    return 0


def bring(arguments: argparse.Namespace, dry_run: bool = False) -> dict[str, Any]:
    """Store the samples, unless it is a `dry_run`; say so, unless JSON is wanted."""
    files = gswarm_pickle.find(arguments.path)
    updates = [update for file in files for update in _read(file, len(files) == 1)]
    with tempfile.TemporaryDirectory(prefix="runwatch-") as place:
        written = write(Path(place), updates)
        if written and not dry_run:
            with progress("storing the samples"):
                _deliver(Path(place), written, arguments)
    if not arguments.json:
        without_time = len(updates) - sum(each.samples for each in written)
        _tell(written, without_time=without_time, dry_run=dry_run)
    return {"imported": [_plain(each) for each in written]}


def _read(file: Path, is_only: bool) -> list[object]:
    if file.suffix in gswarm_frames.FILES:
        return gswarm_frames.read(file)
    samples = gswarm_pickle.read(file)
    if not file.stat().st_size:
        why = (
            f"{file} is empty: an installed gswarm 0.4.3 cannot write its buffer; look for "
            "metrics_history_….pkl, which holds the last 1,000 samples"
        )
        if is_only:
            raise gswarm_pickle.NotABuffer(why)
        print(why, file=sys.stderr)
    return samples


def _deliver(place: Path, written: Sequence[Written], arguments: argparse.Namespace) -> None:
    token = getattr(arguments, "token", None) or token_of()
    root = arguments.dir or runwatch_dir()
    if arguments.head:
        _ship(place, written, arguments.head, token_for(arguments.head, root, token))
        return
    with source.open_source(argparse.Namespace(dir=root, head=None)) as head:
        if isinstance(head, LocalSource):
            head.take(place)
            return
    serving = read_address(root)
    if serving is None or not serving.grpc:
        raise UsageError(
            f"{root} is served by `runwatch ui`, which accepts no data from others: stop it, "
            "import, and start it again"
        )
    direct = serving.grpc if "://" in serving.grpc else f"grpc://{serving.grpc}"
    _ship(place, written, direct, token_for(serving.grpc, root))


def _ship(place: Path, written: Sequence[Written], head: str, token: str) -> None:
    file = os.environ.get("RUNWATCH_CA", "")
    ca = Path(file).read_bytes() if file else None
    ship_once(
        place,
        find(head, ca).address,
        {each.journal: each.end for each in written},
        token=token,
        ca=ca,
    )


def _plain(each: Written) -> dict[str, object]:
    return {
        "host": each.host,
        "samples": each.samples,
        "devices": each.devices,
        "start_ns": each.start_ns,
        "end_ns": each.end_ns,
        "session": each.session,
        "session_name": each.name,
    }


def _tell(written: Sequence[Written], *, without_time: int, dry_run: bool) -> None:
    done = "would be stored" if dry_run else "are stored"
    for each in written:
        print(
            f"{each.host}: {each.samples:,} samples of {each.devices} GPUs from "
            f"{tables.time(each.start_ns)} to {tables.time(each.end_ns)} {done}, each once, "
            f"as session {each.name}"
        )
    if without_time:
        print(f"{without_time:,} samples were left out: they have no time, or are duplicates")
    if not written:
        print("nothing to store: the files hold no samples")


def _leave(files: Sequence[Path], *, remove: bool) -> None:
    for file in files:
        if remove:
            file.unlink()
        print(f"{file} {'is removed' if remove else 'is left as it is'}", file=sys.stderr)
