"""Every question that the API's document knows, put to the small head.

A new question that is asked by GET needs nothing here, unless it has a parameter that it cannot do
without: `NEEDED` has those.  One that changes something needs a line in `FIRST` or `LAST`.
"""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from runwatch.cli.asgi import Exchange
from tests.contract.world import DELETED, RUN, TOKEN, World
from tests.integration.head_history import when

with warnings.catch_warnings():  # it would rather have another client library
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

Document = Mapping[str, Any]
LIVE: Final = "/api/v1/live"
_EVENTS: Final = "text/event-stream"
_JSON: Final = "application/json"


@dataclass(frozen=True)
class Question:
    method: str
    path: str
    """As the document has it."""
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    variant: str = ""
    """Tells apart several answers to one question."""
    names: Mapping[str, str] = field(default_factory=dict)
    """For the braces of its path, other than the usual."""
    token: str = TOKEN


@dataclass(frozen=True)
class Answered:
    name: str
    """Of the file that keeps it."""
    operation: str
    """As the document has it: method and path."""
    question: Question
    asked: str
    """The address."""
    status: int
    media: str
    answer: Any
    """Of a stream a list of its events; of bytes, how many there were."""


_OF_RUN: Final = "/api/v1/runs/{run}"
_CAPTURE: Final = {"duration_ms": 500, "ranks": [0, 1], "session": "capture-1"}
_PROGRAM: Final = {"duration_ms": 500, "hosts": ["host-a"], "session": "capture-2"}
_STACKS: Final = {"ranks": [0, 1], "rounds": 2, "wait_seconds": 5.0}

_SESSIONS: Final = {
    "/api/v1/sessions": "night",
    "/api/v1/profiles": "s1",
    "/api/v1/captures": "capture-2",
    f"{_OF_RUN}/captures": "capture-1",
}
"""What `session` means where."""

FIRST: Final = (
    Question("POST", "/api/v1/sessions", body={"name": "night", "metrics": ["gpu_power_watts"]}),
    Question("POST", "/api/v1/shares", body={"run": RUN, "days": 1.0, "note": "for the review"}),
    Question("POST", "/api/v1/tokens", body={"role": "view", "name": "board", "projects": ["x"]}),
    Question("POST", f"{_OF_RUN}/captures/preflight", body=_CAPTURE),
    Question("POST", f"{_OF_RUN}/captures", body=_CAPTURE),
    Question("POST", "/api/v1/captures/preflight", body=_PROGRAM),
    Question("POST", "/api/v1/captures", body=_PROGRAM),
    Question("POST", f"{_OF_RUN}/stacks", body=_STACKS),
    Question("DELETE", _OF_RUN, {"yes": 1}, names={"run": DELETED}),
)
"""Those that make what the others ask about."""

NEEDED: Final[Mapping[str, Mapping[str, Any]]] = {
    "/api/v1/runs": {"metrics": "loss"},
    "/api/v1/goodput": {"by": "group"},
    f"{_OF_RUN}/curves": {"metric": "loss", "buckets": 3},
    f"{_OF_RUN}/bands": {"metric": "loss", "buckets": 3},
    f"{_OF_RUN}/heatmap": {"metric": "gpu_utilization_percent", "columns": 4},
    f"{_OF_RUN}/goodput": {"buckets": 2, "intervals": 10, "program": "true"},
    f"{_OF_RUN}/goodput/explain": {"time": when(50)},
    f"{_OF_RUN}/timeline": {"pixels": 10},
    f"{_OF_RUN}/spans": {"start": when(60), "end": when(63)},
    f"{_OF_RUN}/export": {"start": when(60), "end": when(63)},
}
"""What a question cannot do without, or has more to tell with."""

_EXPORT: Final = {"start": when(60), "end": when(63)}
VARIANTS: Final = (
    Question("GET", f"{_OF_RUN}/export", {**_EXPORT, "format": "json"}, variant="json"),
    Question("GET", f"{_OF_RUN}/export", {**_EXPORT, "format": "parquet"}, variant="parquet"),
    Question("GET", f"{_OF_RUN}/export", {**_EXPORT, "format": "perfetto"}, variant="perfetto"),
    Question("GET", f"{_OF_RUN}/export", {**_EXPORT, "format": "series"}, variant="series"),
    Question("GET", f"{_OF_RUN}/flame", {"format": "collapsed"}, variant="collapsed"),
    Question("GET", "/api/v1/sessions/{session}/export", {"format": "parquet"}, variant="parquet"),
    Question("GET", "/api/v1/health", variant="public", token=""),
    Question("GET", _OF_RUN, {"x": 1}, variant="400"),
    Question("GET", _OF_RUN, variant="401", token="wrong"),
    Question("GET", _OF_RUN, variant="404", names={"run": "nowhere"}),
    Question("GET", _OF_RUN, variant="409", names={"run": "twin"}),
    Question("GET", f"{_OF_RUN}/curves", {"metric": "loss", "start": 2, "end": 1}, variant="422"),
)
"""Other media types, and what is refused."""

