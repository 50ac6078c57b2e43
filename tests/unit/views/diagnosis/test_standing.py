"""Stuck, at work, or in doubt: what a person would say who sees the stacks of one rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from runwatch.record.stacks import Stacks
from runwatch.views.diagnosis.evidence import RankEvidence, gather, seat
from runwatch.views.diagnosis.hang import diagnose
from runwatch.views.diagnosis.progress import Progress
from runwatch.views.diagnosis.pulses import Ran, children_of, of_others, of_thread
from runwatch.views.diagnosis.standing import Standing, most_lenient, standing
from runwatch.views.pace import Limits
from runwatch.views.severity import Bearing
from tests.unit.views.diagnosis.stories import (
    SINCE,
    SITE,
    collective,
    frame,
    loading,
    looping,
    main,
    native,
    rank,
    sleeping,
    stacks,
    thread,
)

SECOND = 1_000_000_000
STDLIB = "/usr/lib/python3.11"
ME = 1
"""The number of a story's main thread."""


def pulse(
    look: int,
    often: float,
    share: float,
    *,
    everyone: tuple[int, int] | None = None,
    wrote: int | None = None,
    children: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Felt at a look, a second after the one before; what happened during looks is left out.

    `everyone`: how often, and for how long, all threads were on a core in a second; without it,
    only the main thread was.  `wrote`: bytes that the main thread writes in a second.
    """
    ns, pair = look * SECOND, [round(look * often), round(look * share * SECOND)]
    side = {
        "ns": ns,
        "all": pair if everyone is None else [look * each for each in everyone],
        "threads": {str(ME): pair if wrote is None else [*pair, look * wrote]},
        "children": {
            pid: [*row[:2], look * row[2], look * row[3]] for pid, row in (children or {}).items()
        },
    }
    return {"before": side, "after": side}


def looked(
    *threads: Mapping[str, Any],
    often: float = 0.0,
    share: float = 0.0,
    looks: int = 3,
    state: str = "S",
    everyone: tuple[int, int] | None = None,
    wrote: int | None = None,
    **more: Any,
) -> RankEvidence:
    """The same at every look, but for what it had of the cores."""
    pulses = [pulse(look, often, share, everyone=everyone, wrote=wrote) for look in range(looks)]
    rounds = [stacks(*threads, state=state, pulse=felt, **more) for felt in pulses]
    return RankEvidence(0, rounds, last_step=10, since_ns=SINCE)


def bearing(evidence: RankEvidence) -> Bearing:
    return standing(seat(evidence)).bearing


def at(*frames: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return thread([*frames, main()], **more)


# ── what the kernel tells ─────────────────────────────────────────────────────────────────────


SENDING = at(frame("upload", line=5))


def test_a_line_that_stays_is_stuck_only_if_its_thread_rested() -> None:
    assert bearing(looked(SENDING)) == "stuck"
    assert bearing(looked(SENDING, often=6, share=0.01)) == "busy"


def test_one_look_or_two_are_no_evidence() -> None:
    assert bearing(looked(SENDING, looks=2)) == "unsure"
    without = RankEvidence(0, [stacks(SENDING)] * 3)
    assert bearing(without) == "stuck", "where the kernel tells nothing, three looks must do"


def test_polling_is_waiting() -> None:
    assert bearing(looked(sleeping(), often=10, share=0.005)) == "stuck"
    assert bearing(looked(sleeping(), often=100, share=0.4)) == "busy"


def test_who_is_in_the_kernel_reads_or_writes() -> None:
    assert bearing(looked(SENDING, state="D")) == "busy"


def test_shares_of_a_core() -> None:
    rounds = looked(SENDING, often=4, share=0.25).rounds
    assert of_thread(rounds, ME) == Ran(4.0, 0.25)
    assert of_others(rounds, {ME}) == Ran(0.0, 0.0)
    assert of_thread(rounds, 99) is None and of_thread(rounds[:1], ME) is None
    odd = [Stacks.of({"pulse": 3}), Stacks.of({"pulse": {"before": {}, "after": []}})]
    assert of_thread(odd, ME) is None


# ── kinds that have their time ────────────────────────────────────────────────────────────────


PATIENT = {
    "torch.save": frame("_save", f"{SITE}/torch/serialization.py", 900),
    "XLA": frame("backend_compile", f"{SITE}/jax/_src/compiler.py", 300),
    "fsspec": frame("flush", f"{SITE}/fsspec/spec.py", 1900),
    "boto": frame("upload_file", f"{SITE}/boto3/s3/transfer.py", 370),
    "gzip": frame("write", f"{STDLIB}/gzip.py", 290),
    "Trainer": frame("evaluation_loop", f"{SITE}/transformers/trainer.py", 4000),
}


@pytest.mark.parametrize("inner", [[], native("write"), native("recv"), [frame("nap", line=3)]])
@pytest.mark.parametrize("kind", PATIENT)
def test_what_takes_long_has_its_time_whatever_call_it_is_in(kind: str, inner: Any) -> None:
    report = diagnose({0: looked(at(*inner, PATIENT[kind], frame("fit", line=7)))})
    assert report.bearing == "busy" and report.confidence == "cannot tell"
    assert "may take long" in report.text


def test_a_compiler_that_a_compile_starts_is_the_compile() -> None:
    waiting = frame("_wait", f"{STDLIB}/subprocess.py", 2046)
    inductor = frame("build", f"{SITE}/torch/_inductor/codecache.py", 9)
    found = seat(looked(at(waiting, inductor, frame("fit"))))
    assert found.wait is not None and found.wait.kind == "compile"


def test_a_prompt_waits_for_a_person() -> None:
    pdb = at(*native("read"), frame("cmdloop", f"{STDLIB}/cmd.py", 126),
             frame("_cmdloop", f"{STDLIB}/pdb.py", 350))  # fmt: skip
    report = diagnose({0: looked(pdb)})
    assert report.bearing == "idle" and "waits at a debugger's prompt" in report.text


def test_a_cell_that_runs_is_no_idle_kernel() -> None:
    kernel = [frame("run_code", f"{SITE}/IPython/core/interactiveshell.py", 3),
              frame("start", f"{SITE}/ipykernel/kernelapp.py", 4)]  # fmt: skip
    loop = [frame("select", f"{STDLIB}/selectors.py", 468),
            frame("_run_once", f"{STDLIB}/asyncio/base_events.py", 1884)]  # fmt: skip
    assert bearing(looked(at(*loop, kernel[1]))) == "idle"
    assert bearing(looked(at(*native("recv"), frame("<module>", line=3), *kernel))) == "stuck"


# ── at work ───────────────────────────────────────────────────────────────────────────────────


def test_a_stack_that_moves_is_slow() -> None:
    assert bearing(rank(0, looping(47), again=looping(48))) == "busy"


def test_a_loop_that_moved_at_an_earlier_look_is_at_work() -> None:
    rounds = [stacks(looping(line)) for line in (47, 48, 48, 48, 48, 48)]
    assert bearing(RankEvidence(0, rounds)) == "busy"
    blocked = [stacks(looping(47)), *[stacks(SENDING)] * 5]
    assert bearing(RankEvidence(0, blocked)) == "stuck", "what it did before is no excuse"


def test_words_are_signs_of_life() -> None:
    progress = Progress(Limits())
    progress.saw_step(0, 3, SINCE - SECOND, SINCE)
    progress.saw_word(0, SINCE + SECOND)
    body = stacks(sleeping(), rank=0, round=0)
    (quiet,) = gather([body], progress, SINCE + 15 * SECOND).values()
    assert not quiet.speaks, "a word right after a step belongs to it"
    progress.saw_word(0, SINCE + 12 * SECOND)
    (speaks,) = gather([body], progress, SINCE + 15 * SECOND).values()
    assert speaks.speaks and bearing(speaks) == "busy"
    (silent,) = gather([body], progress, SINCE + 80 * SECOND).values()
    assert not silent.speaks


def test_who_prints_is_there() -> None:
    talking = looked(sleeping(), often=1, share=0.0, wrote=40)
    assert bearing(talking) == "busy" and seat(talking).ran == Ran(1.0, 0.0, True)


def test_an_interpreter_without_a_python_frame_is_at_its_prompt() -> None:
    assert bearing(looked(thread([]))) == "idle"
    assert bearing(looked(thread(native("read", "fgets")))) == "idle"


def test_threads_at_work_are_waited_for() -> None:
    waiting = at(frame("result", f"{STDLIB}/concurrent/futures/_base.py", 456), frame("fit"))
    assert bearing(looked(waiting)) == "stuck"
    busy = looked(waiting, everyone=(100, SECOND))
    assert bearing(busy) == "busy"


# ── children ──────────────────────────────────────────────────────────────────────────────────


WAITING = at(frame("wait", f"{STDLIB}/subprocess.py", 1264), frame("fetch", line=9))


def with_child(name: str, state: str, often: int, ns: int) -> RankEvidence:
    child = {"77": [name, state, often, ns]}
    rounds = [stacks(WAITING, pulse=pulse(look, 0, 0, children=child)) for look in range(3)]
    return RankEvidence(0, rounds)


def test_a_child_that_gets_on_is_waited_for() -> None:
    report = diagnose({0: with_child("git", "R", 30, SECOND // 2)})
    assert report.bearing == "busy" and report.why == "its child process 77 (git) gets on"


@pytest.mark.parametrize("state", ["S", "Z", "T"])
def test_a_child_that_does_not_is_stuck(state: str) -> None:
    report = diagnose({0: with_child("git", state, 0, 0)})
    assert report.bearing == "stuck"
    assert ("is dead" in report.text) == (state == "Z")


def test_children_are_read_from_the_last_pulse() -> None:
    (child,) = children_of(with_child("git", "R", 10, SECOND).rounds)
    assert (child.pid, child.name, child.ran) == (77, "git", Ran(10.0, 1.0))
    odd = Stacks.of({"pulse": {"before": {}, "after": {"children": {"x": 3}}}})
    assert children_of([odd]) == []


def test_a_worker_is_judged_by_its_own_stack() -> None:
    looks = [stacks(loading(), rank=0, round=look) for look in range(3)]
    fetch = frame("__getitem__", "/home/user/project/data.py", 12)
    worker = at(fetch, frame("_worker_loop", f"{SITE}/torch/utils/data/_utils/worker.py", 374))
    child = [stacks(worker, pid=99, rank=0, child_of=7, round=look) for look in range(3)]
    stuck = gather([*looks, *child])
    assert bearing(stuck[0]) == "stuck"
    moved = at(fetch | {"line": 13}, *worker["frames"][1:2])
    last = stacks(moved, pid=99, rank=0, child_of=7, round=2)
    busy = gather([*looks, *child[:2], last])
    assert bearing(busy[0]) == "busy"


# ── the interpreter's lock ────────────────────────────────────────────────────────────────────


HOLDING = thread([frame("call_library", line=9), main()], gil=True, idle=False)


def test_native_code_that_keeps_the_lock_is_told_from_python_code() -> None:
    held = looked(HOLDING, share=1.0, answers=False)
    assert "rank 0 is in native code, holding the GIL (train.py:9)" in diagnose({0: held}).text
    assert bearing(held) == "unsure", "it may collect garbage: native frames must tell"
    asleep = looked(HOLDING | {"idle": True}, answers=False)
    assert bearing(asleep) == "stuck"
    free = looked(HOLDING, share=1.0, answers=True)
    assert "runs Python code in call_library" in diagnose({0: free}).text
    assert bearing(free) == "unsure"


def test_the_native_frames_of_who_keeps_the_lock() -> None:
    def seen(*functions: str) -> RankEvidence:
        whole = thread(
            [*native(*functions), frame("call_library", line=9), main()], gil=True, idle=False
        )
        held = looked(HOLDING, share=1.0, answers=False)
        last = stacks(whole, answers=False)
        return RankEvidence(0, [*held.rounds, last])

    assert bearing(seen("sre_ucs1_match", "pattern_match")) == "stuck"
    assert bearing(seen("subtract_refs", "gc_collect_main")) == "busy"


def test_a_loop_that_nothing_in_it_can_end() -> None:
    assert bearing(looked(HOLDING | {"spins": True}, share=1.0, answers=True)) == "stuck"
    assert bearing(looked(HOLDING, share=1.0, answers=True)) == "unsure"
    asked = at(frame("wait_for_flag", line=4), idle=False)
    assert bearing(looked(asked | {"spins": True}, often=90, share=1.0)) == "stuck"
    assert bearing(looked(asked, often=90, share=1.0)) == "busy"
    once = looked(HOLDING, share=1.0, answers=True)
    spun = stacks(HOLDING | {"spins": True}, answers=True)
    assert bearing(RankEvidence(0, [*once.rounds, spun])) == "unsure", "seen once is luck"


def test_one_answer_shows_that_the_lock_is_free() -> None:
    held = looked(HOLDING, share=1.0, answers=False)
    last = stacks(HOLDING, answers=True)
    assert seat(RankEvidence(0, [*held.rounds, last])).keeps_gil is False
    assert seat(RankEvidence(0, held.rounds[:1])).keeps_gil is None


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────


LOOP = [frame("select", f"{STDLIB}/selectors.py", 468),
        frame("_run_once", f"{STDLIB}/asyncio/base_events.py", 1884),
        frame("run_forever", f"{STDLIB}/asyncio/base_events.py", 607)]  # fmt: skip


def task(
    name: str, *frames: Mapping[str, Any], awaits: tuple[str, ...] = (), root: bool = False
) -> Any:
    return {"name": name, "frames": list(frames), "awaits": list(awaits), "is_root": root}


TASKS = [
    task("Task-1", frame("main", line=40), awaits=("sleeper", "consumer"), root=True),
    task("sleeper", frame("sleep", f"{STDLIB}/asyncio/tasks.py", 649)),
    task("consumer", frame("get", f"{STDLIB}/asyncio/queues.py", 158), frame("consume", line=55)),
]


def test_the_innermost_await_is_named() -> None:
    waiting = at(*LOOP, frame("start", line=99)) | {"tasks": TASKS}
    report = diagnose({0: looked(waiting, often=2, share=0.001)})
    assert report.text.startswith("rank 0 waits for a queue (train.py:55)")
    assert report.bearing == "stuck"


def test_without_tasks_the_loop_is_all_that_is_known() -> None:
    report = diagnose({0: looked(at(*LOOP, frame("start", line=99)))})
    assert "(train.py:99)" in report.text


def test_a_callback_that_runs_is_not_its_tasks() -> None:
    running = at(frame("decode", line=12), *LOOP[1:]) | {"tasks": TASKS}
    found = seat(looked(running))
    assert found.wait is not None and found.wait.where is not None and found.wait.where.line == 12


def test_tasks_that_wait_for_each_other_are_followed_once() -> None:
    ring = [task("a", frame("one", line=1), awaits=("b",), root=True),
            task("b", frame("two", line=2), awaits=("a",))]  # fmt: skip
    assert "(train.py:2)" in diagnose({0: looked(at(*LOOP) | {"tasks": ring})}).text


# ── several ranks ─────────────────────────────────────────────────────────────────────────────


def test_the_one_that_the_others_wait_for_decides() -> None:
    others = {n: rank(n, collective("barrier", 70)) for n in range(1, 4)}
    saving = looked(at(*native("write"), PATIENT["torch.save"], frame("save", line=5)))
    report = diagnose({0: saving, **others})
    assert report.ranks == (0,) and report.bearing == "busy"
    asleep = diagnose({0: looked(sleeping()), **others})
    assert asleep.ranks == (0,) and asleep.bearing == "stuck" and asleep.confidence == "likely"


def test_nobody_differs_and_something_is_sent() -> None:
    ranks = {}
    for number in range(4):
        sending = looked(collective(), everyone=(500, SECOND // 2))
        ranks[number] = RankEvidence(number, sending.rounds, last_step=10)
    report = diagnose(ranks)
    assert report.bearing == "busy" and "something is sent or received" in report.text
    quiet = {n: RankEvidence(n, looked(collective()).rounds, last_step=10) for n in range(4)}
    assert diagnose(quiet).bearing == "unsure"


def test_one_excuse_is_enough() -> None:
    found = most_lenient([Standing("stuck"), Standing("busy"), Standing("unsure")])
    assert found == Standing("busy") and most_lenient([]) is None


@pytest.mark.parametrize("ended", ["", "T", "Z"])
def test_who_is_not_seen(ended: str) -> None:
    found = standing(seat(RankEvidence(0, state=ended)))
    assert found.bearing == ("stuck" if ended else "unsure")
