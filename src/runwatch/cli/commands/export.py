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
from pathlib import Path

from runwatch.cli import source
from runwatch.cli.checks import check_metrics, key_of
from runwatch.cli.output import check_export, export


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_name", metavar="RUN", help="a run's name or id")
    source.arguments(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--format", choices=("csv", "parquet", "json"), default="csv")
    how.add_argument(
        "--perfetto", dest="format", action="store_const", const="perfetto",
        help="a trace for Perfetto",
    )  # fmt: skip
    how.add_argument(
        "--json", dest="format", action="store_const", const="json", help="as --format json"
    )
    parser.add_argument("--metric", action="append", help="only this metric; may be repeated")
    parser.add_argument("-o", "--output", type=Path, help="a file (default: standard output)")
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")


def run(arguments: argparse.Namespace) -> int:
    check_export(arguments)
    with source.open_source(arguments) as head:
        chosen = head.get(f"/runs/{key_of(head, arguments.run_name)}")
        check_metrics(head, chosen, arguments.metric or ())
        path = f"/runs/{chosen['run']}/export"
        chunks = head.stream(path, format=arguments.format, metric=arguments.metric)
        export(chunks, arguments.output)
    return 0
