"""Where a command gets its answers: a head over HTTP, or the directory's own store.

Both speak the head's HTTP API, so a number is the same wherever it is asked for.  With a head's
address (`--head`, RUNWATCH_HEAD) that head is asked; else a head that already serves the
directory; else the directory is opened here, its journals are read up to now, and nobody else is
needed.

Only who opens a directory imports the head: to ask one over HTTP takes half the time without.
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

from runwatch.address import ADDRESS_FILE, Listening, http_address, read_address, token_for
from runwatch.cli.asgi import Exchange
from runwatch.cli.pictures.progress import progress
from runwatch.errors import HeadUnreachable, NotFound, RunwatchError, StoreBusy, UsageError
from runwatch.journal.moved import told_of
from runwatch.settings import runwatch_dir, token_of
from runwatch.terminal import shown, shown_all

TIMEOUT_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 1.0
SMALL_ROUNDS: Final = 8
"""So many that read little may follow another: what is damaged ends one early."""
MUCH_BYTES: Final = 32 << 20
"""Half a million steps; to store less takes no longer than to wait for a page."""
CHUNK: Final = 1 << 16

Chunks = Iterator[bytes]


class Source(Protocol):
    name: str

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON of `/api/v1<path>`; NotFound and UsageError for what the API refuses."""
        ...

    def stream(self, path: str, **parameters: Any) -> Iterator[bytes]: ...

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Have something done; the JSON of the answer."""
        ...

    def delete(self, path: str, **parameters: Any) -> Any: ...

    def refresh(self) -> None:
        """Take in what was recorded since."""
        ...

    def follow(self) -> None:
        """Take in what is recorded from now on, without being asked to."""
        ...

    def close(self) -> None: ...


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, help="a Runwatch directory (default $RUNWATCH_DIR)")
    parser.add_argument("--head", help="ask this head: http://host:8091 (default $RUNWATCH_HEAD)")


@contextmanager
def open_source(given: argparse.Namespace, *, only_goodput: bool = False) -> Iterator[Source]:
    """`only_goodput`: nothing else will be asked, so that much that is not stored yet need not be
    for that."""
    source = _choose(given, only_goodput)
    try:
        yield source
    finally:
        source.close()


def _choose(given: argparse.Namespace, only_goodput: bool) -> Source:
    raw = bool(getattr(given, "json", False))
    head = given.head or ("" if given.dir else os.environ.get("RUNWATCH_HEAD", ""))
    if head:
        address = http_address(head)
        token = token_for(address, given.dir or runwatch_dir(), token_of())
        return RemoteSource(address, token, raw=raw)
    root = given.dir or runwatch_dir()
    if not os.path.isdir(root):
        from runwatch.journal.moved import fallback_place

        other = fallback_place()
        there = f" (what could not be recorded there is in {other})" if other.is_dir() else ""
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
                    f"the head of {root} has no HTTP port to be asked on; stop it, or start it "
                    "with one"
                ) from busy
            if serving is not None:
                remote = RemoteSource(serving.http, token_for(serving.http, root), raw=raw)
                if not (why := remote.is_away()):
                    return remote
                print(_stale(root, serving, why, busy), file=sys.stderr)
                return LocalSource(root, in_memory=True, raw=raw)
            if time.monotonic() > deadline:
                # Another command follows a run: what the journals still hold answers as well.
                print(f"runwatch: {busy.args[0].split(';')[0]}: reading journals", file=sys.stderr)
                return LocalSource(root, in_memory=True, raw=raw)
            time.sleep(0.05)


def _stale(root: Path, said: Listening, why: str, busy: StoreBusy) -> str:
    """A head that was killed leaves its note behind."""
    from runwatch.cli.pictures import tables

    when = f" since {tables.time(said.since_ns)}" if said.since_ns else ""
    where = f" on {said.host}" if said.host else ""
    return shown(
        f"runwatch: no answer from the head of {root}: {ADDRESS_FILE} says that process {said.pid}"
        f"{where} serves it at {said.http}{when}, and nobody answers there ({why}). Start it again "
        f"(`runwatch head --dir {root}`), or remove {root / ADDRESS_FILE} if it is gone for good. "
        f"{busy.args[0].split(';')[0]}: reading journals"
    )


def is_bare(root: Path) -> bool:
    """Whether there are journals with much in them, and nobody has stored anything of them."""
    if (root / "store").exists():
        return False
    found = 0
    for segment in (root / "journals").glob("*/*.seg"):
        try:
            status = segment.stat()
        except FileNotFoundError:  # dropped meanwhile
            continue
        found += min(status.st_size, status.st_blocks * 512)  # those that are written have holes
        if found >= MUCH_BYTES:
            return True
    return False


def check_open(root: Path, *, may: Callable[[Path, int], bool] = os.access) -> None:
    """Say it before half of it is read: another user's directory is closed, as a rule."""
    for folder in (root, root / "journals"):
        if os.path.exists(folder) and not may(folder, os.R_OK | os.X_OK):
            raise UsageError(
                f"{folder} is not yours to read; name another directory with --dir, or ask its "
                "owner for a link (`runwatch share`)"
            )


