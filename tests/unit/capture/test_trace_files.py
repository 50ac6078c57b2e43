"""Names and places of a session's files, and what is wrong with a trace."""

from __future__ import annotations

import gzip
import threading
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from runwatch.capture.tracing import profiler_service, traces
from runwatch.capture.tracing.profile_files import (
    LocalPlace,
    as_host,
    place,
    profile_folder,
    publish,
    stems,
)
from runwatch.capture.tracing.profiler_service import ProfileAnswer, ProfileRequest, read_request
from runwatch.capture.tracing.trace_checks import kineto_problems, xplane_problems, xplane_window
from runwatch.errors import UsageError
from runwatch.record.captures import checked_name

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"


def message(*parts: tuple[int, bytes | str | int]) -> bytes:
    """Protobuf by field number; every number and length here is below 128 or a plain varint."""
    out = b""
    for number, value in parts:
        if isinstance(value, int):
            out += bytes([number << 3]) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += bytes([number << 3 | 2]) + varint(len(data)) + data
    return out


def varint(value: int) -> bytes:
    head = b""
    while value > 127:
        head += bytes([value & 127 | 128])
        value >>= 7
    return head + bytes([value])


def plane(name: str, *, events: int) -> bytes:
    line = message((2, "line"), *((4, message((1, 7), (2, 300), (3, 5))) for _ in range(events)))
    return message((1, 1), (2, name), (3, message((2, "empty"))), (3, line))


def test_a_trace_with_events_of_its_device_is_well(tmp_path: Path) -> None:
    file = tmp_path / "trace.xplane.pb"
    host, gpu = plane("/host:CPU", events=2), plane("/device:GPU:0", events=3)
    file.write_bytes(message((1, host), (1, gpu), (4, "node-1")))
    assert xplane_problems(file, "gpu") == []
    file.write_bytes(message((1, host)))
    assert xplane_problems(file, "") == []


def test_a_trace_that_lacks_something_says_what(tmp_path: Path) -> None:
    file = tmp_path / "trace.xplane.pb"
    host = plane("/host:CPU", events=1)
    busy = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
    file.write_bytes(message((1, host), (1, plane("/device:GPU:0", events=0)), (2, busy)))
    assert xplane_problems(file, "gpu") == [
        f"the profiler says: {busy}",
        "no events of the GPU although the program uses one",
    ]
    file.write_bytes(message((1, plane("/host:CPU", events=0))))
    assert xplane_problems(file, "") == ["the trace is empty: nothing ran while it was recorded"]
    file.write_bytes(b"")
    assert xplane_problems(file, "") == ["the trace is empty"]


@pytest.mark.parametrize("damage", [b"\xff" * 40, b"\x0a\x7fshort", b"PK\x03\x04zip", b"\x80"])
def test_what_is_no_trace_is_not_believed(tmp_path: Path, damage: bytes) -> None:
    file = tmp_path / "trace.xplane.pb"
    file.write_bytes(damage)
    (problem,) = xplane_problems(file, "gpu")
    assert "damaged" in problem


def test_a_trace_says_when_it_was_recorded(tmp_path: Path) -> None:
    """As JAX wrote it on an H200: six seconds were asked for."""
    begin_ns, end_ns = xplane_window(TRACES / "h200" / "jax-50.xplane.pb") or (0, 0)
    assert (begin_ns, end_ns) == (1794750231569253718, 1794750237623150301)

    def window(*parts: tuple[int, int | str | bytes]) -> tuple[int, int] | None:
        file = tmp_path / "trace.xplane.pb"
        file.write_bytes(message((1, plane("/host:CPU", events=2)), (1, message(*parts))))
        return xplane_window(file)

    named = [
        (5, message((1, number), (2, message((1, number), (2, f"profile_{what}_time")))))
        for number, what in ((3, "start"), (4, "stop"))
    ]
    start, stop = (6, message((1, 3), (3, 1000))), (6, message((1, 4), (3, 2500)))
    name = (2, "Task Environment")
    assert window(name, *named, start, stop) == (1000, 2500)
    assert window(name, *named, stop) is None
    assert window(name, *named, (6, message((1, 3), (3, 9000))), stop) is None
    assert window((2, "/host:metadata"), *named, start, stop) is None
    assert window(name, (5, message((1, 3))), start, stop) is None
    assert window(name, *named, start, (6, b"\xff\xff")) is None


def test_a_kineto_trace_is_looked_through(tmp_path: Path) -> None:
    file = tmp_path / "trace.kineto.json.gz"

    def problems(text: str, device: str = "gpu") -> list[str]:
        file.write_bytes(gzip.compress(text.encode()))
        return kineto_problems(file, device)

    operation = '{"ph": "X", "cat": "cpu_op", "name": "a"}'
    kernel = '{"ph": "X", "cat": "kernel", "name": "k"}'
    filler = " " * (1 << 20)
    # The kernel lies across the border of two chunks.
    early = f'{{"traceEvents": [{operation}, '
    across = early + filler[: (1 << 20) - len(early) - 15] + kernel + "]}"
    assert problems(across) == []
    assert problems(f'{{"traceEvents": [{operation}]}}', "") == []
    assert problems(f'{{"traceEvents": [{operation}]}}') == [
        "no events of the GPU although the program uses one"
    ]
    assert problems('{"traceEvents": []}') == [
        "the trace is empty: nothing ran while it was recorded"
    ]
    assert problems(f'{{"traceEvents": [{kernel}], "ERROR": ["CUPTI busy", "x"]}}') == [
        "the profiler says: CUPTI busy",
        "the profiler says: x",
    ]
    assert problems(f'{{"traceEvents": [{kernel},') == ["the trace is cut off"]
    file.write_bytes(gzip.compress(b"{}" * 999)[:-20])
    assert "damaged" in kineto_problems(file, "")[0]


