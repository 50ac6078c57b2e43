"""Profiles under /api/v1: list, one with its summary, its files, delete."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from runwatch.errors import NotFound
from runwatch.head.features.profiles.summary import Summaries, SummaryState
from runwatch.head.http.access import CALLER
from runwatch.head.http.guests import seen
from runwatch.head.http.openapi import JSON, Operation
from runwatch.head.http.parameters import OFFSET, RUN, YES, BadRequest, Given, Parameter, limit
from runwatch.head.http.patience import for_caller
from runwatch.head.http.replies import error_reply, json_reply
from runwatch.head.http.types import Answer, plain
from runwatch.head.state.profile_files import File, Kind, refusal
from runwatch.head.state.profiles import ProfileRunning, Profiles, StoredProfile, folder_name
from runwatch.traces.summary import SessionSummary
from runwatch.views.profiles import State

BYTES: Final = "application/octet-stream"


class ProfilePart(Answer):
    """What one process captured, as it told."""

    host: str
    rank: int
    framework: str
    state: State
    why: str
    files: list[str]
    directory: str
    bytes: int
    start_ns: int
    end_ns: int | None
    first_step: int | None
    last_step: int | None


class ProfileFile(Answer):
    name: str
    kind: Kind
    """xplane is for XProf, trace for Perfetto."""
    bytes: int
    modified_ns: int
    viewer: str
    """Where it opens, relative to this head's address; empty: nowhere."""


class ProfileInfo(Answer):
    run: str
    run_name: str
    session: str
    state: State
    why: str
    hosts: list[str]
    ranks: list[int]
    frameworks: list[str]
    """Empty, like hosts and ranks, for files that somebody put there by hand."""
    files: list[ProfileFile]
    """Those that this head can reach."""
    bytes: int
    start_ns: int
    end_ns: int | None
    first_step: int | None
    last_step: int | None
    origin: str
    directories: list[str]
    xprof: str
    """Where XProf shows it, relative to this head's address; empty: it has nothing for it."""


class ProfileDetail(ProfileInfo):
    parts: list[ProfilePart]
    summary_state: SummaryState
    """waiting: ask again in a moment."""
    summary_why: str
    summary: SessionSummary | None
    """Kept as its JSON."""


class ProfileList(Answer):
    profiles: list[ProfileInfo]
    """Newest first."""
    total: int = 0
    next_offset: int | None = None
    """Where the rest begins, if there is more."""


class Deleted(Answer):
    run: str
    session: str
    files: int
    bytes: int


_SESSION: Final = Parameter("session", "string", "a session's id", "path", shortest=1)
_NAME: Final = Parameter("name", "string", "one of its files", "path", shortest=1)


_PAGE: Final = (limit(1000, 10_000), OFFSET)


class ProfileDesk:
    """`operations` is its part of the API's table."""

    def __init__(self, profiles: Profiles, summaries: Summaries) -> None:
        self.profiles = profiles
        self.summaries = summaries

    def operations(self) -> list[Operation]:
        one = "/api/v1/profiles/{run}/{session}"
        which = (RUN, _SESSION)
        listed = {JSON: ProfileList}
        return [
            Operation("/api/v1/profiles", "Profile sessions", self._all, _PAGE, listed),
            Operation(
                "/api/v1/runs/{run}/profiles",
                "Its profile sessions",
                self._of_run,
                (RUN, *_PAGE),
                listed,
                (404, 409),
            ),
            Operation(
                one,
                "One profile session and its summary",
                self._one,
                which,
                {JSON: ProfileDetail},
                (404, 422),
            ),
            Operation(
                f"{one}/files/{{name}}",
                "One of its files",
                self._file,
                (*which, _NAME),
                {BYTES: None},
                (404, 422),
            ),
            Operation(
                one,
                "Delete it and its files",
                self._delete,
                (*which, YES),
                {JSON: Deleted},
                (404, 409, 422),
                "DELETE",
            ),
        ]

    def close(self) -> None:
        self.summaries.close()

    # ── answers ───────────────────────────────────────────────────────────────────────────────

    async def _all(self, request: Request, given: Given) -> Response:
        sees = seen(request.scope[CALLER].sight, self.profiles.reading)

        def mine() -> list[StoredProfile]:
            return [profile for profile in self.profiles.all() if sees(profile.run)]

        return await _list(request, mine, given)

    async def _of_run(self, request: Request, given: Given) -> Response:
        return await _list(request, lambda: self.profiles.of(given["run"]), given)

    async def _one(self, request: Request, given: Given) -> Response:
        def detail() -> ProfileDetail:
            profile = self.profiles.find(given["run"], given["session"])
            summary = self.summaries.of(profile)
            return ProfileDetail(
                **_fields(profile),
                parts=_parts(profile),
                summary_state=summary.state,
                summary_why=summary.why,
                summary=plain(summary.summary) if summary.state == "done" else None,
            )

        return json_reply(await run_in_threadpool(detail))

    async def _file(self, request: Request, given: Given) -> Response:
        file = await run_in_threadpool(self.file, given["run"], given["session"], given["name"])
        packed = file.name.endswith(".gz")
        media = "application/gzip" if packed else JSON if file.name.endswith(".json") else BYTES
        try:
            opened = await run_in_threadpool(file.open)
        except OSError as error:
            raise NotFound(f"{file.name} cannot be read: {error.strerror}") from error
        return _Opened(opened, file.name, media)

    def file(self, run: str, profile_name: str, name: str) -> File:
        profile = self.profiles.find(run, profile_name)
        for file in profile.files:
            if file.name == name:
                return file
        raise NotFound(f"profile {profile_name!r} has no file {name[:80]!r} here")

    def trace(self, run: str, profile_name: str, name: str) -> str:
        """Why Perfetto is not given this file; empty when it may have it."""
        return refusal(self.file(run, profile_name, name))

    async def _delete(self, request: Request, given: Given) -> Response:
        if not given["yes"]:
            raise BadRequest("yes is missing: this cannot be undone, say yes=1 if it is meant")

        def gone() -> Deleted:
            profile = self.profiles.find(given["run"], given["session"])
            self.profiles.delete(profile)
            self.summaries.forget(profile)
            return Deleted(
                run=profile.run, session=profile.name, files=len(profile.files), bytes=profile.bytes
            )

        try:
            return json_reply(await run_in_threadpool(gone))
        except ProfileRunning as error:
            return error_reply(409, "active", str(error))


