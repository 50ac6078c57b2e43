"""A short list in a file of the head's directory: links that were shared, tokens that were made.

The file is looked at again whenever it has changed, so that another process of the same user, with
no head between, takes something back as well.  It is written whole, 0600;
who uses a list locks it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from runwatch.errors import UsageError
from runwatch.files import Folder

MOST_BYTES: Final = 16 << 20
_VERSION: Final = 1
logger = logging.getLogger("runwatch.head")


class Record(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=Record)


class KeptList(Generic[T]):
    """`what`: how the file and people call them; `is_sound`: whether Runwatch wrote such a one."""

    def __init__(
        self, path: Path | None, kind: type[T], what: str, is_sound: Callable[[T], bool]
    ) -> None:
        self._path = path
        self._kind = kind
        self._what = what
        self._is_sound = is_sound
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

    def write(self, records: dict[str, T]) -> None:
        if self._path is None:
            raise UsageError(f"{self._what} cannot be kept here: this directory may only be read")
        name = self._path.stem
        body = {"version": _VERSION, name: [asdict(record) for record in records.values()]}
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
        if body["version"] != _VERSION:
            raise ValueError(f"it is of version {body['version']}")
        names = [field.name for field in fields(self._kind)]
        found = [self._kind(**{name: each[name] for name in names}) for each in body[name]]
        if not all(self._is_sound(record) for record in found):
            raise ValueError("it was not written by Runwatch")
        return {record.id: record for record in found}
