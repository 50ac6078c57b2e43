"""Options of every command that starts a head."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runwatch.address import Listening
from runwatch.cli.source import head_of
from runwatch.errors import StoreBusy
from runwatch.head.cloud.settings import GcpSettings
from runwatch.head.telemetry.settings import TelemetrySettings
from runwatch.settings import load


def token_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="read the head's token from this file, mode 0600 (default: $RUNWATCH_TOKEN_FILE, or a "
        "token that is made at the first start and kept)",
    )
    parser.add_argument(
        "--token", help="the token itself; every user of this machine can see it in `ps`"
    )
    parser.add_argument(
        "--tokens-directory",
        type=Path,
        metavar="DIR",
        help="take the tokens in this folder, too: files named main, or ROLE-NAME like "
        "ingest-agents; they are read again when they change",
    )


def telemetry_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--remote-write",
        metavar="URL",
        help="send every point and the state of runs to Prometheus: http://host:9090/api/v1/write "
        "(`runwatch config telemetry` shows the rest)",
    )
    parser.add_argument(
        "--otlp-export",
        metavar="URL",
        help="send the same to an OpenTelemetry collector: http://host:4318 or grpc://host:4317",
    )


def telemetry_settings(arguments: argparse.Namespace) -> TelemetrySettings:
    flags = {"remote_write": arguments.remote_write, "otlp_export": arguments.otlp_export}
    return load(TelemetrySettings, section="telemetry", flags=flags).values


def gcp_options(parser: argparse.ArgumentParser) -> None:
    sent = {"logging": "stack dumps and goodput entries", "monitoring": "the goodput of runs"}
    for service, what in sent.items():
        parser.add_argument(
            f"--gcp-{service}",
            nargs="?",
            const="true",
            metavar="PROJECT",
            help=f"send {what} to Cloud {service.title()} (`runwatch config gcp` shows the rest)",
        )


def gcp_settings(arguments: argparse.Namespace) -> GcpSettings:
    flags = {"logging": arguments.gcp_logging, "monitoring": arguments.gcp_monitoring}
    return load(GcpSettings, section="gcp", flags=flags).values


def otlp_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--otlp-grpc-port",
        type=int,
        metavar="PORT",
        help="take OTLP by gRPC at this port too, like 4317 (default: only at the port for agents)",
    )
    parser.add_argument(
        "--otlp-http-port",
        type=int,
        metavar="PORT",
        help="take OTLP by HTTP at this port too, like 4318 (default: only at the port for people)",
    )
    parser.add_argument(
        "--open-ingest",
        action="store_const",
        const=True,
        help="let programs on this machine send OTLP, and DIAGON_BASE_URL's requests, without a "
        "token; only without --bind",
    )


def guest_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gswarm-open",
        metavar="ADDRESS",
        help="let clients of gswarm in without a token at this address of this machine; they can "
        "only send samples, read the status, and start and stop sessions",
    )
    parser.add_argument(
        "--cors-origin",
        dest="cors_origins",
        metavar="URL",
        action="append",
        help="pages of this origin may ask the head: https://dashboard.example:3000; repeatable",
    )


def open_warning(address: str) -> str:
    return (
        f"Warning: who reaches {address} needs no token to send samples as a client of gswarm, to "
        "read the status, and to start and stop sessions. Open it to a network that you trust."
    )


def json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="when it is ready, print its addresses as JSON"
    )


@contextmanager
def served_once(root: Path) -> Iterator[None]:
    """Who starts a second head for a directory is told where the first one is."""
    try:
        yield
    except StoreBusy as busy:
        if (at := head_of(root)) is None:
            raise
        raise StoreBusy(f"{root} is served already, by process {at.pid}: open {at.link}") from busy


def print_ready(at: Listening, **more: str) -> None:
    """One line, for programs that start a head and wait for it."""
    fields = {"url": at.http, "link": at.link, "grpc": at.grpc, "token": at.token, "pid": at.pid}
    print(json.dumps(fields | more), flush=True)
