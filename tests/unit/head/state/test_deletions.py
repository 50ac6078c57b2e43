"""Deleting runs over the HTTP API, of a real store, without a port."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.head.keeping import Keeping
from runwatch.record import RunId
from runwatch.wire import spine_pb2 as pb
from tests.integration.head_history import SECOND, Producer
from tests.unit.head.features.profiles.test_profiles import Api, drop, ended


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    made = Api(tmp_path / "runwatch")
    made.head.ingest.keeps_house = False
    yield made
    made.close()


def history(api: Api, run: str = "run-1", *, name: str = "llama", over: bool = True) -> Producer:
    made = Producer(api.head.store, f"journal-of-{run}", run=run, name=name)
    made.write([("loss", at, at, 1.0) for at in range(20)], [("run_start", 0, {})])
    if over:
        made.write([], [("run_end", 20, {"state": "completed"})])
    return made


def runs(api: Api) -> list[str]:
    _, answer = api.ask("/api/v1/runs")
    return [run["run"] for run in answer["runs"]]


def delete(api: Api, run: str, query: str = "yes=1") -> tuple[int, Any]:
    return api.ask(f"/api/v1/runs/{run}?{query}", "DELETE")


def test_a_run_is_deleted_and_restored(api: Api) -> None:
    history(api)
    history(api, "run-2", name="other")
    lying = drop(api.root / "profiles", run="run-1")
    Producer(api.head.store, "j", run="run-1").write([], [ended("s1", lying)])
    status, load = api.ask("/api/v1/runs/llama/load")
    assert (status, load["run"], load["points"], load["profiles"]) == (200, "run-1", 20, 1)
    assert load["bytes"] > 10_000
    assert delete(api, "llama", "")[0] == 400
    status, told = delete(api, "llama")
    assert status == 200 and told["points"] == 20
    assert told["purge_ns"] - told["deleted_ns"] == 7 * 86_400 * SECOND
    assert runs(api) == ["run-2"]
    for route in ("", "/events", "/processes", "/goodput", "/curves?metric=loss", "/profiles"):
        assert api.ask(f"/api/v1/runs/run-1{route}")[0] == 404, route
    assert api.sessions() == [] and lying.is_dir()
    assert delete(api, "llama")[0] == 404
    _, listed = api.ask("/api/v1/deleted")
    [found] = listed["deleted"]
    assert (found["run"], found["name"], found["state"]) == ("run-1", "llama", "deleted")
    assert api.ask("/api/v1/deleted/llama/restore", "POST")[0] == 200
    assert sorted(runs(api)) == ["run-1", "run-2"] and len(api.sessions()) == 1
    assert api.ask("/api/v1/runs/run-1/goodput")[0] == 200


def test_deleted_for_good_its_profiles_and_folds_go(api: Api) -> None:
    history(api)
    mine = drop(api.root / "profiles", run="run-1")
    others = drop(api.root / "profiles", run="run-2")
    api.ask("/api/v1/runs/run-1/goodput")
    folds = api.head.accounts
    assert delete(api, "run-1", "yes=1&keep_days=0")[0] == 200
    assert api.head.deletions.purge() == 1
    assert not mine.exists() and others.is_dir()
    assert not folds.at_hand(RunId("run-1"))
    assert api.ask("/api/v1/deleted/run-1/restore", "POST")[0] == 422
    assert api.head.deletions.purge() == 0


def test_a_mirror_does_not_bring_its_profiles_back(api: Api) -> None:
    history(api)
    places = api.root / "profiles"
    shutil.rmtree(drop(places, run="run-1"))
    delete(api, "run-1", "yes=1&keep_days=0")
    drop(places, run="run-1", session="s2")  # copied again, so younger than the deletion
    assert api.sessions() == []
    history(api, "run-3", name="run-1")  # a run that is called so
    assert [found["session"] for found in api.sessions()] == ["s2"]


def test_a_run_that_goes_on_is_refused_unless_forced(api: Api) -> None:
    made = Producer(
        api.head.store, "journal", run="run-1", name="llama", start_ns=time.time_ns() - SECOND
    )
    made.write([("loss", 0, 1, 1.0)], [("run_start", 0, {})])
    status, answer = delete(api, "run-1")
    assert (status, answer["error"]["code"]) == (409, "active")
    assert runs(api) == ["run-1"]
    assert delete(api, "run-1", "yes=1&force=1")[0] == 200
    assert runs(api) == []
    made.write([("loss", 1, 2, 1.0)], [("run_start", 1, {})])
    assert runs(api) == []
    _, health = api.ask("/api/v1/health")
    assert health["records_dropped"] == 2
    assert api.ask("/api/v1/deleted")[1]["records_dropped"] == 2


def test_a_store_that_can_only_be_read_deletes_nothing(tmp_path: Path) -> None:
    from runwatch.head.main import LocalHead

    api = Api(tmp_path)
    api.head.close()
    api.head = LocalHead(tmp_path, in_memory=True)
    history(api)
    status, answer = delete(api, "run-1")
    assert status == 503 and "only be read" in answer["error"]["message"]
    assert runs(api) == ["run-1"]
    api.close()


def test_profiles_that_agents_bring_of_it_are_not_kept(api: Api, tmp_path: Path) -> None:
    history(api)
    delete(api, "run-1")
    keeping = Keeping(tmp_path / "profiles", drops=api.head.deletions.drops)

    async def pieces(path: str) -> AsyncIterator[pb.Piece]:
        yield pb.Piece(header=pb.FileHeader(path=path, bytes=3))
        yield pb.Piece(data=b"abc")

    def brought(run: str) -> pb.Kept:
        path = f"{run}/plugins/profile/s1/host.xplane.pb"
        return asyncio.run(keeping.take(pieces(path)))

    for name in ("run-1", "llama", "run-2"):
        assert brought(name).problem == ""
    assert [path.name for path in (tmp_path / "profiles").iterdir()] == ["run-2"]


def test_answers_are_json(api: Api) -> None:
    status, text = api.raw("/api/v1/deleted")
    assert (status, json.loads(text)) == (200, {"deleted": [], "records_dropped": 0})
