"""Both ends of the profiler service over loopback, and what is not one."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest

from runwatch.capture.tracing import profiler_service as service
from runwatch.capture.tracing.gathering import gather
from runwatch.capture.tracing.profiler_service import (
    CannotProfile,
    NoProfiler,
    NothingListens,
    PortTarget,
    ProfileAnswer,
    ProfilerBusy,
    ProfileRequest,
    ProfilerService,
    TracerLevels,
)
from runwatch.capture.tracing.trace_checks import fields
from runwatch.errors import RunwatchError, UsageError

XSPACE = b"\x0a\x07\x12\x05/host" + b"\x22\x04gpu7"  # a plane, and what its host calls itself


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def serving(profile: Callable[[ProfileRequest], ProfileAnswer]) -> Iterator[str]:
    served, address = ProfilerService(profile), free_address()
    served.start(address)
    try:
        yield address
    finally:
        served.stop()


def test_a_question_arrives_as_it_was_asked() -> None:
    asked: list[ProfileRequest] = []

    def profile(request: ProfileRequest) -> ProfileAnswer:
        asked.append(request)
        return ProfileAnswer(XSPACE)

    with serving(profile) as address:
        service.check(address)
        assert service.profile(address, 1234, "session-1", "host-a") == XSPACE
    assert asked == [ProfileRequest(1234, "session-1", "", "host-a", emit_xspace=True)]


def test_the_options_are_where_the_frameworks_look_for_them() -> None:
    message = service.write_request(PortTarget("h:1", "name"), 250, "s", TracerLevels(3, 0, 1))
    found = {number: (begin, end) for number, begin, end in fields(message, 0, len(message))}
    options = message[slice(*found[4])]
    inside = {number: (begin, end) for number, begin, end in fields(options, 0, len(options))}
    assert found[1][0] == inside[9][0] == 250
    assert found[9][0] == inside[5][0] == 1
    assert inside[2][0] == 3 and 3 not in inside and inside[4][0] == 1
    assert options[slice(*inside[15])] == b"name"


def test_all_are_asked_before_any_has_answered() -> None:
    together = threading.Barrier(3, timeout=100)

    def profile(request: ProfileRequest) -> ProfileAnswer:
        together.wait()
        return ProfileAnswer(request.host_name.encode())

    with ExitStack() as stack:
        asked = [PortTarget(stack.enter_context(serving(profile)), f"host-{n}") for n in range(3)]
        answers = service.profile_all(asked, 100, "s", start_ns=time.time_ns() + 1_000_000)
    assert [a.xspace for a in answers if isinstance(a, ProfileAnswer)] == [
        b"host-0", b"host-1", b"host-2",
    ]  # fmt: skip


def test_why_there_is_no_profile() -> None:
    def busy(request: ProfileRequest) -> ProfileAnswer:
        raise CannotProfile("Another profiling session active: since noon")

    def full(request: ProfileRequest) -> ProfileAnswer:
        raise CannotProfile("the disk is full")

    with ExitStack() as stack:
        for kind, profile, said in (
            (ProfilerBusy, busy, "another profiling session is active"),
            (CannotProfile, full, "cannot be profiled: the disk is full"),
            (CannotProfile, lambda _: ProfileAnswer(), "its trace is empty"),
        ):
            address = stack.enter_context(serving(profile))
            with pytest.raises(kind, match=said):
                service.profile(address, 10, "s", "h")
        waiting = threading.Event()
        address = stack.enter_context(serving(lambda _: ProfileAnswer(b"x" * waiting.wait(100))))
        with pytest.raises(CannotProfile, match="sent no trace in time"):
            service.profile(address, 10, "s", "h", seconds=0.1)
        waiting.set()
    with pytest.raises(NothingListens, match=f"nothing listens on {address}"):
        service.profile(address, 10, "s", "h")
    for odd in ("localhost", "localhost:http", "localhost:0", "localhost:70000"):
        with pytest.raises(CannotProfile, match="is no address"):
            service.check(odd)


def test_what_answers_is_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    handler = http.server.BaseHTTPRequestHandler
    monkeypatch.setattr(handler, "log_message", lambda *_: None)
    web = http.server.HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=web.serve_forever, args=(0.01,))
    thread.start()
    other = grpc.server(ThreadPoolExecutor(1))
    ports = [silent.getsockname()[1], web.server_port, other.add_insecure_port("127.0.0.1:0")]
    other.start()
    try:
        for port in ports:
            # Who says nothing is not waited for here; the others are, on a busy machine.
            monkeypatch.setattr(service, "REACH_SECONDS", 0.3 if port == ports[0] else 30.0)
            for ask in (service.check, lambda at: service.profile(at, 10, "s", "h")):
                with pytest.raises(NoProfiler, match=f":{port} answers, but is not a profiler"):
                    ask(f"127.0.0.1:{port}")
    finally:
        web.shutdown()
        thread.join()
        web.server_close()
        silent.close()
        other.stop(None).wait()


def test_traces_are_gathered_in_one_folder(tmp_path: Path) -> None:
    kineto = (("label.kineto.json.gz", b"torch"), ("odd/../name", b"other"))
    with (
        serving(lambda _: ProfileAnswer(XSPACE)) as one,
        serving(lambda _: ProfileAnswer(b"", kineto)) as two,
    ):
        asked = [PortTarget(one, ""), PortTarget(two, "b/../c"), PortTarget(free_address(), "gone")]
        found = gather(asked, f"file://{tmp_path}", "s1", 10)
        assert [one.host for one in found] == ["gpu7", "b/../c", "gone"]
        assert found[2].why.startswith("nothing listens on")
        again = gather(asked[:1], str(tmp_path), "s1", 10)
        assert "gpu7.xplane.pb exists already" in again[0].why
        with pytest.raises(UsageError, match="no '..'"):
            gather(asked, str(tmp_path), "../s", 10)
        (tmp_path / "file").touch()
        with pytest.raises(RunwatchError, match="cannot write to"):
            gather(asked, str(tmp_path / "file"), "s2", 10)
        gather(asked[2:], str(tmp_path), "s3", 10)
    profiles = tmp_path / "plugins/profile"
    assert {path.name: path.read_bytes() for path in (profiles / "s1").iterdir()} == {
        "gpu7.xplane.pb": XSPACE,
        "b-..-c.kineto.json.gz": b"torch",
        "b-..-c.odd-..-name": b"other",
    }
    assert [path.name for path in profiles.iterdir()] == ["s1"]
