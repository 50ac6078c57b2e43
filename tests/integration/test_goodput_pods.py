"""What a cluster tells of a run's pods, from its journal through a head to what people read."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from runwatch.cli.__main__ import main
from runwatch.head.main import LocalHead
from runwatch.head.reading import Reading
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.record import Batch, Event, JournalId, Origin, Position, RunScope
from runwatch.testing import FakeClock
from tests.unit.views.goodput.cluster import PodStory
from tests.unit.views.goodput.story import RUN, SCOPE, SECOND, Notebook

NODELESS = "0/8 nodes are available: insufficient nvidia.com/gpu"
with warnings.catch_warnings():  # it would rather have another client library
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

OPERATOR, AGENT = JournalId("operator"), JournalId("agent")


class Told:
    """A run that was preempted after 30 s, `ago` seconds ago; times count from its start."""

    def __init__(self, ago: int = 1_000) -> None:
        self.start = int(time.time()) - ago - 30
        self._at: dict[JournalId, int] = {}

    def process(self, attempt: int, start: int, first: int, *edges: int, pod: str) -> Batch:
        book = Notebook(0, attempt, self.start + start)
        words = {"pod": pod, "pod_uid": pod, "node": f"gpu-{attempt}", "workload": "JobSet/llama"}
        words["workload_uid"] = "uid-w"
        book.event("run_start", {"run": RUN, **words}, self.start + start)
        return book.steps(first, *(self.start + edge for edge in edges)).batch()

    def killed(self, attempt: int, at: int) -> Batch:
        body = {"journal": f"attempt {attempt} rank 0", "signal": 9}
        event = Event((self.start + at) * SECOND, "process_exit", body)
        return self._events(AGENT, [event])

    def pod(
        self,
        uid: str,
        created: int,
        scheduled: int | None = None,
        started: int | None = None,
        gone: int | None = None,
        said: str = "",
    ) -> Batch:
        story = PodStory(
            uid, self._at_of(created), self._at_of(scheduled), self._at_of(started),
            self._at_of(gone), said,
        )  # fmt: skip
        events = [Event(e.time_ns, e.kind, e.body, scope=SCOPE) for e in story.events()]
        return self._events(OPERATOR, events)

    def _at_of(self, seconds: int | None) -> int | None:
        return None if seconds is None else self.start + seconds

    def _events(self, journal: JournalId, events: Sequence[Event]) -> Batch:
        at = self._at.get(journal, 0)
        self._at[journal] = at + 100
        origin = Origin(journal, "cluster", 9, self.start * SECOND, role="agent")
        batch = Batch(origin, Position(at), Position(at + 100))
        if journal == OPERATOR:
            batch.definitions.append(RunScope(SCOPE, RUN, "run"))
        batch.events += events
        return batch


@pytest.fixture
def head(tmp_path: Path) -> Iterator[LocalHead]:
    made = LocalHead(tmp_path)
    yield made
    made.close()


def submit(head: LocalHead, *batches: Batch) -> None:
    for batch in batches:
        assert head.ingest.submit(batch).result(60).accepted


def first_attempt(told: Told) -> list[Batch]:
    return [
        told.process(1, 0, 0, *range(5, 31, 5), pod="llama-a"),
        told.pod("llama-a", -60, -50, -3, 30),
        told.killed(1, 30),
    ]


def seconds(head: LocalHead, until: int | None = None) -> dict[str, float]:
    """By class; whole, as it is kept, and the same afresh."""
    until_ns = None if until is None else until * SECOND
    with head.accounts.of(RUN) as kept, Accounts(Reading(head.store)).of(RUN) as afresh:
        assert kept is not None and afresh is not None
        spent, same = (each.account(until_ns=until_ns) for each in (kept, afresh))
        if until is not None:
            assert spent == same
        assert sum(spent.spent_ns.values()) == spent.total_ns
    return {name: ns / SECOND for name, ns in spent.spent_ns.items() if ns}


WHOLE = {
    "training_preparation": 5 + 10, "productive": 25 + 20, "infrastructure_recovery": 5 + 10,
    "scheduling_wait": 365, "pod_startup": 60,
}  # fmt: skip


def again(told: Told) -> list[Batch]:
    return [
        told.process(2, 470, 5, *range(480, 501, 5), pod="llama-b"),
        told.pod("llama-b", 35, 400, 460),
        told.killed(2, 500),
    ]


def test_what_is_kept_is_what_is_computed_afresh_whenever_pods_are_told_of(tmp_path: Path) -> None:
    """Also when the cluster is heard of long after the steps."""
    for number, order in enumerate(permutations(range(3))):
        told, head = Told(), LocalHead(tmp_path / str(number))
        try:
            submit(head, *first_attempt(told))
            seconds(head, told.start)
            batches = again(told)
            for at in order:
                submit(head, batches[at])
                seconds(head, told.start + 500)
            assert seconds(head, told.start + 500) == WHOLE
        finally:
            head.close()


def test_a_head_that_is_started_again_says_the_same(tmp_path: Path) -> None:
    told = Told()
    for batches in ([*first_attempt(told), *again(told)], []):
        head = LocalHead(tmp_path)
        try:
            submit(head, *batches)
            assert seconds(head, told.start + 500) == WHOLE
        finally:
            head.close()


def get(head: LocalHead, path: str) -> Any:
    reply = TestClient(head.app, base_url="http://localhost").get(path)
    assert reply.status_code == 200, reply.text
    return reply.json() if path.startswith("/api") else reply.text


def test_a_run_that_waits_for_hours_stays_in_scrapes(tmp_path: Path) -> None:
    clock = FakeClock(int(time.time()) * SECOND)
    told = Told(1_000)
    head = LocalHead(tmp_path, clock=clock)
    try:
        submit(head, *first_attempt(told), told.pod("llama-b", 40, said=NODELESS))
        for waited in (990, 990 + 5 * 1_800):
            figure = f'class="scheduling_wait",run="{RUN}"}} {waited}.0'
            assert figure in get(head, "/metrics")
            for _ in range(5):
                clock.advance(1_800)
                get(head, "/metrics")
        submit(head, told.pod("llama-b", 40, None, None, 1_010 + 10 * 1_800))
        get(head, "/metrics")
        assert "scheduling_wait" not in get(head, "/metrics")
    finally:
        head.close()


def command(capsys: pytest.CaptureFixture[str], root: Path, *words: str) -> str:
    assert main([*words, "--dir", str(root)]) == 0
    return capsys.readouterr().out


def test_a_run_whose_pods_wait_now_says_so_everywhere(
    head: LocalHead,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    told = Told()
    pods = told.pod("llama-a", -60, -50, -3, 30), told.pod("llama-b", 40, said=NODELESS)
    process = told.process(1, 0, 0, *range(5, 31, 5), pod="llama-a")
    submit(head, process, told.killed(1, 30), *pods)
    answer = get(head, f"/api/v1/runs/{RUN}/goodput?intervals=50")
    spent = {each["name"]: each["ns"] for each in answer["spent"] if each["ns"]}
    assert answer["live"] and spent["scheduling_wait"] >= 989 * SECOND
    assert spent["infrastructure_recovery"] == 10 * SECOND
    assert answer["figures"]["queued_ns"] == 10 * SECOND  # until its first pod had a node
    hours = answer["figures"]["device_hours"]
    assert hours.get("scheduling_wait", 0) == 0 and answer["figures"]["devices"] == 1
    assert answer["intervals"]["name"][-2:] == ["infrastructure_recovery", "scheduling_wait"]
    run = get(head, f"/api/v1/runs/{RUN}")
    assert run["state"] == "killed" and run["workload"] == "JobSet/llama"
    assert run["waits"] == f"pod llama-b: waiting for a node: {NODELESS}"
    why = get(head, f"/api/v1/runs/{RUN}/goodput/explain?time={(told.start + 500) * SECOND}")["why"]
    assert why[:2] == [
        "The run waited for machines: pod llama-b.", f"The cluster said: {NODELESS}.",
    ]  # fmt: skip
    metrics = get(head, "/metrics")
    assert f'runwatch_spent_seconds{{class="scheduling_wait",run="{RUN}"}}' in metrics
    head.close()
    said = command(capsys, tmp_path, "goodput", RUN)
    assert "waiting to be scheduled" in said
    assert f"waits: pod llama-b: waiting for a node: {NODELESS}" in said
    shown = command(capsys, tmp_path, "show", RUN, "--once")
    assert "llama-a" in shown and "gpu-1" in shown and "JobSet/llama" in shown
    assert f"waits: pod llama-b: waiting for a node: {NODELESS}" in shown
    listed = json.loads(command(capsys, tmp_path, "goodput", RUN, "--json"))
    assert listed["live"]
