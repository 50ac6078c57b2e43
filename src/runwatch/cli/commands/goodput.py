"""Show where a run's time went, each nanosecond in one class, and what disruptions cost.

Without RUN it adds up several runs: those of a group, of a user, or since a time (-7d is a week
ago).

A TIME is RFC 3339 (2026-01-31T12:00:00Z; local without an offset), seconds since the epoch, a time
of day (14:02:10: the last one in the run), or relative: -2h is two hours before the run's end
(before now if it still runs), 90m is ninety minutes after its start.

example:
  runwatch goodput demo-spirals
  runwatch goodput demo-spirals --since -2h --exclude 10m/25m --json
  runwatch goodput demo-spirals --explain 14:02:10
  runwatch goodput demo-spirals --price 2.5
  runwatch goodput --group sweep --since -7d
  runwatch goodput --by week --since -28d
  runwatch goodput --import job_timeline.jsonl
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from runwatch.cli import source
from runwatch.cli.checks import key_of
from runwatch.cli.pictures import tables
from runwatch.cli.pictures.progress import no_progress, progress
from runwatch.cli.times import RELATIVE, moment
from runwatch.errors import UsageError
from runwatch.head.settings import HeadSettings
from runwatch.settings import load, runwatch_dir

if TYPE_CHECKING:
    from rich.console import RenderableType

REFRESH_SECONDS: Final = 1.0
CLOUD_LOGGING: Final = "cloud-logging"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_name", metavar="RUN", nargs="?", help="a run's name or id")
    source.arguments(parser)
    parser.add_argument("--since", metavar="TIME", help="count only from this time on")
    parser.add_argument("--until", metavar="TIME", help="count only up to this time")
    parser.add_argument(
        "--exclude",
        metavar="A/B",
        action="append",
        default=[],
        help="do not count the time from A to B; may be repeated",
    )
    parser.add_argument(
        "--buckets", type=int, metavar="N", help="also draw goodput over time, in N parts"
    )
    parser.add_argument(
        "--price",
        type=float,
        metavar="N",
        help="price of one accelerator for an hour (default $RUNWATCH_PRICE_PER_DEVICE_HOUR)",
    )
    parser.add_argument(
        "--explain", metavar="TIME", help="only say why this moment is in its class"
    )
    parser.add_argument("--watch", action="store_true", help="keep showing a run that goes on")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    several = parser.add_argument_group("several runs together")
    several.add_argument("--group", metavar="NAME", help="the runs of this group")
    several.add_argument("--user", metavar="NAME", help="the runs of this user")
    several.add_argument(
        "--by",
        choices=("group", "user", "week"),
        help="one sum for each of these, not for each run",
    )
    imports = parser.add_argument_group("logs of ml-goodput-measurement")
    imports.add_argument(
        "--import",
        dest="log",
        metavar="FILE",
        help=f"import a recorded log, or {CLOUD_LOGGING}, as a run, and show it",
    )
    imports.add_argument("--job", metavar="NAME", help="the job, if the log has several")
    imports.add_argument("--logger", metavar="NAME", help="the log's name (default goodput_JOB)")


def run(arguments: argparse.Namespace) -> int:
    if arguments.log:
        arguments.run_name = _import(arguments)
    if not arguments.run_name:
        return _several(arguments)
    if arguments.group or arguments.user or arguments.by:
        raise UsageError("RUN does not go with --group, --user or --by: those are for several runs")
    with source.open_source(arguments, only_goodput=not arguments.watch) as head:
        arguments.run_name = key_of(head, arguments.run_name)
        if arguments.explain:
            _explain(head, arguments)
            return 0
        if arguments.json:
            tables.print_json(_ask(head, arguments))
            return 0
        out = tables.console()
        picture, live = _picture(head, arguments, out.width)
        if not (live and arguments.watch and sys.stdout.isatty()):
            out.print(picture)
            return 0
        from rich.live import Live

        with no_progress(), Live(picture, console=out, auto_refresh=False) as shown:
            while live:
                time.sleep(REFRESH_SECONDS)
                head.refresh()
                picture, live = _picture(head, arguments, out.width)
                shown.update(picture, refresh=True)
    return 0


def _explain(head: source.Source, arguments: argparse.Namespace) -> None:
    time_ns = moment(arguments.explain, *_bounds(head.get(f"/runs/{arguments.run_name}")))
    answer = head.get(f"/runs/{arguments.run_name}/goodput/explain", time=time_ns)
    if arguments.json:
        tables.print_json(answer)
    else:
        from runwatch.cli.pictures.goodput import explained

        tables.console().print(explained(answer))


def _bounds(run: dict[str, Any]) -> tuple[int, int]:
    """When the run starts and ends; one that goes on, or whose pods wait, ends now."""
    over = run["ended_ns"] or run["last_ns"]
    goes_on = run["state"] == "running" or run.get("waits")
    return run["started_ns"], time.time_ns() if goes_on else over


def _picture(
    head: source.Source, arguments: argparse.Namespace, width: int
) -> tuple[RenderableType, bool]:
    from rich.console import Group
    from rich.text import Text

    from runwatch.cli.pictures import goodput as goodput_picture

    run = head.get(f"/runs/{arguments.run_name}")
    bar = min(width, goodput_picture.WIDEST)
    answer = _ask(head, arguments, run, buckets=max(arguments.buckets or 0, bar))
    parts: list[RenderableType] = [goodput_picture.account(run, answer, width)]
    if arguments.buckets:
        answer = _ask(head, arguments, run)
        parts += [Text(""), goodput_picture.over_time(answer["over_time"], width)]
    return Group(*parts), answer["live"]


def _ask(
    head: source.Source,
    arguments: argparse.Namespace,
    run: dict[str, Any] | None = None,
    **more: int,
) -> Any:
    times = [arguments.since, arguments.until, *arguments.exclude]
    start_ns, end_ns = 0, 0
    if any(times):
        start_ns, end_ns = _bounds(run or head.get(f"/runs/{arguments.run_name}"))

    def at(text: str | None) -> int | None:
        return None if text is None else moment(text, start_ns, end_ns)

    options = {"buckets": arguments.buckets} | more
    return head.get(
        f"/runs/{arguments.run_name}/goodput",
        since=at(arguments.since),
        until=at(arguments.until),
        exclude=[_range(text, start_ns, end_ns) for text in arguments.exclude] or None,
        price_per_device_hour=_price(arguments),
        program="true",
        **options,
    )


def _price(arguments: argparse.Namespace) -> float | None:
    """The price set here; None leaves it to the head."""
    flags = {"price_per_device_hour": arguments.price}
    return load(HeadSettings, section="head", flags=flags).values.price_per_device_hour


# ── several runs ───────────────────────────────────────────────────────────────────────────────


def _several(arguments: argparse.Namespace) -> int:
    chosen = arguments.group or arguments.user or arguments.since or arguments.until
    if not (chosen or arguments.by):
        raise UsageError(
            "name a run: `runwatch goodput RUN` (`runwatch runs` lists them); or choose several "
            "with --group, --user, --since or --by"
        )
    if arguments.exclude or arguments.buckets or arguments.watch:
        raise UsageError("--exclude, --buckets and --watch are for one run: `runwatch goodput RUN`")
    now_ns = time.time_ns()
    with source.open_source(arguments) as head:
        answer = head.get(
            "/goodput",
            group=arguments.group,
            user=arguments.user,
            since=_ago(arguments.since, now_ns),
            until=_ago(arguments.until, now_ns),
            by=arguments.by,
            price_per_device_hour=_price(arguments),
        )
    if arguments.json:
        tables.print_json(answer)
        return 0
    from runwatch.cli.pictures.rollup import together

    out = tables.console()
    out.print(together(answer, _whose(arguments), out.width, arguments.by))
    return 0


def _ago(text: str | None, now_ns: int) -> int | None:
    if text is None:
        return None
    relative = RELATIVE.fullmatch(text)
    if relative is not None and relative[1] != "-":
        raise UsageError(f"several runs have no common start: write -{relative[2]}, not {text!r}")
    return moment(text, now_ns, now_ns)


def _whose(arguments: argparse.Namespace) -> str:
    filters = [f"of group {arguments.group}"] if arguments.group else []
    filters += [f"of {arguments.user}"] if arguments.user else []
    filters += [f"since {arguments.since}"] if arguments.since else []
    filters += [f"until {arguments.until}"] if arguments.until else []
    return " ".join(filters)


# ── times ──────────────────────────────────────────────────────────────────────────────────────


def _range(text: str, start_ns: int, end_ns: int) -> str:
    first, slash, last = text.partition("/")
    if not slash:
        raise UsageError(f"not a period of time: {text!r} (write --exclude FROM/TO)")
    return f"{moment(first, start_ns, end_ns)}/{moment(last, start_ns, end_ns)}"


# ── logs of the original ───────────────────────────────────────────────────────────────────────


def _import(arguments: argparse.Namespace) -> str:
    """Import the log as a run, print what was imported, and return the run's id."""
    from runwatch.compat.goodput.log import imports

    directory = arguments.dir or runwatch_dir()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    arguments.dir = directory
    with progress(f"reading {arguments.log}", "entries") as step:
        if arguments.log == CLOUD_LOGGING:
            entries: Iterable[Any] = _from_cloud(imports, arguments, step)
        else:
            entries = imports.read_log(Path(arguments.log), progress=step)
        imported = imports.import_entries(
            entries, directory, job_name=arguments.job, logger_name=arguments.logger
        )
    print(
        f"runwatch: {imported.read:,} entries of job {imported.job_name!r}: "
        f"{imported.written:,} new in {directory}",
        file=sys.stderr,
    )
    return arguments.run_name or str(imported.run)


def import_log(path: Path, directory: Path, *, dry_run: bool) -> list[dict[str, Any]]:
    """Every job of a log, as a run each.  For `runwatch import`."""
    from runwatch.compat.goodput.log import imports

    with progress(f"reading {path}", "entries") as step:
        entries = list(imports.read_log(path, progress=step))
    if dry_run:
        return [
            {"name": job, "entries": count, "new": 0}
            for job, count in imports.jobs(entries).items()
        ]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    done = [imports.import_entries(entries, directory, job_name=j) for j in imports.jobs(entries)]
    return [
        {"run": each.run, "name": each.job_name, "entries": each.read, "new": each.written}
        for each in done
    ]


def _from_cloud(imports: Any, arguments: argparse.Namespace, step: Any) -> Iterable[Any]:
    if not arguments.job:
        raise UsageError(f"--import {CLOUD_LOGGING} needs --job NAME (and --logger, if it differs)")
    entries: Iterable[Any] = imports.read_cloud_logging(
        arguments.job,
        arguments.logger or f"goodput_{arguments.job}",
        project=os.environ.get("GOOGLE_CLOUD_PROJECT"),
        progress=step,
    )
    return entries
