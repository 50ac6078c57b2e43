"""The commands that make a host profile itself, however the host is reached."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from runwatch.compat.xprofiler.backend import Captured, Request
from runwatch.errors import RunwatchError, UsageError

SLACK_SECONDS: Final = 300.0
"""What a host gets for connecting, writing and copying, on top of the time it records."""
SCRIPT: Final = "https://raw.githubusercontent.com/pytorch/xla/master/scripts/capture_profile.py"
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HINTS: Final = {
    "No trace event was collected because there were no responses from clients": (
        "Hint: nothing was recorded. Does the program on {host} serve port {port} "
        "(jax.profiler.start_server({port})), and was it busy meanwhile?"
    ),
    "Connection timed out": (
        "Hint: {host} could not be reached. May this machine open a connection to it (firewall, "
        "network), or does it need --use-ssh-proxy?"
    ),
}

OnHost = Callable[[str, str], str]
"""Runs a command line on a host."""


def commands(request: Request, host: str) -> list[str]:
    if request.is_torch:
        return _torch(request, host)
    options = {"session_id": request.session_name, "override_hostnames": host}
    asked = ", ".join(
        json.dumps(part) if part is not True else "True"
        for part in (
            f"{host}:{request.port}", request.root, "", True, request.duration_ms, 3, options,
        )
    )  # fmt: skip
    program = f"from xprof.convert import _pywrap_profiler_plugin as plugin; plugin.trace({asked})"
    return [f"echo -e '{program}' | python3"]


def _torch(request: Request, host: str) -> list[str]:
    folder = f"tmp/tensorboard/{request.session}"
    return [
        f"wget {SCRIPT}",
        f"python3 capture_profile.py --service_addr localhost:{request.port} "
        f"--duration {request.duration_ms} --logdir {folder}",
        f"gsutil cp $(ls {folder}/plugins/profile/*/*xplane.pb| tail -1) {request.file(host)}",
    ]


def capture_all(request: Request, on_host: OnHost, exists: Callable[[str], bool]) -> list[Captured]:
    """All hosts at the same time."""
    for host in request.hosts:
        if not _HOST.fullmatch(host):
            raise UsageError(f"{host!r} is no host's name: letters, digits, '.', '_' and '-'")

    def one(host: str) -> Captured:
        try:
            for command in commands(request, host):
                on_host(host, command)
        except RunwatchError as error:
            return Captured(host, why="\n".join([str(error), *hints(str(error), request, host)]))
        file = request.file(host)
        # TensorFlow's profiler may report success and have written nothing.
        if request.framework == "tensorflow" and not exists(file):
            return Captured(host, why=f"{file} was not written")
        return Captured(host, (file,))

    with ThreadPoolExecutor(min(64, len(request.hosts))) as pool:
        return list(pool.map(one, request.hosts))


def hints(output: str, request: Request, host: str) -> Sequence[str]:
    return [
        hint.format(host=host, port=request.port) for sign, hint in _HINTS.items() if sign in output
    ]
