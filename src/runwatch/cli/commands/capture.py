"""Profile a run's ranks now.  Every host starts at the same moment.

  runwatch capture RUN                          two seconds of every rank
  runwatch capture RUN --steps 3 --at-step 500  three steps, from step 500 on
  runwatch capture RUN --preflight              which ranks can be captured, and why others cannot
  runwatch capture                              programs that do not use Runwatch, on every host
                                                with an agent: those started with
                                                KINETO_USE_DAEMON=1, or serving a profiler port

example:
  runwatch capture llama-70b --ranks 0-3,8 --duration 500
  runwatch capture --port 9456
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from runwatch.cli import source
from runwatch.cli.checks import check_ranks, key_of
from runwatch.cli.commands.profiles import addresses, with_summary
from runwatch.cli.pictures import tables
from runwatch.cli.pictures.moments import fine_duration, size
from runwatch.cli.pictures.progress import no_progress, progress
from runwatch.cli.times import milliseconds
from runwatch.errors import NotFound, UsageError
from runwatch.record.capture_limits import DEFAULT_MS, PROFILER_PORTS

POLL_SECONDS: Final = 0.2
FILES_SECONDS: Final = 30.0
"""How long to wait for the files to reach the head."""
MOST_RANKS: Final = 100_000
_WAYS: Final = {"sdk": "SDK", "port": "profiler port", "kineto": "KINETO_USE_DAEMON", "": "–"}
_STATES: Final = {"done": "completed", "asked": "waiting"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("captured", nargs="?", metavar="RUN", help="a run's id or name")
    parser.add_argument("--hosts", nargs="+", metavar="HOST", help="only on these hosts")
    parser.add_argument("--ranks", metavar="0-3,8", help="only these ranks")
    parser.add_argument(
        "--duration", type=milliseconds, metavar="MS",
        help=f"how long: milliseconds, or with a unit, such as 2s (default {DEFAULT_MS})",
    )  # fmt: skip
    parser.add_argument("--steps", type=int, metavar="N", help="capture N steps instead")
    parser.add_argument("--at-step", type=int, metavar="K", help="start at this step")
    parser.add_argument("--session", metavar="ID", help="name of the profile (default: the time)")
    parser.add_argument(
        "--pid", type=int, nargs="+", default=[], metavar="PID", help="only these processes"
    )
    parser.add_argument(
        "--port", type=int, nargs="+", default=[], metavar="PORT",
        help=f"profiler ports to try, besides {' and '.join(map(str, PROFILER_PORTS))}",
    )  # fmt: skip
    parser.add_argument(
        "--preflight", action="store_true", help="capture nothing; list what can be captured"
    )
    parser.add_argument("--no-summary", action="store_true", help="do not wait for the summary")
    source.arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(arguments: argparse.Namespace) -> int:
    wanted = _body(arguments)
    if not arguments.json:
        tables.console()  # whoever cannot be shown the answer hears of it before the capture
    with source.open_source(arguments) as head:
        head.follow()
        base = ""
        if arguments.captured:
            chosen = head.get(f"/runs/{key_of(head, arguments.captured)}")
            check_ranks(head, chosen, wanted.get("ranks", ()))
            base = f"/runs/{chosen['run']}"
        if arguments.preflight:
            return _preflight(head, base, wanted, arguments)
        return _capture(head, base, wanted, arguments)


def _body(arguments: argparse.Namespace) -> dict[str, Any]:
    request = {
        "hosts": arguments.hosts,
        "ranks": ranks_of(arguments.ranks) if arguments.ranks is not None else None,
        "duration_ms": arguments.duration,
        "steps": arguments.steps,
        "at_step": arguments.at_step,
        "session": arguments.session,
        "pids": arguments.pid,
        "ports": arguments.port,
    }
    return {name: value for name, value in request.items() if value not in (None, [])}


def ranks_of(text: str) -> list[int]:
    """`0-3,8` as numbers."""
    ranks: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()) or len(part) > 20:
            raise UsageError(f"--ranks {text[:80]!r} is not a list of ranks, such as 0-3,8")
        last = int(high) if dash else int(low)
        if last - int(low) + len(ranks) > MOST_RANKS:
            raise UsageError(f"--ranks {text[:80]!r}: that is more than {MOST_RANKS:,} ranks")
        ranks.update(range(int(low), last + 1))
    return sorted(ranks)


# ── preflight ─────────────────────────────────────────────────────────────────────────────────


def _preflight(
    head: source.Source, base: str, body: Mapping[str, Any], arguments: argparse.Namespace
) -> int:
    answer = head.post(f"{base}/captures/preflight", body)
    can = [process for process in answer["processes"] if process["way"]]
    if arguments.json:
        tables.print_json(answer)
        return 0 if can else 1
    shown = tables.table("rank", "host", "pid", "way", "framework", "why", right=("rank", "pid"),
                         fold="why")  # fmt: skip
    for each in answer["processes"]:
        shown.add_row(
            *_who(each), _WAYS[each["way"]], ", ".join(each["frameworks"]), each["why"]
        )  # fmt: skip
    out = tables.console()
    if answer["processes"]:
        out.print(shown)
    for host, why in answer["hosts"].items():
        if why:
            out.print(f"{host}: {why}", highlight=False)
    count = len(answer["processes"])
    if can:
        lead = answer["lead_seconds"]
        print(f"{len(can)} of {count} can be captured; a capture would begin in {lead:.1f} s")
    else:
        print("no rank can be captured now", file=sys.stderr)
    return 0 if can else 1


def _who(each: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(each["rank"]), each["host"], str(each["pid"] or "")


# ── capture ───────────────────────────────────────────────────────────────────────────────────


def _capture(
    head: source.Source, base: str, body: Mapping[str, Any], arguments: argparse.Namespace
) -> int:
    with progress("asking the nodes"):
        answer = head.post(f"{base}/captures", body)
    answer = _followed(head, f"{base}/captures/{answer['session']}", answer)
    captured = [each for each in answer["processes"] if each["state"] == "done"]
    if arguments.json:
        tables.print_json(answer)
        return 0 if captured else 1
    _print(answer)
    if not captured:
        print("no rank was captured", file=sys.stderr)
        return 1
    if not arguments.no_summary:
        for profile in _captured(head, answer):
            _print_profile(head, profile)
    return 0


def _followed(head: source.Source, path: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Poll until the API says that no process is still being captured."""
    if not sys.stderr.isatty():
        while answer["state"] in ("asked", "running"):
            time.sleep(POLL_SECONDS)
            answer = head.get(path)
        return answer
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(file=sys.stderr), transient=True)
    length = (answer["duration_ms"] or DEFAULT_MS) / 1e3
    with no_progress(), bar:
        task = bar.add_task("waiting for the start", total=length)
        while answer["state"] in ("asked", "running"):
            gone = time.time() - answer["start_ns"] / 1e9
            ended = sum(each["state"] in ("done", "failed") for each in answer["processes"])
            count = f"{ended} of {len(answer['processes'])}"
            words = "waiting for the start" if gone < 0 else f"capturing: {count} done"
            bar.update(task, completed=min(max(gone, 0.0), length), description=words)
            time.sleep(POLL_SECONDS)
            answer = head.get(path)
    return answer


