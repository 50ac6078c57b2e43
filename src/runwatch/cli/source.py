"""Where a command gets its answers: a head over HTTP, or the directory's own store.

Both speak the head's HTTP API, so a number is the same everywhere.  The first that is there
answers: the head named by `--head`, RUNWATCH_HEAD or `head` in config.toml, as for programs and
agents; a head that already serves the directory; this process, which opens the directory and reads
its journals up to now.

What opens a directory is in `local_source.py`, and imported only then: it needs the whole head,
which takes many times as long as asking over HTTP.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote, urlencode

from runwatch.address import (
    ADDRESS_FILE,
    Listening,
    beside,
    page_of,
    read_address,
    split_token,
    token_for,
)
from runwatch.cli.pictures.progress import progress
from runwatch.errors import HeadUnreachable, NotFound, RunwatchError, StoreBusy, UsageError
from runwatch.settings import runwatch_dir, token_of
from runwatch.terminal import shown, shown_all

TIMEOUT_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 1.0
MUCH_BYTES: Final = 32 << 20
"""Half a million steps.  Storing less than this takes no longer than loading a page."""
CHUNK: Final = 1 << 16

Chunks = Iterator[bytes]


class Source(Protocol):
    name: str

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON of `/api/v1<path>`; raises NotFound or UsageError if the API refuses."""
        ...

    def stream(self, path: str, **parameters: Any) -> Iterator[bytes]: ...

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send `body`; the JSON of the answer."""
        ...

    def delete(self, path: str, **parameters: Any) -> Any: ...

    def refresh(self) -> None:
        """Read what was recorded since the last time."""
        ...

    def follow(self) -> None:
        """From now on, read new records in the background."""
        ...

    def close(self) -> None: ...


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, help="a Runwatch directory (default $RUNWATCH_DIR)")
    parser.add_argument("--head", help="ask this head: http://host:8090 (default $RUNWATCH_HEAD)")


@contextmanager
def open_source(arguments: argparse.Namespace, *, only_goodput: bool = False) -> Iterator[Source]:
    """`only_goodput`: only goodput will be asked, so large journals need not be stored first."""
    source = _choose(arguments, only_goodput)
    try:
        yield source
    finally:
        source.close()


def _choose(arguments: argparse.Namespace, only_goodput: bool) -> Source:
    raw = bool(getattr(arguments, "json", False))
    root = arguments.dir or runwatch_dir()
    if named := named_head(arguments):
        address = page_of(named.head, root)
        return RemoteSource(address, token_for(address, root, named.token), raw=raw, ca=named.ca)
    from runwatch.journal.moved import fallback_place, told_of

    if not os.path.isdir(root):
        other = fallback_place()
        there = f" (programs that could not record there used {other})" if other.is_dir() else ""
        raise NotFound(
            f"there is no Runwatch directory {root}{there}; name one with --dir, or record a run "
            "first: `runwatch exec -- COMMAND`"
        )
    check_open(root)
    if moved := told_of(root):
        print(f"runwatch: {shown(moved)}", file=sys.stderr)
    if (serving := head_of(root)) is not None:
        remote = RemoteSource(serving.http, token_for(serving.http, root), raw=raw)
        if not remote.is_away():
            return remote
    from runwatch.cli.local_source import LocalSource

    if only_goodput and is_bare(root):
        return LocalSource(root, bare=True, raw=raw)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return LocalSource(root, raw=raw)
        except StoreBusy as busy:
            serving = read_address(root)
            if serving is not None and not serving.http:
                raise HeadUnreachable(
                    f"the head of {root} has no HTTP port, so it cannot be asked; stop it, or "
                    "restart it with one"
                ) from busy
            if serving is not None:
                remote = RemoteSource(serving.http, token_for(serving.http, root), raw=raw)
                if not (why := remote.is_away()):
                    return remote
                print(_stale(root, serving, why, busy), file=sys.stderr)
                return LocalSource(root, in_memory=True, raw=raw)
            if time.monotonic() > deadline:
                # Another command holds the store: the journals can answer, too.
                print(f"runwatch: {busy.args[0].split(';')[0]}: reading journals", file=sys.stderr)
                return LocalSource(root, in_memory=True, raw=raw)
            time.sleep(0.05)


class NamedHead(NamedTuple):
    head: str
    token: str
    ca: str = ""


def named_head(arguments: argparse.Namespace) -> NamedHead | None:
    """The head that the command, the environment or the settings file names.  Who names a directory
    asks that."""
    head = arguments.head or ("" if arguments.dir else os.environ.get("RUNWATCH_HEAD", ""))
    if head:
        return NamedHead(head, token_of() or split_token(head)[1])
    if arguments.dir or not (runwatch_dir() / "config.toml").is_file():
        return None
    from runwatch.agent.settings import AgentSettings
    from runwatch.settings import load

    settings = load(AgentSettings, section="agent").values
    ca = "" if settings.ca is None else str(settings.ca)
    return NamedHead(settings.head, settings.token, ca) if settings.head else None


def head_of(root: Path, locks: Path = Path("/proc/locks")) -> Listening | None:
    """The head that has the store of this directory open now, as the kernel says.

    Its note alone does not say so: a head that was killed leaves it behind.  Where the kernel does
    not say it, trying to open the store does, which takes longer.
    """
    note = read_address(root)
    if note is None or not note.http:
        return None
    try:
        inode = os.stat(root / "store" / "lock").st_ino
        held = locks.read_text().splitlines()
    except OSError:
        return None
    # 1: FLOCK  ADVISORY  WRITE 4711 fe:00:5604869 0 EOF
    wanted = ("FLOCK", str(note.pid), str(inode))
    fields = (line.split() for line in held)
    found = ((f[1], f[4], f[5].rpartition(":")[2]) for f in fields if len(f) > 5)
    return note if wanted in found else None


def _stale(root: Path, note: Listening, why: str, busy: StoreBusy) -> str:
    """A head that was killed leaves its address file behind."""
    from runwatch.cli.pictures import moments

    when = f" since {moments.time(note.since_ns)}" if note.since_ns else ""
    where = f" on {note.host}" if note.host else ""
    return shown(
        f"runwatch: no answer from the head of {root}: {ADDRESS_FILE} says that process {note.pid}"
        f"{where} serves it at {note.http}{when}, but nobody answers there ({why}). Start it again "
        f"(`runwatch head --dir {root}`), or remove {root / ADDRESS_FILE} if it is gone for good. "
        f"{busy.args[0].split(';')[0]}: reading journals"
    )


def is_bare(root: Path) -> bool:
    """Whether the journals are large and none of them is stored yet."""
    if (root / "store").exists():
        return False
    journal_bytes = 0
    for segment in (root / "journals").glob("*/*.seg"):
        try:
            status = segment.stat()
        except FileNotFoundError:  # deleted meanwhile
            continue
        # A segment that is being written is sparse: its blocks count, not its length.
        journal_bytes += min(status.st_size, status.st_blocks * 512)
        if journal_bytes >= MUCH_BYTES:
            return True
    return False


def check_open(root: Path, *, may: Callable[[Path, int], bool] = os.access) -> None:
    """Refuse before anything is read: another user's directory is usually closed."""
    for folder in (root, root / "journals"):
        if os.path.exists(folder) and not may(folder, os.R_OK | os.X_OK):
            raise UsageError(
                f"you may not read {folder}; name another directory with --dir, or ask its owner "
                "for a link (`runwatch share`)"
            )