@pytest.mark.parametrize("name", ["a", "2026.11.15-x_Y", "x" * 128])
def test_names_that_may_be_paths(name: str) -> None:
    assert checked_name(name) == name
    assert profile_folder("gs://bucket/x/", "run", name) == (
        f"gs://bucket/x/run/plugins/profile/{name}"
    )


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a\\b", "a..b", ".a", "-a", "x" * 129, "a\n", "ä", None]
)
def test_names_that_may_not(name: Any) -> None:
    with pytest.raises(UsageError, match="session"):
        checked_name(name)
    with pytest.raises(UsageError, match="run"):
        profile_folder("/tmp", name, "fine")


def test_folders_and_urls(tmp_path: Path) -> None:
    wanted = str(tmp_path / "r" / "plugins" / "profile" / "s")
    assert profile_folder(str(tmp_path), "r", "s") == wanted
    assert profile_folder(f"file://{tmp_path}", "r", "s") == wanted
    assert as_host("../evil host") == "evil-host"
    assert as_host("..") == "host"
    assert list(islice(stems("h", 3, first=True), 4)) == ["h", "h.rank3", "h.rank3.2", "h.rank3.3"]
    assert next(stems("h", 3, first=False)) == "h.rank3"


def traced(folder: Path, text: str) -> list[Path]:
    folder.mkdir(parents=True)
    files = [folder / "trace.xplane.pb", folder / "trace.kineto.json.gz"]
    for file in files:
        file.write_text(text)
    return files


def test_processes_that_come_at_once_never_overwrite_each_other(tmp_path: Path) -> None:
    target = LocalPlace(str(tmp_path / "session"))
    gate = threading.Barrier(12)
    published = []

    def one(number: int) -> None:
        files = traced(tmp_path / f"from{number}", f"trace {number}")
        gate.wait()
        names = stems("host", number % 2, first=True)
        published.append(publish(files, "trace", target, names, tmp_path / "claims"))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = {p.read_text() for p in (tmp_path / "session").iterdir()}
    assert texts == {f"trace {number}" for number in range(12)}
    names = [name for found in published for name in found.files]
    assert len(set(names)) == 24 == len(list((tmp_path / "session").iterdir()))
    assert {"host.xplane.pb", "host.kineto.json.gz", "host.rank1.xplane.pb"} <= set(names)


def test_any_url_that_fsspec_knows(tmp_path: Path) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    try:
        for number in range(2):
            files = traced(tmp_path / str(number), f"trace {number}")
            target = place(profile_folder("memory://bucket", "run", "s"))
            found = publish(files, "trace", target, stems("h", 0, first=True), tmp_path / "claims")
            assert found.directory == "memory://bucket/run/plugins/profile/s"
            assert found.bytes == 14
        assert sorted(memory.ls("/bucket/run/plugins/profile/s", detail=False)) == [
            f"/bucket/run/plugins/profile/s/{name}"
            for name in (
                "h.kineto.json.gz",
                "h.rank0.kineto.json.gz",
                "h.rank0.xplane.pb",
                "h.xplane.pb",
            )
        ]
        assert list((tmp_path / "claims").iterdir()) == []
    finally:
        memory.rm("/bucket", recursive=True)


def test_the_frameworks_that_a_trace_would_be_of() -> None:
    def loaded(*names: str) -> dict[str, ModuleType]:
        return {name: ModuleType(name) for name in names}

    asleep: Any = SimpleNamespace(backends_are_initialized=lambda: False)
    awake: Any = SimpleNamespace(backends_are_initialized=lambda: True)
    assert traces.frameworks({}) == ()
    assert traces.frameworks(loaded("jax", "torch", "tensorflow")) == ("jax", "torch")
    assert traces.frameworks(loaded("tensorflow")) == ("tensorflow",)
    both = loaded("jax", "torch")
    assert traces.frameworks({**both, "jax._src.xla_bridge": asleep}) == ("torch",)
    assert traces.frameworks({**both, "jax._src.xla_bridge": awake}) == ("jax", "torch")
    assert traces.frameworks({**loaded("jax"), "jax._src.xla_bridge": asleep}) == ("jax",)
    being_imported = loaded("torch")
    being_imported["torch"].__spec__ = SimpleNamespace(_initializing=True)  # type: ignore[assignment]
    assert traces.frameworks(being_imported) == ()
    assert traces.choose((), {}) == (
        [],
        ["nothing to trace: this process has imported none of jax, torch, torch_xla, tensorflow"],
    )


def test_requests_and_answers_of_the_profiler_service() -> None:
    options = message((2, 2), (14, "from-options"))
    request = message((1, 500), (4, options), (5, "/logs"), (7, "h:1"), (9, 1))
    assert read_request(request) == ProfileRequest(500, "from-options", "/logs", "h:1", True)
    assert read_request(message((4, options), (6, "own"))).session_id == "own"
    assert read_request(b"") == ProfileRequest()
    assert profiler_service.write_answer(ProfileAnswer()) == message((7, 1))
    assert profiler_service.write_answer(ProfileAnswer(written=True)) == b""
    answer = ProfileAnswer(b"space" * 50, (("t.json.gz", b"kineto"),))
    assert profiler_service.write_answer(answer) == message(
        (6, message((1, "t.json.gz"), (2, "kineto"))), (8, b"space" * 50)
    )
