"""Commands that run something here: the head, a client, and what is done with data on disk."""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from runwatch.compat.commands import start_detached
from runwatch.compat.gswarm.command import DATA
from runwatch.errors import UsageError
from runwatch.settings import token_of

READY_SECONDS: Final = 60.0
EARLY_SECONDS: Final = 3.0
"""A client that cannot begin says so within this time."""
MOST_HZ: Final = 20.0
"""As often as an agent can sample."""


def data_dir(arguments: argparse.Namespace) -> Path:
    flag: Path | None = arguments.data_dir
    directory = flag or Path(os.environ.get("RUNWATCH_DIR", "") or DATA)
    return directory.expanduser().absolute()


# ── the head ───────────────────────────────────────────────────────────────────────────────────


def start(arguments: argparse.Namespace) -> int:
    from runwatch.address import Listening
    from runwatch.cli.head_options import open_warning
    from runwatch.head.main import Head
    from runwatch.head.settings import HeadSettings

    root = data_dir(arguments)
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if arguments.background:
        return _start_in_background(root)
    settings = HeadSettings(
        dir=root,
        bind="127.0.0.1" if arguments.host == "localhost" else arguments.host,
        grpc_port=arguments.port,
        http_port=arguments.http_port or -1,
        token=arguments.token or token_of(),
        tls_certificate=arguments.tls_certificate,
        tls_key=arguments.tls_key,
        gswarm_open=arguments.gswarm_open,
        cors_origins=",".join(arguments.cors_origin),
        device_period_ms=arguments.freq,
        device_bandwidth=arguments.bandwidth,
        device_nvlink=arguments.nvlink,
        session_dir=Path.cwd(),
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    def ready(at: Listening) -> None:
        print(f"Head node: gRPC {at.grpc}, HTTP {at.http or 'off'}", flush=True)
        print(f"Data: {root}; sessions are saved to {Path.cwd()}", flush=True)
        if settings.token or not settings.is_loopback:
            print(f"Clients need RUNWATCH_TOKEN={at.token}", flush=True)
        else:
            print("For clients on other machines: gsprof start --host 0.0.0.0", flush=True)
        if settings.gswarm_open:
            print(open_warning(settings.gswarm_open), flush=True)
        if at.http:
            print(f"Page: {at.link}", flush=True)

    Head(settings, open_gswarm=True).run(ready)
    return 0


def _start_in_background(root: Path) -> int:
    from runwatch.address import read_address

    words = [word for word in sys.argv[1:] if word != "--background"]
    log = root / "head.log"
    with log.open("ab") as file:
        start = file.tell()
        head = start_detached([sys.executable, "-m", "runwatch.compat.gswarm", *words], file)
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        at = read_address(root)
        if at is not None and at.pid == head.pid:
            print(f"Head node: gRPC {at.grpc}, HTTP {at.http or 'off'}, process {head.pid}")
            print(f"Its log: {log}; end it with: gsprof exit {at.grpc}")
            return 0
        if head.poll() is not None:
            break
        time.sleep(0.05)
    output = log.read_bytes()[start:].decode(errors="replace").strip()
    print(output.splitlines()[-1] if output else f"gsprof: the head did not start; see {log}",
          file=sys.stderr)  # fmt: skip
    return 1


# ── a client ───────────────────────────────────────────────────────────────────────────────────


def connect(arguments: argparse.Namespace) -> int:
    from runwatch.agent.main import run_agent
    from runwatch.agent.settings import AgentSettings
    from runwatch.compat.gswarm.remote import Remote
    from runwatch.settings import load

    remote = Remote(arguments.head, arguments.token)
    freq, bandwidth = _sampling_of(remote)
    if not remote.takes_records():
        raise UsageError(
            f"the head at {remote.address.target} is the original gswarm's, and takes samples from "
            "its own clients only; start a head with `gsprof start`, which takes both, or use the "
            "original client"
        )
    if arguments.bandwidth is not None:
        bandwidth = arguments.bandwidth
    flags: dict[str, Any] = {
        "head": arguments.head,
        "token": arguments.token,
        "idle_seconds": 0.0,
        "device_pcie": bandwidth,
    }
    if arguments.buffer_mb is not None:
        flags["own_bytes"] = arguments.buffer_mb << 20
    if "RUNWATCH_DEVICE_HZ" not in os.environ:
        flags["device_hz"] = min(MOST_HZ, 1000 / freq)
    if not os.environ.get("RUNWATCH_DIR"):
        flags["dir"] = _place(remote.address.target)
    settings = load(AgentSettings, section="agent", flags=flags).values
    settings.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    _say_what_is_here(settings)
    print(f"Sampling every {1000 / settings.device_hz:.0f} ms for {remote.address.target}; "
          f"what it cannot be told now waits in {settings.root}", flush=True)  # fmt: skip
    if not run_agent(settings):
        print(f"gsprof: another client serves {settings.root} already", file=sys.stderr)
        return 1
    return 0


def connect_in_background(words: Sequence[str]) -> int:
    """A client that goes on when this command has ended."""
    from runwatch.address import Address

    place = _place(Address.parse(words[1], default_port=8090).target)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = place / "client.log"
    with log.open("ab") as file:
        client = start_detached([sys.executable, "-m", "runwatch.compat.gswarm", *words], file)
    try:
        client.wait(EARLY_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"Connected in the background, process {client.pid}; its log: {log}")
        return 0
    said = log.read_text(errors="replace").strip().splitlines()
    print(said[-1] if said else f"gswarm: the client ended at once; see {log}", file=sys.stderr)
    return 1


def clients_in_background() -> list[Path]:
    """The directories of clients that run."""
    from runwatch.journal.agents import FOLDER, is_held

    held = [
        lock.parents[1]
        for lock in sorted((Path.home() / ".runwatch" / "gsprof").glob(f"*/{FOLDER}/*.lock"))
        if is_held(lock.parents[1], lock.name)
    ]
    return list(dict.fromkeys(held))


def end_client(folder: Path) -> None:
    from runwatch.agent.lock import end_agents

    end_agents(folder)


def _place(target: str) -> Path:
    """Where what waits for a head is kept."""
    name = "".join(c if c.isalnum() else "-" for c in target)
    return Path.home() / ".runwatch" / "gsprof" / name


def _sampling_of(remote: Any) -> tuple[int, bool]:
    """How often, and whether bandwidths too: the head's word, or 500 ms without."""
    from runwatch.errors import HeadUnreachable

    try:
        status = remote.status(seconds=3.0)
    except HeadUnreachable as error:
        print(f"{error}; recording meanwhile, sending when it answers", file=sys.stderr)
        return 500, False
    return max(1, status.freq), status.enable_bandwidth_profiling


def _say_what_is_here(settings: Any) -> None:
    from runwatch.agent.collectors import DEVICES

    kinds = [name for name, (is_there, _) in DEVICES.items() if is_there()]
    if not kinds and settings.device_replay is None:
        print("There is no GPU here that can be read: only the host's own numbers are sent.",
              flush=True)  # fmt: skip


# ── data on disk ───────────────────────────────────────────────────────────────────────────────


def recover(arguments: argparse.Namespace) -> int:
    from runwatch.cli.output import write_file
    from runwatch.compat.gswarm.recovery import sessions_of

    if arguments.import_pkl is not None:
        return _import(arguments)
    key = arguments.session_id or arguments.name
    if arguments.export and key is None:
        raise UsageError("say which: --export --name NAME")
    root = data_dir(arguments)
    with sessions_of(root) as sessions:
        if key is None or arguments.list:
            _print_sessions(sessions.all(), sessions.name)
            return 0
        session = sessions.one(key)
        if not arguments.export:
            session = sessions.resume(session["id"])
            print(f"Session {session['name']} ({session['id']}) goes on.")
            return 0
        output = arguments.output or Path(f"{session['name']}.json")
        write_file(output, sessions.export(session["id"], arguments.compat is not None))
        print(f"Wrote {output}: {session['frames']:,} frames")
        if missing := session.get("missing_clients"):
            print(f"Records may still come of {', '.join(missing)}: export it again then.")
    return 0


def _print_sessions(sessions: Sequence[Mapping[str, Any]], where: str) -> None:
    """A line each, as wide as it is: an id that is cut recovers nothing."""
    from runwatch.cli.pictures import moments
    from runwatch.terminal import shown

    if not sessions:
        print(f"no sessions in {where}")
        return
    rows = [("SESSION ID", "STATE", "STARTED", "FRAMES", "NAME")] + [
        (
            str(session["id"]),
            "running" if session["active"] else "completed",
            moments.time(session["started_ns"]),
            f"{session['frames']:,}",
            shown(session["name"]),
        )
        for session in sessions
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(line).rstrip())


def _import(arguments: argparse.Namespace) -> int:
    from runwatch.cli import session_import

    flags = {
        "path": arguments.import_pkl, "remove": arguments.remove_pkl, "dir": data_dir(arguments),
        "head": arguments.head, "token": arguments.token, "json": False,
    }  # fmt: skip
    return session_import.run(argparse.Namespace(**flags))


def stat(arguments: argparse.Namespace) -> int:
    from runwatch.exports.figure import draw, summary
    from runwatch.exports.recorded import load

    recorded = load(arguments.data)
    print(summary(recorded))
    if not arguments.no_plot:
        plot = arguments.plot or arguments.data.with_suffix(".pdf")
        print(f"Drawn: {draw(recorded, plot)}")
    return 0


RUN: Final = {"start": start, "connect": connect, "recover": recover, "stat": stat}