def _query(path: str, parameters: Mapping[str, Any]) -> str:
    present = {k: v for k, v in parameters.items() if v is not None}
    return f"/api/v1{quote(path)}" + (f"?{urlencode(present, doseq=True)}" if present else "")


def refused(status: int, body: bytes) -> RunwatchError:
    try:
        message = str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the head answered {status}"
    message = message.replace("/api/v1/profiles lists all", "`runwatch profiles` lists all")
    if status == 401:
        return UsageError(f"{message} (set RUNWATCH_TOKEN or RUNWATCH_TOKEN_FILE)")
    return NotFound(message) if status in (404, 409) else UsageError(message)


def _answer(chunks: Iterator[bytes], raw: bool) -> Any:
    """Users' texts may hold control characters that a terminal obeys: they are made visible.
    `raw`: the answer is printed as JSON, which escapes them anyway."""
    answer = json.loads(b"".join(chunks))
    return answer if raw else shown_all(answer)


class Listed(NamedTuple):
    """How the things of one kind are called."""

    word: str
    fields: tuple[str, ...]
    """What a person may call one by."""
    command: str
    all: Mapping[str, Any] = {}
    """Parameters of the list, so that it holds all of them."""


LISTS: Final = {
    "runs": Listed("run", ("name", "run"), "runwatch runs", {"limit": 10_000}),
    "sessions": Listed("session", ("name", "id"), "runwatch session list"),
    "deleted": Listed("deleted run", ("name", "run"), "runwatch restore"),
    "tokens": Listed("token", ("id",), "runwatch token list"),
    "shares": Listed("link", ("id",), "runwatch share --list"),
}
"""By their path, and by the field of its answer."""


class Named(NamedTuple):
    """What a question names."""

    list: str
    name: str


def named(path: str, given: Mapping[str, Any]) -> Named | None:
    _, first, *rest = path.split("/")
    if rest and first in LISTS:
        return Named(first, rest[0])
    run = rest[0] if rest and first == "profiles" else given.get("run")
    return Named("runs", run) if isinstance(run, str) else None


