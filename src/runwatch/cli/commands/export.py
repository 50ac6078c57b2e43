"""Write a run as CSV, Parquet or JSON, for TensorBoard, or as a timeline; needs no running head.

One row per point: run, attempt, host, process, device, metric, step, time, value, rank.  (`process`
is an older name of `rank`.)
--format perfetto writes a trace: the steps, spans, goodput, events and numbers of every rank on a
timeline, for ui.perfetto.dev, chrome://tracing, or `runwatch host`.
--format tensorboard writes event files into the directory -o: a TensorBoard run for each rank and
host.  Points without a step are numbered.  With --follow they grow until the run ends; after Ctrl-C
or a kill the same command goes on where it was.

example:
  runwatch export demo-spirals --format csv -o demo.csv
  runwatch export demo-spirals --format json | head
  runwatch export demo-spirals --format perfetto --metric loss -o demo.trace.json
  runwatch export demo-spirals --format tensorboard -o logs/demo && tensorboard --logdir logs
  runwatch export llama-70b --format tensorboard -o logs/llama --follow
"""

from __future__ import annotations

import argparse
from pathlib import Path

from runwatch.cli import source, tensorboard_export
from runwatch.cli.checks import check_metrics, check_ranks, key_of
from runwatch.cli.output import check_export, export
from runwatch.errors import UsageError

TENSORBOARD = "tensorboard"
FORMATS = ("csv", "parquet", "json", "perfetto", TENSORBOARD)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_name", metavar="RUN", help="a run's name or id")
    source.arguments(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--format", choices=FORMATS, default="csv")
    how.add_argument(
        "--perfetto", dest="format", action="store_const", const="perfetto",
        help="as --format perfetto",
    )  # fmt: skip
    how.add_argument(
        "--json", dest="format", action="store_const", const="json", help="as --format json"
    )
    parser.add_argument("--metric", action="append", help="only this metric; may be repeated")
    parser.add_argument("--rank", type=int, action="append", help="only this rank; may be repeated")
    parser.add_argument(
        "-o", "--output", type=Path,
        help="a file (default: standard output); for TensorBoard a directory",
    )  # fmt: skip
    parser.add_argument(
        "--force", action="store_true",
        help="replace the file if it exists; write into a directory that has other files",
    )  # fmt: skip
    parser.add_argument(
        "--follow", "-f", action="store_true",
        help="go on while the run runs (--format tensorboard)",
    )  # fmt: skip
    parser.add_argument(
        "--every", type=float, default=5.0, metavar="SECONDS",
        help="how often --follow looks for more (default: 5)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    for_tensorboard = arguments.format == TENSORBOARD
    if for_tensorboard:
        tensorboard_export.check(arguments)
    elif arguments.follow:
        raise UsageError(f"--follow is for --format tensorboard, not {arguments.format}")
    else:
        check_export(arguments)
    with source.open_source(arguments) as head:
        chosen = head.get(f"/runs/{key_of(head, arguments.run_name)}")
        check_metrics(head, chosen, arguments.metric or ())
        check_ranks(head, chosen, arguments.rank or ())
        if for_tensorboard:
            return tensorboard_export.export(head, chosen, arguments)
        path = f"/runs/{chosen['run']}/export"
        chunks = head.stream(
            path, format=arguments.format, metric=arguments.metric, rank=arguments.rank
        )
        export(chunks, arguments.output)
    return 0
