"""What a profile's traces say, worked out once, in a process of its own, and stored beside them.

    python -m runwatch.head.features.profiles.summary MEMORY_BYTES FILE…

A trace is somebody else's file: whatever is in it, reading it takes a bounded amount of memory and
time, and none of the head's.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from runwatch.errors import RunwatchError
from runwatch.head.state.profile_files import File, refusal
from runwatch.head.state.profiles import StoredProfile
from runwatch.traces.summary import combine, summarise

CACHE: Final = ".runwatch-summary.json"
MOST_CACHED: Final = 16 << 20
MEMORY_BYTES: Final = 4 << 30
"""Of address space."""
SECONDS: Final = 300.0
MOST_FILES: Final = 512
RECENT: Final = 20
_VERSION: Final = 2
_POLL_SECONDS: Final = 0.25
logger = logging.getLogger("runwatch.head")

Stamp = list[list[Any]]
Key = tuple[str, str]
SummaryState = Literal["none", "waiting", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Summary:
    """What is known by now of one profile's traces."""

    state: SummaryState
    summary: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""


class Summaries:
    """Any thread may call; one process at a time works."""

    def __init__(
        self,
        profiles: Callable[[], Sequence[StoredProfile]] = tuple,
        *,
        memory_bytes: int = MEMORY_BYTES,
        seconds: float = SECONDS,
    ) -> None:
        self._profiles = profiles
        self._memory_bytes = memory_bytes
        self._seconds = seconds
        self._lock = threading.Lock()
        self._known: dict[Key, tuple[Stamp, Summary]] = {}
        self._queue: queue.Queue[StoredProfile | Literal["look"] | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def of(self, profile: StoredProfile) -> Summary:
        """What is known by now; the first to ask has it worked out."""
        files = traces(profile.files)
        if not files or not profile.is_over:
            return Summary("none", why="" if profile.is_over else "it is being recorded")
        stamp = _stamp(files)
        with self._lock:
            known = self._known.get((profile.run, profile.name))
            if known is not None and known[0] == stamp:
                return known[1]
            summary = _cached(profile, stamp) or Summary("waiting")
            self._known[profile.run, profile.name] = stamp, summary
            if summary.state == "waiting":
                self._order(profile)
            return summary

    def look(self) -> None:
        """A recording may have ended, or its last file come: have what is new worked out."""
        with self._lock:
            self._order("look")

    def forget(self, profile: StoredProfile) -> None:
        with self._lock:
            self._known.pop((profile.run, profile.name), None)

    def close(self) -> None:
        self._closing.set()
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join()

    def _order(self, profile: StoredProfile | Literal["look"]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, name="runwatch-summaries", daemon=True
            )
            self._thread.start()
        self._queue.put(profile)

    def _work(self) -> None:
        while (order := self._queue.get()) is not None and not self._closing.is_set():
            if order == "look":
                for profile in filter(_is_whole, self._recent()):
                    self.of(profile)
            else:
                self._make(order)

    def _recent(self) -> Sequence[StoredProfile]:
        try:
            return self._profiles()[:RECENT]
        except RunwatchError as error:
            logger.warning("profiles cannot be read to be summarised: %s", error)
            return ()

    def _make(self, profile: StoredProfile) -> None:
        files = traces(profile.files)
        summary = self._worked_out(files)
        if not self._closing.is_set():
            with self._lock:
                self._known[profile.run, profile.name] = _stamp(files), summary
            _store(profile, _stamp(files), summary)

    def _worked_out(self, files: Sequence[File]) -> Summary:
        bad = [why for why in map(refusal, files) if why]
        good = [file for file in files if not refusal(file)][:MOST_FILES]
        if not good:
            return Summary("failed", why="; ".join(bad)[:2000])
        with (
            tempfile.TemporaryFile() as output,
            tempfile.TemporaryFile() as errors,
            _handed_on(good) as (opened, paths),
        ):
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "runwatch.head.features.profiles.summary",
                 str(self._memory_bytes), *map(str, paths)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True,
                pass_fds=opened,
            )  # fmt: skip
            code = self._waited(process)
            output.seek(0)
            errors.seek(0)
            return _read(code, output.read(), errors.read(), bad)

    def _waited(self, process: subprocess.Popen[bytes]) -> int | None:
        """Its exit code; None if it had to be ended."""
        left = self._seconds
        while left > 0 and not self._closing.is_set():
            try:
                return process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                left -= _POLL_SECONDS
        process.kill()
        process.wait()
        return None