LAST: Final = (
    Question("POST", "/api/v1/sessions/{session}/stop", body={}),
    Question("POST", "/api/v1/sessions/{session}/resume", body={}),
    Question("POST", "/api/v1/deleted/{run}/restore", names={"run": DELETED}),
    Question("DELETE", "/api/v1/shares/{id}"),
    Question("DELETE", "/api/v1/profiles/{run}/{session}", {"yes": 1}),
    Question("DELETE", "/api/v1/tokens/{id}"),
    Question("POST", "/api/v1/tokens/renew"),
)


class Asker:
    """Puts the questions in their order, and remembers the ids that answers name."""

    def __init__(self, world: World, document: Document) -> None:
        self._world = world
        self._document = document
        self._names = {
            "run": RUN, "name": "host-a.jax-cpu.xplane.pb", "incident": world.incident,
        }  # fmt: skip
        self._made: dict[str, str] = {}
        """By the path that takes it, the id of what was made."""
        self._browser = TestClient(world.head.app, base_url="http://localhost")

    def answers(self) -> Iterator[Answered]:
        yield from map(self._ask, FIRST)
        yield from map(self._ask, self._looking())
        yield from map(self._ask, VARIANTS)
        yield self._listen()
        yield from map(self._ask, LAST)

    def _looking(self) -> Iterator[Question]:
        paths = [path for path, methods in self._document["paths"].items() if "get" in methods]
        # A list of runs tells of each its goodput as somebody asked for it last.
        for path in sorted(paths, key=lambda path: "goodput" not in path):
            if path != LIVE:
                yield Question("GET", path, NEEDED.get(path, {}))

    def _ask(self, question: Question) -> Answered:
        place = self._address(question)
        deadline = time.monotonic() + 100
        while True:
            reply = self._browser.request(
                question.method,
                place,
                json=question.body,
                headers={"Authorization": f"Bearer {question.token}"} if question.token else {},
            )
            # A summary is made meanwhile, by another process.
            if b'"summary_state":"waiting"' not in reply.content or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        media = reply.headers["content-type"].partition(";")[0]
        answer: Any = {"bytes": len(reply.content)}
        if media == _JSON:
            answer = reply.json()
            self._learn(question.path, answer)
        elif media.startswith("text/"):
            answer = reply.text
        return self._answered(question, place, reply.status_code, media, answer)

    def _listen(self) -> Answered:
        """To the live stream, until it told each kind of event once."""
        question = Question("GET", LIVE, {"run": RUN, "token": TOKEN})
        place, loop = self._address(question), asyncio.new_event_loop()
        heard: dict[str, Any] = {}
        try:
            answer = Exchange(self._world.head.app, loop, place)
            chunks = answer.body()
            while not {"hello", "run", "points"} <= set(heard):
                if heard:
                    self._world.ranks[0].write([("loss", 119, 64, 0.5)])
                said = next(chunks).decode().splitlines()
                lines = dict(line.split(": ", 1) for line in said if line)
                if "event" in lines:
                    heard[lines["event"]] = json.loads(lines["data"])
            answer.hang_up()
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()
        told = [{"event": name, "data": data} for name, data in heard.items()]
        return self._answered(question, place, answer.status, _EVENTS, told)

    def _address(self, question: Question) -> str:
        path = question.path
        for name, value in {**self._usual(path), **question.names}.items():
            path = path.replace("{" + name + "}", quote(value, safe=""))
        if "{" in path:
            raise LookupError(
                f"{question.path}: tests/contract/questions.py has no name to put into it"
            )
        return path + ("?" + urlencode(question.query, doseq=True) if question.query else "")

    def _usual(self, path: str) -> Mapping[str, str]:
        session = next((id for base, id in _SESSIONS.items() if path.startswith(base)), "")
        return {**self._names, "session": session, "id": self._made.get(path, "")}

    def _learn(self, path: str, answer: Any) -> None:
        if path in ("/api/v1/shares", "/api/v1/tokens") and "id" in answer:
            self._made[f"{path}/{{id}}"] = answer["id"]
        if path == f"{_OF_RUN}/captures":
            self._names["command"] = answer["command"]

    def _answered(
        self, question: Question, place: str, status: int, media: str, answer: Any
    ) -> Answered:
        described = self._document["paths"][question.path][question.method.lower()]
        name: str = described["operationId"]
        if question.variant:
            name += f"-{question.variant}"
        operation = f"{question.method} {question.path}"
        return Answered(name, operation, question, place, status, media, answer)
