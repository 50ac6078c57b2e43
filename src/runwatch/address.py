"""Where a head can be reached, and with which token: the head leaves a note in its directory.

Programs that only ask read the note here, and need not import the head.  Only its user may read the
note (0600): whoever can read it can use that head.  If the head's directory is not the one that the
user's programs look in by default, there is a copy there, by the port (`.heads/8090.json`).

A head has one address, that of its page: `http://head:8090`, `head`, `https://host/team/x`.  Agents
ask it where gRPC lives (`ship/finding.py`).  `grpc://head:8091` names that port itself.
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
from urllib.parse import parse_qs, urlsplit

from runwatch.errors import UsageError
from runwatch.files import FULL, Folder, private
from runwatch.peers import is_loopback, may_know
from runwatch.settings import runwatch_dir

ADDRESS_FILE: Final = "head.json"
HEADS: Final = ".heads"
_HERE: Final = "here"
HTTP_PORT: Final = 8090
GRPC_PORT: Final = 8091
_PORTS: Final = {"": HTTP_PORT, "http": 80, "https": 443, "grpc": GRPC_PORT, "grpcs": GRPC_PORT}
_DIRECT: Final = ("grpc", "grpcs")
"""Schemes that name the port of agents, not the page."""
logger = logging.getLogger("runwatch.head")


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a head can be reached."""

    http: str
    """Empty if it has no page."""
    grpc: str
    """Empty if it takes no agents."""
    token: str
    pid: int
    host: str = ""
    """The host it runs on; empty: an older head did not note it."""
    since_ns: int = 0
    """When it began to listen, wall clock; 0: not noted."""
    id: str = ""
    """Of its store (`head/own_id.py`); empty: it takes no records, or is older."""

    @property
    def link(self) -> str:
        return f"{self.http}/?token={self.token}" if self.token and self.http else self.http


@dataclass(frozen=True, slots=True)
class Address:
    """The port of a head that takes records: `grpc://host:port` or `grpcs://host:port`."""

    target: str
    tls: bool = False

    @classmethod
    def parse(cls, text: str, default_port: int = GRPC_PORT) -> Address:
        scheme, _, rest = text.rpartition("://")
        if scheme not in ("", "grpc", "grpcs", "http", "https") or not rest.strip("/"):
            raise UsageError(
                f"not an address of a head: {text!r} (try http://host:{HTTP_PORT}, or "
                f"grpc://host:{GRPC_PORT} for the port of agents)"
            )
        rest = rest.strip("/")
        host, colon, port = rest.rpartition(":")
        if not colon or (rest.startswith("[") and rest.endswith("]")):
            return cls(f"{rest}:{default_port}", scheme in ("grpcs", "https"))
        _check_port(text, port)
        return cls(f"{host}:{port}", scheme in ("grpcs", "https"))


def _check_port(text: str, port: str) -> None:
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"the address {text!r} has port {port!r}: use a number from 1 to 65535")


def read_address(root: Path) -> Listening | None:
    """The head whose note is in this directory, if any; it may be gone."""
    note = _note(root)
    return note[0] if note is not None else None


def read_quietly(root: Path) -> tuple[Listening, int] | None:
    """The same with the note's owner, for callers that must not change anything (`_note`)."""
    return _note(root, quietly=True)


def token_for(address: str, root: Path, given: str = "", *, quietly: bool = False) -> str:
    """The token for a head at this address: the given one, or one from the head's notes.

    Read again for each connection: the head may have been started after us.
    """
    place = _place(address)
    given = given or split_token(address)[1]
    if given or place is None:
        return given
    for folder, name in _looked_at(root, place[1]):
        note_and_owner = _note(folder, name, quietly=quietly)
        if note_and_owner is None:
            continue
        note, owner = note_and_owner
        if place not in (_place(note.http), _place(note.grpc)):
            continue
        if place[0] != _HERE or may_know(place[1], owner):
            return note.token
    return ""


def is_same_place(one: str, other: str) -> bool:
    """Whether two addresses mean the same host and port; this machine has many names."""
    return one == other or _place(one) == _place(other) is not None


def _looked_at(root: Path, port: int) -> Iterator[tuple[Path, str]]:
    yield root, ADDRESS_FILE
    for own in dict.fromkeys((runwatch_dir(), runwatch_dir({}))):
        yield own, ADDRESS_FILE
        yield own / HEADS, _name(port)


def here(root: Path) -> Iterator[Listening]:
    """The heads on this machine whose notes we find and trust; some may be gone."""
    for own in dict.fromkeys((root, runwatch_dir(), runwatch_dir({}))):
        if (note := _note(own, quietly=True)) is not None:
            yield note[0]
        with suppress(OSError):
            for name in sorted(os.listdir(own / HEADS)):
                if (note := _note(own / HEADS, name, quietly=True)) is not None:
                    yield note[0]


