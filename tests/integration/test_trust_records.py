"""Journals that somebody else wrote: what is wrong with one of them stays with that one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.journal.liveness import boot_id, this_host
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId, Origin, RunId, RunScope
from runwatch.testing import until
from tests import tokens
from tests.fuzz import hostile
from tests.integration.processes import Cluster
from tests.integration.sdk_programs import run_program

WRONG: dict[str, Any] = {
    "list": [[], {}], "text": "five", "number": 5, "nothing": None, "truth": True,
    "object": {"x": [1]}, "huge": 10**30,
}  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def forged(root: Path, name: str) -> JournalWriter:
    fields: dict[str, Any] = {
        "journal": JournalId(name), "host": this_host(), "pid": 2**22 - 1, "start_ns": hostile.NOW,
        "boot": boot_id(), "process_start_ticks": 7,
    }  # fmt: skip
    return JournalWriter(root, Origin(**fields), segment_bytes=1 << 20)


def lay_wrong_types(root: Path) -> int:
    """A journal for each kind of event; in each, every field is in turn of every wrong type."""
    told = 0
    for number, (kind, body) in enumerate(hostile.BODIES.items()):
        writer = forged(root, f"6553f100-wrong-{number}-a")
        scope = writer.scope(RunScope(0, RunId("hostile"), "hostile"))
        for field in body:
            for wrong in WRONG.values():
                writer.event(kind, {**body, field: wrong}, scope=scope)
                told += 1
        writer.event(kind, ["not", "an", "object"], scope=scope)  # type: ignore[arg-type]
        writer.close()
    return told


def asked(cluster: Cluster, path: str) -> Any:
    url = f"http://127.0.0.1:{cluster.http_port}/api/v1/{path}"
    with tokens.urlopen(url, timeout=100) as answer:
        return json.load(answer)


def test_wrong_types_and_a_stolen_name_stop_nobody_elses_run(cluster: Cluster) -> None:
    cluster.start_head()
    lay_wrong_types(cluster.node_root)
    trainer = cluster.start_trainer(hertz=200, count=200)
    trainer.wait_for(50)
    (mine,) = (j for j in (cluster.node_root / "journals").iterdir() if "wrong" not in j.name)
    copied = mine.with_name("00000000-copy-1-a")  # says to be the trainer's
    shutil.copytree(mine, copied, ignore=shutil.ignore_patterns("*.sock", "*.tmp"))
    cluster.start_agent()
    trainer.wait_for(200)
    cluster.wait_until_stored()
    assert cluster.agent is not None and cluster.agent.poll() is None

    def aside() -> list[Any]:
        found: list[Any] = asked(cluster, "health").get("aside", [])
        return found

    (copy,) = until(aside, 30, "the agent to tell of the copy")
    assert (copy["journal"], copy["host"]) == ("00000000-copy-1-a", this_host())
    assert f"says that it is journal {mine.name!r}" in copy["why"] and copy["version"]
    until(lambda: asked(cluster, "health")["records_refused"] > 100, 30, "the refused to be told")
    gaps = asked(cluster, "runs/hostile/events?kind=journal_gap")["events"]
    assert any("rank is not a whole number" in str(gap["body"]["reason"]) for gap in gaps)
    for path in ("runs", "devices", "profiles", "sessions", "goodput", "runs/hostile/timeline"):
        asked(cluster, path)
    cluster.check_exactly_once()


def test_the_command_line_reads_the_rest(tmp_path: Path) -> None:
    lay_wrong_types(tmp_path)
    run_program("import runwatch; runwatch.init('mine').log(loss=1.0)", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "runwatch.cli", "runs", "--dir", str(tmp_path), "--json"],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert {"mine", "hostile"} <= {run["name"] for run in json.loads(done.stdout)["runs"]}


def test_an_environment_that_is_not_utf_8(cluster: Cluster) -> None:
    cluster.start_head()
    odd = os.fsdecode(b"attempt-\xff\xfe")
    run_program(
        "import runwatch; runwatch.init('odd').log(loss=1.0)",
        cluster.node_root,
        RUNWATCH_ATTEMPT=odd,
    )
    trainer = cluster.start_trainer(hertz=200, count=50)
    cluster.start_agent()
    trainer.wait_for(50)
    cluster.wait_until_stored()
    until(lambda: asked(cluster, "runs/odd")["processes"], 30, "the odd one to be there, too")
    cluster.check_exactly_once()
