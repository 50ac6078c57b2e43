"""A run's log over HTTP: in order, by pages, by rank, stream, time, attempt and text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from runwatch.head.access.shares import Shares
from runwatch.head.features.logs import answers
from runwatch.head.http.access import AccessSettings
from runwatch.record.console import Console, ExceptionTold
from runwatch.store.duck.engine import DuckStore
from runwatch.store.store import Store
from tests.apps import app_of
from tests.integration.head_history import Producer, when

PATH = "/api/v1/runs/run-1/logs"


@pytest.fixture
def store() -> Iterator[Store]:
    opened = DuckStore.open(None)
    yield opened
    opened.close()


def said(at: float, *lines: str, stream: Any = "out", **more: Any) -> tuple[str, float, Any]:
    """Lines a tenth of a second apart."""
    after = tuple(100 * number for number in range(len(lines)))
    return Console.KIND, at, Console(stream, lines, after, **more).body()


def fell(at: float, **fields: Any) -> tuple[str, float, Any]:
    return ExceptionTold.KIND, at, ExceptionTold(**fields).body()


class Reader:
    def __init__(self, store: Store, **app: Any) -> None:
        self.client = TestClient(app_of(store, **app), base_url="http://localhost:8090")

    def page(self, **query: Any) -> dict[str, Any]:
        reply = self.client.get(PATH, params=query)
        assert reply.status_code == 200, reply.text
        page: dict[str, Any] = reply.json()
        return page

    def texts(self, **query: Any) -> list[str]:
        return [entry["text"] for entry in self.page(**query)["entries"]]


@pytest.fixture
def two_ranks(store: Store) -> Reader:
    Producer(store, "j-0", rank=0).write(
        [],
        [
            ("run_start", 0, {"run": "run-1", "name": "llama"}),
            said(1, "zero a", "zero b", "zero c"),
            said(2, "zero warns", stream="err", left_out_lines=7, left_out_bytes=70),
            fell(
                3, type="ValueError", message="Loss is gone", text="Traceback\nin train\nValueError"
            ),
        ],
    )
    Producer(store, "j-1", rank=1, host="host-b").write([], [said(1.05, "one a", "one b")])
    return Reader(store)


def test_lines_of_all_ranks_are_in_order_of_time(two_ranks: Reader) -> None:
    page = two_ranks.page()
    assert [(e["rank"], e["text"]) for e in page["entries"]] == [
        (0, "zero a"), (1, "one a"), (0, "zero b"), (1, "one b"), (0, "zero c"),
        (0, "zero warns"), (0, "ValueError: Loss is gone"),
    ]  # fmt: skip
    assert (page["older"], page["ranks"], page["left_out_lines"]) == (None, [0, 1], 7)
    assert page["entries"][5]["left_out_bytes"] == 70
    first, fallen = page["entries"][0], page["entries"][-1]
    assert (first["time_ns"], first["host"], first["attempt"]) == (when(1), "host-a", 1)
    assert (fallen["source"], fallen["exception"]["text"]) == (
        "exception", "Traceback\nin train\nValueError",
    )  # fmt: skip
    assert len({entry["id"] for entry in page["entries"]}) == 7


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ({"rank": 1}, ["one a", "one b"]),
        ({"stream": "err"}, ["zero warns"]),
        ({"stream": ["err", "exception"]}, ["zero warns", "ValueError: Loss is gone"]),
        ({"grep": "ONE"}, []),
        ({"grep": "one "}, ["one a", "one b"]),
        ({"grep": "loss IS"}, []),
        ({"grep": "loss is"}, ["ValueError: Loss is gone"]),
        ({"grep": "in train"}, ["ValueError: Loss is gone"]),
        ({"grep": "zero (a|b)"}, []),
        ({"since": when(1.15), "until": when(1.25)}, ["one b", "zero c"]),
        ({"since": when(2)}, ["zero warns", "ValueError: Loss is gone"]),
        ({"attempt": 2}, []),
        ({"attempt": 1, "rank": 0, "until": when(1.1)}, ["zero a"]),
    ],
)
def test_filters(two_ranks: Reader, query: dict[str, Any], texts: list[str]) -> None:
    # Lines at 1.0, 1.1, 1.2 of rank 0 and at 1.05, 1.15 of rank 1.
    assert two_ranks.texts(**query) == texts


def test_pages_back_to_the_start_have_every_line_once(store: Store) -> None:
    producer = Producer(store, "j-0")
    for number in range(60):  # several records of one time, too
        producer.write([], [said(number // 7, f"line {number}", f"more {number}")])
    reader = Reader(store)
    found: list[str] = []
    query: dict[str, Any] = {"limit": 9}
    for _ in range(100):
        page = reader.page(**query)
        found = [entry["id"] + entry["text"] for entry in page["entries"]] + found
        if page["older"] is None:
            break
        query["before"] = page["older"]
    texts = [text for number in range(60) for text in (f"line {number}", f"more {number}")]
    assert sorted(each.rpartition(":")[2][1:] for each in found) == sorted(texts)
    assert len(found) == 120


def test_following_has_every_line_once(store: Store) -> None:
    producer, reader = Producer(store, "j-0"), Reader(store)
    producer.write([], [("run_start", 0, {"run": "run-1"})])
    page = reader.page()
    assert (page["entries"], page["newer"]) == ([], None)
    found, after = list[str](), "0.0"
    for number in range(30):
        producer.write([], [said(number // 4, f"line {number}")])
        page = reader.page(after=after)
        found += [entry["text"] for entry in page["entries"]]
        after = page["newer"]
    assert found == [f"line {number}" for number in range(30)]
    assert reader.page(after=after)["newer"] == after


def test_around_a_moment(store: Store) -> None:
    producer = Producer(store, "j-0")
    producer.write([], [said(number, f"line {number}") for number in range(100)])
    reader = Reader(store)
    at = f"{when(50)}.0"
    assert reader.texts(before=at, limit=2) == ["line 49", "line 50"]
    assert reader.texts(after=at, limit=2) == ["line 50", "line 51"]


def test_a_rare_text_is_found_over_several_answers(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MOST_LOOKED_AT", 100)
    Producer(store, "j-0").write(
        [], [said(n, "needle" if n == 5 else f"hay {n}") for n in range(1000)]
    )
    reader, query, rounds = Reader(store), {"grep": "needle"}, 0
    while not (page := reader.page(**query))["entries"]:
        assert page["older"] is not None and page["searched_ns"] is not None
        query["before"] = page["older"]
        rounds += 1
    assert rounds == 9
    assert page["entries"][0]["time_ns"] == when(5)


def test_attempts_are_told_apart(store: Store) -> None:
    for key, at in (("one", 0), ("two", 100)):
        Producer(store, f"j-{key}", start_ns=when(at), attempt_key=key).write(
            [], [("run_start", at, {"run": "run-1"}), said(at + 1, f"in {key}")]
        )
    reader = Reader(store)
    assert [entry["attempt"] for entry in reader.page()["entries"]] == [1, 2]
    assert reader.texts(attempt=2) == ["in two"]


def test_what_a_command_says_is_no_ranks_where_there_are_several(store: Store) -> None:
    launcher = Producer(store, "j-exec", role="launcher")
    launcher.write([], [said(1, "starting two ranks", of_command=True), said(2, "from a rank")])
    alone = Reader(store)
    assert alone.texts(rank=0) == ["starting two ranks", "from a rank"]
    for rank in (0, 1):
        Producer(store, f"j-{rank}", rank=rank).write([], [said(3, f"rank {rank}")])
    reader = Reader(store)
    assert [entry["rank"] for entry in reader.page()["entries"]] == [-1, 0, 0, 1]
    assert reader.texts(rank=0) == ["from a rank", "rank 0"]
    assert reader.texts(rank=-1) == ["starting two ranks"]
    assert reader.page()["ranks"] == [0, 1]


def test_a_gap_at_the_end_is_told(store: Store) -> None:
    Producer(store, "j-0").write([], [said(1, left_out_lines=5, left_out_bytes=50)])
    (entry,) = Reader(store).page()["entries"]
    assert (entry["text"], entry["left_out_lines"]) == ("", 5)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"before": "yesterday"}, 400),
        ({"before": "1.0", "after": "1.0"}, 422),
        ({"since": 5, "until": 4}, 422),
        ({"stream": "aloud"}, 400),
        ({"attempt": 0}, 400),
    ],
)
def test_what_is_refused(two_ranks: Reader, query: dict[str, Any], status: int) -> None:
    assert two_ranks.client.get(PATH, params=query).status_code == status


@pytest.mark.parametrize("shared", [{"run": "run-1"}, {}])
def test_a_guest_with_a_link_sees_no_logs(
    shared: dict[str, str], two_ranks: Reader, store: Store, tmp_path: Path
) -> None:
    """Anything may be in what a program prints."""
    app = app_of(
        store,
        access=AccessSettings(token="correct-horse", loopback=False),
        shares=Shares(tmp_path / "shares.json"),
    )
    owner = TestClient(
        app, base_url="http://gpu-17:8090", headers={"Authorization": "Bearer correct-horse"}
    )
    token = owner.post("/api/v1/shares", json=shared).json()["token"]
    guest = TestClient(
        app, base_url="http://gpu-17:8090", headers={"Authorization": f"Bearer {token}"}
    )
    assert guest.get("/api/v1/runs/run-1").status_code == 200
    refused = guest.get(PATH)
    assert refused.status_code == 403 and "no logs" in refused.json()["error"]["message"]
    for query in ({}, {"kind": "console"}, {"kind": ["exception", "run_start"]}):
        kinds = {e["kind"] for e in guest.get(f"{PATH[:-5]}/events", params=query).json()["events"]}
        assert not kinds & {"console", "exception"}
    assert {e["kind"] for e in owner.get(f"{PATH[:-5]}/events").json()["events"]} > {"console"}
    exported = guest.get(f"{PATH[:-5]}/export", params={"format": "perfetto"})
    assert exported.status_code == 200 and "zero a" not in exported.text