def leave_note(root: Path, at: Listening) -> bool:
    """False if the disk was full: try again later."""
    text = json.dumps(asdict(at)).encode()
    is_full = False
    for folder, name in _places(root, at):
        try:
            with Folder.at(private(folder) if folder != root else root) as notes:
                notes.write(name, text)
        except OSError as error:
            if error.errno in FULL:
                is_full = True
            else:  # in a shared directory another user's file may have the name
                logger.warning("programs cannot find this head by %s: %s", folder / name, error)
    return not is_full


def take_note_back(root: Path, at: Listening) -> None:
    for folder, name in _places(root, at):
        note = _note(folder, name)
        if note is not None and note[0].pid == at.pid:
            (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # it holds other notes, or was never created
        (runwatch_dir() / HEADS).rmdir()


def _places(root: Path, at: Listening) -> Iterator[tuple[Path, str]]:
    """The folders and names of this head's notes."""
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
    """The note and its owner.  `quietly`: do not create a file to find out which owner we get."""
    try:
        with Folder.at(root) as folder:  # with another user's note we would give away our token
            trusted = folder.known() if quietly else folder.trusted()
            fd = folder.open(name, owners=trusted)
            owner = os.fstat(fd).st_uid
            os.close(fd)
            text = folder.text(name, owners=(owner,))
        fields: dict[str, Any] = json.loads(text)
        required = {name: fields[name] for name in ("http", "grpc", "token", "pid")}
        more = {name: fields[name] for name in ("host", "since_ns", "id") if name in fields}
        return Listening(**required, **more), owner
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _place(address: str) -> tuple[str, int] | None:
    """Host and port; all names of this machine count as one."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    if not host:
        return None
    is_here = is_loopback(host) or host == socket.gethostname().lower()
    return (_HERE if is_here else host), port


def place_of(address: str) -> str:
    """A head's address in one spelling, to tell heads apart.  Two heads may share a port behind a
    proxy, so the path counts; all names of this machine are one."""
    place = _place(address)
    if place is None:
        return address
    path = urlsplit(address).path.rstrip("/") if "://" in address else ""
    is_direct = address.partition("://")[0] in _DIRECT
    return f"{'grpc://' if is_direct else ''}{place[0]}:{place[1]}{path}"


def is_same_head(one: str, other: str) -> bool:
    """Whether two addresses of heads are spellings of one."""
    return one == other or bool(one and other) and place_of(one) == place_of(other)


def split_token(head: str) -> tuple[str, str]:
    """The address without query and fragment, and the token in it: people copy the whole link."""
    if "?" not in head and "#" not in head:
        return head.strip(), ""
    bare = head.strip().partition("#")[0]
    bare, _, query = bare.partition("?")
    return bare.rstrip("/"), parse_qs(query).get("token", [""])[0]


def is_direct(address: str) -> bool:
    """Whether it names the port of agents itself."""
    return address.startswith(("grpc://", "grpcs://"))


def http_address(text: str) -> str:
    """The address of a head's page, which people open.

    For `grpc://` it is a guess: by default the page has the port before.  (It was the port after,
    and gRPC had 8090, before these two changed places.)
    """
    text, _ = split_token(text)
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.scheme not in ("http", "https", *_DIRECT) or not parts.hostname:
        raise UsageError(f"not an address of a head: {text!r} (try http://host:{HTTP_PORT})")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        _check_port(text, parts.netloc.rpartition(":")[2])
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if parts.scheme in _DIRECT:
        scheme = "https" if parts.scheme == "grpcs" else "http"
        port = HTTP_PORT + 1 if port == HTTP_PORT else (port or GRPC_PORT) - 1
        return f"{scheme}://{host}:{port}"
    if "://" not in text:
        return f"http://{host}:{port or HTTP_PORT}{parts.path.rstrip('/')}"
    return text.rstrip("/")


def beside(page: str) -> str:
    """Where the page is if `page` turns out to be the port of agents: that was 8090 once, and the
    page had the port after it.  Empty: nowhere."""
    parts = urlsplit(page)
    if parts.port is None or parts.port > 65534:
        return ""
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port + 1}{parts.path}"


def page_of(head: str, root: Path) -> str:
    """The same, but for a head on this machine by its note, which knows and does not guess."""
    if is_direct(head) and (place := _place(head)) is not None:
        for folder, name in _looked_at(root, place[1]):
            note = _note(folder, name, quietly=True)
            if note is not None and note[0].http and _place(note[0].grpc) == place:
                return note[0].http
    return http_address(head)
