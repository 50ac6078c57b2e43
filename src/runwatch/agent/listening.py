"""Which TCP ports a process listens on, as the kernel lists them.

A process in another network namespace cannot be reached from here: it counts as having no ports.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runwatch.capture.process import as_its_user, link_at
from runwatch.journal.liveness import PROC

_LISTEN: Final = "0A"
_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Port:
    number: int
    address: str
    """host:port, by which this host reaches it."""
    anywhere: bool
    """Whether it listens on every interface."""


def ports_of(pid: int, *, proc: Path = PROC) -> list[Port]:
    if not same_namespace(pid, "net", proc=proc):
        return []
    own = set(_inodes(pid, proc))
    ports = (port for inode, port in _listening(pid, proc) if inode in own)
    return sorted(dict.fromkeys(ports), key=lambda port: port.number)


def owners_of(number: int, *, proc: Path = PROC) -> list[int]:
    """The processes, of those we may see, that listen on this port of our network namespace."""
    inodes = {inode for inode, port in _listening("self", proc) if port.number == number}
    if not inodes:
        return []
    pids = [int(name) for name in os.listdir(proc) if name.isdigit()]
    return sorted(pid for pid in pids if inodes & set(_inodes(pid, proc)))


def same_namespace(pid: int, kind: str, *, proc: Path = PROC) -> bool:
    """Whether it is in ours.  Also True where the kernel does not tell: most processes are."""
    try:
        with as_its_user(pid, proc=proc):
            theirs = os.stat(proc / str(pid) / "ns" / kind)
        ours = os.stat(proc / "self" / "ns" / kind)
    except OSError:
        return True
    return theirs.st_ino == ours.st_ino


def _inodes(pid: int, proc: Path) -> Iterator[int]:
    folder = proc / str(pid) / "fd"
    try:
        with as_its_user(pid, proc=proc):
            links = [link_at(folder / name) for name in os.listdir(folder)]
    except OSError:
        return
    yield from (int(match[1]) for link in links if (match := _SOCKET.fullmatch(link)))


def _listening(pid: int | str, proc: Path) -> Iterator[tuple[int, Port]]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / str(pid) / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if len(words) > 9 and words[3] == _LISTEN:
                yield int(words[9]), _port(words[1])


def _port(text: str) -> Port:
    host, _, port = text.partition(":")
    raw = struct.pack(f"={len(host) // 8}I", *struct.unpack(f">{len(host) // 8}I", _bytes(host)))
    number = int(port, 16)
    if not any(raw):
        return Port(number, f"127.0.0.1:{number}", True)
    name = socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
    return Port(number, f"[{name}]:{number}" if ":" in name else f"{name}:{number}", False)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text)
