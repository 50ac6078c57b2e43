"""gswarm: the host, client and profiler commands of gswarm 0.4, provided by Runwatch.

They are `gsprof` under gswarm's names: `host start` is its head, `client connect` its client, and
`profiler` what asks a head.  gswarm's models, data pool and task queue are not here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from runwatch._version import __version__
from runwatch.compat.commands import exit_code
from runwatch.compat.gswarm.command import GRPC_HEAD, HTTP_HEAD, PORT
from runwatch.compat.gswarm.command import parser as gsprof_parser
from runwatch.errors import UsageError

Arguments = argparse.Namespace
ELSEWHERE: Final = ("model", "data", "queue", "status", "health", "nodes", "clean-history")
_SWITCHES: Final = {
    "enable-bandwidth": ("SetBandwidthProfiling", True),
    "disable-bandwidth": ("SetBandwidthProfiling", False),
    "enable-nvlink": ("SetNVLinkProfiling", True),
    "disable-nvlink": ("SetNVLinkProfiling", False),
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        "gswarm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--yaml", metavar="PATH", help="gswarm's own settings; not read here")
    groups = top.add_subparsers(dest="group", metavar="COMMAND", required=True)
    _host(groups.add_parser("host", help="the head"))
    _client(groups.add_parser("client", help="this machine as a client of a head"))
    _profiler(groups.add_parser("profiler", help="sessions, status and what they recorded"))
    groups.add_parser("version", help="which version this is")
    for name in ELSEWHERE:
        other = groups.add_parser(name, help="not part of Runwatch")
        other.add_argument("rest", nargs=argparse.REMAINDER)
    return top


def _verbs(group: argparse.ArgumentParser) -> Callable[[str, str], argparse.ArgumentParser]:
    verbs = group.add_subparsers(dest="verb", metavar="VERB", required=True)
    return lambda name, line: verbs.add_parser(name, help=line, description=line)


def _host(group: argparse.ArgumentParser) -> None:
    verbs = group.add_subparsers(dest="verb", metavar="VERB", required=True)
    line = "start the head"
    start = verbs.add_parser("start", help=line, description=line, add_help=False)
    start.add_argument("--help", action="help", help="this text")
    start.add_argument("-p", "--port", type=PORT, default=8090, help="gRPC port")
    start.add_argument("--http-port", type=PORT, default=8091, help="HTTP port")
    start.add_argument("--model-port", type=PORT, default=9010, help="not used here")
    start.add_argument("-h", "--host", default="0.0.0.0", help="address to listen on")  # noqa: S104
    start.add_argument("--enable-bandwidth", action="store_true", help="PCIe bandwidth too")
    start.add_argument("--enable-nvlink", action="store_true", help="NVLink bandwidth too")
    start.add_argument("--freq", type=int, default=200, help="ms between samples")
    start.add_argument("--gswarm-open", metavar="ADDRESS", help="as of `gsprof start`")
    start.add_argument("--cors-origin", metavar="URL", action="append", default=[], help="as there")
    for name, line in (("stop", "end the head"), ("status", "how the head stands")):
        verbs.add_parser(name, help=line, description=line)


def _client(group: argparse.ArgumentParser) -> None:
    add = _verbs(group)
    connect = add("connect", "sample this machine's GPUs and send them to a head")
    connect.add_argument("head", metavar="HOST", help="the head: host:8090")
    connect.add_argument("-r", "--resilient", action="store_true", help="every client is")
    connect.add_argument("--enable-bandwidth", action="store_true", help="PCIe bandwidth too")
    connect.add_argument("-n", "--node-id", help="this node's name among all")
    connect.add_argument("-b", "--block", action="store_true", help="stay; else in the background")
    connect.add_argument("-e", "--extra-metrics", metavar="A,B", help="all are sampled anyway")
    add("disconnect", "end the client in the background")
    add("status", "whether a client runs in the background")


def _profiler(group: argparse.ArgumentParser) -> None:
    add = _verbs(group)
    start = add("start", "start a session")
    start.add_argument("-n", "--name", help="the session's name")
    start.add_argument("-f", "--freq", type=int, help="not used: the head says how often")
    start.add_argument("-r", "--report-metrics", action="append", help="all are recorded anyway")
    stop = add("stop", "stop a session, or all")
    stop.add_argument("-n", "--name", help="the session's name")
    for verb in (start, stop, add("status", "how the head stands")):
        verb.add_argument("--host", default=GRPC_HEAD, help="the head (default: %(default)s)")
    sessions = add("sessions", "which sessions there are")
    sessions.add_argument("--host", default=HTTP_HEAD, help="the head (default: %(default)s)")
    analyze = add("analyze", "print and draw what a session's file holds")
    analyze.add_argument("data", type=Path)
    analyze.add_argument("-p", "--plot", help="draw into this file")
    recover = add("recover", "list sessions, go on with one, or write one to a file")
    recover.add_argument("-l", "--list", action="store_true", help="which sessions there are")
    recover.add_argument("--session-id", help="go on with this session")
    recover.add_argument("-n", "--name", help="go on with the newest session of this name")
    recover.add_argument("-e", "--export", action="store_true", help="write NAME.json instead")
    read = add("read", "the newest numbers of every GPU")
    read.add_argument("--node", help="of this node only")
    read.add_argument("-o", "--output", type=Path, default=Path("output.json"), help="as JSON")
    read.add_argument("--host", default=GRPC_HEAD, help="the head (default: %(default)s)")
    for name in _SWITCHES:
        switch = add(name, name.replace("-", " "))
        switch.add_argument("--host", default=GRPC_HEAD, help="the head (default: %(default)s)")


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    arguments = parser().parse_args(words or ["--help"])
    return exit_code("gswarm", lambda: _run(arguments), extra="head", on_error=1)


def _run(arguments: Arguments) -> int:
    if arguments.group == "version":
        print(f"gswarm (runwatch {__version__})")
        return 0
    if arguments.group in ELSEWHERE:
        raise UsageError(
            f"`gswarm {arguments.group}` is not part of Runwatch, only the profiler is"
        )
    return _RUN[arguments.group, arguments.verb](arguments)


def _as_gsprof(*words: str) -> int:
    """The same as that command of gsprof."""
    from runwatch.compat.gswarm import local, remote

    arguments = gsprof_parser().parse_args(words)
    return {**local.RUN, **remote.RUN}[words[0]](arguments)


def _words(*pairs: tuple[str, Any]) -> list[str]:
    """Flags that were given, with their values."""
    words: list[str] = []
    for flag, value in pairs:
        if value is True:
            words.append(flag)
        elif value not in (None, False):
            words += [flag, str(value)]
    return words


# ── host and client ────────────────────────────────────────────────────────────────────────────


def _host_start(arguments: Arguments) -> int:
    origins = [word for url in arguments.cors_origin for word in ("--cors-origin", url)]
    flags = _words(
        ("--host", arguments.host), ("--port", arguments.port),
        ("--http-port", str(arguments.http_port)), ("--freq", max(1, arguments.freq)),
        ("--enable-bandwidth", arguments.enable_bandwidth),
        ("--enable-nvlink", arguments.enable_nvlink), ("--gswarm-open", arguments.gswarm_open),
    )  # fmt: skip
    return _as_gsprof("start", *flags, *origins)


def _connect(arguments: Arguments) -> int:
    from runwatch.compat.gswarm.local import connect_in_background

    if arguments.node_id:
        os.environ["RUNWATCH_HOST"] = arguments.node_id
    words = ["connect", arguments.head, "--resilient"]
    words += _words(("--enable-bandwidth", arguments.enable_bandwidth))
    return _as_gsprof(*words) if arguments.block else connect_in_background(words)


def _disconnect(arguments: Arguments) -> int:
    from runwatch.compat.gswarm.local import clients_in_background, end_client

    found = clients_in_background()
    for folder in found:
        end_client(folder)
        print(f"Disconnected: {folder.name}")
    if not found:
        print("Not connected to any host")
    return 0


def _client_status(arguments: Arguments) -> int:
    from runwatch.compat.gswarm.local import clients_in_background

    found = clients_in_background()
    for folder in found:
        print(f"Connected: {folder.name}; its log: {folder / 'client.log'}")
    if not found:
        print("Not connected to any host")
    return 0


# ── profiler ───────────────────────────────────────────────────────────────────────────────────


def _sessions(arguments: Arguments) -> int:
    from runwatch.compat.gswarm.remote import http

    found = http(arguments.host, None, "/profiling/sessions")["sessions"]
    print(f"Found {len(found)} session(s):" if found else "No profiling sessions found")
    for session in found:
        state = "Active" if session["is_active"] else "Completed"
        print(f"  - {session['name']} ({state})")
        print(f"    Started: {session['start_time']}")
        print(f"    Frames: {session['frame_count']}")
    return 0


def _read(arguments: Arguments) -> int:
    from runwatch.compat.gswarm.remote import Remote
    from runwatch.wire import gswarm_pb2 as pb

    remote = Remote(arguments.host, None)
    if arguments.node:
        asked = pb.ReadNodeStatusRequest(node_id=arguments.node)
        reply = remote.ask("ReadNodeStatus", asked, pb.NodeStatusResponse)
        nodes = [reply.node_status]
    else:
        asked = pb.ReadClusterStatusRequest()
        reply = remote.ask("ReadClusterStatus", asked, pb.ClusterStatusResponse)
        nodes = list(reply.nodes)
    if not reply.success:
        raise UsageError(reply.message)
    rows = [(node.node_id, gpu) for node in nodes for gpu in node.gpus]
    _print_gpus(rows)
    _write_gpus(arguments.output, nodes, getattr(reply, "cluster_id", ""))
    return 0


def _print_gpus(rows: Sequence[tuple[str, Any]]) -> None:
    print(f"{'NODE':24} {'GPU':>4} {'UTIL':>7} {'MEMORY':>24} {'PCIe':>12} {'NVLink':>12}")
    for node, gpu in rows:
        memory = f"{_told(gpu.memory_used, 'MiB')} / {_told(gpu.memory_total, 'MiB')}"
        print(f"{node:24} {gpu.gpu_id:>4} {_told(gpu.utilization, '%'):>7} {memory:>24} "
              f"{_told(gpu.dram_bandwidth, 'MiB/s'):>12} "
              f"{_told(gpu.nvlink_bandwidth, 'MiB/s'):>12}")  # fmt: skip


def _told(value: float, unit: str) -> str:
    return "N/A" if value < 0 else f"{value:.0f} {unit}"


def _write_gpus(output: Path, nodes: Sequence[Any], cluster: str) -> None:
    names = ("gpu_id", "utilization", "memory_used", "memory_total", "dram_bandwidth",
             "nvlink_bandwidth")  # fmt: skip
    document = {
        "timestamp": datetime.now().isoformat(),
        "cluster_id": cluster or "unknown",
        "nodes": [
            {
                "node_id": node.node_id,
                "gpus": [
                    {"device_type": f"GPU_{gpu.gpu_id}"} | {n: getattr(gpu, n) for n in names}
                    for gpu in node.gpus
                ],
            }
            for node in nodes
        ],
    }
    output.write_text(json.dumps(document, indent=2))
    print(f"Wrote {output}")


def _switch(arguments: Arguments) -> int:
    from runwatch.compat.gswarm.remote import Remote
    from runwatch.wire import gswarm_pb2 as pb

    method, enable = _SWITCHES[arguments.verb]
    kind = pb.SetBandwidthRequest if "Bandwidth" in method else pb.SetNVLinkRequest
    remote = Remote(arguments.host, None)
    reply = remote.ask(method, kind(enable=enable), pb.SetProfilingResponse)
    print(reply.message)
    return 0 if reply.success else 1


_RUN: Final[dict[tuple[str, str], Callable[[Arguments], int]]] = {
    ("host", "start"): _host_start,
    ("host", "stop"): lambda _: _as_gsprof("exit", GRPC_HEAD),
    ("host", "status"): lambda _: _as_gsprof("status", GRPC_HEAD),
    ("client", "connect"): _connect,
    ("client", "disconnect"): _disconnect,
    ("client", "status"): _client_status,
    ("profiler", "start"): lambda a: _as_gsprof("profile", a.host, *_words(("--name", a.name))),
    ("profiler", "stop"): lambda a: _as_gsprof("stop", a.host, *_words(("--name", a.name))),
    ("profiler", "status"): lambda a: _as_gsprof("status", a.host),
    ("profiler", "sessions"): _sessions,
    ("profiler", "analyze"): lambda a: _as_gsprof(
        "stat", "--data", str(a.data), *_words(("--plot", a.plot))
    ),
    ("profiler", "recover"): lambda a: _as_gsprof(
        "recover",
        *_words(
            ("--list", a.list),
            ("--session-id", a.session_id),
            ("--name", a.name),
            ("--export", a.export),
        ),
    ),
    ("profiler", "read"): _read,
    **{("profiler", name): _switch for name in _SWITCHES},
}
