"""A run with very many events of each kind: no view grows with them, and others lose nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.head_history import Producer
from tests.unit.head.features.profiles.test_profiles import Api

MANY: Final = 3_000
MOST_BYTES: Final = 1 << 20
KINDS: Final[dict[str, dict[str, Any]]] = {
    "profile": {"session": "s{}", "state": "done", "framework": "jax", "files": ["a"]},
    "profile_deleted": {"run": "other", "session": "q{}"},
    "session_start": {"id": "i{}", "name": "n{}"},
    "session_stop": {"id": "i{}"},
    "incident": {"id": "i{}", "kind": "hang", "state": "open", "text": "x" * 100},
    "device_lost": {"device": "gpu{}"},
    "gpu_xid": {"device": "gpu{}", "xid": 31},
    "capture": {"session": "c{}"},
    "command_result": {"command": "c{}"},
    "config": {"part": "user", "values": {"k{}": 1}},
    "run_start": {},
    "run_end": {"state": "completed"},
    "process_exit": {"journal": "j{}", "code": 0},
    "job_queued": {"journal": "j{}"},
    "journal_gap": {"reason": "dropped", "records": 1},
}


def numbered(body: Any, number: int) -> Any:
    if isinstance(body, dict):
        return {k.replace("{}", str(number)): numbered(v, number) for k, v in body.items()}
    if isinstance(body, list):
        return [numbered(item, number) for item in body]
    return body.replace("{}", str(number)) if isinstance(body, str) else body


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    made = Api(tmp_path / "runwatch")
    yield made
    made.close()


def test_no_view_grows_with_what_one_run_says(api: Api) -> None:
    healthy = Producer(api.head.store, "healthy", run="healthy", name="healthy")
    done = {"session": "mine", "state": "done", "framework": "jax", "files": ["a"]}
    healthy.write([("loss", 1, 1, 0.5)], [("run_start", 0, {}), ("profile", 1, done)])
    healthy.write([], [("config", 1, {"part": "user", "values": {"lr": 0.1}}), ("run_end", 2, {})])
    before = api.ask("/api/v1/runs/healthy")
    crowd = Producer(api.head.store, "crowd", run="crowd", name="crowd")
    for kind, body in KINDS.items():
        crowd.write([], [(kind, 5 + n * 1e-6, numbered(body, n)) for n in range(MANY)])
    routes = (
        "/health", "/runs", "/runs/crowd", "/runs/crowd/configs", "/runs/crowd/processes",
        "/profiles", "/runs/crowd/profiles", "/sessions", "/devices", "/runs/crowd/incidents",
        "/runs/crowd/timeline", "/runs/crowd/goodput", "/runs/crowd/stacks", "/goodput",
    )  # fmt: skip
    for route in routes:
        status, answer = api.raw(f"/api/v1{route}")
        assert status == 200, (route, answer[:500])
        assert len(answer) < MOST_BYTES, route
    assert api.ask("/api/v1/runs/healthy") == before
    assert [found["session"] for found in api.sessions("healthy")] == ["mine"]
    assert api.ask("/api/v1/runs/healthy/configs")[1]["user"] == {"lr": 0.1}
    _, listed = api.ask("/api/v1/runs/crowd/profiles?limit=10")
    assert [found["session"] for found in listed["profiles"]][0] == f"s{MANY - 1}"
    assert (len(listed["profiles"]), listed["next_offset"]) == (10, 10) and listed["total"] >= 1000
