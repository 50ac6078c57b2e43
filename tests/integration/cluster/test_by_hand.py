"""The tests' API server by hand, as its documentation says."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.server import Cluster


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-m", "tests.cluster", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            config = process.stdout.readline().partition("=")[2].split()[0]
            said = subprocess.run(
                ["kubectl", "--kubeconfig", config, "get", "crd", "-o", "name"],
                capture_output=True,
                text=True,
                timeout=60,
            ).stdout
            assert "runs.runwatch.dev" in said and "mldiagnosticsconnections" in said
            process.send_signal(number)
            assert process.wait(100) == 0
        finally:
            process.kill()


def test_a_webhook_whose_port_is_taken_says_so(cluster: Cluster) -> None:
    account = cluster.account("runwatch", "runwatch-webhook")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ("--bind", "127.0.0.1", "--port", str(port), "--account", str(account))
        done = subprocess.run(
            [sys.executable, "-m", "runwatch.cli", "k8s", "webhook", *words]
            + ["--server", cluster.server],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2
    assert done.stderr.strip().endswith(
        f"cannot listen on 127.0.0.1 port {port}: Address already in use; choose another with "
        "--port"
    )
