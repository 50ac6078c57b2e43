"""Stacks of a run for the terminal: ranks at the same line together, the odd one first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from runwatch.cli.pictures import tables
from runwatch.cli.stacks_pid import print_threads
from runwatch.record.stacks import Frame, Stacks
from runwatch.views.diagnosis.frames import is_library
from runwatch.views.diagnosis.progress import ranks_in_words

CONFIDENCE: Final = {"certain": "bold red", "likely": "bold yellow"}
OPEN: Final = {"note": "blue", "warning": "bold yellow", "incident": "bold red"}
"""The style of an open incident, by its severity."""
NOBODY: Final = (
    "no agent sees its processes: one in a container of its own (a sidecar) sees no other's; "
    "the agent of the node does"
)
LINES: Final = 4
"""The most lines of the user's code that are shown for a group."""

Answer = Mapping[str, Any]


def print_stacks(answer: Answer, console: Console, *, full: bool, ranks: Sequence[int]) -> None:
    """Print the groups; with `full`, or for chosen `ranks`, every thread of every process."""
    if answer["text"] and not ranks:
        style = CONFIDENCE.get(answer["confidence"], "") if answer["ranks"] else ""
        console.print(Text(tables.local_times(answer["text"]), style=style))
    if not full and not ranks:
        for group in answer["groups"]:
            _print_group(group, group["ranks"] == answer["ranks"], console)
    else:
        for process in newest(answer["processes"]):
            _print_process(process, console)
    for host, why in sorted(answer["unreachable"].items()):
        console.print(Text(f"\nhost {host}: {why}", style="yellow"))
    for host in answer["waiting_for"]:
        console.print(Text(f"\nhost {host} has not answered yet", style="yellow"))
    if not (answer["groups"] or answer["unreachable"] or answer["waiting_for"]):
        console.print(Text(NOBODY, style="yellow"))


def print_incident(incident: Answer, console: Console) -> None:
    """Print what happened, in a few lines."""
    mark, style = ("■", OPEN[loudness(incident)]) if incident["state"] == "open" else ("□", "blue")
    what = "stands still" if incident["state"] == "open" else "stood still"
    if incident["kind"] == "crash":
        what = "went down"
    elif loudness(incident) == "note":
        mark, what = "·", "takes no step" if incident["state"] == "open" else "took no step"
    line = Text.assemble((f"{mark} {what} ", style), f"since {tables.time(incident['since_ns'])}")
    if incident["state"] == "closed" and incident["closed_ns"]:
        line.append(f" until {tables.time(incident['closed_ns'])}")
    line.append(f" {tables.zone()}")
    severity = loudness(incident).replace("incident", "alarm")  # an incident is the whole case
    facts = f"{incident['id']}  {severity}  {incident['confidence']}"
    line.append(f"  {facts}", style="dim")
    console.print(line)
    console.print(Padding(Text(tables.local_times(incident["text"])), (0, 0, 0, 2)))
    if incident["why"]:
        why = tables.local_times(incident["why"])
        console.print(Padding(Text(f"closed: {why}", style="dim"), (0, 0, 0, 2)))


def loudness(incident: Answer) -> str:
    """An older head has no severities: it reported only the highest."""
    return str(incident.get("severity", "incident"))


def print_report(report: Answer, blamed: Sequence[int], console: Console) -> None:
    for group in report.get("groups", ()):
        _print_group(group, set(group["ranks"]) <= set(blamed), console)
    for sentence in report.get("evidence", ()):
        console.print(Text(f"· {sentence}", style="dim"))
    if look := report.get("look_at", ()):
        console.print(Text(f"look at: {'; '.join(look)}", style="dim"))


def _print_group(group: Answer, is_odd: bool, console: Console) -> None:
    count = len(group["ranks"])
    name = ranks_in_words(group["ranks"])
    text = tables.local_times(group["text"]).removeprefix(name).strip()
    console.print()
    title = Text.assemble((name, "bold red" if is_odd else "bold"))
    if count > 1:
        title.append(f" · {count} ranks", style="dim")
    console.print(title.append(f": {text}"))
    for line in _lines(group["frames"]):
        console.print(Padding(line, (0, 0, 0, 3)))


def _lines(frames: Sequence[Answer]) -> list[Text]:
    """The frames of the user's own code, innermost first."""
    typed = [Frame(f["function"], f["file"], f["line"], bool(f.get("native"))) for f in frames]
    users = [frame for frame in typed if not frame.native and not is_library(frame)]
    shown = [Text.assemble((f.place, "cyan"), f"  {f.function}") for f in users[:LINES]]
    if len(users) > LINES:
        shown.append(Text(f"… {len(users) - LINES} more (--full)", style="dim"))
    return shown


def _print_process(process: Answer, console: Console) -> None:
    stacks = Stacks.of(process)
    title = Text.assemble(("\nrank ", "bold"), (str(stacks.rank), "bold cyan"))
    if stacks.child_of:
        title.append(f"  child process {stacks.pid} of {stacks.child_of}")
    else:
        title.append(f"  {stacks.host} pid {stacks.pid}")
    title.append(f"  {stacks.how} at {tables.time(stacks.time_ns)}", style="dim")
    if stacks.fault:
        title.append(f"  {stacks.fault}", style="bold red")
    console.print(title)
    print_threads(stacks.threads, console)
    for problem in stacks.problems:
        console.print(Text(problem, style="yellow"))


def newest(processes: Sequence[Answer]) -> list[Answer]:
    """The newest stacks of each process that have threads."""
    latest: dict[tuple[int, int], Answer] = {}
    for process in processes:
        key = process["rank"], process["pid"]
        before = latest.get(key)
        if before is None or process["threads"] or not before["threads"]:
            latest[key] = process
    return list(latest.values())
