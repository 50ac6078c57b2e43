"""The whole operator, as a process with its watches: it is killed, and another one goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runwatch.testing import until
from tests.cluster.kubelet import PULL_FAILED, UNSCHEDULABLE
from tests.integration.operator_pods.site import Site
from tests.integration.processes import end


@contextmanager
def operator(site: Site, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """It is killed at the end, and has no time to say goodbye."""
    directory.mkdir()
    token = directory / "token"
    token.touch(mode=0o600)
    token.write_text(site.at.token)
    inherited = {key: value for key, value in os.environ.items() if "RUNWATCH" not in key}
    settings = {
        "RUNWATCH_HEAD": site.at.http,
        "RUNWATCH_TOKEN_FILE": str(token),
        "RUNWATCH_DIR": str(directory),
        "RUNWATCH_OPERATOR_PORT": "0",
        "RUNWATCH_OPERATOR_BIND": "127.0.0.1",
        "RUNWATCH_LEASE_SECONDS": "1",
        "RUNWATCH_RUNS_SECONDS": "0.2",
        "RUNWATCH_RETRY_FIRST_SECONDS": "0.1",
        "RUNWATCH_RETRY_SECONDS": "1",
        "RUNWATCH_HOST": directory.name,
        "POD_NAME": directory.name,
    }
    command = [sys.executable, "-m", "runwatch.cli", "k8s", "operator"]
    command += ["--server", site.cluster.server, "--account", str(site.account)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, env=inherited | settings, stdout=log, stderr=log)
    try:
        yield process
    finally:
        end(process, signal.SIGKILL)


def whats(site: Site, run: str, pod: str) -> set[str]:
    return {what for _, name, what in site.told(run) if name == pod}


def test_what_happens_to_pods_while_operators_are_killed(site: Site, tmp_path: Path) -> None:
    run = site.name("whole")
    node, kubelet = f"node-of-{run}", site.kubelet
    kubelet.node(node)
    pods = [site.pod(run, rank) for rank in range(2)]

    def knows(pod: str, *expected: str) -> None:
        until(lambda: whats(site, run, pod) >= set(expected), 60, f"{pod} {expected}")

    with operator(site, tmp_path / "one"):
        kubelet.says(site.thing(pods[0]), "FailedScheduling", UNSCHEDULABLE)
        site.time.passes(20)
        for rank, pod in enumerate(pods):
            for deed, *more in (["scheduled", node], ["accepted"], ["starts"]):
                site.time.passes(1)
                kubelet.does(pod, deed, *more)
            site.program(pod, run, rank=rank, ranks=2).heard()
        knows(pods[0], "created", "unschedulable", "scheduled", "started")
        knows(pods[1], "created", "scheduled", "started")
    # Nobody is there when memory runs out, and when the node is given up.
    kubelet.does(pods[0], "ends", exit_code=137, reason="OOMKilled")
    kubelet.does(pods[0], "over", "Failed")
    site.time.passes(40)
    kubelet.node(node, "Unknown")
    with operator(site, tmp_path / "two"):
        knows(pods[0], "oom_killed", "ended")
        knows(pods[1], "node_not_ready")
        site.time.passes(300)
        kubelet.does(pods[1], "tainted")
        kubelet.does(pods[1], "deleted")
        knows(pods[1], "evicted", "deleted")
        kubelet.removes(pods[1])
        late = site.pod(run, 0)
        kubelet.does(late, "scheduled", node)
        kubelet.does(late, "accepted")
        kubelet.does(late, "image", "ErrImagePull", PULL_FAILED)
        knows(late, "created", "scheduled", "pull_failed")
    rows = site.told(run)
    assert len(set(rows)) == len({(pod, what) for _, pod, what in rows})  # two told the same
    reasons = {
        each["rank"]: each["reason"] for each in site.get(f"/runs/{run}/processes")["processes"]
    }
    assert reasons[0] == "killed by SIGKILL, out of memory"
    assert reasons[1].endswith("lost with its node: Kubelet stopped posting node status.")
    assert f"pod {late}: cannot get its image: {PULL_FAILED}" in site.run(run)["waits"]
