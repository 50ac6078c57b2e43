"""Which profiles there are, and where their files lie.

A profile is known because processes told of it, or because its folder lies where we look: those
that somebody put there by hand are as good.  Nothing that a caller or a record says becomes a path
unchecked: a profile's folder lies where this head was told to look, or ends in
`plugins/profile/<name>`, is our own user's, and was named by a process that our own user ran.
Which files in it are served, and how they are opened, is in `profile_files.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from runwatch.errors import NotFound, RunwatchError, UsageError
from runwatch.files import journal_folder, shelf
from runwatch.head.reading import Reading
from runwatch.head.state.profile_files import File, Place, files_in, kind_of
from runwatch.record import JournalId, RunId
from runwatch.record.captures import (
    ProfileDeleted,
    ProfileEvent,
    checked_name,
    is_profile_name,
)
from runwatch.record.message import Message
from runwatch.store.deletion import Deletion
from runwatch.store.store import OF_EACH
from runwatch.views import profiles as view
from runwatch.views.profiles import Profile

DEEPEST: Final = 8
MOST_FOLDERS: Final = 50_000
_LAYOUT: Final = ("plugins", "profile")
_VIEWED: Final = "tensorboard"

Record = Callable[[Sequence[Message]], object]


class ProfileRunning(RunwatchError):
    """It is still being recorded."""


@dataclass(frozen=True, slots=True)
class StoredProfile:
    """A profile: what processes told of it, and what of it lies here."""

    run: RunId
    run_name: str
    name: str
    places: tuple[Place, ...]
    files: tuple[File, ...]
    recorded: Profile | None
    """None: somebody put its files here by hand."""

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(place.path for place in self.places)

    @property
    def state(self) -> view.State:
        return "done" if self.recorded is None else self.recorded.state

    @property
    def is_over(self) -> bool:
        return self.state != "running"

    @property
    def start_ns(self) -> int:
        if self.recorded is not None:
            return self.recorded.start_ns
        return min((file.modified_ns for file in self.files), default=0)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files) or (
            self.recorded.bytes if self.recorded else 0
        )


@dataclass(frozen=True, slots=True)
class ProfileFolder:
    """A profile's folder on this machine."""

    run: str
    name: str
    place: Place


class Profiles:
    """`places` are folders to look in; `loose` also takes traces that lie in no profile's folder.

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

    @property
    def folder(self) -> Path | None:
        """Where new ones go; None: nothing is kept here."""
        return self._places[0] if self._places else None

    def all(self) -> list[StoredProfile]:
        """Newest first."""
        names = {row.run: row.run_name for row in self.reading.store.processes() if row.run}
        folders = self._folders()
        stored = [
            self._stored(recorded, names.get(recorded.run, ""), folders, names)
            for recorded in self._recorded().values()
        ]
        taken = {path for profile in stored for path in profile.folders}
        stored += [_by_hand(folder, names) for folder in folders if folder.place.path not in taken]
        deletions, live = self.reading.store.deletions(), {*names, *names.values()}
        here = [
            profile
            for profile in stored
            if (profile.recorded or profile.files)
            and not any(_is_left(profile, deletion, live) for deletion in deletions)
        ]
        return sorted(here, key=lambda profile: -profile.start_ns)

    def of(self, run: str) -> list[StoredProfile]:
        """Those of one run, by its id or by a name that only it has."""
        profiles = self.all()
        try:
            id = self.reading.run(run)
        except NotFound:
            of_name = [profile for profile in profiles if profile.run == run]
            if of_name:
                return of_name
            raise
        return [profile for profile in profiles if profile.run == id]

    def find(self, run: str, name: str) -> StoredProfile:
        """`run`: its id, or a name that is no run's id."""
        checked_name(name)
        named = [profile for profile in self.all() if profile.name == name]
        of_id = [profile for profile in named if profile.run == run]
        is_id = bool(of_id) or bool(self.reading.store.processes(RunId(run)))
        for profile in of_id if is_id else named:
            if run in (profile.run, profile.run_name):
                return profile
        raise NotFound(f"run {run[:80]!r} has no profile {name!r}; /api/v1/profiles lists all")

    def left_of(self, deletion: Deletion) -> list[StoredProfile]:
        """What lies here of a run that was deleted."""
        folders = self._folders()
        taken = {
            path
            for recorded in self._recorded().values()
            for path in self._stored(recorded, "", folders).folders
        }
        by_hand = (_by_hand(folder, {}) for folder in folders if folder.place.path not in taken)
        rows = self.reading.store.processes()
        live = {name for row in rows for name in (row.run, row.run_name)}
        return [profile for profile in by_hand if _is_left(profile, deletion, live)]

    def delete(self, profile: StoredProfile) -> None:
        """Its files, and what is known of it."""
        if not profile.is_over:
            raise ProfileRunning(f"{profile.name!r} is being recorded; wait until it is over")
        for folder in profile.folders:
            if not _is_profile_folder(folder, profile.name):
                raise UsageError(f"{folder} is no profile's own folder; delete it by hand")
        if profile.recorded is not None:
            if self._record is None:
                raise UsageError("this head cannot forget it: it only reads the store")
            self._record([ProfileDeleted(profile.run, profile.name)])
        for place in profile.places:
            try:
                place.remove()
            except OSError as error:
                raise UsageError(f"cannot delete {place.path}: {error.strerror}") from error

    # ── what was recorded ─────────────────────────────────────────────────────────────────────

    def _recorded(self) -> dict[view.Key, Profile]:
        store = self.reading.store
        events = store.events(None, kinds=[ProfileEvent.KIND], of_each=OF_EACH)
        events += store.events(None, kinds=[ProfileDeleted.KIND], of_each=OF_EACH)
        recorded = view.fold(events)
        running = {profile.run for profile in recorded.values() if profile.state == "running"}
        if not running:
            return recorded
        states = [state for run in running for state in self.reading.processes(run)]
        return view.fold(events, view.gone_of(states))

    def _stored(
        self,
        recorded: Profile,
        run_name: str,
        folders: Iterable[ProfileFolder],
        ids: Collection[str] = (),
    ) -> StoredProfile:
        """A folder with the id of another run is that one's, whatever this run is called."""
        names = (recorded.run,) if run_name in ids else (recorded.run, run_name)
        lying = [
            folder.place
            for folder in folders
            if folder.name == recorded.name and folder.run in names
        ]
        directories = dict.fromkeys((part.directory, part.journal) for part in recorded.parts)
        named = (
            _local(directory, recorded.name)
            for directory, journal in directories
            if directory and self._is_our_own(journal)
        )
        by_path = {place.path: place for place in (*named, *lying) if place is not None}
        places = tuple(sorted(by_path.values(), key=lambda place: place not in lying))
        return StoredProfile(
            recorded.run, run_name, recorded.name, places, files_in(places), recorded
        )

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

    def _folders(self) -> list[ProfileFolder]:
        places = filter(self._is_to_be_looked_in, self._places)
        return [
            folder
            for place in places
            for folder in (
                *look(place, loose=self._loose),
                *(_beside(place) if self._loose else ()),
            )
        ]

    def _is_to_be_looked_in(self, place: Path) -> bool:
        """A place that lies beside journals may be a link that somebody else laid there."""
        if self._journals is None or place.parent != self._journals.parent:
            return True
        try:
            with shelf(place.parent, place.name):
                return True
        except OSError:
            return False


