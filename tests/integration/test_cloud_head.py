"""A head as a process that sends to Google Cloud, is killed, and misses nothing; and a program that
never hears of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.testing import until
from tests.cloud_services import CloudServices, cloud_services, refuse
from tests.integration.processes import Cluster, end
from tests.integration.status_shape import deviations
from tests.tokens import urlopen

STEPS = 3_000
PROGRAM = f"""
import sys

def hook(event, arguments):
    if event == "socket.connect":
        tried.append(arguments[1])

tried = []
sys.addaudithook(hook)
from ml_goodput_measurement import goodput

recorder = goodput.GoodputRecorder("llama", "goodput_llama", True)
recorder.record_job_start_time()
for step in range({STEPS}):
    recorder.record_step_start_time(step)
recorder.record_job_end_time()
recorder.flush()
loaded = [name for name in sys.modules if name.startswith(("google.cloud", "google.auth", "grpc"))]
assert not loaded and not [at for at in tried if isinstance(at, tuple)], (loaded, tried)
"""


@pytest.fixture
def services() -> Iterator[CloudServices]:
    with cloud_services() as started:
        yield started


@pytest.fixture
def cluster(tmp_path: Path, services: CloudServices) -> Iterator[Cluster]:
    started = Cluster(tmp_path)
    (started.node_root / "config.toml").write_text(
        textwrap.dedent(f"""
        [gcp]
        logging = true
        monitoring = true
        project = "mine"
        runs = ["llama*"]
        logging_endpoint = "{services.endpoint}"
        monitoring_endpoint = "{services.endpoint}"
        insecure = true
        timeout_seconds = 2
        retry_seconds = 0.1
        interval_seconds = 5
        """)
    )
    try:
        yield started
    finally:
        started.close()


def train(cluster: Cluster) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=cluster.environment_of(cluster.head_root),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "cloud" not in done.stderr.lower()


def forward(cluster: Cluster) -> dict[str, Any]:
    """What the head says of Cloud Logging."""
    url = f"http://127.0.0.1:{cluster.http_port}/api/v1/health"
    with urlopen(url, timeout=100) as answer:
        return _of_logging(json.load(answer)["forwards"])


def status(cluster: Cluster) -> dict[str, Any]:
    """What `runwatch status` says of it."""
    said = subprocess.run(
        [sys.executable, "-m", "runwatch.cli", "status", "--dir", str(cluster.head_root), "--json"],
        env=cluster.environment_of(cluster.head_root),
        capture_output=True,
        text=True,
        timeout=120,
    )
    told: dict[str, Any] = json.loads(said.stdout)
    assert list(deviations(told)) == []
    return _of_logging(told["head"]["health"]["forwards"])


def _of_logging(forwards: list[dict[str, Any]]) -> dict[str, Any]:
    return next(each for each in forwards if each["to"] == "cloud_logging")


@pytest.mark.parametrize("kills", [1, pytest.param(4, marks=pytest.mark.soak)])
def test_a_head_that_is_killed_while_it_sends_misses_nothing(
    cluster: Cluster, services: CloudServices, kills: int
) -> None:
    def slowly(request: Any, context: Any) -> None:
        time.sleep(0.05)  # so that there is a middle to be killed in

    cluster.start_head()
    services.fault = refuse(7, "The caller does not have permission")
    train(cluster)  # its exit code and its connections are checked there
    until(lambda: len(services.requests) > 2, what=cluster.words())
    assert services.entries == {}
    until(lambda: forward(cluster)["waiting"] == STEPS + 2)
    held = status(cluster)
    assert "403" in held["problem"] and "roles/logging.logWriter" in held["todo"]
    assert held["waiting"] == STEPS + 2 and held["waiting_since_ns"] and held["problem_since_ns"]
    services.fault = slowly
    for number in range(kills):
        least = number * 500
        until(lambda least=least: len(services.entries) > least, what=cluster.words())
        assert cluster.head is not None
        end(cluster.head, signal.SIGKILL)
        cluster.start_head()
    until(lambda: len(services.entries) == STEPS + 2, 60, what=cluster.words())
    payloads = services.payloads("/logs/goodput_llama")
    steps = [each["step_count"] for each in payloads if "step_count" in each]
    assert sorted(steps) == list(range(STEPS))
    assert {each["job_name"] for each in payloads} == {"llama"}
    until(lambda: forward(cluster)["problem"] == "")
    assert forward(cluster)["lost"] == 0
    assert "Traceback" not in cluster.words()


@pytest.mark.soak
def test_stacks_that_somebody_asks_for_are_in_the_log_of_tpu_hosts(
    cluster: Cluster, services: CloudServices
) -> None:
    file = cluster.node_root / "config.toml"
    file.write_text(file.read_text().replace('["llama*"]', '"trial-*"'))
    cluster.start_head()
    cluster.start_agent()
    trainer = cluster.start_trainer(hertz=50)
    until(lambda: trainer.stored_at(cluster.http_port) > 0, 60, cluster.words())
    asked = subprocess.run(
        [
            sys.executable,
            "-m",
            "runwatch.cli",
            "stacks",
            trainer.run,
            "--dir",
            str(cluster.head_root),
        ],
        env=cluster.environment_of(cluster.head_root),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert asked.returncode == 0, asked.stderr
    log = "/logs/tpu.googleapis.com%2Fruntime_monitor"
    dump = until(lambda: services.payloads(log), what=cluster.words())[0]
    assert dump["verb"] == "stacktraceanalyzer"
    assert "trainer.py" in dump["message"] and " in main" in dump["message"]
    labels = next(iter(services.entries.values()))["labels"]
    assert (labels["run"], labels["rank"]) == (trainer.run, "0")
    assert labels["pid"] == str(trainer.process.pid)
