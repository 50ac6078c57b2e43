"""Messages that mean no good, sent to a real head: it lives, in bounds, and answers everybody."""

from __future__ import annotations

import json
import sys
import urllib.error
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from runwatch.ship.client import METHOD
from runwatch.testing import until
from runwatch.wire import spine_pb2 as pb
from tests import tokens
from tests.fuzz import hostile
from tests.integration.processes import Cluster
from tests.integration.test_head_faults import ask, hello
from tests.sampling import sampled

MEMORY: Final = 300 << 20
"""What such messages may add to what a head takes that has only begun."""
MAPPED: Final = 8 << 30
"""Nothing that is tried here may take the machine along."""
WRONG: Final[tuple[Any, ...]] = ([[], {}], "five", 5, None, True, {"x": [1]}, 10**30)
ASKED: Final = (
    "/api/v1/health", "/api/v1/runs", "/api/v1/runs/hostile", "/api/v1/runs/hostile/timeline",
    "/api/v1/runs/hostile/goodput", "/api/v1/runs/hostile/events", "/api/v1/runs/hostile/profiles",
    "/api/v1/runs/hostile/incidents", "/api/v1/goodput", "/api/v1/sessions", "/api/v1/profiles",
    "/api/v1/devices", "/status", "/metrics",
)  # fmt: skip


class Limited(Cluster):
    python = ["prlimit", f"--as={MAPPED}", sys.executable]  # type: ignore[misc]

    def most_bytes(self) -> int:
        """What the head has had in memory at most."""
        assert self.head is not None
        about = Path(f"/proc/{self.head.pid}/status").read_text()
        [line] = [line for line in about.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) << 10

    def answer(self, path: str) -> int:
        """The status; the whole of the answer came."""
        url = f"http://127.0.0.1:{self.http_port}{path}"
        try:
            with tokens.urlopen(url, timeout=100) as answer:
                answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def send(self, batch: pb.Batch) -> None:
        """As an agent would; the head may take the message, parts of it, or nothing."""
        name = batch.origin.journal
        reached = {name: 0}

        def words() -> Iterator[pb.Up]:
            yield from (hello(), pb.Up(open=pb.Open(journal=name)), pb.Up(batch=batch))
            until(lambda: reached[name] == batch.end, 30, f"{name} to be taken")

        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel:
            stream = channel.stream_stream(METHOD, pb.Up.SerializeToString, pb.Down.FromString)
            with suppress(grpc.RpcError):
                known = tokens.metadata(self.grpc_port)
                for down in stream(words(), metadata=known, timeout=60):
                    reached[name] = down.cursor.position


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Limited]:
    made = Limited(tmp_path)
    yield made
    made.close()


def batch(number: int, kind: str, *bodies: Any, time_ns: int = hostile.NOW, **run: Any) -> pb.Batch:
    """A journal with events of one kind."""
    origin = pb.Origin(
        journal=f"6553f100-hostile-{number}-a", host="node-1", pid=7, start_ns=hostile.NOW
    )
    made = pb.Batch(origin=origin, start=0, end=1000)
    scope = pb.RunScope(id=1, run="hostile", name="hostile", **run)
    made.definitions.add(run=scope)
    for body in bodies:
        made.events.add(time_ns=time_ns, kind=kind, body_json=json.dumps(body), scope=1)
    return made


def a_session_of_1970() -> Iterator[pb.Batch]:
    yield batch(0, "session_start", hostile.BODIES["session_start"], time_ns=0)


def events_by_the_megabyte() -> Iterator[pb.Batch]:
    for number in range(60):
        yield batch(number, "log", {"name": "note", "value": "x" * 7_000_000})


def wrong_types() -> Iterator[pb.Batch]:
    """Of every kind; every field in turn is of every wrong type."""
    for number, (kind, body) in enumerate(hostile.BODIES.items()):
        spoilt: list[Mapping[str, Any]] = [
            {**body, field: wrong} for field in body for wrong in WRONG
        ]
        yield batch(number, kind, *spoilt)


@pytest.mark.parametrize(
    "messages", sampled([wrong_types, a_session_of_1970, events_by_the_megabyte], 2)
)
def test_a_message_that_means_no_good_costs_nobody_anything(
    cluster: Limited, messages: Callable[[], Iterator[pb.Batch]]
) -> None:
    cluster.start_head()
    cluster.start_agent()
    trainer = cluster.start_trainer(hertz=0, count=500)
    cluster.wait_until_stored()
    for path in ASKED:
        cluster.answer(path)
    begun = cluster.most_bytes()
    for message in messages():
        cluster.send(message)
    answers = {path: cluster.answer(path) for path in (*ASKED, f"/api/v1/runs/{trainer.run}")}
    wrong = {p: s for p, s in answers.items() if s != 200 and not (s == 404 and "hostile" in p)}
    assert not wrong
    assert cluster.most_bytes() - begun < MEMORY
    trainer.process.wait(60)
    cluster.wait_until_stored()
    cluster.check_exactly_once()


def test_a_program_of_a_billion_ranks_is_not_believed(cluster: Limited) -> None:
    """All it takes is a variable.  Of a run that stands still the head asks which ranks are silent:
    a list of a billion, had it believed that."""
    cluster.start_head()
    cluster.start_agent()
    program = cluster._python(
        "-c", "import runwatch; runwatch.init('huge').log(loss=1.0)",
        environment={"RANK": "0", "WORLD_SIZE": "999999999"},
    )  # fmt: skip
    assert program.wait(60) == 0

    def refused() -> int:
        return int(ask(cluster.http_port, "/api/v1/health")[1].get("records_refused", 0))

    until(refused, what="the head to say that it does not believe it")
    cluster.start_trainer(hertz=0, count=100)
    cluster.wait_until_stored()
    cluster.check_exactly_once()


def test_a_timeline_from_the_end_of_time_is_an_answer(cluster: Limited) -> None:
    cluster.start_head()
    cluster.start_agent()
    trainer = cluster.start_trainer(hertz=0, count=100)
    cluster.wait_until_stored()
    for start in (2**63 - 1, -(2**63)):
        path = f"/api/v1/runs/{trainer.run}/timeline?start={start}"
        assert cluster.answer(path) in (200, 422), path
