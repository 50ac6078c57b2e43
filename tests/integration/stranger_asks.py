"""What another user of the machine gets of a head: run as root, it becomes that user first.

    python -m tests.integration.stranger_asks UID HTTP GRPC DIRECTORY

prints a JSON object: for each thing that was tried, how that ended.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  (who has become somebody else may not read it any more)
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from runwatch.address import read_address, token_for
from runwatch.wire import gswarm_pb2 as gswarm
from runwatch.wire import spine_pb2 as spine

STREAM = "/runwatch.v1.Spine/Stream"
PROFILER = "/gswarm_profiler.ProfilerService/"


def http(address: str, path: str, body: Any = None, method: str | None = None) -> int:
    said = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(address + path, data=said, method=method)
    asked.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(asked, timeout=100) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def inject(channel: grpc.Channel) -> str:
    stream = channel.stream_stream(STREAM, spine.Up.SerializeToString, spine.Down.FromString)
    origin = spine.Origin(journal="6553f100-node-1-aa", host="node", pid=1)
    said = [
        spine.Up(hello=spine.Hello(oldest_wire_version=1, newest_wire_version=1, host="node")),
        spine.Up(batch=spine.Batch(origin=origin, start=0, end=100)),
    ]
    return status(lambda: list(stream(iter(said), timeout=100)))


def ask(channel: grpc.Channel, method: str, message: Any, reply: Any) -> str:
    call = channel.unary_unary(PROFILER + method, type(message).SerializeToString, reply.FromString)
    return status(lambda: call(message, timeout=100))


def status(call: Callable[[], object]) -> str:
    try:
        call()
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def readable(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


def main(uid: int, address: str, target: str, root: Path) -> dict[str, Any]:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    tried: dict[str, Any] = {
        "token file": readable(root / "token"),
        "note": readable(root / "head.json"),
        "address": read_address(root) is not None,
        "token": token_for(address, root),
        "runs": http(address, "/api/v1/runs"),
        "session": http(address, "/api/v1/sessions", {"name": "theirs"}),
        "share": http(address, "/api/v1/shares", {}),
        "profile": http(address, "/api/v1/profiles/run/session", method="DELETE"),
        "start": http(address, "/profiling/start", {"name": "gswarm's"}),
        "status": http(address, "/status"),
    }
    with grpc.insecure_channel(target) as channel:
        info = gswarm.InitialInfo(hostname="theirs")
        tried |= {
            "inject": inject(channel),
            "Connect": ask(channel, "Connect", info, gswarm.ConnectResponse),
            "GetStatus": ask(channel, "GetStatus", gswarm.Empty(), gswarm.StatusResponse),
            "Exit": ask(channel, "Exit", gswarm.Empty(), gswarm.Empty),
        }
    return tried


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4]))))
