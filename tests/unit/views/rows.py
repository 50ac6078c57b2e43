"""Rows of processes, as a store returns them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from runwatch.record import JournalId, RunId
from runwatch.rows import ProcessRow

SECOND = 10**9
START = 1_700_000_000 * SECOND


def process(
    journal: str = "j0",
    *,
    rank: int = 0,
    start: float = 0,
    last: float = 10,
    run: str = "run",
    key: str = "",
    role: str = "process",
    host: str = "host-a",
    boot: str = "boot",
    ticks: int = 0,
) -> ProcessRow:
    return ProcessRow(
        journal=JournalId(journal),
        run=RunId(run),
        run_name=f"name of {run}" if run else "",
        host=host,
        pid=100 + rank,
        rank=rank,
        world_size=4,
        attempt_key=key,
        group="",
        start_ns=START + int(start * SECOND),
        boot=boot,
        process_start_ticks=ticks,
        role=role,
        last_ns=START + int(last * SECOND),
    )


@st.composite
def process_rows(draw: st.DrawFn, keys: tuple[str, ...] = ("", "", "k1", "k2")) -> Any:
    count = draw(st.integers(1, 14))
    return [
        process(
            f"j{i:02}",
            rank=draw(st.integers(0, 3)),
            start=draw(st.integers(0, 8)),
            last=20,
            run=draw(st.sampled_from(["r1", "r2"])),
            key=draw(st.sampled_from(keys)),
        )
        for i in range(count)
    ]
