"""Show one run: its state, its ranks, and a chart; follows it while it runs.

example:
  runwatch show demo-spirals
  runwatch show demo-spirals --metric loss --metric step_seconds --axis time --once
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from runwatch.cli import source
from runwatch.cli.checks import check_metrics, check_ranks, key_of
from runwatch.cli.pictures import pods, tables
from runwatch.cli.pictures.progress import no_progress
from runwatch.errors import UsageError
from runwatch.record.life import ClockJump, JournalLoss, SdkWarning
from runwatch.record.losses import JournalGap, LimitReached

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

REFRESH_SECONDS: Final = 1.0
MOST_CURVES: Final = 4
MOST_TROUBLES: Final = 8


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_name", metavar="RUN", help="a run's name or id")
    source.arguments(parser)
    parser.add_argument("--metric", "-m", action="append", help="draw this metric; may be repeated")
    parser.add_argument("--rank", type=int, help="only this rank's curves")
    parser.add_argument(
        "--axis", choices=("step", "time"), help="default: step, if the run has steps"
    )
    parser.add_argument("--once", action="store_true", help="print once; do not follow")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(arguments: argparse.Namespace) -> int:
    with source.open_source(arguments) as head:
        arguments.run_name = key_of(head, arguments.run_name)
        answer = head.get(f"/runs/{arguments.run_name}")
        check_metrics(head, answer, arguments.metric or ())
        check_ranks(head, answer, [] if arguments.rank is None else [arguments.rank])
        if arguments.json:
            answer["curves"] = _curves(head, answer, arguments, buckets=200)
            tables.print_json(answer)
            return 0
        out = tables.console()
        picture, running = _picture(head, arguments, out.width)
        if not running or arguments.once or not sys.stdout.isatty():
            out.print(picture)
            return 0
        from rich.live import Live

        with no_progress(), Live(picture, console=out, auto_refresh=False) as live:
            while running:
                time.sleep(REFRESH_SECONDS)
                head.refresh()
                picture, running = _picture(head, arguments, out.width)
                live.update(picture, refresh=True)
    return 0


def _picture(
    head: source.Source, arguments: argparse.Namespace, width: int
) -> tuple[RenderableType, bool]:
    from rich.console import Group
    from rich.text import Text

    run = head.get(f"/runs/{arguments.run_name}")
    key = run["run"]
    processes = head.get(f"/runs/{key}/processes")["processes"]
    parts: list[RenderableType] = [_headline(run), process_table(processes)]
    parts += [Text(line, style="yellow") for line in _troubles(head, key)]
    parts += _incidents(head, key)
    if any(process.get("pod") for process in processes):  # an older head does not say it
        parts += [Text(line, style="dim") for line in pods.troubles(head, key)]
    by_metric: dict[str, list[dict[str, Any]]] = {}
    for curve in _curves(head, run, arguments, buckets=max(20, (width - 12) * 2)):
        by_metric.setdefault(curve["metric"], []).append(curve)
    if by_metric:
        from runwatch.cli.pictures.chart import draw
    for curves in by_metric.values():
        axis = curves[0]["axis"]
        chart = draw(curves[:MOST_CURVES], axis, width=min(width, 110), height=14)
        parts += [Text(""), Text.from_ansi(chart)]
        if len(curves) > MOST_CURVES:
            parts.append(Text(f"and {len(curves) - MOST_CURVES} more (--rank)", style="dim"))
    return Group(*parts), run["state"] == "running"


def _troubles(head: source.Source, run: str) -> list[str]:
    """Lines about what is missing from this run's records or distorts its numbers."""
    kinds = [JournalGap.KIND, JournalLoss.KIND, ClockJump.KIND, LimitReached.KIND, SdkWarning.KIND]
    answer = head.get(f"/runs/{run}/events", kind=kinds, limit=1000)
    lines: dict[tuple[Any, ...], str] = {}
    for event in answer["events"]:  # oldest first: counts are totals, so the newest wins
        who, kind, body = f"rank {event['rank']}", event["kind"], event["body"]
        if kind == JournalGap.KIND:
            reason = JournalGap.of(body).reason
            text = f"{who}: part of its journal could not be read ({reason})"
            lines[kind, event["journal"], reason] = text
        elif kind == JournalLoss.KIND:
            loss = JournalLoss.of(body)
            lost = loss.dropped_records + (loss.lost_records or 0)
            lines[kind, event["journal"]] = f"{who}: {lost:,} records dropped: no disk space"
        elif kind == LimitReached.KIND:
            limit = LimitReached.of(body)
            lines[kind, limit.what] = f"the head refuses more {limit.what}: {limit.why}"
        elif kind == ClockJump.KIND:
            seconds = ClockJump.of(body).seconds
            lines[kind, event["host"]] = f"{event['host']}: its clock jumped {seconds:+g} s"
        else:
            warning = SdkWarning.of(body)
            text = f"{who}: not recorded: {warning.what} × {warning.count}"
            lines[kind, event["journal"], warning.what] = text
    return list(lines.values())[:MOST_TROUBLES]