class _Opened(FileResponse):
    """What was opened, whatever bears its name by now."""

    def __init__(self, fd: int, name: str, media: str) -> None:
        self._fd = fd
        super().__init__(
            f"/proc/self/fd/{fd}",
            media_type=media,
            filename=name,
            headers={"Cache-Control": "no-cache"},
            stat_result=os.fstat(fd),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self._fd)


async def _list(
    request: Request, find: Callable[[], list[StoredProfile]], given: Given
) -> Response:
    def page() -> ProfileList:
        profiles, end = find(), given["offset"] + given["limit"]
        return ProfileList(
            profiles=[ProfileInfo(**_fields(each)) for each in profiles[given["offset"] : end]],
            total=len(profiles),
            next_offset=end if end < len(profiles) else None,
        )

    return json_reply(await for_caller(request, page))


def _fields(profile: StoredProfile) -> dict[str, Any]:
    recorded = profile.recorded
    return {
        "run": profile.run,
        "run_name": profile.run_name,
        "session": profile.name,
        "state": profile.state,
        "why": plain(recorded.why) if recorded else "",
        "hosts": [plain(host) for host in recorded.hosts] if recorded else [],
        "ranks": list(recorded.ranks) if recorded else [],
        "frameworks": [plain(name) for name in recorded.frameworks] if recorded else [],
        "files": [_file_info(profile, file) for file in profile.files],
        "bytes": profile.bytes,
        "start_ns": profile.start_ns,
        "end_ns": recorded.end_ns if recorded else None,
        "first_step": recorded.first_step if recorded else None,
        "last_step": recorded.last_step if recorded else None,
        "origin": plain(recorded.origin) if recorded else "",
        "directories": [plain(d) for d in recorded.directories]
        if recorded
        else _directories(profile),
        "xprof": _xprof(profile) if any(file.kind == "xplane" for file in profile.files) else "",
    }


def _directories(profile: StoredProfile) -> list[str]:
    return [plain(str(folder)) for folder in profile.folders]


def _file_info(profile: StoredProfile, file: File) -> ProfileFile:
    return ProfileFile(
        name=plain(file.name),
        kind=file.kind,
        bytes=file.bytes,
        modified_ns=file.modified_ns,
        viewer=_viewer(profile, file),
    )


def _viewer(profile: StoredProfile, file: File) -> str:
    if file.kind == "xplane":
        return _xprof(profile)
    return _perfetto(profile, file) if file.kind == "trace" else ""


def _xprof(profile: StoredProfile) -> str:
    run = quote(f"{folder_name(profile.run)}/{profile.name}", safe="")
    return f"viewers/xprof/data/plugin/profile/?run={run}"


def _perfetto(profile: StoredProfile, file: File) -> str:
    words = {"run": profile.run, "session": profile.name, "file": file.name}
    query = "&".join(f"{name}={quote(word, safe='')}" for name, word in words.items())
    return f"viewers/trace?{query}"


def _parts(profile: StoredProfile) -> list[ProfilePart]:
    names = ProfilePart.__struct_fields__
    parts = profile.recorded.parts if profile.recorded else ()
    return [ProfilePart(**{name: plain(getattr(part, name)) for name in names}) for part in parts]
