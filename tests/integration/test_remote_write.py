"""A real Prometheus gets every point, also those of the time when it was away."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from runwatch.address import Listening
from runwatch.exports.gauges import Gauge
from runwatch.head.telemetry.outlet import NotWanted, Outlet, Taken
from runwatch.head.telemetry.pulse import Kept
from runwatch.head.telemetry.remote_write import RemoteWrite
from runwatch.testing import Number, read_stories, until
from tests.integration.databases import Prometheus, needs_prometheus
from tests.integration.processes import Cluster, end

pytestmark = needs_prometheus

PROGRAM = """
import sys, time, runwatch
run = runwatch.init("curves", config={"lr": 0.1})
for step, x in run.steps(range(30)):
    run.log({"train/loss": 1 / (step + 1), "odd": float("nan") if step % 7 == 0 else step / 3})
    time.sleep(0.002)
if "--wait" in sys.argv:
    sys.stdin.read()
run.finish()
"""


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    server = Prometheus(tmp_path / "prometheus")
    yield server
    server.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster")
    (made.node_root / "config.toml").write_text(
        "[telemetry]\ninterval_seconds = 0.2\nretry_seconds = 0.5\ntimeout_seconds = 5.0\n"
    )
    yield made
    made.close()


def train(cluster: Cluster, *words: str, **options: Any) -> subprocess.Popen[bytes]:
    """The head reads what is recorded in its own directory."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        env=cluster.environment_of(cluster.head_root),
        **options,
    )


def health(at: Listening) -> Any:
    asked = Request(f"{at.http}/api/v1/health", headers={"Authorization": f"Bearer {at.token}"})
    with urlopen(asked, timeout=100) as answer:
        return json.load(answer)


def kept(numbers: list[Number], metric: str) -> list[tuple[float, str]]:
    """As Prometheus keeps them: the last of each millisecond."""
    found = {n.time_ns // 10**6: n.value for n in numbers if n.metric == metric}
    return [(ms / 1000, repr(value)) for ms, value in sorted(found.items())]


def test_prometheus_gets_everything_also_what_it_missed(
    cluster: Cluster, prometheus: Prometheus
) -> None:
    at = cluster.start_head("--remote-write", f"{prometheus.url}/api/v1/write")
    trainer = train(cluster, "--wait", stdin=subprocess.PIPE)
    try:
        until(lambda: health(at)["forwards"][0]["problem"], what="the head to notice")
        [told] = health(at)["forwards"]
        assert told["to"] == "remote_write" and "Connection refused" in told["problem"]
        until(lambda: health(at)["forwards"][0]["waiting"] > 100, what="all that waits")
        prometheus.start()
        until(lambda: prometheus.now("runwatch_train_loss"), what="the first points")
        until(lambda: list(prometheus.now("runwatch_run_state == 1")), what="the run's state")
        assert list(prometheus.now("runwatch_run_state == 1")) == [state(cluster, "running")]
        until(lambda: noted(cluster) > 120, what="the head's note of what it has sent")
        assert cluster.head is not None
        end(cluster.head, signal.SIGKILL)
    finally:
        trainer.communicate(b"")
    assert trainer.returncode == 0  # a head that is away is not the program's affair
    at = cluster.start_head("--remote-write", f"{prometheus.url}/api/v1/write")
    until(lambda: state(cluster, "completed") in prometheus.now("runwatch_run_state == 1"))

    [story] = read_stories(cluster.head_root)
    assert len(kept(story.numbers, "odd")) > 20
    for metric in {number.metric for number in story.numbers}:
        name = "runwatch_" + metric.replace("/", "_")
        expected = kept(story.numbers, metric)
        [(labels, found)] = until(
            lambda name=name, all=expected: [
                item for item in prometheus.samples(name).items() if len(item[1]) >= len(all)
            ],
            what=name,
        )
        own = f",metric={metric}" if "/" in metric else ""
        host, run = story.origin.host, story.scopes[0].run
        assert labels == f"__name__={name},host={host}{own},rank=0,run={run},run_name=curves"
        assert [(t, repr(float(v))) for t, v in found] == expected
    until(lambda: prometheus.now("runwatch_goodput_ratio"), what="goodput")
    [told] = health(at)["forwards"]
    assert (told["lost"], told["problem"]) == (0, "")
    assert told["sent"] > len(story.numbers)


def test_a_run_that_ends_leaves_no_stale_numbers(cluster: Cluster, prometheus: Prometheus) -> None:
    prometheus.start()
    cluster.start_head("--remote-write", f"{prometheus.url}/api/v1/write")
    trainer = train(cluster, "--wait", stdin=subprocess.PIPE)
    try:
        until(lambda: prometheus.now("runwatch_train_loss"), what="the first points")
        until(lambda: prometheus.now("runwatch_run_state == 1"), what="its state")
    finally:
        trainer.communicate(b"")
    until(lambda: not prometheus.now("runwatch_train_loss"), what="the series to end")
    assert list(prometheus.now("runwatch_run_state == 1")) == [state(cluster, "completed")]
    assert prometheus.samples("runwatch_train_loss")


def noted(cluster: Cluster) -> int:
    """What was sent after that is sent again after a kill, and refused."""
    [file] = cluster.head_root.glob("store/forward/*.json")
    return int(json.loads(file.read_bytes())["sent"])


def state(cluster: Cluster, name: str) -> str:
    [story] = read_stories(cluster.head_root)
    return f"__name__=runwatch_run_state,run={story.scopes[0].run},run_name=curves,state={name}"


def test_what_prometheus_refuses_does_not_keep_the_rest_from_it(prometheus: Prometheus) -> None:
    """It takes a request whole or not at all: one old sample spoils it."""
    prometheus.start()
    now_ns = time.time_ns()
    write = RemoteWrite(f"{prometheus.url}/api/v1/write", {}, 10.0)
    try:
        assert write.send([gauge("old", now_ns, 1), gauge("many", now_ns, 6_000)]) == Taken()
        with pytest.raises(NotWanted, match="out of order"):
            write.send([gauge("old", now_ns - 10**9, 1), gauge("new", now_ns, 1)])
        names = [f"fine{n}" for n in range(6)]
        package = [gauge(name, now_ns, 1) for name in names]
        package.insert(2, gauge("old", now_ns - 10**9, 2))
        outlet = Outlet(write, FullBacklog([package]), Kept())  # type: ignore[arg-type]
        while outlet.round():
            pass
        report = outlet.standing()
        assert (report.sent, report.lost) == (6, 2)
        assert "out of order" in report.lost_why
        [many] = prometheus.samples("runwatch_many").values()
        assert [float(value) for _, value in many] == [float(n) for n in range(6_000)]
        assert len(prometheus.now('{__name__=~"runwatch_fine.*"}')) == 6
    finally:
        write.close()


def gauge(name: str, end_ns: int, count: int) -> Gauge:
    times = [end_ns - (count - 1 - n) * 10**6 for n in range(count)]
    return Gauge(name, {"run": "r"}, times, [float(n) for n in range(count)])


class FullBacklog:
    """A stand-in: what it is given."""

    sent_before = lost_before = waiting = 0

    def __init__(self, packages: list[list[Gauge]]) -> None:
        self.take = iter([*packages, []]).__next__

    def stored(self, batches: object) -> None: ...
    def sent(self, gauges: object) -> None: ...
    def save(self, sent: int, lost: int, *, now: bool = False) -> None: ...
