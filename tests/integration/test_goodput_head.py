"""From a real program through agent and head to the account that people read; and the demo's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.agent.lock import end_agents
from runwatch.cli import demo_train
from runwatch.cli.commands import demo as demo_command
from runwatch.compat.goodput.goodput_utils import GCPOptions
from runwatch.compat.goodput.monitor.monitor import GoodputMonitor
from runwatch.sdk.guard import tally
from runwatch.testing import until
from tests import tokens
from tests.integration.processes import Cluster
from tests.unit.compat.goodput.monitor_help import HandClock, metric_service

SECOND = 10**9
TRAIN = """
import os, signal, sys, time
import runwatch
first, last, crash = map(int, sys.argv[1:])
run = runwatch.init("train")
for step, _ in run.steps(range(first, last), start=first):
    time.sleep(0.01)
    if step == crash:
        while not os.path.exists(os.environ["RUNWATCH_DIR"] + "/go"):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    if step % 20 == 19:
        with run.span("checkpoint_save"):
            time.sleep(0.05)
run.finish()
"""
RECORD = """
from datetime import UTC, datetime, timedelta
from runwatch.compat.goodput.goodput import GoodputRecorder
recorder = GoodputRecorder("old job", "goodput_old job", True)
start = datetime(2026, 1, 1, tzinfo=UTC)
recorder.record_job_start_time(start)
for step in range(5):
    recorder.record_step_start_time(step, start + timedelta(seconds=10 + 2 * step))
recorder.record_custom_badput_event_start_time(start + timedelta(seconds=20), "eval")
recorder.record_custom_badput_event_end_time(start + timedelta(seconds=23), "eval")
recorder.record_job_end_time(start + timedelta(seconds=25))
recorder.flush()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def get(cluster: Cluster, path: str) -> Any:
    url = f"http://127.0.0.1:{cluster.http_port}{path}"
    with tokens.urlopen(url, timeout=100) as reply:
        return json.load(reply) if path.startswith("/api") else reply.read().decode()


def goodput(cluster: Cluster, run: str = "train") -> dict[str, Any]:
    found: dict[str, Any] = get(cluster, f"/api/v1/runs/{run}/goodput")
    assert sum(s["ns"] for s in found["spent"]) == found["total_ns"]
    return found


def spent(answer: dict[str, Any]) -> dict[str, int]:
    return {s["name"]: s["ns"] for s in answer["spent"] if s["ns"]}


def is_known(cluster: Cluster, run: str) -> bool:
    return any(r["name"] == run for r in get(cluster, "/api/v1/runs")["runs"])


def is_watched(cluster: Cluster, run: str) -> bool:
    """Whether the agent samples its process: then it will see how that ends."""
    series = get(cluster, f"/api/v1/runs/{run}/series")["series"]
    return any(s["metric"].startswith("process_") for s in series)


