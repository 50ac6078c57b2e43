"""Instances on another machine: what `local.py` does, done over there.

The zone is the machine: `-z ssh:HOST`.  It needs this command, too.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from runwatch.compat.xprofiler import extra
from runwatch.compat.xprofiler.backend import (
    PORT,
    Captured,
    Context,
    Instance,
    Order,
    Request,
    Wanted,
    word,
)
from runwatch.compat.xprofiler.hosts import SLACK_SECONDS
from runwatch.compat.xprofiler.running import CommandFailed
from runwatch.errors import RunwatchError, UsageError

PREFIX: Final = "ssh:"


class Ssh:
    name = "ssh"

    def __init__(self, context: Context) -> None:
        self._context = context
        host = context.zone.removeprefix(PREFIX)
        if not host:
            raise UsageError("name the machine: -z ssh:HOST")
        self._host = word(host, "host")

    def _there(self, *words: str, seconds: float = 0.0) -> Any:
        line = shlex.join(["xprofiler", *words, "--backend", "local", "--json"])
        limit = seconds or self._context.settings.command_seconds
        ssh = ["ssh", "-o", "BatchMode=yes", "--", self._host, line]
        try:
            output = self._context.runner.run(ssh, limit)
        except CommandFailed as error:
            output = error.output  # some hosts failed, and it says which
            if not output.strip():
                raise
        try:
            return json.loads(output)
        except ValueError:
            raise RunwatchError(f"{self._host} answered something else: {output[:200]}") from None

    def check(self, log_directory: str) -> None:
        """The other machine checks it, when it creates or captures something."""

    def instances(self, wanted: Wanted, flags: extra.Flags | None = None) -> list[Instance]:
        words = ["list"]
        if wanted.directories:
            words += ["-l", *wanted.directories]
        if wanted.names:
            words += ["-n", *wanted.names]
        return [self._ours(one) for one in self._there(*words)]

    def _ours(self, instance: dict[str, Any]) -> Instance:
        return Instance(**(instance | {"zone": f"{PREFIX}{self._host}", "backend": self.name}))

    def create(self, order: Order) -> Instance:
        flags = extra.words(self._context.extra)
        words = ["create", "-l", order.log_directory, "-n", order.name, *flags]
        limit = self._context.settings.ready_seconds + self._context.settings.command_seconds
        return self._ours(self._there(*words, seconds=limit))

    def delete(self, instances: Sequence[Instance]) -> None:
        self._there("delete", "--quiet", "-n", *(one.name for one in instances))

    def connect(self, instance: Instance, port: int | None, host_port: int) -> str:
        port = port or PORT
        address, _, rest = instance.url.partition("://")[2].partition("/")
        self._ssh("-f", "-N", "-M", "-S", self._socket(instance), "-o", "ExitOnForwardFailure=yes",
                  "-L", f"{port}:{address}", "--", self._host)  # fmt: skip
        return f"http://localhost:{port}/{rest}"

    def disconnect(self, instance: Instance) -> None:
        self._ssh("-S", self._socket(instance), "-O", "exit", "--", self._host)

    def _ssh(self, *words: str) -> None:
        self._context.runner.run(["ssh", *words], self._context.settings.command_seconds)

    def _socket(self, instance: Instance) -> str:
        home = self._context.settings.home
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = str(home / f"ssh-{instance.name}")
        # A socket's path may have 107 bytes, and ssh needs some of them while it is made.
        return own if len(os.fsencode(own)) < 88 else str(Path("/tmp", f"ssh-{instance.name}"))

    def capture(self, request: Request) -> list[Captured]:
        words = [
            "capture", "-l", request.log_directory, "-n", *request.hosts, "-f", request.framework,
            "-p", str(request.port), "-d", str(request.duration_ms), "--session", request.session,
        ]  # fmt: skip
        answer = self._there(*words, seconds=request.duration_ms / 1e3 + SLACK_SECONDS)
        return [
            Captured(host["host"], tuple(host["files"]), host["why"]) for host in answer["hosts"]
        ]
