"""Which profile sessions there are, and where their files lie.

A session is known because processes told of it, or because its folder lies where we look: those
that somebody put there by hand are as good.  Nothing that a caller or a record says becomes a path
unchecked: a session's folder lies where this head was told to look, or ends in
`plugins/profile/<session>`, is our own user's, and was named by a process that our own user ran.
A file is served only if it is one of those found in that folder, and opened below it: what somebody
put in its place meanwhile is not.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from runwatch.errors import NotFound, RunwatchError, UsageError
from runwatch.files import Folder, journal_folder, shelf
from runwatch.head.reading import Reading
from runwatch.profile_event import PROFILE
from runwatch.record import JournalId, RunId
from runwatch.record.captures import ProfileDeleted
from runwatch.record.message import Message
from runwatch.store.deletion import Deletion
from runwatch.store.store import OF_EACH
from runwatch.views import profiles as view
from runwatch.views.profiles import Session

DEEPEST: Final = 8
MOST_FOLDERS: Final = 50_000
CACHES: Final = frozenset({"cached_tools.json", "cache_version.txt"})
"""What XProf leaves beside profiles when it is pointed at them itself."""
_LAYOUT: Final = ("plugins", "profile")
_XPLANE_STARTS: Final = (0x0A, 0x12, 0x1A, 0x22)
_GZIP: Final = b"\x1f\x8b"
_HIGHEST_RATIO: Final = 200
"""Traces compress to a tenth or a fiftieth; what grows beyond this is no trace."""
_LOOKED_AT: Final = 256 << 10

Kind = Literal["xplane", "trace", "other"]
Record = Callable[[Sequence[Message]], object]


class SessionRunning(RunwatchError):
    """It is still being captured."""


@dataclass(frozen=True, slots=True)
class Place:
    """A session's folder: what leads to `base` is taken as it is, below no link is followed."""

    base: Path
    path: Path

    def open(self) -> Folder:
        with Folder.at(self.base) as base:
            return base.below(*self.path.relative_to(self.base).parts)

    def remove(self) -> None:
        above = Place(self.base, self.path.parent)
        with above.open() as parent:
            parent.remove_tree(self.path.name)


@dataclass(frozen=True, slots=True)
class File:
    name: str
    kind: Kind
    bytes: int
    modified_ns: int
    place: Place

    @property
    def path(self) -> Path:
        return self.place.path / self.name

    def open(self) -> int:
        """A descriptor to read it by.  Raises OSError for what is not a file to be served."""
        with self.place.open() as folder:
            return folder.open(self.name)


@dataclass(frozen=True, slots=True)
class Kept:
    """A session, with what was told of it and what of it lies here."""

    run: RunId
    run_name: str
    id: str
    places: tuple[Place, ...]
    files: tuple[File, ...]
    told: Session | None

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(place.path for place in self.places)

    @property
    def state(self) -> view.State:
        return "done" if self.told is None else self.told.state

    @property
    def is_over(self) -> bool:
        return self.state != "running"

    @property
    def start_ns(self) -> int:
        if self.told is not None:
            return self.told.start_ns
        return min((file.modified_ns for file in self.files), default=0)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files) or (self.told.bytes if self.told else 0)


@dataclass(frozen=True, slots=True)
class Found:
    """A session's folder on this machine."""

    run: str
    session: str
    place: Place


