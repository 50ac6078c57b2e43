"""Kineto looks for a daemon only where one is."""

from __future__ import annotations

import socket
from pathlib import Path

from runwatch.sdk.hooks.torch.kineto import look_for_daemon


def test_a_daemon_that_is_there(tmp_path: Path) -> None:
    environment = {"KINETO_IPC_SOCKET_DIR": str(tmp_path)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(tmp_path / "dynolog"))
        look_for_daemon(environment)
    assert environment["KINETO_USE_DAEMON"] == "1"
    assert environment["KINETO_LOG_LEVEL"] == "3"


def test_no_daemon_or_one_that_has_ended(tmp_path: Path) -> None:
    environment = {"KINETO_IPC_SOCKET_DIR": str(tmp_path)}
    look_for_daemon(environment)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(tmp_path / "dynolog"))
    look_for_daemon(environment)
    assert environment == {"KINETO_IPC_SOCKET_DIR": str(tmp_path)}


def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(tmp_path / "dynolog"))
        for mine in ("0", "1"):
            environment = {"KINETO_IPC_SOCKET_DIR": str(tmp_path), "KINETO_USE_DAEMON": mine}
            before = dict(environment)
            look_for_daemon(environment)
            assert environment == before
