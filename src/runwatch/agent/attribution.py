"""Which run and rank a device belongs to: those of the processes that hold it.

1. The driver names the processes that have a device open.  If one of them is a process of a run,
   or its descendant, the device belongs to that run.
2. Some drivers name no process.  In a container a driver may name none, or name the host's pids,
   which mean nothing there.  Then the environment of each process that has such a device open
   counts: the process holds all devices that it may see if it is its run's only one here, else
   the device of its local rank.

A device that two runs hold, or a run and a stranger, belongs to the host.  Changes that a program
makes to its own environment after its start (os.environ) are not seen.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from runwatch.agent.collectors.base import NOBODY, Held, Owner, Target, Targets
from runwatch.capture.process import as_its_user
from runwatch.journal.liveness import PROC

PROCESS: Final = "process"
TREE: Final = "process tree"
ENVIRONMENT: Final = "environment"
_GENERATIONS: Final = 16
# The kernel's number for the outermost PID namespace.
_FIRST_NAMESPACE: Final = "pid:[4026531836]"
# Daemons that hold every device open for others, and compute nothing themselves.
_SERVANTS: Final = ("nvidia-cuda-mps", "nvidia-persiste", "dcgm", "nv-hostengine")
_LOCAL_RANK: Final = (
    "LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
)  # fmt: skip
_LOCAL_SIZE: Final = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


class Match(NamedTuple):
    target: Target
    how: str


class Attribution:
    """Collectors tell which pids hold a device; `targets` who is alive.  Any thread may ask."""

    def __init__(
        self,
        targets: Targets,
        *,
        changed: Callable[[Held, Owner], None] = lambda held, owner: None,
        proc: Path = PROC,
    ) -> None:
        self._targets = targets
        self._changed = changed
        self._proc = proc
        self._lock = threading.Lock()
        self._held: dict[str, list[Held]] = {}
        self._owners: dict[str, Owner] = {}
        self._by_pid: dict[int, Match | None] = {}
        self._seen: frozenset[tuple[int, int]] = frozenset()
        self._wishes: dict[tuple[tuple[int, int], tuple[str, ...]], _Wish] = {}

    def of(self, device: str) -> Owner:
        return self._owners.get(device, NOBODY)

    def of_process(self, pid: int) -> Owner | None:
        with self._lock:
            match = self._match(pid, list(self._targets()))
        return None if match is None else Owner(match.target.scope, match.target.labels, match.how)

    def tell(self, source: str, held: Iterable[Held]) -> None:
        with self._lock:
            self._held[source] = list(held)
            self._decide()

    def refresh(self) -> None:
        """Decide anew if processes came or went: the driver may notice the end of an owner late."""
        with self._lock:
            if self._alive() != self._seen:
                self._decide()

    # ── deciding ──────────────────────────────────────────────────────────────────────────────

    def _alive(self) -> frozenset[tuple[int, int]]:
        return frozenset((target.pid, target.start_ticks) for target in self._targets())

    def _decide(self) -> None:
        targets = list(self._targets())
        alive = self._alive()
        if alive != self._seen:
            self._seen = alive
            self._by_pid.clear()
            self._wishes = {key: wish for key, wish in self._wishes.items() if key[0] in alive}
        devices = [held for several in self._held.values() for held in several]
        numbers = {pid for held in devices for pid in held.pids or ()}
        self._by_pid = {pid: match for pid, match in self._by_pid.items() if pid in numbers}
        owners = {held.device: self._owner(held, devices, targets) for held in devices}
        before, self._owners = (
            self._owners,
            {device: self._same(device, owner) for device, owner in owners.items()},
        )
        for held in devices:
            owner = self._owners[held.device]
            if owner is not before.get(held.device, NOBODY):
                self._changed(held, owner)

    def _same(self, device: str, owner: Owner) -> Owner:
        known = self._owners.get(device, NOBODY)
        return known if known == owner else owner

    def _owner(self, held: Held, devices: Sequence[Held], targets: Sequence[Target]) -> Owner:
        sees_all = self._sees_every_process()
        matches = [] if held.pids is None else self._matches(held, targets, sees_all)
        if sees_all and any(self._is_stranger(pid, targets) for pid in held.pids or ()):
            return NOBODY
        if not matches and (held.pids is None or not sees_all):
            matches = self._by_environment(held, devices, targets)
        return _joint(matches) if len({match.target.run for match in matches}) == 1 else NOBODY

    def _matches(self, held: Held, targets: Sequence[Target], sees_all: bool) -> list[Match]:
        candidates = (self._match(pid, targets) for pid in held.pids or ())
        # In a container the host's pid for a stranger may by chance be one of ours.
        return [
            match
            for match in candidates
            if match is not None
            and (sees_all or self._has_open(match.target.pid, held.nodes) is not False)
        ]

    def _is_stranger(self, pid: int, targets: Sequence[Target]) -> bool:
        if self._match(pid, targets) is not None or not (self._proc / str(pid)).exists():
            return False
        return not self._status(pid).get("Name", "").startswith(_SERVANTS)

    # ── by process ────────────────────────────────────────────────────────────────────────────

    def _match(self, pid: int, targets: Sequence[Target]) -> Match | None:
        if pid not in self._by_pid:
            self._by_pid[pid] = self._find(pid, targets)
        return self._by_pid[pid]

    def _find(self, pid: int, targets: Sequence[Target]) -> Match | None:
        by_pid = {target.pid: target for target in targets}
        how, at = PROCESS, pid
        for _ in range(_GENERATIONS):
            target = by_pid.get(at)
            if target is not None:
                return Match(target, how)
            at, how = self._parent(at), TREE
            if at <= 1:
                return None
        return None

    def _parent(self, pid: int) -> int:
        text = self._status(pid).get("PPid", "0")
        return int(text) if text.isdigit() else 0

    def _status(self, pid: int) -> dict[str, str]:
        try:
            lines = (self._proc / str(pid) / "status").read_text(errors="replace").splitlines()
        except OSError:
            return {}
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def _sees_every_process(self) -> bool:
        try:
            return os.readlink(self._proc / "self/ns/pid") == _FIRST_NAMESPACE
        except OSError:
            return True

    def _has_open(self, pid: int, nodes: tuple[str, ...]) -> bool | None:
        """None when the process's files cannot be read."""
        folder = self._proc / str(pid) / "fd"
        try:
            with as_its_user(pid, proc=self._proc):
                files = [os.readlink(folder / number) for number in os.listdir(folder)]
        except OSError:
            return None
        return any(file.startswith(nodes) for file in files)

    # ── by environment ────────────────────────────────────────────────────────────────────────

    def _by_environment(
        self, held: Held, devices: Sequence[Held], targets: Sequence[Target]
    ) -> list[Match]:
        like = [each for each in devices if each.nodes == held.nodes]
        users = [t for t in targets if not held.nodes or self._has_open(t.pid, held.nodes)]
        here = Counter(target.run for target in users)
        matches = []
        for target in users:
            wish = self._wish(target, held.variables)
            if held.device in wish.devices(like, here[target.run]):
                matches.append(Match(target, ENVIRONMENT))
        return matches

    def _wish(self, target: Target, variables: tuple[str, ...]) -> _Wish:
        key = (target.pid, target.start_ticks)
        if (key, variables) not in self._wishes:
            environment = environment_of(target.pid, proc=self._proc)
            self._wishes[key, variables] = _wish_in(environment, variables)
        return self._wishes[key, variables]


