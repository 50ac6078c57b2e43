"""List every accelerator of every node, one line each; those with trouble come first.

Troubles, the worst first: lost, unreadable or silent; an XID error; a thermal or hardware limit;
memory errors; a power cap; memory nearly full; idle while its run goes on.

example:
  runwatch devices
  runwatch devices --watch --run llama-7b
  runwatch devices --sort temperature --limit 10
  runwatch devices --metrics
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from runwatch.cli import source
from runwatch.cli.pictures import tables
from runwatch.cli.pictures.progress import no_progress
from runwatch.errors import HeadUnreachable
from runwatch.views.devices import ORDERS

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

REFRESH_SECONDS: Final = 1.0
_AROUND: Final = 6
"""Lines that are not devices: two on top, a gap, a heading, the rest, and the prompt."""


def arguments(parser: argparse.ArgumentParser) -> None:
    source.arguments(parser)
    parser.add_argument("--run", dest="run_name", metavar="RUN", help="only this run's devices")
    parser.add_argument("--host", action="append", help="only this host's devices; may be repeated")
    parser.add_argument(
        "--sort", choices=ORDERS, default="hurt", help="default: the worst trouble first"
    )
    parser.add_argument(
        "--limit", type=int, metavar="N", help="show at most N (default: what fits the screen)"
    )
    parser.add_argument(
        "--within",
        type=int,
        default=3600,
        metavar="SECONDS",
        help="only devices heard from in the last SECONDS (default 3600)",
    )
    parser.add_argument("--watch", action="store_true", help="keep showing; stop with Ctrl-C")
    parser.add_argument(
        "--metrics", action="store_true", help="list what is sampled of devices, and what it means"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(arguments: argparse.Namespace) -> int:
    with source.open_source(arguments) as head:
        if arguments.metrics:
            return _metrics(head, arguments)
        if arguments.json:
            tables.print_json(_ask(head, arguments, arguments.limit))
            return 0
        out = tables.console()
        if arguments.watch and sys.stdout.isatty():
            return _watch(head, arguments, out)
        out.print(_picture(head, arguments, out))
    return 0


def _metrics(head: source.Source, arguments: argparse.Namespace) -> int:
    answer = head.get("/devices/metrics")
    if arguments.json:
        tables.print_json(answer)
        return 0
    from rich.text import Text

    shown = tables.table("metric", "unit", "called", "what it means", fold="what it means")
    for metric in answer["metrics"]:
        shown.add_row(metric["name"], metric["unit"], metric["words"], Text(metric["meaning"]))
    tables.console().print(shown)
    return 0


def _watch(head: source.Source, arguments: argparse.Namespace, out: Console) -> int:
    from rich.live import Live

    from runwatch.cli.pictures.devices import unreachable

    picture = _picture(head, arguments, out)
    shown = Live(picture, console=out, auto_refresh=False, vertical_overflow="crop")
    try:
        with no_progress(), shown as live:
            while True:
                time.sleep(REFRESH_SECONDS)
                try:
                    head.refresh()
                    picture = _picture(head, arguments, out)
                    live.update(picture, refresh=True)
                except HeadUnreachable as error:  # a head that is restarted comes back
                    live.update(unreachable(picture, str(error)), refresh=True)
    except KeyboardInterrupt:
        return 0


def _picture(head: source.Source, arguments: argparse.Namespace, out: Console) -> RenderableType:
    from rich.text import Text

    from runwatch.cli.pictures.devices import devices

    limit = arguments.limit
    if limit is None and out.is_terminal:
        limit = max(3, out.height - _AROUND)
    answer = _ask(head, arguments, limit)
    if not answer["totals"]["devices"]:
        return Text(_nothing(head, arguments))
    return devices(answer, out.width)


def _ask(head: source.Source, arguments: argparse.Namespace, limit: int | None) -> Any:
    return head.get(
        "/devices",
        run=arguments.run_name,
        host=arguments.host,
        sort=arguments.sort,
        within=arguments.within,
        limit=limit,
    )


def _nothing(head: source.Source, arguments: argparse.Namespace) -> str:
    filters = [f"of run {arguments.run_name}"] if arguments.run_name else []
    filters += [f"on {', '.join(arguments.host)}"] if arguments.host else []
    of_these = " ".join(["", *filters])
    ago = tables.duration(arguments.within * 10**9)
    return (
        f"No accelerator{of_these} reported in the last {ago} (in {head.name}).\n"
        "An agent reports them. A run starts one unless RUNWATCH_AGENT is off; to start one on a "
        "node yourself:\n"
        "  runwatch agent --head http://HEAD:8090\n"
        "It needs the NVIDIA driver, AMD's amdsmi or libtpu on that node. To see devices that "
        "reported earlier: --within SECONDS."
    )
