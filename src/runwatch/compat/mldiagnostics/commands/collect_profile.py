"""Capture a profile of several hosts at the same moment, from the ports their programs serve.

The files land in LOG_DIR/plugins/profile/SESSION/HOST.xplane.pb; nothing is installed on the hosts
and nothing is written there.

example:
  python -m runwatch.compat.mldiagnostics.commands.collect_profile \\
      --hosts 10.0.0.1,10.0.0.2 --port 9012 --duration_in_ms 2000 --log_dir /data/profiles
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from runwatch.capture.tracing.gathering import gather, profile_directory
from runwatch.capture.tracing.http_profiling import by_http
from runwatch.capture.tracing.profiler_service import PortTarget, TracerLevels
from runwatch.compat.commands import exit_code
from runwatch.errors import UsageError

DEFAULT_NUM_TRACING_ATTEMPTS: Final = 3
"""How often the original's library asks a host; ours asks once, and by HTTP if that fails."""


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        "collect_profile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--hosts", required=True, help="names or addresses, with commas between")
    flags.add_argument("--port", required=True, type=int, help="that every program serves")
    flags.add_argument("--duration_in_ms", required=True, type=int)
    flags.add_argument("--log_dir", required=True, help="a directory, or a URL that fsspec knows")
    flags.add_argument("--session_name", default="", help="(default: the local time)")
    flags.add_argument("--host_tracer_level", type=int, default=2, help="(default: %(default)s)")
    flags.add_argument("--device_tracer_level", type=int, default=1, help="(default: %(default)s)")
    flags.add_argument("--python_tracer_level", type=int, default=1, help="(default: %(default)s)")
    names = flags.add_mutually_exclusive_group()
    names.add_argument(
        "--override_hostnames", default="", help="one for each host, with commas between"
    )
    names.add_argument(
        "--use_system_hostname", action="store_true", help="what each host calls itself"
    )
    return flags


def main(args: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(args)
    return exit_code("collect_profile", lambda: _collect(arguments))


def _collect(arguments: argparse.Namespace) -> int:
    asked = _asked(arguments)
    if arguments.duration_in_ms <= 0:
        raise UsageError(f"--duration_in_ms {arguments.duration_in_ms}: at least 1")
    session = arguments.session_name or datetime.now().strftime("%Y_%m_%d_%H_%M_%S")
    levels = TracerLevels(
        arguments.host_tracer_level, arguments.device_tracer_level, arguments.python_tracer_level
    )
    gathered = gather(asked, arguments.log_dir, session, arguments.duration_in_ms, levels)
    gathered = by_http(asked, gathered, arguments.log_dir, arguments.duration_in_ms)
    failed = [one for one in gathered if one.why]
    for one in failed:
        print(f"Failed to profile host {one.host}: {one.why}", file=sys.stderr)
    if len(failed) == len(gathered):
        return 1
    folder = profile_directory(arguments.log_dir, session)
    print(f"Profile of {len(gathered) - len(failed)} of {len(gathered)} hosts saved to {folder}")
    return 0


def _asked(arguments: argparse.Namespace) -> list[PortTarget]:
    hosts = [host.strip() for host in arguments.hosts.split(",")]
    if not all(hosts):
        raise UsageError(f"--hosts {arguments.hosts!r}: names with commas between, none empty")
    names = [f"{host}_{arguments.port}" for host in hosts]
    if arguments.use_system_hostname:
        names = [""] * len(hosts)
    if arguments.override_hostnames:
        names = arguments.override_hostnames.split(",")
        if len(names) != len(hosts):
            raise UsageError(
                f"--override_hostnames has {len(names)} names for {len(hosts)} hosts: one for each"
            )
        if any(not name or ":" in name or name.split() != [name] for name in names):
            raise UsageError(
                f"--override_hostnames {arguments.override_hostnames!r}: no blanks and no colons"
            )
    return [
        PortTarget(
            f"[{host}]:{arguments.port}" if ":" in host else f"{host}:{arguments.port}", name
        )
        for host, name in zip(hosts, names, strict=True)
    ]
