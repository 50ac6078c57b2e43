"""xprofiler: capture profiles on many hosts, host the viewer, manage the instances.

A log directory is a path in a bucket (gs://, through gcloud), or a directory, file:// or s3://,
which need no cloud: the viewer is then a process on this machine, and a profile is asked for
directly from the port that the program serves.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Final

from runwatch._version import __version__
from runwatch.compat.commands import exit_code, whole
from runwatch.compat.xprofiler import extra

Arguments = argparse.Namespace
Add = Callable[[argparse.ArgumentParser], None]
FRAMEWORKS: Final = ("pytorch", "jax", "tensorflow")
PORT: Final = whole("a port: a number", 1, 65535)
MILLISECONDS: Final = whole("a number of ms", 1, 3_600_000)


def parser() -> argparse.ArgumentParser:
    top = top_parser(__doc__)
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for name in COMMANDS:
        add_verb(commands, name)
    return top


def top_parser(description: str | None) -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        "xprofiler", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--version", action="version", version=f"xprofiler (runwatch {__version__})")
    top.add_argument("--abbrev", "-a", action="store_true", help="accepted, and without effect")
    return top


def add_verb(commands: Any, name: str) -> argparse.ArgumentParser:
    """To what `add_subparsers` gave."""
    line, add = COMMANDS[name]
    # No abbreviations: a flag that is not ours is the underlying command's.
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=line, description=line, allow_abbrev=False
    )
    add(command)
    command.add_argument(
        "--backend", choices=("local", "ssh", "gce", "gke"),
        help="where instances live (default: what the log directory means)",
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument(
        "--verbose", "-v", action="store_true", help="show every command that is run"
    )
    return command


def defaults(name: str) -> dict[str, Any]:
    """Of a verb's flags, by the names under which they are kept."""
    command = add_verb(argparse.ArgumentParser().add_subparsers(), name)
    return {action.dest: action.default for action in command._actions if action.dest != "help"}


def _directory(command: argparse.ArgumentParser, *, many: bool = False) -> None:
    command.add_argument(
        "--log-directory", "-l", metavar="GS_PATH", nargs="+" if many else None, required=not many,
        help="where the profiles are: gs://…, a directory, file://…, s3://…",
    )  # fmt: skip


def _zone(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--zone", "-z", metavar="ZONE_NAME",
        help="the zone (needed for gs://), or ssh:HOST for another machine",
    )  # fmt: skip


def _names(command: argparse.ArgumentParser) -> None:
    command.add_argument("--vm-name", "-n", metavar="VM_NAME", nargs="+", help="by name")


def _gke(command: argparse.ArgumentParser) -> None:
    command.add_argument("--gke", action="store_true", help="in a Kubernetes cluster")


def _ssh_proxy(command: argparse.ArgumentParser) -> None:
    command.add_argument("--use-ssh-proxy", "-u", action="store_true", help="ssh through a proxy")


def _create(command: argparse.ArgumentParser) -> None:
    _directory(command)
    _zone(command)
    command.add_argument(
        "--vm-name", "-n", metavar="VM_NAME", help="its name (default: xprof-<uuid>)"
    )
    command.add_argument(
        "--machine-type", "-m", metavar="MACHINE_TYPE", default="c4-highmem-8",
        help="of the virtual machine (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--auto-delete-on-failure-off", action="store_true", help="keep one that does not start"
    )
    command.add_argument(
        "--skip-creation-if-exists", action="store_true", help="one for the directory is enough"
    )
    _gke(command)


def _list(command: argparse.ArgumentParser) -> None:
    command.add_argument("--zones", "-z", metavar="ZONE_NAME", nargs="+", help="(default: all)")
    _directory(command, many=True)
    _names(command)
    command.add_argument(
        "--filter", "-f", metavar="FILTER_NAME", nargs="+", help="gcloud's own filters"
    )
    _gke(command)


def _delete(command: argparse.ArgumentParser) -> None:
    _zone(command)
    _directory(command, many=True)
    _names(command)
    _gke(command)
    command.add_argument("--quiet", "-q", action="store_true", help="do not ask")


def _capture(command: argparse.ArgumentParser) -> None:
    _directory(command)
    _zone(command)
    command.add_argument(
        "--hosts", "-n", metavar="HOST_NAME", nargs="+", required=True,
        help="machines or pods; for a directory: HOST or HOST:PORT",
    )  # fmt: skip
    command.add_argument("--framework", "-f", choices=FRAMEWORKS, help="(needed for gs://)")
    command.add_argument("--orchestrator", "-o", choices=("gce", "gke"), default="gce")
    command.add_argument(
        "--port",
        "-p",
        metavar="LOCAL_PORT",
        type=PORT,
        default=9012,
        help="the program's (default: %(default)s)",
    )
    command.add_argument(
        "--duration",
        "-d",
        metavar="DURATION",
        type=MILLISECONDS,
        default=2000,
        help="in ms (default: %(default)s)",
    )
    command.add_argument("--session", help="its id (default: the local time)")
    _ssh_proxy(command)
    command.add_argument("--non-tpu-vm", action="store_true", help="hosts are ordinary machines")


class _Chosen(argparse.Action):
    """Tells a value that was given from one that is usual."""

    def __call__(
        self, parser: object, arguments: Arguments, value: object, flag: str | None = None
    ) -> None:
        setattr(arguments, self.dest, value)
        setattr(arguments, f"chosen_{self.dest}", value)


def _connect(command: argparse.ArgumentParser) -> None:
    _directory(command)
    _zone(command)
    command.add_argument("--mode", "-m", choices=("ssh", "proxy"), default="ssh")
    command.add_argument(
        "--port", "-p", metavar="LOCAL_PORT", type=PORT, default=6006, action=_Chosen,
        help="on this machine (default: %(default)s; a viewer on this machine has its own)",
    )  # fmt: skip
    command.add_argument(
        "--host-port",
        metavar="HOST_PORT",
        type=PORT,
        default=6006,
        help="on the instance (default: %(default)s)",
    )
    command.add_argument("--disconnect", "-d", action="store_true", help="close the tunnel")
    command.add_argument("--open", action="store_true", help="in a browser")
    _ssh_proxy(command)


def _register(command: argparse.ArgumentParser) -> None:
    _directory(command)
    command.add_argument("--region", "-r", help="(needed for gs://)")
    command.add_argument("--ml-run-name", "-m", required=True, help="the run's name")
    command.add_argument("--run-set", "-s", help="its group (needed for gs://)")
    command.add_argument("--project-id", "-p", help="(needed for gs://)")


COMMANDS: Final[dict[str, tuple[str, Add]]] = {
    "capture": ("profile several hosts at the same time, as one session", _capture),
    "connect": ("open a tunnel to an instance, or close it", _connect),
    "create": ("start a viewer for a log directory", _create),
    "delete": ("end viewers", _delete),
    "list": ("list viewers", _list),
    "register": ("make a finished run known", _register),
}


def main(argv: Sequence[str] | None = None) -> int:
    top = parser()
    arguments, rest = top.parse_known_args(argv)
    if arguments.command is None:
        top.print_help()
        return 0
    return exit_code("xprofiler", lambda: _run(arguments, rest), extra="profiles")


def _run(arguments: Arguments, rest: Sequence[str]) -> int:
    from runwatch.compat.xprofiler import verbs

    return verbs.RUN[arguments.command](arguments, extra.parse(rest))
