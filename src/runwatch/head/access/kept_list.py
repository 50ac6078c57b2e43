"""A short list in a file of the head's directory: links that were shared, tokens that were made.

The file is looked at again whenever it has changed, so that another process of the same user, with
no head between, takes something back as well.  It is written whole, 0600;
who uses a list locks it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
from collections.abc import Callable, Iterable
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
    """What the file keeps instead of the cookie; the way back does not exist."""
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()


class KeptList(Generic[T]):
    """`what`: how the file and people call them; `is_sound`: whether Runwatch wrote such a one;
    `version`: which the file is of, by what is in it, and `newest`: the newest that is known."""

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
        """For changes and lists, which must not go by half a file."""
        known = self.seen()
        if self._damage:
            raise UsageError(f"{self._damage}; move it away, and make new {self._what}")
        return known

    def seen(self) -> dict[str, T]:
        """For those who come: what cannot be read opens nothing."""
        stamp = self._stamp_now()
        if stamp != self._stamp:
            self._stamp = stamp
            self._load()
        return self._known

    def of_cookie(self, cookie: str) -> T | None:
        """Whose it is, compared with all: how long that takes tells nothing."""
        proof, found = proof_of(cookie), None
        for record in self.seen().values():
            if hmac.compare_digest(record.proof, proof):
                found = record
        return found

    def write(self, records: dict[str, T]) -> None:
        if self._path is None:
            raise UsageError(f"{self._what} cannot be kept here: this directory may only be read")
        name = self._path.stem
        version, found = self._version(records.values()), map(asdict, records.values())
        body = {"version": version, name: list(found)}
        try:
            with Folder.at(self._path.parent) as root:
                root.write(self._path.name, json.dumps(body, indent=1).encode(), sync=True)
        except OSError as error:
            why = f"cannot keep {self._what} in {self._path}: {error.strerror}"
            raise UsageError(why) from error
        self._known, self._stamp = records, self._stamp_now()

    def _stamp_now(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path) if self._path is not None else None
        except OSError:
            return None
        return None if found is None else (found.st_mtime_ns, found.st_ino, found.st_size)

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
            logger.error("none of the %s opens anything: %s", self._what, self._damage)

    def _read(self, body: Any, name: str) -> dict[str, T]:
        if body["version"] not in range(1, self._newest + 1):
            raise ValueError(f"it is of version {body['version']}")
        found = [self._record(each) for each in body[name]]
        if not all(self._is_sound(record) for record in found):
            raise ValueError("it was not written by Runwatch")
        return {record.id: record for record in found}

    def _record(self, said: dict[str, Any]) -> T:
        """What a file of an older version does not tell is as it was then."""
        known = [f.name for f in fields(self._kind) if f.name in said or f.default is MISSING]
        values = {name: said[name] for name in known}
        lists = {name: tuple(v) for name, v in values.items() if isinstance(v, list)}
        return self._kind(**values | lists)
