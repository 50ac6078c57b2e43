"""Dumps of real flight recorders, read without trusting them."""

from __future__ import annotations

import json
import pickle
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.views.diagnosis.flight import Trace, UnreadableDump, compare, read, trace
from runwatch.views.diagnosis.hang import diagnose
from tests.unit.views.diagnosis.stories import RECORDED, collective, loading, rank, recorded

Ranks = dict[int, Trace]


def dumped(cause: str, form: str = "pickle") -> Ranks:
    files = {n: RECORDED / "flight" / f"{cause}-{n}.{form}" for n in range(4)}
    return {number: read(path.read_bytes()) for number, path in files.items()}


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_the_rank_that_never_called_a_collective(form: str) -> None:
    (finding,) = compare(dumped("loader", form))
    assert (finding.missing, finding.operation, finding.decided) == ((0,), "all_reduce", True)
    assert finding.sequence == 16


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_the_rank_that_called_another(form: str) -> None:
    (finding,) = compare(dumped("skip", form))
    assert (finding.different, finding.decided) == ((1,), True)
    assert finding.calls is not None and finding.calls[1].operation == "all_gather"


def test_lines_are_known_where_stacks_were_kept() -> None:
    (finding,) = compare(dumped("skip"))
    assert finding.calls is not None
    assert finding.calls[0].where.startswith("train.py:")
    assert finding.calls[0].where != finding.calls[1].where


def test_two_witnesses_are_sure() -> None:
    report = diagnose(recorded("loader"), flight=compare(dumped("loader")))
    assert (report.ranks, report.confidence) == ((0,), "certain")
    assert any("never called collective 16" in said for said in report.evidence)


def test_two_witnesses_that_differ_are_not_believed() -> None:
    ranks = {n: rank(n, collective()) for n in range(3)}
    report = diagnose({**ranks, 3: rank(3, loading())}, flight=compare(dumped("loader")))
    assert report.ranks == () and report.confidence == "cannot tell"


def test_the_recorder_decides_where_stacks_do_not() -> None:
    alike = {n: rank(n, collective()) for n in range(4)}
    report = diagnose(alike, flight=compare(dumped("skip")))
    assert (report.rule, report.ranks, report.confidence) == ("flight", (1,), "likely")
    assert any("called all_gather as collective 16" in said for said in report.evidence)


def test_a_rank_that_did_not_dump_may_be_the_one() -> None:
    three = {number: found for number, found in dumped("loader").items() if number != 3}
    assert [finding.decided for finding in compare(three)] == [False]


def test_ranks_that_agree() -> None:
    same = dumped("loader")[1]
    assert compare(dict.fromkeys(range(4), same)) == []
    assert compare({0: same}) == []


def made(enqueued: int, completed: int, operation: str = "all_reduce") -> Trace:
    entry = {"process_group": ["0", "default"], "is_p2p": False, "input_sizes": [[4]]}
    entries = [
        entry | {"collective_seq_id": n, "profiling_name": f"nccl:{operation}",
                 "state": "completed" if n <= completed else "started"}
        for n in range(1, enqueued + 1)
    ]  # fmt: skip
    return trace(
        {"version": "2.10", "entries": entries, "pg_config": {"0": {"ranks": "[0, 1, 2]"}}}
    )


def test_running_ahead_is_not_leaving_out() -> None:
    """Calls return before they are done: only the first that is not done counts."""
    assert compare({0: made(9, 4), 1: made(5, 4), 2: made(6, 4)}) == []
    (finding,) = compare({0: made(9, 4), 1: made(4, 4), 2: made(6, 4)})
    assert finding.missing == (1,) and finding.sequence == 5


def test_an_all_reduce_of_another_size() -> None:
    groups = made(5, 4).groups
    call = replace(groups["0"].calls[5], sizes="[[8]]")
    odd = replace(groups["0"], calls={**groups["0"].calls, 5: call})
    (finding,) = compare({0: made(5, 4), 1: made(5, 4), 2: Trace("2.10", {"0": odd})})
    assert finding.different == (2,)


class Evil:
    def __reduce__(self) -> Any:
        return (open, ("evil", "w"))


@pytest.mark.parametrize(
    "dump",
    [
        pickle.dumps({"entries": [Evil()]}),
        pickle.dumps({"entries": {1, 2}}),
        pickle.dumps([1]),
        b"",
        b"{not json",
        b"garbage",
        b"[]",
        json.dumps({"entries": 3}).encode(),
        b"I01\n.",
    ],
)
def test_what_is_no_dump_is_refused(dump: bytes) -> None:
    with pytest.raises(UnreadableDump):
        read(dump)


def test_a_class_is_refused() -> None:
    with pytest.raises(UnreadableDump, match="only plain values"):
        read(pickle.dumps({"entries": [Evil()]}))


def test_a_few_bytes_cannot_ask_for_all_memory() -> None:
    with pytest.raises(UnreadableDump, match="damaged"):
        read(b"\x80\x02}r\xff\xff\xff\x7f.")


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 3000), st.binary(max_size=8))
def test_damage_does_no_harm(at: int, junk: bytes) -> None:
    dump = (RECORDED / "flight" / "skip-1.pickle").read_bytes()
    damaged = dump[: at % len(dump)] + junk + dump[at % len(dump) + len(junk) :]
    with suppress(UnreadableDump):
        assert isinstance(compare({0: read(damaged), 1: read(dump)}), list)