class Profiles:
    """`places` are folders to look in; `loose` also takes traces that lie in no session's folder.

    Any thread may call.
    """

    def __init__(
        self,
        reading: Reading,
        places: Sequence[Path],
        *,
        record: Record | None = None,
        loose: bool = False,
        journals: Path | None = None,
    ) -> None:
        """`journals`: of processes whose journals lie there and are our own, we believe where they
        say that their profiles are."""
        self.reading = reading
        self._journals = journals
        self._places = tuple(places)
        self._record = record
        self._loose = loose

    def all(self) -> list[Kept]:
        """Newest first."""
        told = self._told()
        names = {row.run: row.run_name for row in self.reading.store.processes() if row.run}
        found = self._folders()
        kept = [
            self._kept(session, names.get(session.run, ""), found, names)
            for session in told.values()
        ]
        taken = {folder for item in kept for folder in item.folders}
        kept += [_by_hand(spot, names) for spot in found if spot.place.path not in taken]
        gone, live = self.reading.store.deletions(), {*names, *names.values()}
        kept = [k for k in kept if not any(_is_left(k, deletion, live) for deletion in gone)]
        return sorted((k for k in kept if k.told or k.files), key=lambda k: -k.start_ns)

    def of(self, run: str) -> list[Kept]:
        """Those of one run, by its id or by a name that only it has."""
        kept = self.all()
        try:
            id = self.reading.run(run)
        except NotFound:
            if any(item.run == run for item in kept):
                return [item for item in kept if item.run == run]
            raise
        return [item for item in kept if item.run == id]

    def find(self, run: str, session: str) -> Kept:
        """By the run's id, or by a name that is no run's id."""
        view.check_session(session)
        found = [item for item in self.all() if item.id == session]
        of_id = [item for item in found if item.run == run]
        is_id = bool(of_id) or bool(self.reading.store.processes(RunId(run)))
        for item in of_id if is_id else found:
            if run in (item.run, item.run_name):
                return item
        raise NotFound(
            f"run {run[:80]!r} has no profile session {session!r}; /api/v1/profiles lists all"
        )

    def left_of(self, deletion: Deletion) -> list[Kept]:
        """What lies here of a run that was deleted."""
        taken = {
            folder
            for session in self._told().values()
            for folder in self._kept(session, "", self._folders()).folders
        }
        found = (_by_hand(spot, {}) for spot in self._folders() if spot.place.path not in taken)
        rows = self.reading.store.processes()
        live = {name for row in rows for name in (row.run, row.run_name)}
        return [kept for kept in found if _is_left(kept, deletion, live)]

    def delete(self, kept: Kept) -> None:
        """Its files, and what is known of it."""
        if not kept.is_over:
            raise SessionRunning(f"session {kept.id!r} is being captured; wait until it is over")
        for folder in kept.folders:
            if not _is_session(folder, kept.id):
                raise UsageError(f"{folder} is no session's own folder; delete it by hand")
        if kept.told is not None:
            if self._record is None:
                raise UsageError("what is known of it can only be read here")
            self._record([ProfileDeleted(kept.run, kept.id)])
        for place in kept.places:
            try:
                place.remove()
            except OSError as error:
                raise UsageError(f"cannot delete {place.path}: {error.strerror}") from error

    # ── what was told ─────────────────────────────────────────────────────────────────────────

    def _told(self) -> dict[view.Key, Session]:
        store = self.reading.store
        events = store.events(None, kinds=[PROFILE], of_each=OF_EACH)
        events += store.events(None, kinds=[view.DELETED], of_each=OF_EACH)
        events.sort(key=lambda event: event.time_ns)
        told = view.fold(events)
        going = {key[0] for key, session in told.items() if session.state == "running"}
        if not going:
            return told
        states = [state for run in going for state in self.reading.processes(run)]
        return view.fold(events, view.gone_of(states))

    def _kept(
        self, session: Session, name: str, found: Iterable[Found], ids: Collection[str] = ()
    ) -> Kept:
        """A folder with the id of another run is that one's, whatever this run is called."""
        names = (session.run,) if name in ids else (session.run, name)
        lying = [f.place for f in found if f.session == session.id and f.run in names]
        told = ((p.directory, p.journal) for p in session.parts if p.directory)
        named = (
            _local(directory, session.id)
            for directory, journal in dict.fromkeys(told)
            if self._is_our_own(journal)
        )
        by_path = {place.path: place for place in (*named, *lying) if place is not None}
        places = tuple(sorted(by_path.values(), key=lambda place: place not in lying))
        return Kept(session.run, name, session.id, places, _files(places), session)

    def _is_our_own(self, journal: JournalId) -> bool:
        """Whether a process of our own user recorded it here: anybody can send us a record."""
        if self._journals is None:
            return False
        try:
            with journal_folder(self._journals / journal) as folder:
                return folder.uid == os.geteuid()
        except OSError:
            return False

    # ── what lies here ────────────────────────────────────────────────────────────────────────

    def _folders(self) -> list[Found]:
        places = filter(self._is_to_be_looked_in, self._places)
        return [spot for place in places for spot in look(place, loose=self._loose)]

    def _is_to_be_looked_in(self, place: Path) -> bool:
        """A place that lies beside journals may be a link that somebody else laid there."""
        if self._journals is None or place.parent != self._journals.parent:
            return True
        try:
            with shelf(place.parent, place.name):
                return True
        except OSError:
            return False


def _is_left(kept: Kept, deletion: Deletion, live: Collection[str]) -> bool:
    """Nobody tells of it any more, and it is older than the deletion of what it is called by; or
    somebody brought it again, and no run is called so."""
    called = {kept.run, kept.run_name}
    if kept.told is not None or called.isdisjoint((deletion.run, deletion.name)):
        return False
    return kept.start_ns <= deletion.at_ns or called.isdisjoint(live)


def _by_hand(spot: Found, names: Mapping[RunId, str]) -> Kept:
    """A folder that nobody told of; its run is the one whose id or name its folder has."""
    run = RunId(spot.run)
    if run not in names:
        run = next((id for id, name in names.items() if name == spot.run), run)
    return Kept(
        run,
        names.get(run, spot.run),
        spot.session,
        (spot.place,),
        _files((spot.place,)),
        None,
    )