def test_the_account_of_a_run_as_it_goes_and_after_the_head_came_back(cluster: Cluster) -> None:
    cluster.start_head()
    cluster.start_agent()
    crashing = cluster._python("-c", TRAIN, "0", "100", "59")
    until(lambda: is_known(cluster, "train"))
    # Asked while it goes on, so that what comes later is folded as it comes.
    until(lambda: goodput(cluster)["steps"], what="the first steps")
    until(lambda: is_watched(cluster, "train"), what="the agent to have an eye on it")
    (cluster.node_root / "go").touch()
    assert crashing.wait(100) == -9
    until(lambda: goodput(cluster)["disruptions"], what="the crash to be seen")
    until(lambda: goodput(cluster)["steps"] == 59, what="all steps before it")
    assert cluster._python("-c", TRAIN, "40", "100", "-1").wait(100) == 0
    until(lambda: goodput(cluster)["steps"] == 100, what="the last step")
    until(lambda: not goodput(cluster)["live"], what="the end")
    found = goodput(cluster)
    assert found["max_productive_step"] == 99
    [disruption] = found["disruptions"]
    assert "SIGKILL" in disruption["cause"]
    assert disruption["lost_steps"] == 59 - 40
    assert disruption["back_ns"] >= disruption["recovery_ns"] > 0
    classes = spent(found)
    assert classes["checkpoint_save"] >= 5 * 50_000_000  # one of them was done twice
    assert classes["wasted_progress"] >= 19 * 10_000_000
    assert classes["productive"] >= 100 * 10_000_000

    metrics = get(cluster, "/metrics")
    assert 'runwatch_disruptions_total{run="train"} 1.0' in metrics
    productive = f"{classes['productive'] / 1e9}"
    assert f'runwatch_spent_seconds{{class="productive",run="train"}} {productive}' in metrics

    said = subprocess.run(
        [sys.executable, "-m", "runwatch.cli", "goodput", "train", "--json",
         "--head", f"http://127.0.0.1:{cluster.http_port}"],
        env=cluster.environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert json.loads(said.stdout) == found

    cluster.stop_head()
    cluster.start_head()
    assert goodput(cluster) == found


def test_what_a_recorder_wrote_is_at_the_head(cluster: Cluster) -> None:
    cluster.start_head()
    cluster.start_agent()
    assert cluster._python("-c", RECORD).wait(60) == 0, cluster.words()
    until(lambda: is_known(cluster, "old job"))
    [run] = [r["run"] for r in get(cluster, "/api/v1/runs")["runs"]]

    def entries() -> list[dict[str, Any]] | None:
        found = get(cluster, f"/api/v1/runs/{run}/goodput/entries?logger=goodput_old%20job")
        return found["entries"] if len(found["entries"]) == 9 else None

    start = 1_767_225_600.0
    job = {"job_name": "old job"}
    assert until(entries, what="nine entries") == [
        job | {"job_start_time": start},
        *(job | {"step_count": i, "step_start_time": start + 10 + 2 * i} for i in range(5)),
        *(
            job | {"custom_badput_event_type": "eval", f"custom_badput_event_{edge}_time": at}
            for edge, at in (("start", start + 20), ("end", start + 23))
        ),
        job | {"job_end_time": start + 25},
    ]
    until(lambda: not goodput(cluster, run)["live"], what="the end")
    account = spent(goodput(cluster, run))
    assert account["custom:eval"] == 3 * SECOND
    assert sum(account.values()) == 25 * SECOND


def test_a_monitor_asks_the_head_about_windows_without_entries(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.start_head()
    cluster.start_agent()
    assert cluster._python("-c", RECORD).wait(60) == 0, cluster.words()
    until(lambda: is_known(cluster, "old job"))
    [run] = [r["run"] for r in get(cluster, "/api/v1/runs")["runs"]]
    until(lambda: not goodput(cluster, run)["live"], what="the end")
    monkeypatch.setenv("RUNWATCH_HEAD", f"http://127.0.0.1:{cluster.http_port}")
    monkeypatch.setenv("RUNWATCH_DIR", str(cluster.node_root))
    tally.forget()
    shares = []
    # Within a step, within the evaluation, and when the job had long ended.
    for at in (17.5, 22.5, 500):
        with metric_service() as (kept, client):
            monitor = GoodputMonitor(
                "old job", "goodput_old job", "", 30, True, metrics_client=client,
                gcp_options=GCPOptions("p", "z", "0", "A"), include_account=True,
                clock=HandClock(1_767_225_600.0 + at),
            )  # fmt: skip
            monitor.start_rolling_window_goodput_uploader([1])
            monitor.stop_rolling_window_goodput_uploader()
            shares.append(kept.values("interval_goodput"))
    assert shares == [[pytest.approx(100.0)], [0.0], []]
    assert tally.counts == {}


# ── the demo ───────────────────────────────────────────────────────────────────────────────────


class Watched:
    """What the demo's program noted by its own watch: (attempt, rank, what, step) → when."""

    def __init__(self, directory: Path) -> None:
        self.notes: dict[tuple[int, int, str, int | None], int] = {}
        for path in directory.glob("attempt-*-rank-*.jsonl"):
            _, attempt, _, rank = path.stem.split("-")
            for line in path.read_text().splitlines():
                what, step, time_ns = json.loads(line)
                self.notes[int(attempt), int(rank), what, step] = time_ns

    def last(self, attempt: int, what: str, step: int) -> int:
        """When the last rank did it."""
        return max(
            t for (a, _, w, s), t in self.notes.items() if (a, w, s) == (attempt, what, step)
        )

    def waited(self, attempt: int, steps: range) -> int:
        """How long all waited for the data of the rank that began last."""
        total = 0
        for step in steps:
            ranks = [r for a, r, w, s in self.notes if (a, w, s) == (attempt, "begin", step)]
            slowest = max(ranks, key=lambda r: self.notes[attempt, r, "begin", step])
            began = self.notes[attempt, slowest, "begin", step]
            asked = self.notes[attempt, slowest, "load", step]
            total += began - max(asked, self.last(attempt, "end", step - 1))
        return total


@pytest.mark.soak
def test_the_demos_account_is_right_to_within_a_step(tmp_path: Path) -> None:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
    inherited["RUNWATCH_DIR"] = str(tmp_path)
    root = tmp_path / "demo"
    try:
        done = subprocess.run(
            [sys.executable, "-m", "runwatch.cli", "demo", "--no-serve", "--steps", "300",
             "--dir", str(root)],
            env=inherited | {"COLUMNS": "100"}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        report = done.stdout.partition("goodput: where the time went")[2]
        for words in ("productive steps", "waiting for data", "SIGKILL", "lost steps", "rank 2"):
            assert words in report

        def ask(*words: str) -> dict[str, Any]:
            command = [sys.executable, "-m", "runwatch.cli", "goodput", demo_command.RUN]
            said = subprocess.run(
                [*command, "--json", "--dir", str(root), *words],
                env=inherited, capture_output=True, text=True, timeout=60, check=True,
            )  # fmt: skip
            found: dict[str, Any] = json.loads(said.stdout)
            return found

        check_the_demo(Watched(root / "watch"), ask)
    finally:
        end_agents(root)


def check_the_demo(watched: Watched, ask: Any) -> None:
    found = ask()
    assert sum(s["ns"] for s in found["spent"]) == found["total_ns"]
    slow = demo_train.SLOW_STEPS
    # The longest, with the wait for its data: agent and ranks share what this machine has.
    a_step = max(
        watched.last(1, "end", step) - watched.last(1, "end", step - 1)
        for step in range(1, demo_train.CRASH_STEP)
    )

    # The slow phase: from the end of the step before it to the last begin in it.
    since, until_ns = watched.last(1, "end", slow[0] - 1), watched.last(1, "begin", slow[-1])
    in_phase = spent(ask("--since", str(since), "--until", str(until_ns)))
    injected = round(len(slow) * demo_train.SLOW_SECONDS * SECOND)
    assert in_phase["data_loading"] == pytest.approx(watched.waited(1, slow), abs=a_step)
    assert in_phase["data_loading"] >= injected - a_step
    worst = max(found["ranks"], key=lambda rank: rank["awaited_ns"])
    assert worst["rank"] == demo_train.SLOW_RANK

    # The crash: when, why, and what had to be done again.
    crash_ns = watched.notes[1, demo_train.CRASH_RANK, "crash", demo_train.CRASH_STEP]
    resumed = demo_train.CRASH_STEP // demo_train.CHECKPOINT_EVERY * demo_train.CHECKPOINT_EVERY
    [disruption] = found["disruptions"]
    assert f"rank {demo_train.CRASH_RANK}" in disruption["cause"]
    assert "SIGKILL" in disruption["cause"]
    assert abs(disruption["time_ns"] - crash_ns) <= a_step
    assert disruption["lost_steps"] == pytest.approx(demo_train.CRASH_STEP + 1 - resumed, abs=1)
    assert disruption["attempt"] == 1
    redone = sum(
        watched.last(1, "end", step) - watched.last(1, "begin", step)
        for step in range(resumed, demo_train.CRASH_STEP)
    ) + (crash_ns - watched.last(1, "begin", demo_train.CRASH_STEP))
    assert disruption["wasted_ns"] == pytest.approx(redone, abs=2 * a_step)

    # The restart: from the crash to the first step after it.
    assert [a["first_step"] for a in found["attempts"]] == [0, resumed]
    back_ns = disruption["time_ns"] + disruption["back_ns"]
    assert back_ns == pytest.approx(watched.last(2, "begin", resumed), abs=a_step)
    assert (found["steps"], found["max_productive_step"]) == (300, 299)
