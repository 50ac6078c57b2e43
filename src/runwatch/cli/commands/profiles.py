"""List, show, open, export and delete profiles.

  runwatch profiles [RUN]                       list profiles, newest first
  runwatch profiles show RUN PROFILE            summarise its traces, without a viewer
  runwatch profiles open [RUN [PROFILE]]        print links to XProf and Perfetto
  runwatch profiles export RUN PROFILE OUT      copy its files to the directory OUT
  runwatch profiles delete RUN PROFILE          delete it and its files; asks first

example:
  runwatch profiles llama-70b
  runwatch profiles show llama-70b 2026_11_15_10_09_07
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, Final

from runwatch.cli import source
from runwatch.cli.checks import key_of
from runwatch.cli.output import check_output, write_file
from runwatch.cli.pictures import tables
from runwatch.cli.pictures.progress import progress
from runwatch.errors import NotFound, RunwatchError, UsageError
from runwatch.record.captures import checked_name

VERBS: Final = {
    "list": (0, 1), "show": (2, 2), "open": (0, 2), "export": (3, 3), "delete": (2, 2)
}  # fmt: skip
"""The least and the most words that each verb takes."""
PATIENCE_SECONDS: Final = 330.0
POLL_SECONDS: Final = 0.2


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="[VERB] [RUN] …", help="see above")
    source.arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.add_argument("--yes", action="store_true", help="delete without asking")
    parser.add_argument(
        "--force", action="store_true", help="replace files that exist when exporting"
    )


def run(arguments: argparse.Namespace) -> int:
    verb, words = _verb_and_words(arguments.words)
    if len(words) > 1:
        checked_name(words[1])
    with source.open_source(arguments) as head:
        if words:
            words[0] = key_of(head, words[0])
        return _DO[verb](head, words, arguments)


def _verb_and_words(words: list[str]) -> tuple[str, list[str]]:
    verb, rest = ("list", words) if not words or words[0] not in VERBS else (words[0], words[1:])
    least, most = VERBS[verb]
    if not least <= len(rest) <= most:
        takes = str(least) if least == most else f"{least} to {most}"
        raise UsageError(
            f"`profiles {verb}` takes {takes} names, not {len(rest)} (`runwatch profiles --help`)"
        )
    return verb, rest


# ── listing ───────────────────────────────────────────────────────────────────────────────────


def _profiles(head: source.Source, words: list[str]) -> list[dict[str, Any]]:
    answer = head.get(f"/runs/{words[0]}/profiles" if words else "/profiles")
    profiles: list[dict[str, Any]] = answer["profiles"]
    return profiles if len(words) < 2 else [p for p in profiles if p["session"] == words[1]]


def _list(head: source.Source, words: list[str], arguments: argparse.Namespace) -> int:
    profiles = _profiles(head, words)
    if arguments.json:
        tables.print_json({"profiles": profiles})
    elif not profiles:
        whose = f"of {words[0]}" if words else f"in {head.name}"
        print(f"no profiles {whose} yet (`runwatch capture RUN` makes one)")
    else:
        print_profiles(profiles)
    return 0


def print_profiles(profiles: list[dict[str, Any]]) -> None:
    shown = tables.table(
        "run", "profile", "when", "hosts", "ranks", "framework", "size", "steps", "state",
        right=("ranks", "size"), fold="framework", zone_of="when",
    )  # fmt: skip
    for profile in profiles:
        shown.add_row(
            profile["run_name"] or profile["run"],
            profile["session"],
            tables.time(profile["start_ns"]),
            _few(profile["hosts"]),
            str(len(profile["ranks"]) or ""),
            ", ".join(profile["frameworks"]) or _kinds(profile),
            size(profile["bytes"]),
            _steps(profile),
            tables.state(_STATES.get(profile["state"], profile["state"])),
        )
    out = tables.console()
    out.print(shown)
    for profile in profiles:
        if profile["why"]:
            out.print(f"{profile['session']}: {profile['why']}", style="dim", soft_wrap=True)


_STATES: Final = {"done": "completed", "partial": "partial"}


def _few(names: list[str]) -> str:
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + rest


def _kinds(profile: dict[str, Any]) -> str:
    return ", ".join(sorted({file["kind"] for file in profile["files"]} - {"other"}))


def _steps(profile: dict[str, Any]) -> str:
    first, last = profile["first_step"], profile["last_step"]
    if first is None:
        return ""
    return f"{first:,}" if last in (None, first) else f"{first:,}–{last:,}"


def size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"


# ── one profile ───────────────────────────────────────────────────────────────────────────────


def _show(head: source.Source, words: list[str], arguments: argparse.Namespace) -> int:
    answer = with_summary(head, words)
    if arguments.json:
        tables.print_json(answer)
        return 0
    print_profiles([answer])
    for file in answer["files"]:
        print(f"  {file['name']}  {size(file['bytes'])}")
    if answer["summary_state"] != "done":
        print(f"no summary: {answer['summary_why'] or 'the profile has no trace'}")
        return 0 if answer["summary_state"] == "none" else 1
    _print_summary(answer["summary"])
    if answer["summary_why"]:
        print(f"left out: {answer['summary_why']}")
    return 0


def with_summary(head: source.Source, words: list[str]) -> dict[str, Any]:
    path = f"/profiles/{words[0]}/{words[1]}"
    deadline = time.monotonic() + PATIENCE_SECONDS
    with progress("reading its traces", "polls") as step:
        while True:
            answer: dict[str, Any] = head.get(path)
            if answer["summary_state"] != "waiting" or time.monotonic() > deadline:
                return answer
            step(1)
            time.sleep(POLL_SECONDS)


def _print_summary(summary: dict[str, Any]) -> None:
    from runwatch.cli.pictures.traces import show_summary
    from runwatch.traces.summary import SessionSummary

    show_summary(SessionSummary.from_json(summary), tables.console())


def _open(head: source.Source, words: list[str], arguments: argparse.Namespace) -> int:
    if not head.name.startswith("http"):
        raise UsageError(
            f"no head serves {head.name} now: start one with `runwatch ui {head.name}`, then repeat"
        )
    links = {
        profile["session"]: [_link(head, address) for address in addresses(profile)]
        for profile in _profiles(head, words)
    }
    if arguments.json:
        tables.print_json(links)
        return 0
    print(f"all: {_link(head, 'viewers/')}")
    for session, found in links.items():
        for link in found:
            print(f"{session}: {link}")
    return 0


def addresses(profile: dict[str, Any]) -> list[str]:
    traces = [file["viewer"] for file in profile["files"] if file["kind"] == "trace"]
    return ([profile["xprof"]] if profile["xprof"] else []) + traces


def _link(head: source.Source, address: str) -> str:
    return f"{head.name}/{address}"


def _export(head: source.Source, words: list[str], arguments: argparse.Namespace) -> int:
    """Write OUT/plugins/profile/PROFILE/FILE, where XProf and `runwatch host` look."""
    run, session, out = words
    answer = head.get(f"/profiles/{run}/{session}")
    if not answer["files"]:
        raise NotFound(f"profile {session} has no file that {head.name} can read")
    folder = Path(out) / "plugins" / "profile" / session
    folder.mkdir(parents=True, exist_ok=True)
    for file in answer["files"]:
        name = _file_name(file["name"])
        check_output(folder / name, force=arguments.force)
        write_file(folder / name, head.stream(f"/profiles/{run}/{session}/files/{name}"))
    if arguments.json:
        tables.print_json({"directory": str(folder), "files": [f["name"] for f in answer["files"]]})
    else:
        print(f"Wrote {len(answer['files'])} files to {folder}")
    return 0


def _file_name(name: str) -> str:
    """Check the name: a strange head may answer anything."""
    if not name or name.startswith(".") or "/" in name or "\\" in name or not name.isprintable():
        raise RunwatchError(
            f"the head sent the file name {name[:80]!r}, which is not safe to write"
        )
    return name


def _delete(head: source.Source, words: list[str], arguments: argparse.Namespace) -> int:
    path = f"/profiles/{words[0]}/{words[1]}"
    profile = head.get(path)
    about = f"{len(profile['files'])} files, {size(profile['bytes'])}"
    if not arguments.yes and not agreed(f"Delete profile {words[1]} ({about})? [y/N] "):
        print("nothing was deleted", file=sys.stderr)
        return 1
    answer = head.delete(path, yes=1)
    if arguments.json:
        tables.print_json(answer)
    else:
        print(f"deleted profile {words[1]}: {about}")
    return 0


def agreed(question: str) -> bool:
    """Ask on the terminal; the end of input means no."""
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False


_DO: Final = {
    "list": _list, "show": _show, "open": _open, "export": _export, "delete": _delete
}  # fmt: skip