@contextmanager
def _handed_on(files: Sequence[File]) -> Iterator[tuple[list[int], list[Path]]]:
    """The files as we found them, for a process that gets the descriptors: by their paths it might
    find others."""
    with tempfile.TemporaryDirectory(prefix="runwatch-summary-") as folder, ExitStack() as closing:
        opened, paths = [], []
        for file in files:
            with suppress(OSError):
                fd = file.open()
                closing.callback(os.close, fd)
                path = Path(folder, file.name)
                path.symlink_to(f"/proc/self/fd/{fd}")
                opened.append(fd)
                paths.append(path)
        yield opened, paths


def _is_whole(profile: StoredProfile) -> bool:
    """All files that processes told of are here.  Nobody asks yet, so each file is read once."""
    here = {file.name for file in profile.files}
    return profile.recorded is None or all(
        here.issuperset(part.files) for part in profile.recorded.parts
    )


def traces(files: Sequence[File]) -> list[File]:
    """Those to read: what JAX derives from an XPlane profile says nothing more than that."""
    planes = {f.name.removesuffix(".xplane.pb") for f in files if f.kind == "xplane"}
    derived = {f"{stem}.trace.json.gz" for stem in planes}
    return [f for f in files if f.kind != "other" and f.name not in derived]


def _stamp(files: Sequence[File]) -> Stamp:
    return [[_VERSION, file.name, file.bytes, file.modified_ns] for file in files]


def _read(code: int | None, output: bytes, errors: bytes, bad: Sequence[str]) -> Summary:
    try:
        answer = json.loads(output) if code == 0 else {}
    except ValueError:
        answer = {}
    problems = [*bad, *map(str, answer.get("problems", []))]
    if answer.get("summary") is not None:
        return Summary("done", answer["summary"], "; ".join(problems)[:2000])
    if code is None:
        problems.append("reading them took too long")
    elif not answer:
        last = errors.decode(errors="replace").strip().rsplit("\n", 1)[-1]
        problems.append(f"reading them failed: {last[:300] or f'exit code {code}'}")
    return Summary("failed", why="; ".join(problems)[:2000])


def _cached(profile: StoredProfile, stamp: Stamp) -> Summary | None:
    for place in profile.places:
        try:
            with place.open() as folder:
                stored = json.loads(folder.text(CACHE, MOST_CACHED, owners=folder.ours()))
            if stored["stamp"] == stamp:
                return Summary(stored["state"], stored["summary"], stored["why"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def _store(profile: StoredProfile, stamp: Stamp, summary: Summary) -> None:
    place = profile.places[0]
    body = {"stamp": stamp, "state": summary.state, "summary": summary.summary, "why": summary.why}
    try:
        with place.open() as folder:
            folder.write(CACHE, json.dumps(body).encode())
    except OSError as error:  # a directory that we may only read: it is in memory
        logger.debug("a summary cannot be stored in %s: %s", place.path, error)


# ── the process that reads ────────────────────────────────────────────────────────────────────


def main(words: list[str]) -> None:
    limit = int(words[0])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    summaries, problems = [], []
    for name in words[1:]:
        try:
            summaries.append(summarise(Path(name)))
        except MemoryError:
            problems.append(f"{Path(name).name} needs more than {limit >> 20} MiB to be read")
        except (RunwatchError, OSError, ValueError) as error:
            problems.append(f"{Path(name).name}: {error}")
    summary = combine(summaries).to_json() if summaries else None
    sys.stdout.write(json.dumps({"summary": summary, "problems": problems}))


if __name__ == "__main__":
    main(sys.argv[1:])