def look(place: Path, *, loose: bool = False) -> Iterator[Found]:
    """Session folders under a place: `<run>/plugins/profile/<session>`, at any depth of <run>."""
    try:
        root = place.resolve(strict=True)
    except OSError:
        return
    # Links to folders are not followed: what is outside stays outside, and nothing goes round.
    for seen, (folder, below, files) in enumerate(os.walk(root)):
        here = Path(folder)
        parts = here.relative_to(root).parts
        below[:] = sorted(name for name in below if not name.startswith("."))
        if len(parts) >= DEEPEST or seen >= MOST_FOLDERS:
            below.clear()
        if parts[-2:] == _LAYOUT:
            run = ":".join(parts[:-2]) or root.name
            yield from (
                Found(run, name, Place(root, here / name)) for name in below if view.is_safe(name)
            )
            below.clear()
        elif loose and any(kind_of(name) != "other" for name in files):
            run = ":".join(parts[:-1]) or root.name
            session = parts[-1] if parts else root.name
            yield Found(run, session if view.is_safe(session) else "traces", Place(root, here))


def _local(directory: str, session: str) -> Place | None:
    """The folder that a record names, if it is one of a session, ours, and on this machine."""
    parts = urlsplit(directory)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        return None
    path = Path(unquote(parts.path) if parts.scheme else directory)
    if not path.is_absolute() or not _is_session(path, session) or len(path.parts) < 5:
        return None
    try:
        # Above <run> links may be: the program was told to write there.
        base = path.parents[3].resolve(strict=True)
        place = Place(base, base.joinpath(*path.parts[-4:]))
        with place.open() as folder:
            return place if folder.uid == os.geteuid() else None
    except (OSError, ValueError):
        return None


def _is_session(folder: Path, session: str) -> bool:
    return folder.parts[-3:] == (*_LAYOUT, session)


def _files(places: Sequence[Place]) -> tuple[File, ...]:
    """Regular files that really lie in the folders, each name once."""
    found: dict[str, File] = {}
    for place in places:
        try:
            with place.open() as folder:
                for name in sorted(folder.names()):
                    if name not in found and (file := _file(folder, place, name)) is not None:
                        found[name] = file
        except OSError:
            continue
    return tuple(found.values())


def _file(folder: Folder, place: Place, name: str) -> File | None:
    if name.startswith(".") or name in CACHES or name.endswith(".SSTABLE"):
        return None
    try:
        about = folder.stat(name)
    except OSError:
        return None
    if not stat.S_ISREG(about.st_mode):
        return None
    if about.st_uid != folder.uid and not about.st_mode & stat.S_IROTH:
        return None  # a second name for somebody else's file
    return File(name, kind_of(name), about.st_size, about.st_mtime_ns, place)


def kind_of(name: str) -> Kind:
    if name.endswith(".xplane.pb"):
        return "xplane"
    is_trace = name.removesuffix(".gz").endswith((".json", ".pftrace", ".perfetto-trace"))
    return "trace" if is_trace and name not in CACHES and not name.startswith(".") else "other"


# ── is it what it says ────────────────────────────────────────────────────────────────────────


def refusal(file: File) -> str:
    """Why no viewer is given this file; empty when it may have it."""
    try:
        fd = file.open()
    except OSError as error:
        return f"{file.name} cannot be read: {error.strerror}"
    try:
        return _refusal(file, fd)
    finally:
        os.close(fd)


def for_viewer(file: File) -> int | None:
    """A descriptor to read it by; None if no viewer is given this file."""
    try:
        fd = file.open()
    except OSError:
        return None
    if _refusal(file, fd):
        os.close(fd)
        return None
    return fd


def _refusal(file: File, fd: int) -> str:
    try:
        start = os.pread(fd, 16 if file.kind == "xplane" else _LOOKED_AT, 0)
    except OSError as error:
        return f"{file.name} cannot be read: {error.strerror}"
    if not start:
        return f"{file.name} is empty"
    if file.kind == "xplane":
        return "" if start[0] in _XPLANE_STARTS else f"{file.name} is no XPlane profile{_is(start)}"
    if start.startswith(_GZIP):
        return _unpacked(file.name, start)
    return _opens(file.name, start)


def _unpacked(name: str, start: bytes) -> str:
    most = len(start) * _HIGHEST_RATIO + (1 << 20)
    try:
        text = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(start, most)
    except zlib.error as error:
        return f"{name} is damaged: {error}"
    if len(text) >= most:
        return f"{name} grows more than {_HIGHEST_RATIO} times when it is unpacked: no trace does"
    return _opens(name, text)


def _opens(name: str, start: bytes) -> str:
    if not name.removesuffix(".gz").endswith(".json"):
        return ""
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    return "" if text[:1] in (b"{", b"[") else f"{name} is no JSON trace{_is(start)}"


def _is(start: bytes) -> str:
    known = {b"PK": "a zip archive", _GZIP: "packed with gzip", b"\x80": "a pickle"}
    return next((f" but {what}" for magic, what in known.items() if start.startswith(magic)), "")


def folder_name(run: str) -> str:
    """What XProf knows a run by."""
    if view.is_safe(run):
        return run
    return "".join(c if view.is_safe(c) else "_" for c in run)[:128] or "run"
