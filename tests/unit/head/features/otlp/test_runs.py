"""Runs as google-cloud-mldiagnostics tells of them: masks, states, configs, sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from runwatch.head.local_head import LocalHead

ID = "856c57b7-4552-4c26-b11a-cb6e7f9bc70c"
RUNS = "/v1/machineLearningRuns"
MASK = "display_name,creator,cluster_id,workload.workload_id,workload.display_name,logical_id"
CREATED = {
    "logicalId": ID,
    "displayName": "my run",
    "creator": "CREATOR_MANUAL",
    "clusterId": "",
    "workload": {"workloadId": "my-run", "displayName": "my run"},
}


class World:
    def __init__(self, root: Path) -> None:
        self.head = LocalHead(root)
        self.client = TestClient(self.head.app, base_url="http://localhost")

    def patch(self, path: str, body: Any, **query: str) -> tuple[int, Any]:
        answer = self.client.patch(path, params=query, json=body)
        return answer.status_code, answer.json()

    def get(self, path: str) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def created(self, **more: Any) -> str:
        status, made = self.patch(RUNS, CREATED | more, update_mask=MASK, allow_missing="true")
        assert status == 200, made
        return str(made["name"])

    def state(self, state: str) -> Any:
        body = {"name": f"machineLearningRuns/{ID}", "workload": {"state": state}}
        status, told = self.patch(
            f"{RUNS}/{ID}", body, update_mask="workload.state", allow_missing="false"
        )
        assert status == 200, told
        return told

    def run(self) -> Any:
        return self.get(f"/api/v1/runs/{ID}")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.head.close()


def test_a_run_is_made_goes_on_and_ends_like_any_other(world: World) -> None:
    assert world.created() == f"machineLearningRuns/{ID}"
    assert (world.run()["state"], world.run()["name"]) == ("running", "my run")
    assert world.get(f"{RUNS}/{ID}")["workload"]["state"] == "STATE_RUNNING"
    assert world.state("STATE_SUCCEEDED")["workload"]["state"] == "STATE_SUCCEEDED"
    assert (world.run()["state"], world.run()["attempts"]) == ("completed", 1)
    world.state("STATE_RUNNING")
    assert (world.run()["state"], world.run()["attempts"]) == ("running", 1), "it goes on"
    world.state("STATE_FAILED")
    assert world.run()["state"] == "failed"
    shown = world.get(f"{RUNS}/{ID}")
    assert shown["workload"]["state"] == "STATE_FAILED" and shown["displayName"] == "my run"
    world.created()
    assert (world.run()["state"], world.run()["attempts"]) == ("running", 2), "a new process"


def test_a_mask_says_what_is_changed(world: World) -> None:
    world.created(baseBlobPath="gs://not-in-the-mask")
    assert "baseBlobPath" not in world.get(f"{RUNS}/{ID}")
    body = {"display_name": "other", "cluster_id": "c1", "workload": {"workload_id": "w2"}}
    status, told = world.patch(f"{RUNS}/{ID}", body, updateMask="clusterId,workload.workloadId")
    assert (status, told["clusterId"], told["displayName"]) == (200, "c1", "my run")
    assert told["workload"]["workloadId"] == "w2", "snake case and camel case are the same"
    assert told["workload"]["displayName"] == "my run"
    _, told = world.patch(f"{RUNS}/{ID}", {}, update_mask="cluster_id")
    assert "clusterId" not in told, "what the mask names and the body has not is removed"
    _, told = world.patch(f"{RUNS}/{ID}", {"labels": {"a_b": "c"}}, update_mask="*")
    assert told["labels"] == {"a_b": "c"} and told["displayName"] == "my run"
    assert [run["name"] for run in world.get(RUNS)["machineLearningRuns"]] == [
        f"machineLearningRuns/{ID}"
    ]


def test_configs_are_the_runs(world: World) -> None:
    world.created()
    configs = {"userConfigs": {"lr": "0.1"}, "softwareConfigs": {"framework": "jax"}}
    world.patch(f"{RUNS}/{ID}", {"configs": configs}, update_mask="configs")
    found = world.get(f"/api/v1/runs/{ID}/configs")
    assert found["user"] == {"lr": "0.1"} and found["software"] == {"framework": "jax"}


@pytest.mark.parametrize(
    ("path", "body", "query", "status"),
    [
        (f"{RUNS}/nobody", {"workload": {"state": "STATE_FAILED"}}, {}, 404),
        (f"{RUNS}/nobody", {"displayName": "x"}, {"allow_missing": "true"}, 200),
        (RUNS, {}, {"allow_missing": "true"}, 422),
        (RUNS, CREATED, {"allow_missing": "false"}, 404),
        (RUNS, [1], {}, 400),
        (RUNS, {"logicalId": "x", "workload": 3}, {"allow_missing": "true"}, 422),
        (RUNS, {"logicalId": "x", "workload": {"state": "ODD"}}, {"allow_missing": "true"}, 422),
    ],
)
def test_what_is_asked_wrongly(
    world: World, path: str, body: Any, query: dict[str, str], status: int
) -> None:
    assert world.patch(path, body, **query)[0] == status
    runs = world.get("/api/v1/runs")["runs"]
    assert len(runs) == (1 if status == 200 else 0), "a refused request leaves no run"


def test_profiler_sessions_are_profiles(world: World) -> None:
    world.created()
    sessions = f"{RUNS}/{ID}/profilerSessions"
    active = {"startTime": "2026-01-01T00:00:00Z", "endTime": "0001-01-01T00:00:00Z",
              "sessionPhase": "ACTIVE"}  # fmt: skip
    body = {"targetSessions": {"t": active}, "storageFolderUri": "gs://bucket/s1"}
    answer = world.client.post(sessions, params={"profiler_session_id": "s1"}, json=body)
    assert answer.status_code == 200 and answer.json()["sessionPhase"] == "ACTIVE"
    done = active | {"sessionPhase": "SUCCEEDED", "endTime": "2026-01-01T00:00:02Z"}
    status, told = world.patch(f"{sessions}/s1", {"target_sessions": {"t": done}})
    assert told["storageFolderUri"] == "gs://bucket/s1", "what was said before holds"
    assert (status, told["sessionPhase"]) == (200, "SUCCEEDED")
    (listed,) = world.get(sessions)["profilerSessions"]
    assert listed == world.get(f"{sessions}/s1") == told
    (profile,) = world.get(f"/api/v1/runs/{ID}/profiles")["profiles"]
    assert (profile["session"], profile["state"]) == ("s1", "done")
    assert world.client.get(f"{sessions}/s2").status_code == 404
    nobodys = f"{RUNS}/nobody/profilerSessions?profiler_session_id=s"
    assert world.client.post(nobodys, json={}).status_code == 404
    assert world.client.post(sessions, json={}).status_code == 422


def test_the_clusters_id_is_always_the_same(world: World) -> None:
    assert world.get("/v1/agent-info") == world.get("/v1/agent-info") != {}
