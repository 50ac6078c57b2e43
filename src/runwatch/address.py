"""Where a head can be reached, and by what token: it leaves a note in its directory.

Who only asks reads the note here, and need not import all that a head is made of.  The note is for
its user alone (0600): whoever may read it may use that head.  If the directory is not the one that
the user's programs look at by themselves, they find a copy there, by the port (`.heads/8090.json`).
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from runwatch.errors import UsageError
from runwatch.files import FULL, Folder, private
from runwatch.peers import is_loopback, may_know
from runwatch.settings import runwatch_dir

ADDRESS_FILE: Final = "head.json"
HEADS: Final = ".heads"
_HERE: Final = "here"
_PORTS: Final = {"http": 80, "https": 443, "grpc": 8090, "grpcs": 8090}
logger = logging.getLogger("runwatch.head")


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a head can be reached."""

    http: str
    """Empty when it has no page."""
    grpc: str
    """Empty when it takes no agents."""
    token: str
    pid: int
    host: str = ""
    """Where it runs; empty: an older head did not say."""
    since_ns: int = 0
    """When it began to listen, wall clock; 0: not said."""

    @property
    def link(self) -> str:
        return f"{self.http}/?token={self.token}" if self.token and self.http else self.http


def read_address(root: Path) -> Listening | None:
    """The head that said it serves this directory, if one did; it may be gone."""
    found = _note(root)
    return found[0] if found is not None else None


def read_quietly(root: Path) -> tuple[Listening, int] | None:
    """The same, and whose word that is, for who must not change anything (`_note`)."""
    return _note(root, quietly=True)


def token_for(address: str, root: Path, given: str = "", *, quietly: bool = False) -> str:
    """The token for a head at this address: what was given, or what it left for us in `root`.

    Asked anew for each connection: the head may have been started after us.
    """
    place = _place(address)
    if given or place is None:
        return given
    for folder, name in _looked_at(root, place[1]):
        found = _note(folder, name, quietly=quietly)
        if found is None:
            continue
        note, owner = found
        if place not in (_place(note.http), _place(note.grpc)):
            continue
        if place[0] != _HERE or may_know(place[1], owner):
            return note.token
    return ""


def is_same_place(one: str, other: str) -> bool:
    """Whether two addresses are of the same host and port; this machine has many names."""
    return one == other or _place(one) == _place(other) is not None


def _looked_at(root: Path, port: int) -> Iterator[tuple[Path, str]]:
    yield root, ADDRESS_FILE
    for own in dict.fromkeys((runwatch_dir(), runwatch_dir({}))):
        yield own, ADDRESS_FILE
        yield own / HEADS, _name(port)


def leave_note(root: Path, at: Listening) -> bool:
    """False if it is to be tried again, when the disk has room."""
    said = json.dumps(asdict(at)).encode()
    is_full = False
    for folder, name in _places(root, at):
        try:
            with Folder.at(private(folder) if folder != root else root) as kept:
                kept.write(name, said)
        except OSError as error:
            if error.errno in FULL:
                is_full = True
            else:  # in a directory of all somebody else's may lie there
                logger.warning("programs do not find this head by %s: %s", folder / name, error)
    return not is_full


def take_note_back(root: Path, at: Listening) -> None:
    for folder, name in _places(root, at):
        found = _note(folder, name)
        if found is not None and found[0].pid == at.pid:
            (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # others are still in it, or it was never made
        (runwatch_dir() / HEADS).rmdir()


def _places(root: Path, at: Listening) -> Iterator[tuple[Path, str]]:
    """Where a note of this head lies."""
    if root.is_dir() and os.access(root, os.W_OK):
        yield root, ADDRESS_FILE
    own = runwatch_dir()
    if own.exists() and root.exists() and own.samefile(root):
        return
    for place in (_place(at.http), _place(at.grpc)):
        if place is not None:
            yield own / HEADS, _name(place[1])


def _name(port: int) -> str:
    return f"{port}.json"


def _note(
    root: Path, name: str = ADDRESS_FILE, *, quietly: bool = False
) -> tuple[Listening, int] | None:
    """And whose it is.  `quietly`: no file is made to learn whom the file system makes owners."""
    try:
        with Folder.at(root) as folder:  # by another's we would tell him our token
            trusted = folder.known() if quietly else folder.trusted()
            fd = folder.open(name, owners=trusted)
            owner = os.fstat(fd).st_uid
            os.close(fd)
            text = folder.text(name, owners=(owner,))
        fields: dict[str, Any] = json.loads(text)
        known = {name: fields[name] for name in ("http", "grpc", "token", "pid")}
        more = {name: fields[name] for name in ("host", "since_ns") if name in fields}
        return Listening(**known, **more), owner
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _place(address: str) -> tuple[str, int] | None:
    """Host and port; this machine has one name."""
    try:
        parts = urlsplit(address if "://" in address else f"grpc://{address}")
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    if not host:
        return None
    is_here = is_loopback(host) or host == socket.gethostname().lower()
    return (_HERE if is_here else host), port


def http_address(text: str) -> str:
    """The address of a head's page, from what people have at hand.

    RUNWATCH_HEAD may be the port that agents connect to; the page is one port further.
    """
    parts = urlsplit(text if "://" in text else f"grpc://{text}")
    if parts.scheme in ("http", "https"):
        return text.rstrip("/")
    if parts.scheme not in ("grpc", "grpcs") or not parts.hostname:
        raise UsageError(f"not an address of a head: {text!r} (try http://host:8091)")
    scheme = "https" if parts.scheme == "grpcs" else "http"
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{scheme}://{host}:{(parts.port or 8090) + 1}"
