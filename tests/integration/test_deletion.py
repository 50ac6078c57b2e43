"""Runs are deleted by the command, at a real head and in a bare directory."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.record import RunId
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import until
from tests.integration.processes import Cluster, end
from tests.integration.strangers import MALLORY, command_as, everybodys, needs_users
from tests.integration.test_cli import PROGRAM, run, runwatch


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    for name in ("line", "curve"):
        run(tmp_path, sys.executable, "-c", PROGRAM.replace('"line"', f'"{name}"'))
    return tmp_path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def names(root: Path, *words: str) -> list[str]:
    answer = json.loads(runwatch(root, "runs", "--json", *words).stdout)
    return sorted(found["name"] for found in answer["runs"])


def journals(root: Path) -> int:
    return len(list((root / "journals").iterdir()))


# ── without a head ─────────────────────────────────────────────────────────────────────────────


def test_a_deletion_asks_and_can_be_undone(recorded: Path) -> None:
    done = runwatch(recorded, "delete", "line", check=False)  # the end of input is a no
    assert done.returncode == 1 and "nothing was deleted" in done.stderr
    assert " points, " in done.stderr and "undone for 7 days" in done.stdout
    assert names(recorded) == ["curve", "line"]
    said = runwatch(recorded, "delete", "line", "--yes").stdout
    assert "deleted line" in said and "runwatch restore line" in said
    assert names(recorded) == ["curve"] and journals(recorded) == 2
    assert "line" in runwatch(recorded, "restore").stdout
    assert runwatch(recorded, "restore", "line").stdout == "restored line\n"
    assert names(recorded) == ["curve", "line"]


def test_for_good_the_journals_go_as_well(recorded: Path) -> None:
    told = runwatch(recorded, "delete", "line", "--yes", "--keep-days", "0", "--json").stdout
    assert json.loads(told)["deleted"][0]["run"] == "line"
    assert names(recorded) == ["curve"] and journals(recorded) == 1
    refused = runwatch(recorded, "restore", "line", check=False)
    assert refused.returncode == 2 and "for good" in refused.stderr
    # The same program run again is a run again.
    run(recorded, sys.executable, "-c", PROGRAM)
    assert names(recorded) == ["curve", "line"]


def test_what_is_not_there_is_not_deleted(recorded: Path) -> None:
    done = runwatch(recorded, "delete", "line", "nobody", "--yes", check=False)
    assert done.returncode == 1 and "nobody" in done.stderr
    assert names(recorded) == ["curve", "line"]
    done = runwatch(recorded, "delete", "line", "--yes", "--keep-days", "-1", check=False)
    assert done.returncode == 2 and "-1" in done.stderr


@needs_users
def test_journals_of_others_stay() -> None:
    with everybodys() as root:
        subprocess.run(
            [*command_as(MALLORY), sys.executable, "-c", PROGRAM],
            env={"RUNWATCH_DIR": str(root), "RUNWATCH_AGENT": "off", "PYTHONPATH": _sources()},
            check=True,
            timeout=60,
            cwd="/",
        )
        run(root, sys.executable, "-c", PROGRAM)
        assert journals(root) == 2
        runwatch(root, "delete", "line", "--yes", "--keep-days", "0")
        [left] = (root / "journals").iterdir()
        assert left.stat().st_uid == MALLORY
        assert names(root) == []


def _sources() -> str:
    import runwatch

    return str(Path(runwatch.__file__).parents[1])


# ── with a head ────────────────────────────────────────────────────────────────────────────────


def at_head(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    address = f"http://127.0.0.1:{cluster.http_port}"
    return runwatch(cluster.node_root, *words, "--head", address, check=False)


def deleted(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(at_head(cluster, "restore", "--json").stdout)
    return found


def test_a_head_that_is_killed_at_it_goes_on_when_it_is_back(cluster: Cluster) -> None:
    cluster.start_head()
    cluster.start_agent()
    trainer = cluster.start_trainer(count=2000)
    assert trainer.process.wait(60) == 0
    cluster.wait_until_stored()
    address = f"http://127.0.0.1:{cluster.http_port}"
    until(lambda: names(cluster.node_root, "--head", address, "--state", "completed"), 30)
    done = at_head(cluster, "delete", trainer.run, "--yes", "--keep-days", "0")
    assert cluster.head is not None and done.returncode == 0, done.stderr
    end(cluster.head, signal.SIGKILL)
    cluster.start_head()
    assert names(cluster.node_root, "--head", address) == []
    until(lambda: deleted(cluster)["deleted"][0]["state"] == "purged", 30, cluster.words())


def test_a_run_that_nodes_go_on_sending_stays_deleted(cluster: Cluster) -> None:
    cluster.start_head()
    cluster.start_agent()
    doomed, other = cluster.start_trainer(hertz=200), cluster.start_trainer(hertz=200)
    address = f"http://127.0.0.1:{cluster.http_port}"
    both = sorted([doomed.run, other.run])
    until(lambda: names(cluster.node_root, "--head", address) == both, 30, cluster.words())
    refused = at_head(cluster, "delete", doomed.run, "--yes")
    assert refused.returncode == 1 and "is running" in refused.stderr
    done = at_head(cluster, "delete", doomed.run, "--yes", "--force", "--keep-days", "0")
    assert done.returncode == 0, done.stderr
    until(lambda: deleted(cluster)["records_dropped"] > 0, 30, "more to come")
    until(lambda: deleted(cluster)["deleted"][0]["state"] == "purged", 30, "it to be gone")
    # The head dies and comes back, and so does the agent: nobody brings it again.
    assert cluster.head is not None and cluster.agent is not None
    end(cluster.head, signal.SIGKILL)
    end(cluster.agent, signal.SIGKILL)
    cluster.start_head()
    cluster.start_agent()
    until(lambda: deleted(cluster)["records_dropped"] > 0, 30, "more to come")
    for trainer in (doomed, other):
        trainer.kill()
    until(lambda: other.all_at(cluster.http_port), 60, cluster.words())
    assert names(cluster.node_root, "--head", address) == [other.run]
    cluster.stop_head()
    store = DuckStore.open(cluster.head_root / "store")
    assert store.series(RunId(doomed.run)) == [] and store.events(RunId(doomed.run)) == []
    rows = store.series(RunId(other.run), metric="value")
    values = [value for part in store.points([r.series for r in rows]) for value in part.value]
    store.close()
    assert values == [float(n) for n in range(len(values))]
    assert other.returned <= len(values) <= other.returned + 1
