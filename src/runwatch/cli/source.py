"""Where a command gets its answers: a head over HTTP, or the directory's own store.

Both speak the head's HTTP API, so a number is the same everywhere.  The first that is there
answers: the head named by `--head` or RUNWATCH_HEAD; a head that already serves the directory; this
process, which opens the directory and reads its journals up to now.

The head is imported only to open a directory: without it, asking over HTTP takes half the time.
"""

from __future__ import annotations

import argparse
import asyncio
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
from typing import Any, Final, Protocol
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
from runwatch.cli.asgi import Exchange
from runwatch.cli.pictures.progress import progress
from runwatch.errors import HeadUnreachable, NotFound, RunwatchError, StoreBusy, UsageError
from runwatch.journal.moved import told_of
from runwatch.settings import runwatch_dir, token_of
from runwatch.terminal import shown, shown_all

TIMEOUT_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 1.0
SMALL_ROUNDS: Final = 8
"""Stop after this many rounds that read little.  Damage in a journal also ends a round early."""
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
    head = arguments.head or ("" if arguments.dir else os.environ.get("RUNWATCH_HEAD", ""))
    if head:
        root = arguments.dir or runwatch_dir()
        address = page_of(head, root)
        token = token_for(address, root, token_of() or split_token(head)[1])
        return RemoteSource(address, token, raw=raw)
    root = arguments.dir or runwatch_dir()
    if not os.path.isdir(root):
        from runwatch.journal.moved import fallback_place

        other = fallback_place()
        there = f" (programs that could not record there used {other})" if other.is_dir() else ""
        raise NotFound(
            f"there is no Runwatch directory {root}{there}; name one with --dir, or record a run "
            "first (`runwatch demo` makes one)"
        )
    check_open(root)
    if moved := told_of(root):
        print(f"runwatch: {shown(moved)}", file=sys.stderr)
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


def _stale(root: Path, note: Listening, why: str, busy: StoreBusy) -> str:
    """A head that was killed leaves its address file behind."""
    from runwatch.cli.pictures import tables

    when = f" since {tables.time(note.since_ns)}" if note.since_ns else ""
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


def _refused(status: int, body: bytes) -> RunwatchError:
    try:
        message = str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the head answered {status}"
    if status == 401:
        return UsageError(f"{message} (set RUNWATCH_TOKEN or RUNWATCH_TOKEN_FILE)")
    return NotFound(message) if status in (404, 409) else UsageError(message)


def _answer(chunks: Iterator[bytes], raw: bool) -> Any:
    """Users' texts may hold control characters that a terminal obeys: they are made visible.
    `raw`: the answer is printed as JSON, which escapes them anyway."""
    answer = json.loads(b"".join(chunks))
    return answer if raw else shown_all(answer)


class _Asking:
    """The part that both sources share: parameters in, JSON out."""

    _raw: bool

    def get(self, path: str, **parameters: Any) -> Any:
        return _answer(self.stream(path, **parameters), self._raw)

    def stream(self, path: str, **parameters: Any) -> Iterator[bytes]:
        return self._ask(_query(path, parameters), None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return _answer(self._ask(_query(path, {}), json.dumps(body).encode()), self._raw)

    def delete(self, path: str, **parameters: Any) -> Any:
        return _answer(self._ask(_query(path, parameters), None, "DELETE"), self._raw)

    def _ask(self, target: str, body: bytes | None, method: str = "") -> Iterator[bytes]:
        raise NotImplementedError


class RemoteSource(_Asking):
    def __init__(self, address: str, token: str, *, raw: bool = False) -> None:
        self.name = address
        self._raw = raw
        self._is_sure = False
        """Whether a page has answered there."""
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def is_away(self) -> str:
        """Why no head answers; empty if one does.  A slow head counts as there."""
        try:
            with urllib.request.urlopen(f"{self.name}/api/v1/health", timeout=TIMEOUT_SECONDS) as a:
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
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                self._is_sure = True
                while chunk := answer.read(CHUNK):
                    yield chunk
        except urllib.error.HTTPError as error:
            raise _refused(error.code, error.read()) from error
        except (urllib.error.URLError, OSError, HTTPException) as error:
            if isinstance(error, HTTPException) and self._is_beside():
                yield from self._ask(target, body, method)
                return
            reason = getattr(error, "reason", error)
            raise HeadUnreachable(
                f"no answer from the head at {self.name}: {reason}. Is it up? (`runwatch head`)"
            ) from error

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


class LocalSource(_Asking):
    """Opens the directory's store in this process and reads its journals up to now.

    `bare`: nothing is stored; only goodput can be asked for.
    """

    def __init__(
        self, root: Path, *, in_memory: bool = False, bare: bool = False, raw: bool = False
    ) -> None:
        from runwatch.head.main import LocalHead

        self.name = str(root)
        self._raw = raw
        self._lasts = os.access(root, os.W_OK) and not (in_memory or bare)
        self._head = LocalHead(root, in_memory=in_memory, bare=bare)
        self._head.ingest.keeps_house = False
        self._loop = asyncio.new_event_loop()
        self._exchange: Exchange | None = None
        self._follows = False
        self.refresh()

    def follow(self) -> None:
        self._follows = True
        self._head.ingest.keeps_house = True
        self._head.tail.start()

    def refresh(self) -> None:
        if self._follows:
            return
        from runwatch.head.local import HURRY_BYTES

        with progress(f"reading journals in {self.name}", "rounds") as step:
            # A busy run always has something new, so small rounds are counted.
            small = 0
            while small < SMALL_ROUNDS and (read := self._head.tail.round()):
                small += read < HURRY_BYTES
                step(1)

    def _ask(self, target: str, body: bytes | None, method: str = "") -> Iterator[bytes]:
        self._exchange = answer = Exchange(self._head.app, self._loop, target, body, method)
        if answer.status >= 400:
            raise _refused(answer.status, b"".join(answer.body()))
        yield from answer.body()

    def take(self, root: Path) -> None:
        """Store what the journals of another directory hold."""
        if not self._lasts:
            raise StoreBusy(f"cannot store into {self.name}: it is in use, or not writable")
        from runwatch.head.local import LocalTail

        tail = LocalTail(root, self._head.ingest)
        try:
            while tail.round():
                pass
        finally:
            tail.close()

    def close(self) -> None:
        if self._exchange is not None:
            self._exchange.hang_up()
        self._head.deletions.purge()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self._head.close()
