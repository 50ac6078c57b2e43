"""How far a capture has come, from what was told of it."""

from __future__ import annotations

from typing import Any

import pytest

from runwatch.record import JournalId
from runwatch.record.captures import CaptureRequested
from runwatch.record.commands import CaptureResult
from runwatch.views import captures
from runwatch.views.captures import PATIENCE_NS, Capture, reasons
from runwatch.views.profiles import Part, State

S = 10**9
START = 1_000 * S


def asked(**changes: Any) -> CaptureRequested:
    body = {
        "session": "s",
        "command": "c",
        "start_ns": START,
        "duration_ms": 2_000,
        "hosts": ["a", "b"],
        "unreachable": {},
        "ahead_ns": {"a": 0, "b": 500 * S},
        "processes": [
            {"host": "a", "rank": 0, "pid": 10, "way": "sdk"},
            {"host": "b", "rank": 1, "pid": 20, "way": "port"},
        ],
    }
    return CaptureRequested.of(body | changes)


def part(host: str, rank: int, state: State, start_ns: int = 0, end_ns: int | None = None) -> Part:
    return Part(
        JournalId("j"), host, rank, "jax", state, "", ("f",), "/d", 5, start_ns, end_ns, None,
        None, "demand", "c", start_ns,
    )  # fmt: skip


def result(host: str, *processes: dict[str, Any], **more: Any) -> CaptureResult:
    body = {"host": host, "command": "c", "processes": list(processes), **more}
    return CaptureResult.of(body)


def capture_of(
    request: CaptureRequested, parts: list[Part], results: list[CaptureResult], now_ns: int
) -> Capture:
    return captures.capture_of("run", request, parts, results, now_ns)


def states(capture: Capture) -> list[str]:
    return [target.state for target in capture.targets]


def test_it_goes_from_asked_to_done() -> None:
    now = START + S
    assert (states(capture_of(asked(), [], [], now)), capture_of(asked(), [], [], now).state) == (
        ["asked", "asked"],
        "asked",
    )
    going = capture_of(asked(), [part("a", 0, "running", START)], [], now)
    assert (states(going), going.state, going.is_over) == (["running", "asked"], "running", False)
    ended = capture_of(
        asked(),
        [
            part("a", 0, "done", START, START + 2 * S),
            part("b", 1, "done", START + 500 * S + S // 10, START + 502 * S),
        ],
        [],
        now,
    )
    assert (ended.state, ended.is_over) == ("done", True)
    # The clock of b is 500 s ahead: the windows have 1.9 of 2 s in common.
    assert ended.overlap_percent == pytest.approx(95)
    # One that went on for longer takes nothing away; one that began late does.
    long, late = (START, START + 3 * S), (START + S, START + 3 * S)
    for windows, overlap in (
        ((long, long), 100),
        ((long, late), 100),
        ((late, (START, START + 2 * S)), 50),
    ):
        parts = [
            part(h, r, "done", *w) for (h, r), w in zip((("a", 0), ("a", 1)), windows, strict=True)
        ]
        assert (
            capture_of(asked(hosts=["a"], processes=[]), parts, [], now).overlap_percent == overlap
        )
    parts = [part("a", 0, "done", *long), part("a", 1, "done", *late)]
    stepwise = capture_of(asked(hosts=["a"], processes=[], duration_ms=None), parts, [], now)
    assert stepwise.overlap_percent == pytest.approx(100 * 2 / 3)


def test_a_node_tells_what_a_process_did_not() -> None:
    failed = {"rank": 1, "pid": 20, "way": "", "state": "failed", "why": "no socket"}
    done = {"rank": 0, "pid": 10, "way": "sdk", "state": "done", "files": ["x"], "bytes": 7}
    capture = capture_of(asked(), [], [result("a", done), result("b", failed)], START)
    assert capture.state == "partial" and states(capture) == ["done", "failed"]
    assert capture.targets[0].files == ("x",) and capture.overlap_percent is None
    assert reasons(capture.targets) == {"no socket": [1]}


def test_what_a_process_tells_is_fuller() -> None:
    said = {"rank": 0, "pid": 10, "way": "sdk", "state": "failed", "why": "silent"}
    capture = capture_of(
        asked(hosts=["a"], processes=[{"host": "a", "rank": 0, "pid": 10, "way": "sdk"}]),
        [part("a", 0, "done", START, START + S)],
        [result("a", said)],
        START,
    )
    assert capture.state == "done" and capture.targets[0].bytes == 5


def test_hosts_that_say_nothing() -> None:
    late = START + 3 * S + PATIENCE_NS
    given_up = capture_of(asked(), [part("a", 0, "done", START, START + S)], [], late)
    assert states(given_up) == ["done", "failed"] and "nothing was heard" in given_up.targets[1].why
    lost = capture_of(asked(hosts=["a"], unreachable={"b": "no agent"}), [], [], START)
    assert states(lost) == ["asked", "failed"] and lost.targets[1].why == "no agent"
    refused = capture_of(asked(), [], [result("b", state="failed", why="too late")], START)
    assert refused.targets[1].why == "too late"


def test_a_pod_s_process_is_one_whoever_tells_of_it() -> None:
    """It tells of itself under its pod's name; its node's agent was asked, and answers."""
    request = asked(processes=[{"host": "pod", "node": "b", "rank": 1, "pid": 20, "way": "sdk"}])
    told = [part("pod", 1, "done", START + 500 * S, START + 502 * S)]
    answers = [result("a"), result("b", {"host": "pod", "rank": 1, "pid": 20, "state": "done"})]
    for parts, results in ((told, answers), (told, answers[:1]), ([], answers)):
        (process, *others) = capture_of(request, parts, results, START + S).targets[::-1]
        assert (process.host, process.rank, process.pid, process.state) == ("pod", 1, 20, "done")
        assert [other.host for other in others] == ["a"]
    assert process.asked_of == "b"
    seen = capture_of(request, told, answers, START + S).targets[-1]
    assert (seen.start_ns, seen.end_ns) == (START, START + 2 * S)  # by the clock of its node


def test_a_pod_whose_node_cannot_be_asked() -> None:
    request = asked(
        hosts=["a"],
        unreachable={"b": "no agent of it is connected"},
        processes=[{"host": "pod", "node": "b", "rank": 1, "pid": 20, "way": "sdk"}],
    )
    found = capture_of(request, [], [], START + S).targets
    assert [(p.host, p.why) for p in found] == [("a", ""), ("pod", "no agent of it is connected")]


def test_programs_without_a_run_are_known_when_they_answer() -> None:
    wanted = asked(processes=[], hosts=["a", "b"])
    assert states(capture_of(wanted, [], [], START)) == ["asked", "asked"]
    two = [{"rank": n, "pid": n, "way": "kineto", "state": "done"} for n in (0, 1)]
    nobody = result("b", state="failed", why="nobody")
    capture = capture_of(wanted, [], [result("a", *two), nobody], START)
    assert states(capture) == ["done", "done", "failed"] and capture.state == "partial"


def test_nothing_at_all() -> None:
    assert capture_of(CaptureRequested.of({}), [], [], 0).state == "failed"
