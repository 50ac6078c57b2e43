"""Sessions: name a period of time now, and see what every device did in it later.

A session is only a name and a period of time: agents record all the time anyway.  So it costs
nothing and survives every restart.  A name may be used again; it then means the newest session of
that name, and an id means exactly one.

example:
  runwatch session start warmup
  runwatch session stop warmup
  runwatch session export warmup -o warmup.json
  runwatch session stat warmup --plot warmup.pdf
  runwatch session stat --data warmup.json
  runwatch session import ~/.cache/gswarm/metrics
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from runwatch.cli import source
from runwatch.cli.output import check_export, check_output, export, write_file
from runwatch.cli.pictures import tables
from runwatch.errors import UsageError
from runwatch.views.sessions import check_name


def arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, help in (
        ("start", "begin a session"),
        ("stop", "end a session"),
        ("resume", "continue a session that was stopped"),
        ("list", "list sessions, newest first"),
        ("export", "write a session's frames"),
        ("stat", "print what every device did in a session, and draw it"),
        ("import", "store samples that gswarm clients left on disk, as sessions"),
    ):
        command = verbs.add_parser(verb, help=help, description=help)
        if verb == "import":
            _import_arguments(command)
            continue
        if verb == "start":
            command.add_argument(
                "name", nargs="?", metavar="NAME", help="default: made from the time"
            )
        elif verb == "stat":
            _stat_arguments(command)
        elif verb != "list":
            command.add_argument("name", metavar="NAME", help="a session's name or id")
        if verb == "export":
            _export_arguments(command)
        else:
            command.add_argument("--json", action="store_true", help="print the answer as JSON")
        source.arguments(command)


def _import_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", type=Path, metavar="FILE|DIR",
        help="a .pkl file of gswarm 0.4, or a folder of them: ~/.cache/gswarm/metrics",
    )  # fmt: skip
    parser.add_argument(
        "--remove", action="store_true", help="remove the files once their samples are stored"
    )
    parser.add_argument("--dir", type=Path, help="a Runwatch directory (default $RUNWATCH_DIR)")
    parser.add_argument("--head", help="send them to this head instead: http://host:8090")
    parser.add_argument(
        "--json", action="store_true", help="print a report of what was stored, as JSON"
    )


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--format", choices=("json", "parquet"), default="json")
    how.add_argument(
        "--json", dest="format", action="store_const", const="json", help="as --format json"
    )
    parser.add_argument(
        "--compat",
        choices=("gswarm",),
        help="as gsprof 0.2.1 wrote: numbers are text, shares 0 to 1",
    )
    parser.add_argument("-o", "--output", type=Path, help="a file (default: standard output)")
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")


def _stat_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="a session's name or id")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FILE",
        help="instead of NAME, a file that `export` or gsprof wrote",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="OUT", help="draw it into this file: .pdf, .png or .svg"
    )
    parser.add_argument("--force", action="store_true", help="replace the drawing if it exists")


def run(arguments: argparse.Namespace) -> int:
    if arguments.verb == "stat":
        return _stat(arguments)
    if arguments.verb == "import":
        from runwatch.cli.session_import import run as imported

        return imported(arguments)
    with source.open_source(arguments) as head:
        if arguments.verb == "list":
            return _list(head, arguments)
        if arguments.verb == "export":
            return _export(head, arguments)
        return _change(head, arguments)


def _change(head: source.Source, arguments: argparse.Namespace) -> int:
    if arguments.verb == "start":
        body = {} if arguments.name is None else {"name": arguments.name}
        session, change = head.post("/sessions", body), "started"
    else:
        session = head.post(f"/sessions/{check_name(arguments.name)}/{arguments.verb}", {})
        change = "stopped" if arguments.verb == "stop" else "continues"
    if arguments.json:
        tables.print_json(session)
    else:
        print(f"session {session['name']} ({session['id']}) {change}")
        if arguments.verb == "stop" and session.get("missing_clients"):
            who = ", ".join(session["missing_clients"])
            print(f"records may still come of {who}: an export now is without them")
    return 0


def _list(head: source.Source, arguments: argparse.Namespace) -> int:
    answer = head.get("/sessions")
    if arguments.json:
        tables.print_json(answer)
    elif not answer["sessions"]:
        print(f"no sessions in {head.name} yet (`runwatch session start NAME` begins one)")
    else:
        print_sessions(answer["sessions"])
    return 0


def print_sessions(sessions: list[dict[str, Any]]) -> None:
    shown = tables.table(
        "session",
        "id",
        "state",
        "started",
        "took",
        "frames",
        right=("took", "frames"),
        zone_of="started",
    )
    for session in sessions:
        spans = [(s["start_ns"], s["end_ns"]) for s in session["stretches"]]
        took = sum(end - start for start, end in spans if end is not None)
        shown.add_row(
            session["name"],
            session["id"],
            tables.state("running" if session["active"] else "completed"),
            tables.time(session["started_ns"]),
            "" if session["active"] else tables.duration(took),
            f"{session['frames']:,}",
        )
    tables.console().print(shown)


def _export(head: source.Source, arguments: argparse.Namespace) -> int:
    check_export(arguments)
    chunks = head.stream(
        f"/sessions/{check_name(arguments.name)}/export",
        format=arguments.format,
        compat=arguments.compat,
    )
    export(chunks, arguments.output)
    return 0


def _stat(arguments: argparse.Namespace) -> int:
    data: Path | None = arguments.data
    if (data is None) == (arguments.name is None):
        raise UsageError("name either a session or a file (--data FILE)")
    if arguments.plot is not None:
        from runwatch.exports.figure import check_drawing

        check_drawing(arguments.plot)
        check_output(arguments.plot, force=arguments.force)
    if data is not None:
        return _print_figures(data, arguments)
    with tempfile.TemporaryDirectory(prefix="runwatch-") as place:
        data = Path(place) / "session.json"
        with source.open_source(arguments) as head:
            write_file(data, head.stream(f"/sessions/{check_name(arguments.name)}/export"))
        return _print_figures(data, arguments)


def _print_figures(data: Path, arguments: argparse.Namespace) -> int:
    from runwatch.exports.recorded import figures, load, summary

    recorded = load(data)
    if arguments.json:
        tables.print_json(figures(recorded))
    else:
        print(summary(recorded))
    if arguments.plot is not None:
        from runwatch.exports.figure import draw

        drawn = draw(recorded, arguments.plot)
        print(f"Wrote {drawn}", file=sys.stderr if arguments.json else sys.stdout)
    return 0