def _print(answer: Mapping[str, Any]) -> None:
    shown = tables.table(
        "rank", "host", "pid", "way", "state", "size", "begun", "window", "",
        right=("rank", "pid", "size", "begun", "window"), fold="",
    )  # fmt: skip
    begun = [each["start_ns"] for each in answer["processes"] if each["start_ns"]]
    for each in answer["processes"]:
        shown.add_row(
            *_who(each),
            _WAYS.get(each["way"], each["way"]),
            tables.state(_STATES.get(each["state"], each["state"])),
            size(each["bytes"]) if each["bytes"] else "",
            _after(each["start_ns"], min(begun, default=0)),
            _length(each),
            each["why"],
        )
    out = tables.console()
    out.print(shown)
    done = sum(each["state"] == "done" for each in answer["processes"])
    line = f"profile {answer['session']}: {done} of {len(answer['processes'])} captured"
    if answer["overlap_percent"] is not None:
        line += f"; all at the same time for {answer['overlap_percent']:.1f} % of the time"
    out.print(line, highlight=False)


def _after(start_ns: int, first_ns: int) -> str:
    if not start_ns:
        return ""
    return (
        tables.time(start_ns) if start_ns == first_ns else f"+{fine_duration(start_ns - first_ns)}"
    )


def _length(each: Mapping[str, Any]) -> str:
    return fine_duration(each["end_ns"] - each["start_ns"]) if each["end_ns"] else ""


# ── the summary ───────────────────────────────────────────────────────────────────────────────


def _captured(head: source.Source, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The capture's profiles: one per run, so several if programs without a run were captured."""
    expected = {name for each in answer["processes"] for name in each["files"]}
    deadline = time.monotonic() + FILES_SECONDS
    with progress("waiting for the files", "polls") as step:
        while True:
            profiles = [p for p in _profiles(head, answer) if p["session"] == answer["session"]]
            here = {file["name"] for profile in profiles for file in profile["files"]}
            if expected <= here or time.monotonic() > deadline:
                return profiles
            step(1)
            time.sleep(POLL_SECONDS)


def _profiles(head: source.Source, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    path = f"/runs/{answer['run']}/profiles" if answer["run"] else "/profiles"
    profiles: list[dict[str, Any]] = head.get(path)["profiles"]
    return profiles


def _print_profile(head: source.Source, profile: Mapping[str, Any]) -> None:
    from runwatch.cli.pictures.traces import show_summary
    from runwatch.traces.summary import SessionSummary

    out = tables.console()
    try:
        detail = with_summary(head, [profile["run"], profile["session"]])
    except NotFound:
        detail = {"summary_state": "failed", "summary_why": "the profile is not here yet"}
    print()
    if detail["summary_state"] == "done":
        show_summary(SessionSummary.from_json(detail["summary"]), out)
    else:
        print(f"no summary: {detail['summary_why'] or 'the profile has no trace'}")
    for line in _links(head, profile):
        out.print(line, highlight=False, soft_wrap=True)


def _links(head: source.Source, profile: Mapping[str, Any]) -> Iterator[str]:
    if head.name.startswith("http"):
        for address in addresses(dict(profile))[:4]:
            yield f"open: {head.name}/{address}"
        return
    for folder in profile["directories"]:
        yield f"files: {folder}"
    yield f"`runwatch ui {head.name}` serves the viewers"
