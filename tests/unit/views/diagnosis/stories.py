"""Recorded hangs (`tests/fixtures/stacks`), and stacks made by hand after them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from runwatch.record.stacks import Stacks
from runwatch.views.diagnosis.evidence import RankEvidence
from runwatch.views.diagnosis.progress import Ended

RECORDED = Path(__file__).parents[3] / "fixtures" / "stacks"
CAUSES = sorted(path.stem for path in RECORDED.glob("*.json"))
SINCE = 1_700_000_531_000_000_000
"""22:22:11 UTC."""

SITE = "/opt/venv/lib/python3.11/site-packages"
C10D = f"{SITE}/torch/distributed/distributed_c10d.py"
LOADER = f"{SITE}/torch/utils/data/dataloader.py"
TRAIN = "/home/user/project/train.py"


@cache
def story(cause: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((RECORDED / f"{cause}.json").read_text())
    return found


def recorded(cause: str, how: str = "outside") -> dict[int, RankEvidence]:
    return {
        int(rank): _rank(int(rank), known, how) for rank, known in story(cause)["ranks"].items()
    }


def _rank(rank: int, known: Mapping[str, Any], how: str) -> RankEvidence:
    ended = None
    if known["signal"] is not None or known["code"] is not None:
        ended = Ended(SINCE, False, known["signal"] or "", known["code"], known["error"])
    asked = [known["asked"]] if "asked" in known else []
    return RankEvidence(
        rank,
        [Stacks.of(look) for look in (known["outside"] if how == "outside" else asked)],
        state=known["state"],
        last_step=known["step"] - 1,
        since_ns=SINCE,
        ended=ended,
        children=[Stacks.of(child) for child in known["children"]],
    )


# ── by hand ────────────────────────────────────────────────────────────────────────────────────


def frame(function: str, file: str = TRAIN, line: int = 1, native: bool = False) -> dict[str, Any]:
    return {"function": function, "file": file, "line": line, "native": native}


def native(*functions: str, file: str = "libc.so.6") -> list[dict[str, Any]]:
    return [frame(function, file, 0, True) for function in functions]


def thread(
    frames: Iterable[Mapping[str, Any]],
    name: str = "MainThread",
    *,
    idle: bool = True,
    gil: bool = False,
) -> dict[str, Any]:
    return {
        "name": name,
        "native_id": 1,
        "frames": list(frames),
        "is_main": name == "MainThread",
        "holds_gil": gil,
        "idle": idle,
    }


def stacks(*threads: Mapping[str, Any], pid: int = 7, state: str = "S", **more: Any) -> Stacks:
    body = {
        "pid": pid,
        "time_ns": SINCE,
        "how": "outside",
        "threads": list(threads),
        "state": state,
        "problems": [],
    }
    return Stacks.of(body | more)


def collective(what: str = "all_reduce", line: int = 88) -> dict[str, Any]:
    waiting = native("pthread_cond_wait", "c10d::Work::wait")
    return thread([*waiting, frame(what, C10D, 3252), frame("train_step", line=line), main()])


def loading(line: int = 41) -> dict[str, Any]:
    return thread([*native("recv"), frame("_next_data", LOADER, 785),
                   frame("__next__", LOADER, 725), main(line)])  # fmt: skip


def looping(line: int) -> dict[str, Any]:
    return thread([frame("augment", line=line), main()], idle=False, gil=True)


def sleeping(line: int = 62) -> dict[str, Any]:
    return thread([*native("clock_nanosleep", "time_sleep"), frame("nap", line=line), main()])


def main(line: int = 130) -> dict[str, Any]:
    return frame("main", line=line)


def rank(
    number: int,
    *threads: Mapping[str, Any],
    step: int | None = 10,
    again: Mapping[str, Any] | None = None,
    **more: Any,
) -> RankEvidence:
    """Looked at twice; `again` is its main thread the second time."""
    first = stacks(*threads)
    second = stacks(again, *threads[1:]) if again is not None else first
    rounds = [first, second] if threads else []
    return RankEvidence(number, rounds, last_step=step, since_ns=SINCE, **more)
