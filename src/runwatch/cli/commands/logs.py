"""Show what a run said: the lines of its console, of all ranks, and its exceptions.

Without --since, --grep or --all these are the last lines.  A TIME is RFC 3339 (without an offset it
is local: 2026-01-31T12:00:00), a time of day (14:02:10), or a while ago (10m, -2h).  --grep looks
for a text; small letters match capitals, too.

example:
  runwatch logs llama-70b
  runwatch logs llama-70b --rank 3 --stream err --since 10m
  runwatch logs llama-70b --grep "out of memory"
  runwatch logs llama-70b --follow
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from runwatch.cli import source
from runwatch.cli.checks import check_ranks, key_of
from runwatch.cli.pictures import moments, pods
from runwatch.cli.times import RELATIVE, moment

Entry = dict[str, Any]

LAST_LINES: Final = 200
PAGE: Final = 2_000
REFRESH_SECONDS: Final = 1.0
OVERLAP_NS: Final = 20_000_000_000
"""Other hosts' lines may arrive this much later, and are not missed by those who follow."""
SEARCHED_AGAIN_NS: Final = 3600 * 10**9
"""Who follows a search is told of what arrives this much later, too; most lines are passed over
there.  To search all since the last find again, each time, would take long where finds are rare."""
ECHO_NS: Final = 5_000_000_000
"""An interpreter prints a traceback within this time of our record of it."""
STREAMS: Final = ("out", "err", "both", "exception")
_COLOURS: Final = {"err": "33", "exception": "1;31", "time": "2", "rank": "36", "gap": "2;35"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_name", metavar="RUN", help="a run's name or id")
    source.arguments(parser)
    parser.add_argument("--rank", type=int, action="append", default=[], help="only this rank")
    parser.add_argument("--stream", choices=STREAMS, action="append", default=[], help="only this")
    parser.add_argument("--grep", metavar="TEXT", default="", help="only lines with this text")
    parser.add_argument("--since", metavar="TIME", help="only lines from this time on")
    parser.add_argument("--until", metavar="TIME", help="only lines up to this time")
    parser.add_argument("--attempt", type=int, help="only lines of this attempt")
    parser.add_argument("--lines", "-n", type=int, help=f"so many last lines ({LAST_LINES})")
    parser.add_argument("--all", action="store_true", help="everything from the start")
    parser.add_argument("--follow", "-f", action="store_true", help="go on while the run runs")
    parser.add_argument(
        "--json", action="store_true", help="print JSON; with --follow, a line per entry"
    )


def run(arguments: argparse.Namespace) -> int:
    with source.open_source(arguments) as head:
        summary = head.get(f"/runs/{key_of(head, arguments.run_name)}")
        check_ranks(head, summary, arguments.rank)
        asked = _Asked(head, summary, arguments)
        entries = asked.first()
        if arguments.json and not arguments.follow:
            print(json.dumps({"run": summary["run"], "entries": entries}, indent=2))
            return 0 if entries or not arguments.grep else 1
        printer = _Printer(asked, arguments)
        printer.print(entries)
        if arguments.follow:
            _follow(asked, printer)
        if not arguments.json:
            _last_of_pods(head, summary, asked)
        if not arguments.follow and not entries:
            return _nothing(asked, arguments)
    return 0


def _last_of_pods(head: source.Source, summary: dict[str, Any], asked: _Asked) -> None:
    """Why a program says no more may be what its cluster did: that is beside what it said."""
    if not summary.get("workload") or asked.is_filtered:
        return
    for line in pods.troubles(head, summary["run"]):
        print(f"runwatch: {line}", file=sys.stderr)


def _follow(asked: _Asked, printer: _Printer) -> None:
    """Until the run has ended, and once more: its last lines may come after its end."""
    running = True
    while running:
        running = asked.is_running()
        if running:
            time.sleep(REFRESH_SECONDS)
        asked.head.refresh()
        printer.print(asked.news())


def _nothing(asked: _Asked, arguments: argparse.Namespace) -> int:
    if not asked.is_filtered:
        print(
            f"runwatch: run {asked.name!r} has recorded no lines. Start the program with "
            "`runwatch exec -- COMMAND`, or call `runwatch.init(console=True)`",
            file=sys.stderr,
        )
        return 0
    print("runwatch: no such lines", file=sys.stderr)
    return 1 if arguments.grep else 0


class _Asked:
    """Asks for pages of a run's log."""

    def __init__(
        self, head: source.Source, summary: dict[str, Any], arguments: argparse.Namespace
    ) -> None:
        self.head = head
        self.name: str = summary["name"]
        self.ranks = 1
        self._path = f"/runs/{summary['run']}"
        self._lines = arguments.lines
        self._whole = bool(arguments.all or arguments.since or arguments.grep)
        now_ns = time.time_ns()
        self._filter = {
            "rank": arguments.rank or None,
            "stream": arguments.stream or None,
            "grep": arguments.grep or None,
            "attempt": arguments.attempt,
            "since": _ago(arguments.since, now_ns),
            "until": _ago(arguments.until, now_ns),
        }
        self.is_filtered = any(value is not None for value in self._filter.values())
        self._newest_ns = self._filter["since"] or 0
        self._reached_ns = 0
        """The time of the newest record that was looked at."""
        self._seen: dict[str, int] = {}

    def is_running(self) -> bool:
        return bool(self.head.get(self._path)["state"] == "running")

    def first(self) -> list[Entry]:
        if self._lines is None and self._whole:
            found = list(self._onward("0.0"))
        else:
            found = self._last(LAST_LINES if self._lines is None else self._lines)
        self._note(found)
        return found

    def news(self) -> list[Entry]:
        """What is stored since, in order; the newest stretch is looked at again."""
        after = f"{self._again_ns()}.0"
        found = [entry for entry in self._onward(after) if entry["id"] not in self._seen]
        self._note(found)
        return found

    def _again_ns(self) -> int:
        newest_ns = self._newest_ns
        if self._filter["grep"]:
            newest_ns = max(newest_ns, self._reached_ns - SEARCHED_AGAIN_NS)
        return max(newest_ns - OVERLAP_NS, 0)

    def _note(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._newest_ns = max(self._newest_ns, entry["time_ns"])
            self._seen[entry["id"]] = entry["time_ns"]
        old = self._again_ns() - OVERLAP_NS
        self._seen = {id: time_ns for id, time_ns in self._seen.items() if time_ns >= old}

    def _onward(self, after: str) -> Iterator[Entry]:
        while True:
            page = self._page(after=after)
            yield from page["entries"]
            if page["newer"] in (None, after):
                return
            after = page["newer"]

    def _last(self, count: int) -> list[Entry]:
        found: list[Entry] = []
        before = None
        while len(found) < count:
            page = self._page(before=before, limit=min(PAGE, max(count - len(found), 1)))
            found = page["entries"] + found
            before = page["older"]
            if before is None:
                break
        return sorted(found, key=lambda entry: entry["time_ns"])[-count:] if count > 0 else []

    def _page(self, **cursor: Any) -> dict[str, Any]:
        page: dict[str, Any] = self.head.get(
            f"{self._path}/logs", **{"limit": PAGE, **self._filter, **cursor}
        )
        self.ranks = len(page["ranks"])
        if page["newer"] is not None:
            self._reached_ns = max(self._reached_ns, int(page["newer"].partition(".")[0]))
        return page


def _ago(text: str | None, now_ns: int) -> int | None:
    """`10m` is ten minutes ago, as in other commands that show logs."""
    if text is None:
        return None
    relative = RELATIVE.fullmatch(text)
    if relative is not None and not relative[1]:
        text = f"-{text}"
    return moment(text, now_ns, now_ns)


class _Printer:
    def __init__(self, asked: _Asked, arguments: argparse.Namespace) -> None:
        self._asked = asked
        self._json = arguments.json
        self._attempt: int | None = None
        self._colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def print(self, entries: Sequence[Entry]) -> None:
        if self._json:
            for entry in entries:
                print(json.dumps(entry), flush=True)
            return
        echoed = _echoed(entries)
        for entry in entries:
            for line in self._lines(entry, entry["id"] in echoed):
                print(line)
        if entries:
            sys.stdout.flush()

    def _lines(self, entry: Entry, is_echoed: bool) -> Iterator[str]:
        if entry["attempt"] is not None and entry["attempt"] != self._attempt:
            if self._attempt is not None:
                yield self._painted("gap", f"── attempt {entry['attempt']} ──")
            self._attempt = entry["attempt"]
        place = self._painted("time", moments.time(entry["time_ns"]))
        if self._asked.ranks > 1:
            who = f"rank {entry['rank']}" if entry["rank"] >= 0 else "exec"
            place += " " + self._painted("rank", who.ljust(6))
        if entry["left_out_lines"] or entry["left_out_bytes"]:
            yield f"{place} {self._painted('gap', _gap(entry))}"
        if entry["exception"] is None:
            if entry["text"] or not entry["left_out_lines"]:
                yield f"{place} {self._painted(entry['source'], entry['text'])}"
            return
        told = entry["exception"]
        thread = "" if told["thread"] == "MainThread" else f" in thread {told['thread']}"
        yield f"{place} {self._painted('exception', f'✘ uncaught{thread}: ' + entry['text'])}"
        if not is_echoed:
            for line in told["text"].splitlines():
                yield f"{place}   {self._painted('exception', line)}"

    def _painted(self, kind: str, text: str) -> str:
        colour = _COLOURS.get(kind)
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours and colour and text else text


def _gap(entry: Entry) -> str:
    lines, size = entry["left_out_lines"], moments.size(entry["left_out_bytes"])
    if not lines:
        return f"[{size} of long lines left out]"
    return f"[{lines:,} lines ({size}) left out: more than is recorded]"


def _echoed(entries: Sequence[Entry]) -> set[str]:
    """The exceptions whose traceback is in the lines that follow, as the program printed it."""
    said: dict[tuple[int, str], list[int]] = {}
    for entry in entries:
        if entry["exception"] is None:
            said.setdefault((entry["rank"], entry["text"]), []).append(entry["time_ns"])
    return {
        entry["id"]
        for entry in entries
        if entry["exception"] is not None
        for last in entry["exception"]["text"].splitlines()[-1:]
        if any(
            0 <= time_ns - entry["time_ns"] + 10**6 < ECHO_NS
            for time_ns in said.get((entry["rank"], last), ())
        )
    }
