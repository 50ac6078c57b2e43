"""gsprof: profile every GPU of every node, in named sessions that survive anything.

A head (`gsprof start`) collects what clients (`gsprof connect HEAD`) sample; sessions are started
and stopped by name, over gRPC or HTTP.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from runwatch._version import __version__
from runwatch.compat.commands import exit_code, whole

GRPC_HEAD: Final = "localhost:8090"
HTTP_HEAD: Final = "localhost:8091"
DATA: Final = Path(".gswarm_profiler_data")
PORT: Final = whole("a port: a number", 0, 65535)
MILLISECONDS: Final = whole("a number of milliseconds between samples,", 1, 3_600_000)
MEGABYTES: Final = whole("a number of megabytes for a buffer,", 3, 1 << 20)

Arguments = argparse.Namespace
Add = Callable[[argparse.ArgumentParser], None]


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        "gsprof", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--version", action="version", version=f"gsprof (runwatch {__version__})")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, (line, add) in COMMANDS.items():
        add(commands.add_parser(name, help=line, description=line))
    return top


def _start(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--host", default="localhost", help="address to listen on (default: %(default)s)"
    )
    command.add_argument("--port", type=PORT, default=8090, help="gRPC port (default: %(default)s)")
    command.add_argument(
        "--http-port", type=PORT, default=8091, help="HTTP port, 0 = none (default: %(default)s)"
    )
    command.add_argument(
        "--freq", type=MILLISECONDS, default=500, help="ms between samples (default: %(default)s)"
    )
    _switches(command, bandwidth=False, nvlink=False)
    command.add_argument("--background", action="store_true", help="return when the head is ready")
    command.add_argument("--token", help="what callers must know (default: $RUNWATCH_TOKEN)")
    command.add_argument(
        "--gswarm-open", metavar="ADDRESS", default="",
        help="let clients of gswarm in without a token at this address of this machine; they can "
        "only send samples, read the status, and start and stop sessions",
    )  # fmt: skip
    command.add_argument(
        "--cors-origin", metavar="URL", action="append", default=[],
        help="pages of this origin may ask the head: https://dashboard.example:3000; repeatable",
    )  # fmt: skip
    command.add_argument("--tls-certificate", type=Path, help="PEM file; turns TLS on")
    command.add_argument("--tls-key", type=Path, help="PEM file of its key")
    _data_dir(command)


def _switches(
    command: argparse.ArgumentParser, *, bandwidth: bool | None, nvlink: bool | None
) -> None:
    for name, default, what in (
        ("bandwidth", bandwidth, "GPU-DRAM bandwidth"),
        ("nvlink", nvlink, "NVLink bandwidth"),
    ):
        command.add_argument(
            f"--enable-{name}", dest=name, action="store_true", default=default, help=f"{what} on"
        )
        command.add_argument(
            f"--disable-{name}", dest=name, action="store_false", help=f"{what} off"
        )


def _data_dir(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--data-dir", type=Path, help=f"where data is (default: $RUNWATCH_DIR or {DATA})"
    )


def _connect(command: argparse.ArgumentParser) -> None:
    command.add_argument("head", metavar="HEAD", help="host:8090")
    command.add_argument(
        "--resilient", "-r", action="store_true",
        help="reconnect and lose nothing; every client does so",
    )  # fmt: skip
    _switches(command, bandwidth=None, nvlink=None)
    command.add_argument(
        "--buffer-mb", type=MEGABYTES, metavar="MB",
        help="disk for what waits while the head is away; then the oldest goes, and is counted "
        "(default: 1024, some 100,000 samples of 8 GPUs)",
    )  # fmt: skip
    _token(command)


def _token(command: argparse.ArgumentParser) -> None:
    command.add_argument("--token", help="the head's token (default: $RUNWATCH_TOKEN)")


def _head(default: str | None, *, named: bool) -> Add:
    def add(command: argparse.ArgumentParser) -> None:
        if default is None:
            command.add_argument("head", metavar="HEAD", help="host:8090")
        else:
            command.add_argument("head", metavar="HEAD", nargs="?", default=default,
                                 help="(default: %(default)s)")  # fmt: skip
        if named:
            command.add_argument("--name", help="the session's name")
        _token(command)

    return add


def _recover(command: argparse.ArgumentParser) -> None:
    command.add_argument("--list", action="store_true", help="which sessions there are")
    command.add_argument("--session-id", help="go on with this session")
    command.add_argument("--name", help="go on with the newest session of this name")
    command.add_argument("--export", action="store_true", help="write NAME.json instead")
    command.add_argument("--output", "-o", type=Path, help="write this file instead of NAME.json")
    command.add_argument(
        "--compat", choices=("gswarm",), help="numbers as text and 0 to 1, as 0.2.1 wrote"
    )
    command.add_argument(
        "--import-pkl", type=Path, metavar="FILE|DIR",
        help="store what an old client left on disk: ~/.cache/gswarm/metrics",
    )  # fmt: skip
    command.add_argument(
        "--remove-pkl", action="store_true", help="and remove those files once that is done"
    )
    command.add_argument("--head", help="send it to this head, host:8090, not to the data here")
    _token(command)
    _data_dir(command)


def _stat(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", type=Path, default=Path("result.json"), metavar="FILE",
                         help="a session's file (default: %(default)s)")  # fmt: skip
    command.add_argument(
        "--plot", default=None, metavar="OUT",
        help="draw into this file: .pdf, .png or .svg (default: FILE with .pdf)",
    )  # fmt: skip
    command.add_argument("--no-plot", action="store_true", help="print the summary only")


def _help(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic", nargs="?", choices=sorted(COMMANDS), metavar="COMMAND")


def _none(command: argparse.ArgumentParser) -> None:
    pass


COMMANDS: Final[dict[str, tuple[str, Add]]] = {
    "start": ("start the head", _start),
    "connect": ("sample this machine's GPUs and send them to a head", _connect),
    "profile": ("start a session", _head(GRPC_HEAD, named=True)),
    "status": ("how the head stands", _head(GRPC_HEAD, named=False)),
    "stop": ("stop a session, or all", _head(GRPC_HEAD, named=True)),
    "exit": ("end the head", _head(None, named=False)),
    "http-profile": ("start a session, over HTTP", _head(HTTP_HEAD, named=True)),
    "http-status": ("how the head stands, over HTTP", _head(HTTP_HEAD, named=False)),
    "http-stop": ("stop a session or all, over HTTP", _head(HTTP_HEAD, named=True)),
    "recover": ("list sessions, go on with one, or write one to a file", _recover),
    "stat": ("print and draw what a session's file holds", _stat),
    "generate-grpc": ("nothing needs to be generated", _none),
    "help": ("help on a command", _help),
}


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    if not words or words == ["help"]:
        words = ["--help"]
    elif words[0] == "help":
        words = [words[1], "--help"]
    arguments = parser().parse_args(words)
    return exit_code("gsprof", lambda: _run(arguments), extra="head", on_error=1)


def _run(arguments: Arguments) -> int:
    if arguments.command == "generate-grpc":
        print("Nothing needs to be generated: the messages come with runwatch.")
        return 0
    if arguments.command in ("start", "connect", "recover", "stat"):
        from runwatch.compat.gswarm import local

        return local.RUN[arguments.command](arguments)
    from runwatch.compat.gswarm import remote

    return remote.RUN[arguments.command](arguments)