class Asking:
    """The part that both sources share: parameters in, JSON out."""

    name: str
    _raw: bool

    def get(self, path: str, **parameters: Any) -> Any:
        return self._answered(self.stream(path, **parameters))

    def stream(self, path: str, **parameters: Any) -> Iterator[bytes]:
        return self._found(self._ask(_query(path, parameters), None), named(path, parameters))

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        chunks = self._ask(_query(path, {}), json.dumps(body).encode())
        return self._answered(self._found(chunks, named(path, body)))

    def delete(self, path: str, **parameters: Any) -> Any:
        chunks = self._ask(_query(path, parameters), None, "DELETE")
        return self._answered(self._found(chunks, named(path, parameters)))

    def _answered(self, chunks: Iterator[bytes]) -> Any:
        with progress(f"asking {self.name}"):
            return _answer(chunks, self._raw)

    def _found(self, chunks: Iterator[bytes], asked: Named | None) -> Iterator[bytes]:
        try:
            yield from chunks
        except NotFound as error:
            if asked is None or (why := self._missing(asked)) is None:
                raise
            raise NotFound(why) from error

    def _missing(self, asked: Named) -> str | None:
        """What to say if there is nothing of this name; None if something else was not found."""
        about = LISTS[asked.list]
        try:
            answer = _answer(self._ask(_query(f"/{asked.list}", about.all), None), self._raw)
        except RunwatchError:  # who may ask for one run need not be allowed to list all
            return None
        names = {str(each[field]) for each in answer[asked.list] for field in about.fields}
        if asked.name in names:
            return None
        from runwatch.cli.guesses import meant

        guess = meant(asked.name, names)
        return (
            f"there is no {about.word} {asked.name[:80]!r} in {self.name}{guess or ';'} "
            f"`{about.command}` lists all"
        )

    def _ask(self, target: str, body: bytes | None, method: str = "") -> Iterator[bytes]:
        raise NotImplementedError


class RemoteSource(Asking):
    def __init__(self, address: str, token: str, *, raw: bool = False, ca: str = "") -> None:
        self.name = address
        self._raw = raw
        self._ca = ca or os.environ.get("RUNWATCH_CA", "")
        self._is_sure = False
        """Whether a page has answered there."""
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def is_away(self) -> str:
        """Why no head answers; empty if one does.  A slow head counts as there."""
        try:
            with self._open(urllib.request.Request(f"{self.name}/api/v1/health")) as a:
                return "" if "status" in json.load(a) else "something else answers"
        except urllib.error.HTTPError as error:
            return "" if error.code in (401, 403, 429, 503) else f"something answers {error.code}"
        except TimeoutError:
            return ""
        except (urllib.error.URLError, OSError, HTTPException, ValueError, TypeError) as error:
            return str(getattr(error, "reason", error))

    def _ask(self, target: str, body: bytes | None, method: str = "") -> Iterator[bytes]:
        headers = self._headers | ({"Content-Type": "application/json"} if body else {})
        request = urllib.request.Request(
            self.name + target, data=body, headers=headers, method=method or None
        )
        try:
            with self._open(request) as answer:
                self._is_sure = True
                while chunk := answer.read(CHUNK):
                    yield chunk
        except urllib.error.HTTPError as error:
            raise refused(error.code, error.read()) from error
        except (urllib.error.URLError, OSError, HTTPException) as error:
            if isinstance(error, HTTPException) and self._is_beside():
                yield from self._ask(target, body, method)
                return
            reason = getattr(error, "reason", error)
            if isinstance(error, HTTPException) and not isinstance(error, OSError):
                reason = "what answers there is no page; it may be the head's port for agents"
            raise HeadUnreachable(
                f"no answer from the head at {self.name}: {reason}. Is it up? (`runwatch head`)"
            ) from error

    def _open(self, request: urllib.request.Request) -> Any:
        ca = self._ca if self.name.startswith("https://") else ""
        if not ca:
            return urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
        import ssl

        try:
            context = ssl.create_default_context(cafile=ca)
        except OSError as error:
            raise UsageError(f"RUNWATCH_CA ({ca}) cannot be used: {error.strerror}") from error
        return urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=context)

    def _is_beside(self) -> bool:
        """Whether we asked the port of agents, which speaks no HTTP/1, and the page is beside it:
        RUNWATCH_HEAD named that port once."""
        if self._is_sure:
            return False
        self._is_sure, asked = True, self.name
        self.name = beside(asked)
        if self.name and not self.is_away():
            return True
        self.name = asked
        return False

    def refresh(self) -> None:
        return None

    def follow(self) -> None:
        return None

    def close(self) -> None:
        return None
