"""Which user owns each end of a connection on this machine, as the kernel says.

A token that we found by ourselves is sent only to a listener that may know it: otherwise another
user could take the port of a head that is gone, and learn the token.  And only a program's own user
may end it on this machine.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

LISTENS: Final = "0A"
TABLES: Final = ("tcp", "tcp6")
_PROC: Final = Path("/proc/self/net")


class Socket(NamedTuple):
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    state: str
    uid: int
    inode: str = ""


def is_loopback(host: str) -> bool:
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return _plain(ipaddress.ip_address(name)).is_loopback
    except ValueError:
        return False


def user_at(address: str, port: int, *, tables: Path = _PROC) -> int | None:
    """The user who owns the end with this address; None: nobody on this machine, or unknown."""
    end = _end(address, port, tables)
    return None if end is None else end.uid


def process_at(address: str, port: int, *, proc: Path = Path("/proc")) -> int | None:
    """The only process that has the end with this address open, as far as we may look."""
    end = _end(address, port, proc / "self/net")
    if end is None or not end.inode.strip("0"):
        return None
    named, folders = f"socket:[{end.inode}]", (f for f in proc.iterdir() if f.name.isdigit())
    found = [int(folder.name) for folder in folders if _has_open(folder / "fd", named)]
    return found[0] if len(found) == 1 else None


def _has_open(descriptors: Path, named: str) -> bool:
    try:
        with os.scandir(descriptors) as entries:
            return any(os.readlink(entry.path) == named for entry in entries)
    except OSError:  # it has ended, or is another user's
        return False


def _end(address: str, port: int, tables: Path) -> Socket | None:
    """The end of a connection on this machine."""
    try:
        own_end = _plain(ipaddress.ip_address(address.strip("[]")))
    except ValueError:
        return None
    if not own_end.is_loopback:
        return None
    ends = (s for s in _sockets(tables, port) if s.state != LISTENS)
    return next((s for s in ends if s.address == own_end), None)


def listeners(port: int, *, tables: Path = _PROC) -> frozenset[int]:
    """Users who listen at this port on a loopback address or on all addresses."""
    sockets = (s for s in _sockets(tables, port) if s.state == LISTENS)
    return frozenset(s.uid for s in sockets if s.address.is_loopback or s.address.is_unspecified)


def may_know(port: int, owner: int, *, tables: Path = _PROC) -> bool:
    """Whether everybody who listens at this port here is us, root, or the secret's owner."""
    return listeners(port, tables=tables) <= {os.geteuid(), 0, owner}


def _sockets(tables: Path, port: int) -> Iterator[Socket]:
    """Those with this port at their own end."""
    wanted = f":{port:04X}"
    for name in TABLES:
        try:
            lines = (tables / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if not fields[1].endswith(wanted):
                continue
            address, uid, inode = fields[1].partition(":")[0], int(fields[7]), fields[9]
            yield Socket(_address(address), fields[3], uid, inode)


def _address(digits: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Words of four bytes, each in this machine's byte order."""
    raw = bytes.fromhex(digits)
    words = [raw[at : at + 4][::-1] for at in range(0, len(raw), 4)]
    return _plain(ipaddress.ip_address(b"".join(words)))


def _plain(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped if mapped is not None else address
