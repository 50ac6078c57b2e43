"""Many runs: one hangs, one's loss is NaN, one was killed; and an agent that ended in order."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

from runwatch.store.duck.engine import DuckStore
from tests.integration.head_history import SECOND, START, Producer, agent

MANY: Final = 60
LENGTH: Final = 600.0
HANG: Final = "all wait for rank 3, which is in recv (loader.py:41)"


def build(root: Path, now_ns: int) -> None:
    """`now_ns`: the head's clock tells what is silent."""
    # No process is there that the head could look at.
    (root / "config.toml").write_text("[head]\nhang_watch = false\n")
    store = DuckStore.open(root / "store")
    try:
        # Seconds since START in a history are seconds since ten minutes before the end.
        since = (now_ns - START) / SECOND - LENGTH
        for number in range(MANY):
            _run(store, f"sweep-resnet50-lr-{number:03d}-seed-0", since - 60 * number, "completed")
        _run(store, "llama-70b-pretraining", since + 1, "completed", bad_from=150)
        _run(store, "mixtral-hung", since + 2, "", hang=HANG)
        _run(store, "gemma-still-training", since + 3, "")
        _run(store, "whisper-killed", since + 4, "killed")
        node = agent(store, "agent-ended", host="node-1")
        node.write([("host_memory_used_bytes", since + LENGTH - 70, None, 1e9)])
        node.write([], [("agent_end", since + LENGTH - 60, {"pid": 100})], scope=0)
    finally:
        store.close()


def _run(
    store: DuckStore, name: str, start: float, status: str, *, bad_from: int = 0, hang: str = ""
) -> None:
    producer = Producer(
        store, f"j-{name}", run=name, name=name, start_ns=START + round(start * SECOND)
    )
    end = start + LENGTH + (0 if status else 3600)
    steps = [(step, start + 3 * step, start + 3 * step + 2.9) for step in range(200)]
    losses = [
        ("train/loss", begin, step, math.nan if bad_from and step >= bad_from else 4 / (1 + step))
        for step, begin, _ in steps
    ]
    events: list[tuple[str, float, dict[str, Any]]] = [("run_start", start, {"argv": ["train.py"]})]
    if status:
        how = {"status": status, "reason": "" if status == "completed" else "SIGTERM"}
        events.append(("run_end", end, {**how, "explicit": True}))
    if hang:
        told = {"id": "i1", "kind": "hang", "state": "open", "text": hang, "ranks": [3]}
        events.append(("incident", start + LENGTH - 20, told))
    # A later record of a run that goes on keeps it from being called lost while one looks.
    going = [] if status else [("lr", end, None, 0.1)]
    producer.write([*losses, *going], events, steps=steps)