class _Wish(NamedTuple):
    """What a process's environment says about the devices it uses."""

    visible: tuple[str, ...] | None
    """Device numbers, uuids or beginnings of uuids; None: all devices."""
    local_rank: int | None
    local_size: int | None

    def devices(self, there_are: Sequence[Held], processes: int) -> list[str]:
        """`processes`: how many of the run use such devices here.  `local_size` goes first."""
        ordered = sorted(there_are, key=lambda held: held.number)
        if self.visible is not None:
            ordered = [held for word in self.visible for held in ordered if _names(word, held)]
        names = [held.device for held in ordered]
        if self.local_rank is None or len(names) < 2 or (self.local_size or processes) == 1:
            return names
        return names[self.local_rank : self.local_rank + 1]


def _names(word: str, held: Held) -> bool:
    return held.number == int(word) if word.isdigit() else held.uuid.startswith(word)


def _wish_in(environment: Mapping[str, str] | None, variables: tuple[str, ...]) -> _Wish:
    if environment is None:
        return _Wish((), None, None)  # not ours to read: do not guess
    words = next((environment[name] for name in variables if name in environment), None)
    visible = None
    if words is not None:
        visible = tuple(word.strip() for word in words.split(",") if word.strip())
    return _Wish(visible, _first(environment, _LOCAL_RANK), _first(environment, _LOCAL_SIZE))


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    texts = (environment.get(name, "") for name in names)
    return next((int(text) for text in texts if text.isascii() and text.isdigit()), None)


def environment_of(pid: int, *, proc: Path = PROC) -> Mapping[str, str] | None:
    """The environment a process began with; None if the agent may not read it."""
    try:
        with as_its_user(pid, proc=proc):
            data = (proc / str(pid) / "environ").read_bytes()
        pairs = data.decode(errors="replace").split("\0")
    except OSError:
        return None
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def _joint(matches: Sequence[Match]) -> Owner:
    """The lowest rank owns the device.  A label `ranks` names all ranks that hold it."""
    targets = sorted({m.target.pid: m.target for m in matches}.values(), key=_rank)
    first = targets[0]
    labels = dict(first.labels)
    ranks = list(dict.fromkeys(target.labels.get("rank", "") for target in targets))
    if len(ranks) > 1:
        labels["ranks"] = ",".join(ranks)
    if len(targets) > 1:
        labels.pop("pid", None)
    how = next(m.how for m in matches if m.target.pid == first.pid)
    return Owner(first.scope, labels, how)


def _rank(target: Target) -> tuple[int, int]:
    text = target.labels.get("rank", "")
    return (int(text) if text.isdigit() else 0, target.pid)
