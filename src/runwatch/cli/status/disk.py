"""`runwatch status`: the directory, its disk, and records that went elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from runwatch.cli.status.types import Problem, Section, many, size, user_name
from runwatch.journal.moved import fallback_place, moved_from

LITTLE_BYTES: Final = 256 << 20
"""Each process that records takes 8 MiB at once, and a node has many."""
FEW_FILES: Final = 1_000


def section(root: Path, *, journals_bytes: int, budget_bytes: int) -> Section:
    moved = moved_from(root)
    facts: dict[str, Any] = {
        "directory": str(root),
        "exists": os.path.lexists(root),
        "owner": None,
        "readable": False,
        "writable": False,
        "free_bytes": None,
        "total_bytes": None,
        "journals_bytes": journals_bytes,
        "budget_bytes": budget_bytes,
        "moved": None,
    }
    lines: list[str] = []
    problems = _place(root, facts, lines)
    _space(root, facts, lines, problems)
    if moved:
        place = fallback_place()
        facts["moved"] = {"directory": str(place), "journals": len(moved)}
        problems.append(
            Problem(
                f"{many(len(moved), 'process', 'processes')} could not record here and recorded in "
                f"{place} instead",
                "free space here; an agent of that directory sends those records: "
                f"`runwatch status --dir {place}`, `runwatch runs --dir {place}`",
            )
        )
    return Section("disk", facts, lines, problems)


def _place(root: Path, facts: dict[str, Any], lines: list[str]) -> list[Problem]:
    try:
        about = root.stat()
    except FileNotFoundError:
        lines.append(f"{root} does not exist yet: the first program that records makes it")
        return []
    except OSError as error:
        other = "name your own directory with --dir or RUNWATCH_DIR"
        return [Problem(f"{root} cannot be read: {error.strerror}", other)]
    facts["owner"] = owner = user_name(about.st_uid)
    if not root.is_dir():
        return [Problem(f"{root} is not a directory", "remove it, or name another with --dir")]
    facts["readable"] = os.access(root, os.R_OK | os.X_OK)
    facts["writable"] = os.access(root, os.W_OK | os.X_OK)
    if not facts["readable"]:
        return [
            Problem(
                f"{root} belongs to {owner}, and you may not read it: its content is unknown",
                "name your own directory with --dir or RUNWATCH_DIR, or ask its owner to look",
            )
        ]
    if not facts["writable"]:
        return [
            Problem(
                f"{root} belongs to {owner}, and you may not write it: your programs cannot record",
                "name your own directory with --dir or RUNWATCH_DIR, or ask its owner",
            )
        ]
    return []


def _space(root: Path, facts: dict[str, Any], lines: list[str], problems: list[Problem]) -> None:
    try:
        there = next(each for each in (root.absolute(), *root.absolute().parents) if each.is_dir())
        disk = os.statvfs(there)
    except OSError:
        return
    free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    facts["free_bytes"], facts["total_bytes"] = free, total
    share = f" ({100 * free / total:.0f} %)" if total else ""
    lines.append(f"{size(free)} free of {size(total)}{share}")
    if facts["readable"]:
        most = f" of at most {size(budget)}" if (budget := facts["budget_bytes"]) else ""
        lines[-1] += f"; journals take {size(facts['journals_bytes'])}{most}"
    if facts["exists"] and free < LITTLE_BYTES:
        problems.append(
            Problem(
                f"the disk of {root} is full, or nearly full: {size(free)} are free",
                "free space: a program that starts on a full disk records elsewhere, and one that "
                "runs drops its oldest records",
            )
        )
    elif facts["exists"] and disk.f_files and disk.f_favail < FEW_FILES:
        problems.append(
            Problem(
                f"the file system of {root} has room for only {disk.f_favail} more files",
                "remove files there: each journal is a folder with several files",
            )
        )
