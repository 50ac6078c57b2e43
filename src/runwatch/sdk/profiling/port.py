"""Profiles for whoever asks on a port, as `jax.profiler.start_server` gives them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runwatch.capture.tracing.profile_files import PLUGIN, local_folder
from runwatch.capture.tracing.profiler_service import (
    CannotProfile,
    ProfileAnswer,
    ProfileRequest,
    ProfilerService,
)
from runwatch.capture.tracing.traces import XPLANE
from runwatch.errors import UsageError
from runwatch.record.capture_limits import MAX_MS
from runwatch.record.captures import FAILED, checked_name
from runwatch.sdk.profiling.profiling import Profiler, timestamp
from runwatch.sdk.profiling.recording import Request

if TYPE_CHECKING:
    from runwatch.sdk.run import Run

WRITE_SECONDS: Final = 120.0


class ProfilePort:
    def __init__(self, run: Run, profiler: Profiler, address: str) -> None:
        self._run, self._profiler, self.address = run, profiler, address
        self._service = ProfilerService(self._profile)

    def start(self) -> None:
        """Raises OSError or ImportError."""
        self._service.start(self.address)

    def stop(self) -> None:
        self._service.stop()

    def _profile(self, request: ProfileRequest) -> ProfileAnswer:
        kept: list[tuple[str, bytes]] = []

        def keep(files: Sequence[Path]) -> None:
            kept.extend((file.name, file.read_bytes()) for file in files)

        recording = self._profiler.record(self._request(request), keep if _sends(request) else None)
        if isinstance(recording, str):
            raise CannotProfile(f"Another profiling session active: {recording}")
        if not recording.over.wait(request.duration_ms / 1e3 + WRITE_SECONDS):
            raise CannotProfile("the trace is still being written")
        if recording.state == FAILED:
            raise CannotProfile(recording.why)
        return _answer(kept) if _sends(request) else ProfileAnswer(written=True)

    def _request(self, asked: ProfileRequest) -> Request:
        if not 0 < asked.duration_ms <= MAX_MS:
            raise CannotProfile(f"duration_ms {asked.duration_ms}: 1 to {MAX_MS}")
        now = self._run._clock.wall_ns()
        try:
            name = checked_name(asked.session_id or timestamp(now))
        except UsageError as error:
            raise CannotProfile(str(error)) from None
        path = self._profiler.path()
        if not _sends(asked):
            self._check_folder(asked.repository_root, path)
        return Request(name, path, "demand", seconds=asked.duration_ms / 1e3, start_ns=now)

    def _check_folder(self, asked: str, path: str) -> None:
        """Who asks may not choose where the program writes."""
        own = [path.rstrip("/"), f"{path.rstrip('/')}/{self._run.id}"]
        own.append("/".join((own[-1], *PLUGIN)))
        if _plain(asked) not in [_plain(folder) for folder in own]:
            raise CannotProfile(
                f"repository_root {asked[:200]!r}: this run's profiles go to {own[1]}; ask for "
                "that, or for the trace itself (emit_xspace)"
            )


def _plain(path: str) -> str:
    return str(local_folder(path) or path.rstrip("/"))


def _sends(request: ProfileRequest) -> bool:
    return request.emit_xspace or not request.repository_root


def _answer(files: Sequence[tuple[str, bytes]]) -> ProfileAnswer:
    spaces = [data for name, data in files if name.endswith(XPLANE)]
    # Two messages one after the other are their sum, in protobuf.
    tools = tuple((name, data) for name, data in files if not name.endswith(XPLANE))
    return ProfileAnswer(b"".join(spaces), tools)
