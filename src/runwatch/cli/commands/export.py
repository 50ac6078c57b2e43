"""Write every point of a run as CSV, Parquet or JSON; needs no running head.

One row per point: run, attempt, host, process, device, metric, step, time, value, rank.  (`process`
is an older name of `rank`.)
--perfetto writes a trace instead: the steps, spans, events and numbers of every rank on a timeline,
for ui.perfetto.dev, chrome://tracing, or `runwatch host`.

example:
  runwatch export demo-spirals --format csv -o demo.csv
  runwatch export demo-spirals --format json | head
  runwatch export demo-spirals --perfetto --metric loss -o demo.trace.json
"""

from __future__ import annotations

import argparse
import codecs
import sys
from pathlib import Path

from runwatch.cli import source
from runwatch.cli.pictures.progress import progress
from runwatch.errors import UsageError
from runwatch.files import written
from runwatch.terminal import shown


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_name", metavar="RUN", help="a run's name or id")
    source.arguments(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--format", choices=("csv", "parquet", "json"), default="csv")
    how.add_argument(
        "--perfetto", dest="format", action="store_const", const="perfetto",
        help="a trace for Perfetto",
    )  # fmt: skip
    parser.add_argument("--metric", action="append", help="only this metric; may be repeated")
    parser.add_argument("-o", "--output", type=Path, help="a file (default: standard output)")
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")


def run(arguments: argparse.Namespace) -> int:
    output: Path | None = arguments.output
    if output is None and arguments.format == "parquet" and sys.stdout.isatty():
        raise UsageError("a terminal cannot show Parquet: name a file with -o FILE")
    if output is not None:
        check_output(output, force=arguments.force)
    with source.open_source(arguments) as head:
        path = f"/runs/{arguments.run_name}/export"
        chunks = head.stream(path, format=arguments.format, metric=arguments.metric)
        if output is None:
            for chunk in _for_terminal(chunks) if sys.stdout.isatty() else chunks:
                sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            return 0
        write_file(output, chunks)
    print(f"Wrote {output}")
    return 0


def _for_terminal(chunks: source.Chunks) -> source.Chunks:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for chunk in chunks:
        yield shown(decoder.decode(chunk)).encode()


def check_output(output: Path, *, force: bool) -> None:
    if output.exists() and not force:
        raise UsageError(f"{output} already exists: replace it with --force")
    if not output.parent.is_dir():
        raise UsageError(f"no such directory: {output.parent}")


def write_file(output: Path, chunks: source.Chunks) -> None:
    with (
        written(output, mode=0o666) as file,  # the user's umask applies
        progress(f"writing {output}", "kB") as step,
    ):
        for chunk in chunks:
            file.write(chunk)
            step(max(1, len(chunk) // 1000))