def _query(path: str, parameters: Mapping[str, Any]) -> str:
    given = {k: v for k, v in parameters.items() if v is not None}
    return f"/api/v1{quote(path)}" + (f"?{urlencode(given, doseq=True)}" if given else "")


def _refused(status: int, body: bytes) -> RunwatchError:
    try:
        message = str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the head answered {status}"
    if status == 401:
        return UsageError(f"{message} (set RUNWATCH_TOKEN or RUNWATCH_TOKEN_FILE)")
    return NotFound(message) if status in (404, 409) else UsageError(message)


def _answer(chunks: Iterator[bytes], raw: bool) -> Any:
    """What users recorded is in it, and a terminal would obey some of that; `raw`: it is printed
    as JSON, which shows such characters as what they are."""
    answer = json.loads(b"".join(chunks))
    return answer if raw else shown_all(answer)


class _Asking:
    """What both sources make of one question."""

    _raw: bool

    def get(self, path: str, **parameters: Any) -> Any:
        return _answer(self.stream(path, **parameters), self._raw)

    def stream(self, path: str, **parameters: Any) -> Iterator[bytes]:
        return self._ask(_query(path, parameters), None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return _answer(self._ask(_query(path, {}), json.dumps(body).encode()), self._raw)

    def delete(self, path: str, **parameters: Any) -> Any:
        return _answer(self._ask(_query(path, parameters), None, "DELETE"), self._raw)

    def _ask(self, target: str, said: bytes | None, method: str = "") -> Iterator[bytes]:
        raise NotImplementedError


class RemoteSource(_Asking):
    def __init__(self, address: str, token: str, *, raw: bool = False) -> None:
        self.name = address
        self._raw = raw
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def is_away(self) -> str:
        """Why nobody is there, if nobody is; one that is slow is not away."""
        try:
            with urllib.request.urlopen(f"{self.name}/api/v1/health", timeout=TIMEOUT_SECONDS) as a:
                return "" if "status" in json.load(a) else "something else answers"
        except urllib.error.HTTPError as error:
            return "" if error.code in (401, 403, 429, 503) else f"something answers {error.code}"
        except TimeoutError:
            return ""
        except (urllib.error.URLError, OSError, HTTPException, ValueError, TypeError) as error:
            return str(getattr(error, "reason", error))

    def _ask(self, target: str, said: bytes | None, method: str = "") -> Iterator[bytes]:
        headers = self._headers | ({"Content-Type": "application/json"} if said else {})
        request = urllib.request.Request(
            self.name + target, data=said, headers=headers, method=method or None
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                while chunk := answer.read(CHUNK):
                    yield chunk
        except urllib.error.HTTPError as error:
            raise _refused(error.code, error.read()) from error
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise HeadUnreachable(
                f"no answer from the head at {self.name}: {reason}. Does it run? (`runwatch head`)"
            ) from error

    def refresh(self) -> None:
        return None

    def follow(self) -> None:
        return None

    def close(self) -> None:
        return None


class LocalSource(_Asking):
    """The directory's store opened here, with its journals read up to now.

    `bare`: nothing is stored, and only goodput can be asked for.
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
            # Those that record all the time leave no moment in which nothing is new.
            small = 0
            while small < SMALL_ROUNDS and (read := self._head.tail.round()):
                small += read < HURRY_BYTES
                step(1)

    def _ask(self, target: str, said: bytes | None, method: str = "") -> Iterator[bytes]:
        self._exchange = answer = Exchange(self._head.app, self._loop, target, said, method)
        if answer.status >= 400:
            raise _refused(answer.status, b"".join(answer.body()))
        yield from answer.body()

    def take(self, root: Path) -> None:
        """Store what the journals of another directory hold."""
        if not self._lasts:
            raise StoreBusy(f"nothing can be stored in {self.name}: it is in use, or not writable")
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
