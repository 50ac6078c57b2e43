"""Run what a Kubernetes cluster has beside heads and agents.  The chart does it; people rarely do.

webhook answers the API server when a pod is made: labelled pods get what makes them watched.
operator carries out Captures and MLDiagnosticsConnections, keeps an object for each run, and tells
the head what happens to pods.  files puts our files into a folder, for programs that do not know
us: an init container does so in pods with the annotation runwatch.dev/exec.

example:
  runwatch k8s webhook
  runwatch k8s operator
  runwatch k8s files ./ours
  RUNWATCH_AUTO=1 PYTHONPATH=./ours/runwatch/sdk/boot python train.py
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runwatch import logs
from runwatch.errors import RunwatchError, UsageError
from runwatch.settings import load
from runwatch.terminal import log_to_stderr, shown

if TYPE_CHECKING:
    from runwatch.k8s.api import Access

EXTRA: Final = ("aiohttp", "cryptography", "kopf", "yaml")
"""What `runwatch[k8s]` brings along."""
_FORM: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def arguments(parser: argparse.ArgumentParser) -> None:
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True)
    webhook = parts.add_parser("webhook", help="answer the API server when pods are made")
    webhook.add_argument("--bind", help="address to listen on (default 0.0.0.0)")
    webhook.add_argument("--port", type=int, help="port to listen on, with TLS (default 8443)")
    webhook.add_argument(
        "--certificate", type=Path, metavar="FILE", help="PEM file (default: one of our own)"
    )
    webhook.add_argument("--key", type=Path, metavar="FILE", help="PEM file of its key")
    _api_server(webhook)
    operator = parts.add_parser("operator", help="carry out objects, tell the head of pods")
    _api_server(operator)
    files = parts.add_parser("files", help="put our files into a folder")
    files.add_argument("place", type=Path, metavar="DIR", help="where to; it is made if need be")
    files.add_argument(
        "--lenient", action="store_true", help="exit with 0 if that fails: a pod starts without us"
    )


def _api_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server", default="", metavar="URL", help="the API server (default: that of this pod)"
    )
    parser.add_argument(
        "--account",
        type=Path,
        metavar="DIR",
        help="folder with token, ca.crt and namespace (default: where a pod has them)",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.part == "files":
        return _files(arguments)
    log_to_stderr(_FORM)
    logs.spare()
    with _extra():
        return _webhook(arguments) if arguments.part == "webhook" else _operator(arguments)


def _webhook(arguments: argparse.Namespace) -> int:
    from runwatch.k8s import webhook
    from runwatch.k8s.settings import WebhookSettings

    settings = load(WebhookSettings, section="webhook", flags=vars(arguments)).values
    asyncio.run(webhook.run(settings, _access(arguments)))
    return 0


def _operator(arguments: argparse.Namespace) -> int:
    from runwatch.k8s.operator.main import run
    from runwatch.k8s.operator.settings import OperatorSettings

    settings = load(OperatorSettings, section="operator").values
    if not settings.head:
        raise UsageError("the operator needs a head: RUNWATCH_HEAD=http://runwatch-head:8090")
    return run(settings, _access(arguments))


def _access(arguments: argparse.Namespace) -> Access:
    from runwatch.k8s.api import ACCOUNT, Access

    account = arguments.account or ACCOUNT
    if arguments.server:
        return Access(arguments.server, account)
    return Access.in_cluster(account=account)


@contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        raise UsageError(f"this needs {error.name}: pip install 'runwatch[k8s]'") from None


def _files(arguments: argparse.Namespace) -> int:
    from runwatch.k8s import files

    try:
        is_new = files.put(arguments.place)
    except RunwatchError as error:
        if not arguments.lenient:
            raise
        print(f"runwatch: {shown(str(error))}; programs start without us", file=sys.stderr)
        return 0
    print(f"our files are in {arguments.place}" + ("" if is_new else ", and were there before"))
    return 0