def _is_left(profile: StoredProfile, deletion: Deletion, live: Collection[str]) -> bool:
    """Nobody tells of it any more, and it is older than the deletion of what it is called by; or
    somebody brought it again, and no run is called so."""
    called = {profile.run, profile.run_name}
    if profile.recorded is not None or called.isdisjoint((deletion.run, deletion.name)):
        return False
    return profile.start_ns <= deletion.at_ns or called.isdisjoint(live)


def _by_hand(folder: ProfileFolder, names: Mapping[RunId, str]) -> StoredProfile:
    """A folder that nobody told of; its run is the one whose id or name its folder has."""
    run = RunId(folder.run)
    if run not in names:
        run = next((id for id, name in names.items() if name == folder.run), run)
    places = (folder.place,)
    return StoredProfile(
        run, names.get(run, folder.run), folder.name, places, files_in(places), None
    )


def look(place: Path, *, loose: bool = False) -> Iterator[ProfileFolder]:
    """Profiles' folders under a place: `<run>/plugins/profile/<name>`, at any depth of <run>."""
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
            run = ":".join(parts[:-2]) or _run_of(root)
            names = filter(is_profile_name, below)
            yield from (ProfileFolder(run, name, Place(root, here / name)) for name in names)
            below.clear()
        elif loose and any(kind_of(name) != "other" for name in files):
            run = ":".join(parts[:-1]) or root.name
            name = parts[-1] if parts else root.name
            safe = name if is_profile_name(name) else "traces"
            yield ProfileFolder(run, safe, Place(root, here))


def _run_of(root: Path) -> str:
    return root.parent.name if root.name == _VIEWED and root.parent.name else root.name


def _beside(place: Path) -> Iterator[ProfileFolder]:
    """A viewer of `<run>/tensorboard` also shows what JAX writes when it is given `<run>`.

    Only what the owner of the place has put there: `<run>` may be a directory such as /tmp.
    """
    run = place.absolute().parent
    if place.name != _VIEWED:
        return
    try:
        with Place(run, run.joinpath(*_LAYOUT)).open() as profiles:
            if profiles.uid != place.stat().st_uid:
                return
            names = sorted(filter(is_profile_name, profiles.names()))
    except OSError:
        return
    for name in names:
        yield ProfileFolder(run.name, name, Place(run, run.joinpath(*_LAYOUT, name)))


def _local(directory: str, name: str) -> Place | None:
    """The folder that a record names, if it is this profile's, ours, and on this machine."""
    parts = urlsplit(directory)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        return None
    path = Path(unquote(parts.path) if parts.scheme else directory)
    if not path.is_absolute() or not _is_profile_folder(path, name) or len(path.parts) < 5:
        return None
    try:
        # Above <run> links may be: the program was told to write there.
        base = path.parents[3].resolve(strict=True)
        place = Place(base, base.joinpath(*path.parts[-4:]))
        with place.open() as folder:
            return place if folder.uid == os.geteuid() else None
    except (OSError, ValueError):
        return None


def _is_profile_folder(folder: Path, name: str) -> bool:
    return folder.parts[-3:] == (*_LAYOUT, name)


def folder_name(run: str) -> str:
    """What XProf knows a run by."""
    if is_profile_name(run):
        return run
    return "".join(c if is_profile_name(c) else "_" for c in run)[:128] or "run"
