"""Programs that take the question for a profile over HTTP: `POST /profiling`, as Pathways has it.

Such a program writes its trace to the log directory itself.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from runwatch.capture.tracing.gathering import Gathered
from runwatch.capture.tracing.profiler_service import PortTarget

MOST_AT_ONCE: Final = 10
SLACK_SECONDS: Final = 10.0


def by_http(
    asked: Sequence[PortTarget],
    gathered: Sequence[Gathered],
    log_directory: str,
    duration_ms: int,
) -> list[Gathered]:
    """Where something else than the gRPC service answered, it is asked over HTTP."""

    def again(pair: tuple[PortTarget, Gathered]) -> Gathered:
        one, outcome = pair
        return _posted(one, outcome, log_directory, duration_ms) if outcome.is_foreign else outcome

    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        return list(pool.map(again, zip(asked, gathered, strict=True)))


def _posted(one: PortTarget, outcome: Gathered, log_directory: str, duration_ms: int) -> Gathered:
    body = {"duration_ms": duration_ms, "repository_path": log_directory}
    request = urllib.request.Request(
        f"http://{one.address}/profiling",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=duration_ms / 1e3 + SLACK_SECONDS) as answer:
            answer.read()
    except (OSError, ValueError) as error:
        return replace(outcome, why=f"{outcome.why}; POST /profiling: {error}")
    return replace(outcome, why="")
