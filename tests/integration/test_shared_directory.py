"""A directory on a shared file system: several hosts record there, one process shows them all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from runwatch.head.main import LocalHead
from runwatch.head.reading import Reading
from runwatch.record import RunId
from runwatch.ship.tail import Tail

PROGRAM = """
import runwatch
run = runwatch.init("shared", record_on_all_hosts=True)
run.log(loss=1.0)
run.finish()
"""


def record(root: Path, host: str, rank: int) -> None:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
    subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=inherited
        | {
            "RUNWATCH_DIR": str(root),
            "RUNWATCH_AGENT": "off",
            "RUNWATCH_HOST": host,
            "RANK": str(rank),
            "WORLD_SIZE": "2",
        },
        check=True,
        timeout=60,
    )


def test_one_process_shows_every_host_and_each_agent_ships_its_own(tmp_path: Path) -> None:
    for rank, host in enumerate(("gpu-1", "gpu-2")):
        record(tmp_path, host, rank)

    head = LocalHead(tmp_path)
    try:
        while head.tail.round():
            pass
        [summary] = Reading(head.store, alive=head.alive).summaries()
        assert (summary.state, summary.attempts, summary.ranks) == ("completed", 1, 2)
        assert summary.hosts == ("gpu-1", "gpu-2")
        series = head.store.series(RunId("shared"), metric="loss")
        assert sorted((row.host, row.rank) for row in series) == [("gpu-1", 0), ("gpu-2", 1)]
    finally:
        head.close()

    tail = Tail(tmp_path, of_host="gpu-2")
    tail.discover()
    assert [followed.origin.host for followed in tail.journals.values()] == ["gpu-2"]
    tail.close()


def test_a_directory_that_may_only_be_read_is_served_from_memory(tmp_path: Path) -> None:
    record(tmp_path, "gpu-1", 0)
    before = sorted(path.name for path in tmp_path.iterdir())
    # Root may write anywhere, so permission bits do not show this; a read-only mount would.
    program = (
        "import json, os, sys, runwatch.head.main as main; from pathlib import Path\n"
        "main.os.access = lambda *_: False\n"
        "head = main.LocalHead(Path(sys.argv[1]))\n"
        "while head.tail.round(): pass\n"
        "print(json.dumps([p.run for p in head.store.processes()])); head.close()\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert json.loads(said) == ["shared"]
    assert sorted(path.name for path in tmp_path.iterdir()) == before
