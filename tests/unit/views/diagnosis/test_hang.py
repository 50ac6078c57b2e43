"""The rank that everyone waits for is named, or nobody is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.record.stacks import Stacks
from runwatch.views.diagnosis.evidence import RankEvidence, gather
from runwatch.views.diagnosis.hang import HangReport, diagnose
from runwatch.views.diagnosis.progress import Ended, Progress
from tests.unit.views.diagnosis.stories import (
    C10D,
    CAUSES,
    SINCE,
    SITE,
    collective,
    frame,
    loading,
    looping,
    main,
    native,
    rank,
    recorded,
    sleeping,
    stacks,
    story,
    thread,
)

SECOND = 1_000_000_000


@pytest.mark.parametrize("how", ["outside", "asked"])
@pytest.mark.parametrize("cause", CAUSES)
def test_recorded_hangs_name_the_rank_that_went_wrong(cause: str, how: str) -> None:
    report = diagnose(recorded(cause, how))
    assert report.ranks == (story(cause)["culprit"],), report.text
    assert report.confidence in ("certain", "likely")
    # A loop that was seen in two of its lines may be at work: a person could not tell, either.
    assert report.stuck == (report.bearing != "busy") == ((cause, how) != ("loop", "outside"))


WORDS = {
    "loader": ("wait in all_reduce (train.py:", "rank 0 is in DataLoader.__next__ (train.py:"),
    "worker": (
        "rank 1 is in DataLoader.__next__",
        "its worker process",
        "is in Images.fetch (train",
    ),
    "lock": ("rank 2 waits for a lock (train.py:", "no other thread is left that could release it"),
    "loop": ("rank 3 runs", "in augment (train.py:"),
    "sleep": ("rank 0 sleeps (train.py:",),
    "skip": ("wait in all_reduce", "rank 1 waits in all_gather"),
    "order": ("wait in all_reduce", "rank 2 waits in all_gather"),
    "killed": ("rank 3 was killed by SIGKILL at 2023-11-14T22:22:11Z",),
    "stopped": ("rank 0 is stopped (state T",),
    "ddp_loader": ("wait in gradient all_reduce (train.py:", "rank 1 waits in recv"),
    "ddp_skip": ("rank 2 was killed by SIGABRT",),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_recorded_hangs_are_told_in_one_sentence(cause: str) -> None:
    text = diagnose(recorded(cause)).text
    for words in WORDS[cause]:
        assert words in text
    assert "runwatch" not in text and "\n" not in text


def test_the_sentence_is_the_one_that_was_promised() -> None:
    ranks = {number: rank(number, collective()) for number in range(7)}
    report = diagnose({**ranks, 7: rank(7, loading())})
    assert report.text == (
        "ranks 0–6 wait in all_reduce (train.py:88); "
        "rank 7 is in DataLoader.__next__ (train.py:41) since 2023-11-14T22:22:11Z"
    )


def test_a_skip_is_told_from_being_late() -> None:
    assert any("skipped" in said for said in diagnose(recorded("skip")).evidence)
    late = diagnose(recorded("loader")).evidence
    assert any("did not come as far" in said for said in late)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([cause for cause in CAUSES if cause not in ("killed", "ddp_skip")]),
    st.integers(4, 1024),
    st.randoms(use_true_random=False),
    st.sampled_from(["outside", "asked"]),
)
def test_in_a_job_of_any_size_the_right_rank_is_named(
    cause: str, world: int, random: Any, how: str
) -> None:
    """The others of a recorded hang, many times over, in any order."""
    known, bad = recorded(cause, how), story(cause)["culprit"]
    others = [evidence for number, evidence in known.items() if number != bad]
    culprit = random.randrange(world)
    ranks = {n: replace(random.choice(others), rank=n) for n in range(world) if n != culprit}
    report = diagnose({**ranks, culprit: replace(known[bad], rank=culprit)})
    assert report.ranks == (culprit,)
    assert report.confidence != "cannot tell"


PLACES: tuple[Mapping[str, Any], ...] = (
    collective(),
    collective("all_gather", 90),
    collective("broadcast", 70),
    collective("recv", 60),
    loading(),
    sleeping(),
    looping(47),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, len(PLACES) - 1), min_size=2, max_size=12))
def test_nobody_is_named_who_waits_for_somebody_that_does_not(places: list[int]) -> None:
    ranks = {number: rank(number, PLACES[place]) for number, place in enumerate(places)}
    report = diagnose(ranks)
    in_collective = {number for number, place in enumerate(places) if place < 4}
    elsewhere = set(ranks) - in_collective
    if elsewhere and in_collective:
        assert not set(report.ranks) & in_collective
    assert sorted(r for group in report.groups for r in group.ranks) == sorted(ranks)
    assert (report.confidence == "cannot tell") == (report.ranks == ())
    assert len(report.ranks) < len(ranks)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 24), st.integers(1, 20))
def test_without_a_clear_majority_a_mismatch_blames_nobody(world: int, odd: int) -> None:
    odd = min(odd, world - 1)
    ranks = {
        n: rank(n, collective("all_gather", 90) if n < odd else collective()) for n in range(world)
    }
    report = diagnose(ranks)
    few, many = min(odd, world - odd), max(odd, world - odd)
    if world >= 3 and few * 2 <= many:
        assert report.ranks == tuple(range(odd) if odd == few else range(odd, world))
    else:
        assert report.confidence == "cannot tell" and report.ranks == ()
        assert "all_gather" in report.text and "all_reduce" in report.text


def test_two_ranks_in_different_collectives() -> None:
    report = diagnose({0: rank(0, collective()), 1: rank(1, collective("all_gather", 90))})
    assert report.confidence == "cannot tell"
    assert report.text == (
        "cannot tell who holds the others up: rank 0 waits in all_reduce (train.py:88); "
        "rank 1 waits in all_gather (train.py:90)"
    )


def test_the_source_of_a_broadcast_may_have_passed_it() -> None:
    ranks = {n: rank(n, collective("broadcast", 70)) for n in range(1, 8)}
    assert diagnose({0: rank(0, collective()), **ranks}).confidence == "cannot tell"


def test_the_same_collective_from_another_line_is_no_mismatch() -> None:
    ranks = {n: rank(n, collective("barrier", 70)) for n in range(1, 8)}
    assert diagnose({0: rank(0, collective("barrier", 72)), **ranks}).ranks == ()
    report = diagnose({0: rank(0, collective("barrier", 72), step=11), **ranks})
    assert report.ranks == (0,), "but it is in another step"


def test_one_step_ahead_in_the_same_line() -> None:
    ranks = {n: rank(n, collective()) for n in range(7)}
    report = diagnose({**ranks, 7: rank(7, collective(), step=11)})
    assert (report.rule, report.ranks, report.confidence) == ("step", (7,), "likely")
    assert report.evidence == ("rank 7 is in step 12, the others in 11",)


def test_nobody_differs() -> None:
    report = diagnose({n: rank(n, collective()) for n in range(8)})
    assert report.ranks == () and report.confidence == "cannot tell"
    assert report.text.endswith("ranks 0–7 wait in all_reduce (train.py:88)")
    assert any("flight recorder" in look for look in report.look_at)


def test_a_rank_that_could_not_be_looked_at_is_not_blamed() -> None:
    ranks = {n: rank(n, collective()) for n in range(7)}
    hidden = RankEvidence(7, problems=("ptrace is not permitted",))
    report = diagnose({**ranks, 7: hidden})
    assert report.ranks == ()
    assert "rank 7 could not be looked at: ptrace is not permitted" in report.text
    assert diagnose(ranks, world_size=8).ranks == ()
    assert diagnose({**ranks, 7: replace(hidden, state="T")}).ranks == (7,)


def test_ranks_may_pass_a_collective_in_which_one_is_stopped() -> None:
    """Seen in a ring of eight: two had all they needed and went on."""
    ranks = {n: rank(n, collective("all_gather", 78)) for n in range(1, 6)}
    passed = {n: rank(n, collective("barrier", 89)) for n in (6, 7)}
    report = diagnose({0: RankEvidence(0, state="T"), **ranks, **passed})
    assert (report.ranks, report.confidence) == ((0,), "certain")
    assert diagnose({0: RankEvidence(0), **ranks, **passed}).ranks == ()


def test_a_mismatch_proves_nothing_while_somebody_is_out_of_sight() -> None:
    ranks = {n: rank(n, collective()) for n in range(6)}
    report = diagnose({**ranks, 6: rank(6, collective("all_gather", 90)), 7: RankEvidence(7)})
    assert report.ranks == ()


def test_a_rank_that_was_killed_while_the_others_wait() -> None:
    ranks = {n: rank(n, collective()) for n in range(7)}
    killed = Ended(SINCE, False, "SIGKILL", reason="killed by SIGKILL, out of memory")
    report = diagnose({**ranks, 7: RankEvidence(7, last_step=10, ended=killed)})
    assert (report.ranks, report.confidence) == ((7,), "certain")
    assert report.evidence == ("killed by SIGKILL, out of memory",)


def test_a_rank_that_ended_long_before_is_not_to_blame() -> None:
    ranks = {n: rank(n, collective(), step=50) for n in range(6)}
    gone = RankEvidence(7, last_step=10, ended=Ended(SINCE, False, "SIGKILL"))
    assert diagnose({**ranks, 6: rank(6, loading(), step=49), 7: gone}).ranks == (6,)


def test_a_rank_that_finished_early() -> None:
    ranks = {n: rank(n, collective()) for n in range(7)}
    report = diagnose({**ranks, 7: RankEvidence(7, last_step=10, ended=Ended(SINCE))})
    assert (report.ranks, report.confidence) == ((7,), "likely")


def test_of_many_that_ended_the_first_is_to_blame_if_that_is_clear() -> None:
    def ended(seconds: float, **how: Any) -> Ended:
        return Ended(SINCE + int(seconds * SECOND), False, **how)

    aborted = {n: RankEvidence(n, ended=ended(60, signal="SIGABRT")) for n in range(7)}
    first = RankEvidence(7, ended=ended(0, signal="SIGSEGV"))
    assert diagnose({**aborted, 7: first}).ranks == (7,)
    code = RankEvidence(7, ended=ended(0, code=1, reason="ValueError: no such file"))
    report = diagnose({**aborted, 7: code})
    assert (report.ranks, report.confidence) == ((7,), "likely")
    assert diagnose({**aborted, 7: RankEvidence(7, ended=ended(59.9, code=1))}).ranks == ()


def test_a_watchdog_that_aborts_a_waiting_rank_does_not_make_it_guilty() -> None:
    ranks = {n: rank(n, collective()) for n in range(1, 7)}
    aborted = RankEvidence(0, ended=Ended(SINCE, False, "SIGABRT"))
    report = diagnose({0: aborted, **ranks, 7: rank(7, loading())})
    assert report.ranks == () and report.confidence == "cannot tell"


def test_a_rank_that_died_of_another_is_not_to_blame() -> None:
    ranks = {n: rank(n, collective()) for n in range(1, 6)}
    victim = RankEvidence(0, ended=Ended(SINCE, False, code=1, reason="Connection closed by peer"))
    assert diagnose({0: victim, **ranks, 6: RankEvidence(6)}).ranks == ()
    assert diagnose({0: victim, **ranks, 6: rank(6, loading())}).ranks == (6,)
    all_gone = {n: replace(victim, rank=n) for n in range(4)}
    assert diagnose(all_gone).ranks == ()


def test_a_rank_that_a_watchdog_ended_is_not_to_blame() -> None:
    ranks = {n: rank(n, collective()) for n in range(1, 8)}
    aborted = RankEvidence(0, ended=Ended(SINCE + 600 * SECOND, False, "SIGABRT"))
    assert diagnose({0: aborted, **ranks}).ranks == ()
    soon = RankEvidence(0, ended=Ended(SINCE + SECOND, False, "SIGABRT"))
    assert diagnose({0: soon, **ranks}).ranks == (0,)


def test_the_one_that_was_told_to_end_is_waited_for() -> None:
    ranks = {n: rank(n, collective()) for n in range(1, 8)}
    report = diagnose({0: RankEvidence(0, ended=Ended(SINCE, False, "SIGTERM")), **ranks})
    assert (report.ranks, report.confidence) == ((0,), "certain")


def test_somebody_killed_a_rank_of_a_run_that_hung_already() -> None:
    ranks = {n: rank(n, collective()) for n in range(1, 7)}
    killed = RankEvidence(0, ended=Ended(SINCE + 600 * SECOND, False, "SIGKILL"))
    assert diagnose({0: killed, **ranks, 7: rank(7, loading())}).ranks == ()


def test_a_zombie_is_dead() -> None:
    report = diagnose({0: RankEvidence(0, state="Z"), 1: rank(1, collective())})
    assert report.ranks == (0,) and "is dead" in report.text


def test_two_ranks_in_the_same_other_place_are_both_named() -> None:
    ranks = {n: rank(n, collective()) for n in range(6)}
    report = diagnose({**ranks, 6: rank(6, loading()), 7: rank(7, loading())})
    assert report.ranks == (6, 7)
    assert "ranks 6, 7 are in DataLoader.__next__" in report.text


def test_two_ranks_in_two_other_places() -> None:
    ranks = {n: rank(n, collective()) for n in range(6)}
    report = diagnose({**ranks, 6: rank(6, loading()), 7: rank(7, sleeping())})
    assert report.ranks == ()
    assert "rank 6 is in DataLoader" in report.text and "rank 7 sleeps" in report.text


def test_everybody_runs() -> None:
    ranks = {n: rank(n, looping(47), again=looping(48)) for n in range(4)}
    report = diagnose(ranks)
    assert not report.stuck and report.ranks == ()
    assert report.text.startswith("slow rather than stuck")


def test_ranks_that_come_and_go_are_not_stuck() -> None:
    ranks = {n: rank(n, loading(), again=collective()) for n in range(4)}
    assert not diagnose(ranks).stuck


def test_a_rank_that_compiles_holds_the_others_up_but_is_not_stuck() -> None:
    def compiling(line: int) -> dict[str, Any]:
        inductor = f"{SITE}/torch/_inductor/compile_fx.py"
        return thread([frame("codegen", inductor, line), frame("train_step"), main()], idle=False)

    ranks = {n: rank(n, collective()) for n in range(7)}
    report = diagnose({**ranks, 7: rank(7, compiling(1), again=compiling(2))})
    assert report.ranks == (7,) and not report.stuck
    assert "rank 7 is in torch.compile" in report.text


def test_a_rank_that_was_only_asked_is_where_the_others_are() -> None:
    """Without native frames, `loss.item()` is a line like any other."""
    synchronising = [*native("cuStreamSynchronize"), frame("train_step", line=90), main()]
    asked = thread([frame("train_step", line=90), main()], idle=False)
    ranks = {n: rank(n, thread(synchronising)) for n in range(7)}
    assert diagnose({**ranks, 7: rank(7, asked)}).ranks == ()
    busy = thread([*native("at::_ops::sqrt::call"), *asked["frames"]], idle=False)
    assert diagnose({**ranks, 7: rank(7, busy)}).ranks == (7,)


def test_no_collective_is_known_but_one_rank_is_not_where_the_others_are() -> None:
    custom = thread([*native("pthread_cond_wait"), frame("exchange", line=12), main()])
    ranks = {n: rank(n, custom) for n in range(7)}
    report = diagnose({**ranks, 7: rank(7, sleeping())})
    assert (report.rule, report.ranks) == ("crowd", (7,))


# ── one process ────────────────────────────────────────────────────────────────────────────────


def alone(*threads: Mapping[str, Any], **more: Any) -> HangReport:
    return diagnose({0: rank(0, *threads, **more)})


def test_two_threads_that_hold_each_others_lock() -> None:
    def locked(name: str, line: int) -> dict[str, Any]:
        acquiring = native("0x7f", "PyThread_acquire_lock_timed", "lock_PyThread_acquire_lock")
        return thread([*acquiring, frame("transfer", line=line), main()], name)

    report = alone(locked("MainThread", 10), locked("Thread-1", 20))
    assert report.ranks == (0,)
    assert report.text == (
        "rank 0 waits for a lock (train.py:10) since 2023-11-14T22:22:11Z; so does Thread-1 "
        "(train.py:20): they may hold each other's lock"
    )


def test_a_loop_that_moves_is_named_and_not_called_stuck() -> None:
    report = alone(looping(47), again=looping(49))
    assert report.ranks == (0,) and not report.stuck
    assert (report.bearing, report.confidence) == ("busy", "cannot tell")
    assert "rank 0 runs Python code in augment (train.py:49)" in report.text


def test_native_code_that_holds_the_gil() -> None:
    stuck = thread([*native("clock_nanosleep"), frame("call_library", line=9), main()], gil=True)
    assert alone(stuck).text.startswith("rank 0 sleeps (train.py:9), holding the GIL since")


def test_a_socket_a_pipe_and_a_child_process() -> None:
    for function, words in (
        ("recv", "waits in recv (train.py:5)"),
        ("read", "waits in read (train.py:5)"),
        ("wait4", "waits for a child process (train.py:5)"),
    ):
        assert words in alone(thread([*native(function), frame("talk", line=5), main()])).text


def test_one_known_rank_in_a_collective_is_not_to_blame() -> None:
    assert alone(collective()).ranks == ()


def test_the_thread_that_matters_is_the_one_that_trains() -> None:
    joining = thread(
        [frame("join", "/usr/lib/python3.11/threading.py", 1100), frame("fit", line=3), main()]
    )
    begun = [frame("run", "/usr/lib/python3.11/threading.py"), frame("_bootstrap", "threading.py")]
    trainer = thread([frame("all_reduce", C10D, 9), frame("step", line=66), *begun], "trainer")
    ranks = {n: rank(n, joining, trainer) for n in range(3)}
    report = diagnose({**ranks, 3: rank(3, joining, thread([*native("recv"), *begun], "trainer"))})
    assert "ranks 0–2 wait in all_reduce (train.py:66)" in report.text
    assert report.ranks == (3,)


def test_nothing_at_all_is_an_answer() -> None:
    report = diagnose({})
    assert report.ranks == () and report.confidence == "cannot tell"


# ── from what is stored ────────────────────────────────────────────────────────────────────────


def test_evidence_is_gathered_from_events_and_progress() -> None:
    progress = Progress()
    for number in range(4):
        progress.saw_step(number, 3, SINCE - SECOND, SINCE)
    progress.saw_end(3, Ended(SINCE, False, "SIGKILL"))
    looks = [
        stacks(collective(), rank=number, host="a", round=round)
        for round in (1, 0)
        for number in range(3)
    ]
    child = stacks(loading(), pid=99, rank=1, round=0, child_of=7)
    found = gather([*looks, child, Stacks.of({"rank": "x"})], progress)
    assert sorted(found) == [0, 1, 2, 3]
    assert len(found[0].rounds) == 2 and found[0].last_step == 3 and found[0].host == "a"
    assert [each.pid for each in found[1].children] == [99]
    assert diagnose(found).ranks == (3,)


def test_a_report_is_plain_json() -> None:
    import json

    report = diagnose(recorded("worker")).to_json()
    assert json.loads(json.dumps(report)) == report
    assert report["groups"][0]["ranks"] == [1]
    assert report["groups"][0]["wait"]["what"] == "DataLoader.__next__"


@settings(max_examples=80, deadline=None)
@given(
    st.dictionaries(
        st.integers(0, 5),
        st.recursive(
            st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
            lambda inner: st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["threads", "frames", "name", "function", "file", "line", "native",
                                 "is_main", "state", "problems"]),
                inner,
                max_size=5,
            ),
            max_leaves=20,
        ),
        max_size=4,
    )
)  # fmt: skip
def test_odd_stacks_do_no_harm(odd: dict[int, Any]) -> None:
    ranks = {
        number: RankEvidence(number, [Stacks.of(plain)] if isinstance(plain, dict) else [])
        for number, plain in odd.items()
    }
    assert isinstance(diagnose(ranks).text, str)


def test_ranks_that_nobody_has_seen_are_a_list_with_an_end() -> None:
    """A run says itself how many there are."""
    program = """
from runwatch.views.diagnosis.evidence import RankEvidence
from runwatch.views.diagnosis.hang import diagnose
assert diagnose({0: RankEvidence(0)}, world_size=2**31 - 1).text
"""
    command = ["prlimit", f"--as={1 << 29}", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-500:]