def _incidents(head: source.Source, run: str) -> list[RenderableType]:
    """The open incident, or the last one; `runwatch stacks` shows more."""
    from rich.text import Text

    for incident in head.get(f"/runs/{run}/incidents")["incidents"][:1]:
        what = {"hang": "stood still", "crash": "went down"}[incident["kind"]]
        when = f"since {tables.time(incident['since_ns'])}"
        is_note = incident.get("severity") == "note"
        if incident["state"] == "open":
            what = "takes no step" if is_note else "stands still"
        elif incident["kind"] == "hang":
            what = "took no step" if is_note else what
            when += f" until {tables.time(incident['closed_ns'])}"
        style = "bold yellow" if incident["state"] == "open" and not is_note else "dim"
        return [Text(f"{what} {when}: {tables.local_times(incident['text'])}", style=style)]
    return []


def _headline(run: dict[str, Any]) -> Text:
    from rich.text import Text

    line = Text.assemble((run["name"], "bold"), "  ", tables.state_of(run))
    attempt = f"attempt {run['attempts']}"
    step = "" if run["last_step"] is None else f"step {run['last_step']:,}"
    until = run["ended_ns"] or run["last_ns"]
    facts = [run.get("workload", ""), attempt, step]
    facts.append(f"started {tables.time(run['started_ns'])} {tables.zone()}")
    facts.append(tables.duration(until - run["started_ns"]))
    line.append("  " + " · ".join(fact for fact in facts if fact))
    for warning in run.get("warnings", ()):  # an older head sends none
        style = "bold yellow" if warning["weight"] == "warning" else "dim"
        line.append(f"\n{tables.local_times(warning['text'])}", style=style)
    for reason in attempt_reasons(run):
        line.append(f"\n{reason}", style="dim")
    if run.get("waits"):
        line.append(f"\n{tables.waits_of(run)}", style="bold yellow")
    if run["state"] in ("failed", "killed", "lost"):
        line.append(f"\nits last words: runwatch logs {shlex.quote(run['name'])}", style="dim")
    return line


def attempt_reasons(run: dict[str, Any]) -> list[str]:
    """Why each attempt ended, if that is known."""
    told = [(each["attempt"], each["reason"]) for each in run["history"] if each["reason"]]
    return [f"attempt {number}: {tables.local_times(reason)}" for number, reason in told]


def process_table(processes: list[dict[str, Any]]) -> RenderableType:
    in_pods = any(process.get("pod") for process in processes)
    where = ("pod", "node") if in_pods else ("host",)
    shown = tables.table(
        "attempt", "rank", *where, "pid", "state", "took", "how it ended",
        right=("attempt", "rank", "pid", "took"), fold="how it ended",
    )  # fmt: skip
    for process in processes:
        until = process["ended_ns"] or process["last_ns"]
        host = process["host"]
        seat = (process.get("pod") or host, process.get("node", "")) if in_pods else (host,)
        shown.add_row(
            str(process["attempt"]),
            _rank(process),
            *seat,
            str(process["pid"]),
            tables.state(process["state"]),
            tables.duration(until - process["started_ns"]),
            tables.local_times(process["reason"]),
        )
    return shown


def _rank(process: dict[str, Any]) -> str:
    """A command that `runwatch exec` runs has no rank; its ranks have."""
    return "exec" if process.get("role") == "launcher" else str(process["rank"])


def _axis(arguments: argparse.Namespace, run: dict[str, Any]) -> str:
    return arguments.axis or ("time" if run["last_step"] is None else "step")


def _curves(
    head: source.Source, run: dict[str, Any], arguments: argparse.Namespace, buckets: int
) -> list[dict[str, Any]]:
    """Curves, each with its `axis`.  A metric that has no steps, as those of devices, is drawn over
    time."""
    metrics = arguments.metric or ([run["headline"]["metric"]] if run["headline"] else [])
    if not metrics:
        return []

    def asked(metrics: Sequence[str], axis: str) -> list[dict[str, Any]]:
        path = f"/runs/{run['run']}/curves"
        rank = arguments.rank
        answer = head.get(path, metric=metrics, rank=rank, axis=axis, buckets=buckets)
        return [{**curve, "axis": axis} for curve in answer["curves"]]

    axis = _axis(arguments, run)
    curves = asked(metrics, axis)
    missing = [each for each in metrics if each not in {curve["metric"] for curve in curves}]
    if axis == "time" or not missing:
        return curves
    over_time = asked(missing, "time")
    if over_time and arguments.axis:
        name = over_time[0]["metric"]
        raise UsageError(f"{name!r} has no steps: draw it with --axis time")
    return [*curves, *over_time]
