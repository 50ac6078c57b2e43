"""A short list in a file of the head's directory: the shared links, or the tokens.

The list is read again whenever the file has changed: another process of the same user may take an
entry back without asking the head.  The file is written whole, with mode 0600.  The user of a list
locks it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from runwatch.errors import UsageError
from runwatch.files import Folder

MOST_BYTES: Final = 16 << 20
logger = logging.getLogger("runwatch.head")


class Record(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def id(self) -> str: ...

    @property
    def proof(self) -> str: ...


T = TypeVar("T", bound=Record)


def proof_of(cookie: str) -> str:
    """What the file keeps instead of the cookie.  Nobody can compute the cookie from it."""
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()


def match(records: Mapping[str, T], cookie: str) -> T | None:
    """The entry of this cookie.  All entries are compared, so the time taken tells nothing."""
    proof, found = proof_of(cookie), None
    for record in records.values():
        if hmac.compare_digest(record.proof, proof):
            found = record
    return found


class KeptList(Generic[T]):
    """`what`: the entries' name in messages; `is_sound`: whether Runwatch can have written an
    entry; `version`: the file's version for these entries; `newest`: the newest version known."""

    def __init__(
        self,
        path: Path | None,
        kind: type[T],
        what: str,
        is_sound: Callable[[T], bool],
        version: Callable[[Iterable[T]], int] = lambda _: 1,
        newest: int = 1,
    ) -> None:
        self._path = path
        self._kind = kind
        self._what = what
        self._is_sound = is_sound
        self._version = version
        self._newest = newest
        self._known: dict[str, T] = {}
        self._stamp: tuple[int, int, int] | None = None
        self._damage = ""

    def current(self) -> dict[str, T]:
        """All entries, to change or list them.  Raises UsageError if the file is damaged."""
        known = self.seen()
        if self._damage:
            raise UsageError(f"{self._damage}; move the file away, and make new {self._what}")
        return known

    def seen(self) -> dict[str, T]:
        """All entries, to check a caller.  A damaged file has none, so it lets nobody in."""
        stamp = self._stamp_now()
        if stamp != self._stamp:
            self._stamp = stamp
            self._load()
        return self._known

    def of_cookie(self, cookie: str) -> T | None:
        return match(self.seen(), cookie)

    def write(self, records: dict[str, T]) -> None:
        if self._path is None:
            raise UsageError(f"{self._what} cannot be kept: this head only reads its directory")
        name = self._path.stem
        version, entries = self._version(records.values()), map(asdict, records.values())
        body = {"version": version, name: list(entries)}
        try:
            with Folder.at(self._path.parent) as root:
                root.write(self._path.name, json.dumps(body, indent=1).encode(), sync=True)
        except OSError as error:
            why = f"cannot keep {self._what} in {self._path}: {error.strerror}"
            raise UsageError(why) from error
        self._known, self._stamp = records, self._stamp_now()

    def _stamp_now(self) -> tuple[int, int, int] | None:
        try:
            stat = os.stat(self._path) if self._path is not None else None
        except OSError:
            return None
        return None if stat is None else (stat.st_mtime_ns, stat.st_ino, stat.st_size)

    def _load(self) -> None:
        self._known, self._damage = {}, ""
        if self._path is None or self._stamp is None:
            return
        try:
            with Folder.at(self._path.parent) as root:
                text = root.text(self._path.name, MOST_BYTES, owners=root.trusted())
            self._known = self._read(json.loads(text), self._path.stem)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            self._damage = f"{self._path} cannot be read ({error})"
            logger.error("the head accepts none of its %s: %s", self._what, self._damage)

    def _read(self, body: Any, name: str) -> dict[str, T]:
        if body["version"] not in range(1, self._newest + 1):
            raise ValueError(f"its version is {body['version']}, not 1 to {self._newest}")
        records = [self._record(each) for each in body[name]]
        if not all(self._is_sound(record) for record in records):
            raise ValueError("Runwatch did not write it")
        return {record.id: record for record in records}

    def _record(self, entry: dict[str, Any]) -> T:
        """A field that an older version's file lacks takes its default."""
        known = [f.name for f in fields(self._kind) if f.name in entry or f.default is MISSING]
        values = {name: entry[name] for name in known}
        lists = {name: tuple(v) for name, v in values.items() if isinstance(v, list)}
        return self._kind(**values | lists)
