"""A Dockerfile, read: its stages with their instructions, and its steps in a root of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple


class Step(NamedTuple):
    word: str
    """FROM, RUN, COPY …"""
    rest: str

    @property
    def words(self) -> list[str]:
        """Of the form with brackets, too."""
        found: list[str] = json.loads(self.rest) if self.rest.startswith("[") else self.rest.split()
        return found


@dataclass
class Stage:
    base: str
    name: str
    steps: list[Step] = field(default_factory=list)

    def of(self, word: str) -> list[Step]:
        return [step for step in self.steps if step.word == word]

    @property
    def environment(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for step in self.of("ENV") for pair in step.rest.split())


@dataclass
class Dockerfile:
    arguments: dict[str, str | None]
    """Before the first stage, with their defaults."""
    stages: list[Stage]


def read(text: str) -> Dockerfile:
    lines = [line for line in text.splitlines() if not re.match(r"\s*#", line)]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    found = Dockerfile({}, [])
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        step = Step(word, re.sub(r"  +", " ", rest.strip()))
        if word == "FROM":
            base, _, name = step.rest.partition(" AS ")
            found.stages.append(Stage(base, name))
        elif found.stages:
            found.stages[-1].steps.append(step)
        else:
            assert word == "ARG", line
            name, has_default, default = step.rest.partition("=")
            found.arguments[name] = default if has_default else None
    return found


# ── its steps, without a daemon ───────────────────────────────────────────────────────────────

_LINKS: Final = ("bin", "lib", "lib64", "sbin")
# This machine's system, read-only, with our Python where the official image has it.
_MOUNTS: Final = """
set -e
for name in usr etc proc dev; do mkdir -p "$ROOT/$name"; done
mount --bind "$ROOT" "$ROOT"
mount --bind /usr "$ROOT/usr"; mount -o remount,bind,ro "$ROOT/usr"
mount --bind /etc "$ROOT/etc"; mount -o remount,bind,ro "$ROOT/etc"
mount --bind "$PYTHON" "$ROOT/usr/local"; mount -o remount,bind,ro "$ROOT/usr/local"
mount --rbind /dev "$ROOT/dev"; mount --rbind /proc "$ROOT/proc"
"""
_FROZEN: Final = """
mount -t tmpfs none "$ROOT/tmp"; chmod 1777 "$ROOT/tmp"; mount -o remount,bind,ro "$ROOT"
"""
_CHROOT: Final = """
exec /usr/sbin/chroot --userspec=$0 --groups= "$ROOT" sh -c 'cd $0 && exec "$@"' "$@"
"""


class Box:
    """A folder as the root of processes: what they change of the system is this folder's own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("opt", "tmp", "usr/share"):
            (root / name).mkdir(parents=True)
        (root / "tmp").chmod(0o1777)
        for name in _LINKS:
            if Path("/", name).is_symlink():
                (root / name).symlink_to(os.readlink(f"/{name}"))

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        place: str = "/",
        user: int = 0,
        read_only: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(command, place=place, user=user, read_only=read_only),
            env=self.environment(environment),
            capture_output=True,
            text=True,
            timeout=900,
        )

    def environment(self, its: Mapping[str, str]) -> dict[str, str]:
        # Python may look for its own library where it was built.
        ours = {"PYTHON": sys.base_prefix, "LD_LIBRARY_PATH": "/usr/local/lib"}
        return {**its, **ours, "ROOT": str(self.root)}

    def command(
        self, command: Sequence[str], *, place: str = "/", user: int = 0, read_only: bool = False
    ) -> list[str]:
        script = _MOUNTS + (_FROZEN if read_only else "") + _CHROOT
        return [
            "unshare", "--mount", "--propagation", "private",
            "sh", "-c", script, f"{user}:{user}", place, *command,
        ]  # fmt: skip


def copied(step: Step, context: Path, root: Path, place: str) -> None:
    """What COPY does, from the context."""
    *sources, target = step.words
    there = root / Path(place, target).relative_to("/")
    for source in sources:
        found = sorted(context.glob(source))
        assert found, f"COPY {source}: there is none"
        for path in found:
            to = there / path.name if target.endswith("/") else there
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)
