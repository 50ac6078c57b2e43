"""mltrace: a job's log lines on a timeline, one track per worker.

Reads entries of Cloud Logging from a file (.jsonl, .json, .csv) or from the service, and writes
STEM.gz, which Perfetto opens, and STEM.html, which any browser opens, without a network.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from runwatch.compat.commands import exit_code
from runwatch.compat.xprofiler.mltrace.log_entries import (
    Entry,
    Skipped,
    cloud_client,
    cloud_filter,
    cloud_pages,
    entries,
    read_file,
)
from runwatch.compat.xprofiler.mltrace.trace import Trace, page_text, trace_text
from runwatch.errors import NotFound, RunwatchError, UsageError
from runwatch.files import written

HOUR_NS: Final = 3600 * 10**9
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
ENDINGS: Final = (".gz", ".jsonl", ".json", ".csv")
Arguments = argparse.Namespace


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        "mltrace", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = top.add_argument
    add("-f", "--filename", type=Path, help="entries: .jsonl, .json or .csv, also with .gz")
    add("-j", "--jobname", required=True, help="the job, which its pods are named after")
    add("-p", "--project_id", "--project-id", default="", help="(needed without -f)")
    add("-s", "--start", type=_moment, metavar="TIME",
        help="2026-03-01T12:00:00.000000+0000 (default: an hour ago, with -f: all)")  # fmt: skip
    add("-e", "--end", type=_moment, metavar="TIME", help="(default: now, with -f: all)")
    add("-l", "--log_filter", "--log-filter", default="", help="more of Cloud Logging's query")
    add("-o", "--output_filename", "--output-filename", type=Path, metavar="STEM",
        help="(default: the file's, or the job's name)")  # fmt: skip
    add("--loglevel", type=str.upper, choices=LEVELS, default="INFO", help="(default: INFO)")
    return top


def _moment(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = datetime.min
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time with its zone, such as 2026-03-01T12:00:00.000000+0000"
        )
    return int(moment.timestamp()) * 10**9 + moment.microsecond * 1000


def main(argv: Sequence[str] | None = None, *, client: Callable[[str], Any] = cloud_client) -> int:
    arguments = parser().parse_args(argv)
    return exit_code("mltrace", lambda: _run(arguments, client))


def _run(arguments: Arguments, client: Callable[[str], Any]) -> int:
    stem = _stem(arguments)
    trace, skipped = Trace(arguments.jobname, arguments.start, arguments.end), Skipped()
    log_entries = (
        _from_file(arguments, skipped) if arguments.filename else _from_cloud(arguments, client)
    )
    try:
        _write(stem, trace, log_entries, arguments.project_id)
    except OSError as error:
        raise RunwatchError(f"cannot write {stem}.gz: {error.strerror or error}") from error
    _report(arguments, stem, trace, skipped)
    return 0


def _report(arguments: Arguments, stem: str, trace: Trace, skipped: Skipped) -> None:
    if skipped.count:
        what = "that is not a log entry" if skipped.count == 1 else "that are not log entries"
        text = f"{_many(skipped.count, 'line')} left out {what}; the first is line {skipped.first}"
        _say(arguments, "WARNING", text)
    if trace.without_time:
        _say(arguments, "WARNING", f"left out for want of a time: {trace.without_time}")
    counts = f"{_many(trace.lines, 'line')} of {_many(trace.tracks, 'worker')}"
    files = f"{stem}.gz (Perfetto), {stem}.html (any browser, no network needed)"
    _say(arguments, "INFO", f"{counts}: {files}")


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _say(arguments: Arguments, level: str, text: str) -> None:
    if LEVELS.index(level) >= LEVELS.index(arguments.loglevel):
        print(text, file=sys.stdout if level == "INFO" else sys.stderr)


def _stem(arguments: Arguments) -> str:
    if arguments.output_filename:
        stem = str(arguments.output_filename).removesuffix(".gz").removesuffix(".html")
    elif arguments.filename:
        stem = str(arguments.filename)
        for ending in ENDINGS:
            stem = stem.removesuffix(ending)
    else:
        stem = arguments.jobname.replace("/", "_")
    if arguments.filename and arguments.filename in (Path(f"{stem}.gz"), Path(f"{stem}.html")):
        raise UsageError(f"{arguments.filename} would be written over: name another with -o")
    return stem


def _from_file(arguments: Arguments, skipped: Skipped) -> Iterator[Entry]:
    if arguments.log_filter:
        _say(
            arguments,
            "WARNING",
            "--log_filter is a question to Cloud Logging; a file is read whole",
        )
    return read_file(arguments.filename, skipped)


def _from_cloud(arguments: Arguments, client: Callable[[str], Any]) -> Iterator[Entry]:
    if not arguments.project_id:
        raise UsageError("Cloud Logging needs the project: -p PROJECT; or name a file with -f")
    end_ns = time.time_ns() if arguments.end is None else arguments.end
    start_ns = end_ns - HOUR_NS if arguments.start is None else arguments.start
    query = cloud_filter(arguments.jobname, start_ns, end_ns, arguments.log_filter)
    _say(arguments, "DEBUG", f"asking for {query}")
    return entries(cloud_pages(client(arguments.project_id), arguments.project_id, query))


def _write(stem: str, trace: Trace, log_entries: Iterable[Entry], project: str) -> None:
    with written(Path(f"{stem}.gz"), mode=0o666) as file:
        with gzip.GzipFile("", "wb", 5, file, mtime=0) as packed:
            for piece in trace_text(trace, log_entries, {"project": project} if project else {}):
                packed.write(piece.encode())
        if not trace.lines:
            raise NotFound(f"no log entries of {trace.job} in that time: nothing was written")
        file.seek(0)
        with written(Path(f"{stem}.html"), mode=0o666) as page:
            for piece in page_text(f"{trace.job}: log timeline", file):
                page.write(piece.encode())


if __name__ == "__main__":
    sys.exit(main())
