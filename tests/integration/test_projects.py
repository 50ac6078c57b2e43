"""Tokens of some projects: a real head, asked by HTTP and gRPC for all that it serves.

The world is that of the page's tests, with `run-ours` of project *ours* beside it.  What belongs to
others has words in it that nobody of *ours* may ever read.
"""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import pytest

from runwatch.address import Listening
from runwatch.head.access import roles
from runwatch.record import (
    Batch,
    Definition,
    Event,
    JournalId,
    Origin,
    Role,
    RunId,
    RunScope,
    Series,
)
from runwatch.testing import BatchWriter, until
from runwatch.wire import gswarm_pb2
from runwatch.wire import spine_pb2 as pb
from runwatch.wire.convert import batch_to_message
from tests.e2e import page_world
from tests.e2e.browsing import head
from tests.integration.processes import Cluster, end
from tests.integration.test_cli import runwatch
from tests.integration.test_trust_tokens import gswarm, hello, http, stream, token_command

# One head for all of them: it takes long to fill.
pytestmark = pytest.mark.xdist_group("projects")

MAIN: Final = "known to the owner"
THEIRS: Final = ("llama", "bert", "mistral", "pretraining", "theirs")
"""Words of others: names of runs, groups, sessions, links and tokens."""
OURS: Final = "run-ours"
GPU: Final = "GPU-11111111-0000-0000-0000-000000000000"


class World(NamedTuple):
    at: Listening
    tokens: dict[str, str]
    """Of project *ours*, by role."""
    session: str
    link: str
    command: str


def origin(name: str, host: str = "gpu-1", role: Role = "process") -> Origin:
    return Origin(JournalId(name), host, 77, time.time_ns() - 10**9, "boot", 0, role)


def journal(
    name: str, run: str, group: str, *, called: str = "", role: Role = "process", rank: int = 0
) -> BatchWriter:
    named: list[Definition] = [
        RunScope(1, RunId(run), called or run, rank, 1, "", group),
        Series(1, "loss", 1),
        Series(2, "gpu_utilization_percent", 1, "%", GPU, {"index": "7"}),
    ]
    return BatchWriter(origin(name, role=role), named)


def some(writer: BatchWriter, count: int = 3) -> Batch:
    now_ns = time.time_ns()
    rows = [(1 + i % 2, now_ns - i, i, float(i)) for i in range(count)]
    return writer.batch(rows, events=[Event(now_ns, "run_start", {"user": "us"}, scope=1)])


def send(at: Listening, token: str, *batches: Batch) -> list[pb.Cursor]:
    """What an agent with this token is told of each."""
    heard = threading.Event()

    def words() -> Iterator[pb.Up]:
        yield hello()
        for batch in batches:
            yield pb.Up(batch=batch_to_message(batch))
        assert heard.wait(100)

    found: list[pb.Cursor] = []
    try:
        for down in stream(at, token, words()):
            if down.WhichOneof("message") == "cursor":
                found.append(down.cursor)
            if len(found) == len(batches):
                break
    finally:
        heard.set()
    return found


def made(at: Listening, what: str, body: dict[str, Any]) -> Any:
    status, answer = http(at, what, MAIN, body)
    assert status == 200, answer
    return answer


def token(at: Listening, role: str, *projects: str) -> str:
    body = {"role": role, "name": f"{role} {len(projects)}", "projects": list(projects)}
    return str(made(at, "/tokens", body)["token"])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("projects")
    page_world.build(root, time.time_ns() + page_world.AHEAD)
    with head(root, "--token", MAIN) as at:
        tokens = {str(role): token(at, role, "ours") for role in roles.ROLES}
        made(at, "/tokens", {"role": "view", "name": "theirs", "projects": ["pretraining"]})
        link = made(at, "/shares", {"run": "run-llama", "note": "theirs"})["id"]
        session = made(at, "/sessions", {"name": "theirs"})["id"]
        ours = journal("ours-0", OURS, "ours", called="ours")
        (said,) = send(at, tokens["ingest"], some(ours))
        assert not said.refused and said.position == ours.at
        # One of theirs was deleted, and one of ours.
        for run, group in {"theirs-gone": "pretraining", "gone": "ours"}.items():
            assert not send(at, MAIN, some(journal(f"of-{run}", run, group)))[0].refused
            assert delete(at, f"/runs/{run}?yes=1&force=1", MAIN).status == 200
        command = made(at, "/runs/run-mistral/stacks", {"wait_seconds": 0})["command"]
        yield World(at, tokens, session, link, command)


class Answer(NamedTuple):
    status: int
    text: str

    def less(self, *words: str) -> Answer:
        """Without what was asked for, and without what differs from one moment to the next."""
        text = re.sub(r"\d{15,}|^date: .*", "N", self.text, flags=re.M)
        for word in words:
            text = text.replace(word, "ASKED")
        return Answer(self.status, text)


def ask(at: Listening, method: str, path: str, token: str, body: Any = None) -> Answer:
    said = None if method in ("GET", "DELETE") else json.dumps(body or {}).encode()
    asked = urllib.request.Request(f"{at.http}{path}", data=said, method=method)
    asked.add_header("Authorization", f"Bearer {token}")
    asked.add_header("Content-Type", "application/json")
    asked.add_header("Last-Event-ID", "another")  # then a stream begins with all there is
    try:
        with urllib.request.urlopen(asked, timeout=100) as answer:
            if answer.headers["Content-Type"].startswith("text/event-stream"):
                return Answer(answer.status, begun(answer))
            words = f"{answer.headers}\n{answer.read().decode('utf-8', 'replace')}"
            return Answer(answer.status, words)
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read().decode("utf-8", "replace"))


def begun(answer: Any) -> str:
    """A stream, up to the first word of a run, or of points."""
    lines = []
    for line in answer:
        lines.append(line.decode())
        if line.startswith((b"event: run", b"event: points")):
            return "".join([*lines, answer.readline().decode()])
    return "".join(lines)


def delete(at: Listening, path: str, token: str) -> Answer:
    return ask(at, "DELETE", f"/api/v1{path}", token)


QUERIES: Final = {
    "/curves": "metric=loss",
    "/heatmap": "metric=gpu_utilization_percent",
    "/goodput/explain": f"time={time.time_ns()}",
    "/bands": "metric=loss",
    "/timeline": f"start={time.time_ns() - 86_400 * 10**9}&end={time.time_ns() + 3600 * 10**9}",
}
"""What must be said, and of the timeline all that happened on the same hosts."""


def request_of(route: str, run: str, world: World) -> tuple[str, str]:
    """Method and address of a route, about a run."""
    method, _, path = route.partition(" ")
    own = {"run": run, "id": world.link, "incident": "last", "command": world.command}
    own |= {"name": "torch.kineto.json.gz", "path": "data/plugin/profile/runs"}
    own["session"] = world.session if "/sessions/" in path else "warm-up"
    for name, value in own.items():
        path = re.sub(rf"\{{{name}(:path)?\}}", value, path)
    assert "{" not in path, f"say in this test what {route} is asked with"
    query = next((said for end, said in QUERIES.items() if path.endswith(end)), "")
    return method, path + (f"?{query}" if query else "")


OPEN: Final = {
    "view": {
        "GET /", "GET /api/v1/access", "GET /api/v1/health", "GET /api/v1/openapi.json",
        "GET /api/v1/devices", "GET /api/v1/goodput", "GET /api/v1/live", "GET /api/v1/profiles",
        "GET /api/v1/runs", "GET /icon.svg", "GET /theme.js", "GET /viewers/perfetto",
        "GET /viewers/speedscope", "GET /viewers/speedscope/", "GET /viewers/xprof",
        "GET /api/v1/where",
    },
    "admin": {
        "GET /api/v1/deleted", "GET /v1/agent-info", "POST /v1/logs", "POST /v1/metrics",
        "POST /v1/traces",
    },
}  # fmt: skip
"""What is about all runs, and answers who has a token of a project.  Whoever adds a route here must
see to it that it tells of that project's runs alone."""


@pytest.mark.parametrize("role", ["view", "operate", "admin"])
def test_no_answer_tells_of_a_run_of_another_project(world: World, role: str) -> None:
    """Every route there is."""
    opened, answered = set(), set()
    for route in roles.ROUTES:
        if route in ("POST /api/v1/deleted/{run}/restore", "DELETE /api/v1/runs/{run}"):
            continue  # tried below, where it is undone
        method, path = request_of(route, OURS, world)
        for query in ("", "run=run-ours", "run=ours&x=1") if method == "GET" else ("",):
            mark = "&" if "?" in path else "?"
            asked = path + (mark + query if query else "")
            answer = ask(world.at, method, asked, world.tokens[role])
            found = [word for word in THEIRS if word in answer.text]
            assert not found, f"{route} {query} tells a token of another project of {found}"
            assert answer.status < 500, (route, answer)
            if answer.status == 200 and "{" not in route and not query:
                opened.add(route)
            if answer.status == 200 and "/runs/{run}" in route:
                answered.add(route)
    assert opened == OPEN["view"] | (OPEN["admin"] if role == "admin" else set())
    of_run = {r for r, need in roles.ROUTES.items() if r.startswith("GET ") and "/runs/{run}" in r}
    may = {r for r in of_run if roles.allows(roles.checked(role), roles.ROUTES[r])}
    assert may - answered == {  # it has no such thing, or no such moment
        "GET /api/v1/runs/{run}/goodput/explain",
        "GET /api/v1/runs/{run}/incidents/{incident}",
        "GET /api/v1/runs/{run}/captures/{session}",
    }


SLOW: Final = pytest.mark.soak  # each asks every route, several times


@pytest.mark.parametrize(
    ("role", "asked"),
    [
        ("view", "run-llama"),
        ("operate", "llama"),
        ("admin", "theirs-gone"),
        *(
            pytest.param(role, asked, marks=SLOW)
            for role, asked in (
                ("view", "llama"), ("view", "theirs-gone"), ("operate", "run-llama"),
                ("operate", "theirs-gone"), ("admin", "run-llama"), ("admin", "llama"),
            )
        ),
    ],
)  # fmt: skip
def test_a_run_of_another_project_answers_as_one_that_does_not_exist(
    world: World, role: str, asked: str
) -> None:
    """Every route, and every `run=`."""
    for route in roles.ROUTES:
        for name in ("run", "Run"):
            method, theirs = request_of(route, asked, world)
            _, nobodys = request_of(route, "nobody", world)
            if "{run}" not in route:
                mark = "&" if "?" in theirs else "?"
                theirs, nobodys = f"{theirs}{mark}{name}={asked}", f"{nobodys}{mark}{name}=nobody"
            answers = [ask(world.at, method, p, world.tokens[role]) for p in (theirs, nobodys)]
            seen = answers[0].less(asked), answers[1].less("nobody")
            assert seen[0] == seen[1], f"{route} differs for {asked}"
            if "{run}" in route:
                assert seen[0].status in (400, 403, 404, 409), (route, seen)
    for run in ("run-llama", "run-bert", "run-mistral"):
        assert http(world.at, f"/runs/{run}", MAIN)[0] == 200


def test_own_runs_are_there_with_all_that_is_told_of_them(world: World) -> None:
    at, view = world.at, world.tokens["view"]
    told = http(at, "/access", view)[1]
    assert (told["role"], told["projects"], told["run"]) == ("view", ["ours"], None)
    assert [run["run"] for run in http(at, "/runs", view)[1]["runs"]] == [OURS]
    assert [run["run"] for run in http(at, "/goodput", view)[1]["runs"]] == [OURS]
    devices = http(at, "/devices", view)[1]
    assert [(each["run"], each["device"]) for each in devices["devices"]] == [(OURS, GPU)]
    assert devices["totals"]["devices"] == 1
    for key in (OURS, "ours"):
        assert http(at, f"/runs/{key}/latest", view)[1]["run"] == OURS
        assert http(at, f"/devices?run={key}", view)[0] == 200
    status, answer = http(at, "/sessions", view)
    assert status == 403 and answer["error"]["code"] == "other_project"
    assert "project 'ours'" in answer["error"]["message"]


def test_an_admin_of_a_project_deletes_and_restores_there_alone(world: World) -> None:
    at, admin = world.at, world.tokens["admin"]
    deleted = {each["run"] for each in http(at, "/deleted", admin)[1]["deleted"]}
    assert "gone" in deleted and "theirs-gone" not in deleted
    assert http(at, "/deleted/theirs-gone/restore", admin, {})[0] == 404
    assert http(at, "/deleted/gone/restore", admin, {})[0] == 200
    assert delete(at, "/runs/run-llama?yes=1&force=1", admin).status == 404
    assert delete(at, "/runs/gone?yes=1&force=1", admin).status == 200
    for path in ("/tokens", "/shares"):
        assert http(at, path, admin, {"role": "view"} if path == "/tokens" else {})[0] == 403
    assert http(at, "/tokens/renew", admin, {})[0] == 403
    assert http(at, "/audit", admin)[0] == 403


def test_how_far_a_command_is_is_told_to_its_project(world: World) -> None:
    at, tokens = world.at, world.tokens
    # It is running as long as it was heard of lately.
    assert not send(at, tokens["ingest"], some(journal("awake-0", OURS, "ours", rank=9)))[0].refused
    status, taken = http(at, f"/runs/{OURS}/stacks", tokens["operate"], {"wait_seconds": 0})
    assert status == 200, taken
    own = taken["command"]
    assert http(at, f"/commands/{own}", tokens["view"])[1]["kind"] == "stacks"
    assert http(at, f"/commands/{world.command}", MAIN)[0] == 200
    theirs = ask(at, "GET", f"/api/v1/commands/{world.command}", tokens["view"])
    nobodys = ask(at, "GET", "/api/v1/commands/nobody", tokens["view"])
    assert theirs.status == 404 and theirs.less(world.command) == nobodys.less("nobody")


def test_a_stream_tells_of_own_runs_alone(world: World) -> None:
    at = world.at
    asked = urllib.request.Request(f"{at.http}/api/v1/live")
    asked.add_header("Authorization", f"Bearer {world.tokens['view']}")
    asked.add_header("Last-Event-ID", "another")
    told: list[str] = []
    with urllib.request.urlopen(asked, timeout=100) as page:
        for line in page:
            if line.startswith(b'data: {"run":"run-'):
                told.append(json.loads(line[6:])["run"])
                if "run-later" in told:
                    break
                # The first was among all that there is; this one is news after that.
                news = journal(f"theirs-{len(told)}", "run-theirs-now", "pretraining")
                send(at, MAIN, some(news))
                send(at, MAIN, some(journal("later-0", "run-later", "ours")))
    assert set(told) == {OURS, "run-later"}
    for run in ("run-theirs-now", "run-later"):
        assert delete(at, f"/runs/{run}?yes=1&force=1&keep_days=0", MAIN).status == 200


# ── what comes in ─────────────────────────────────────────────────────────────────────────────


def test_a_job_adds_to_runs_of_its_projects_alone(world: World) -> None:
    at, job = world.at, world.tokens["ingest"]

    def why(writer: BatchWriter) -> str:
        (said,) = send(at, job, some(writer))
        assert said.refused is bool(said.why) and said.position == (0 if said.why else writer.at)
        return said.why

    assert why(journal("in-0", OURS, "ours", rank=1)) == ""
    assert why(journal("in-1", OURS, "", rank=2)) == "", "it is of our project already"
    assert "names project 'pretraining'" in why(journal("in-2", "new", "pretraining"))
    assert "names no project" in why(journal("in-3", "new", ""))
    assert "names project 'theirs'" in why(journal("in-4", OURS, "theirs"))
    for run in ("run-llama", "run-mistral", "theirs-gone"):
        said = why(journal(f"in-{run}", run, "ours"))
        assert f"run {run!r} is not of project 'ours'" in said and "pretraining" not in said
    assert http(at, "/runs/run-llama", MAIN)[1]["group"] == "pretraining"
    assert http(at, "/runs/new", MAIN)[0] == 404


def test_a_journal_of_another_project_is_not_gone_on_with(world: World) -> None:
    at = world.at
    theirs = journal("their-journal", "run-theirs-2", "pretraining")
    assert not send(at, MAIN, some(theirs))[0].refused
    theirs.definitions = []
    for role in ("process", "agent"):
        theirs.origin = replace(theirs.origin, role=role)
        place = theirs.at
        (said,) = send(at, world.tokens["ingest"], some(theirs))
        assert said.refused and said.position == place and "run-theirs-2" in said.why
        theirs.at = place
    assert delete(at, "/runs/run-theirs-2?yes=1&force=1&keep_days=0", MAIN).status == 200


def test_what_an_agent_says_of_other_projects_is_of_no_run(world: World) -> None:
    """It is taken: the node's devices are of use to all."""
    at, before = world.at, http(world.at, "/runs/run-llama/series?limit=10000", MAIN)[1]
    agent = journal("agent-ours", "run-llama", "pretraining", role="agent")
    agent.definitions = [*agent.definitions, RunScope(2, RunId(OURS), "ours", 0, 1, "", "ours")]
    (said,) = send(at, world.tokens["ingest"], some(agent))
    assert not said.refused and said.position == agent.at
    assert http(at, "/runs/run-llama/series?limit=10000", MAIN)[1] == before
    assert not send(at, world.tokens["ingest"], some(agent))[0].refused


def test_two_who_come_at_once_do_not_both_get_a_run(world: World) -> None:
    at, other = world.at, token(world.at, "ingest", "others")
    said = send(at, world.tokens["ingest"], some(journal("both-0", "both", "ours")))
    said += send(at, other, some(journal("both-1", "both", "others")))
    assert [each.refused for each in said] == [False, True]
    assert http(at, "/runs/both", MAIN)[1]["group"] == "ours"
    assert delete(at, "/runs/both?yes=1&force=1&keep_days=0", MAIN).status == 200


def keep(at: Listening, token: str, run: str) -> str:
    path = f"{run}/plugins/profile/brought/a.xplane.pb"
    header = pb.FileHeader(path=path, bytes=2, host="gpu-1")
    pieces = [pb.Piece(header=header), pb.Piece(data=b"ab")]
    with grpc.insecure_channel(at.grpc) as channel:
        call = channel.stream_unary(
            "/runwatch.v1.Spine/Keep", pb.Piece.SerializeToString, pb.Kept.FromString
        )
        metadata = (("authorization", f"Bearer {token}"),)
        return str(call(iter(pieces), metadata=metadata, timeout=100).problem)


def test_profiles_are_brought_to_own_runs_alone(world: World) -> None:
    at, job = world.at, world.tokens["ingest"]
    assert keep(at, job, OURS) == ""
    for run in ("run-llama", "llama", "nobody"):
        assert f"no run {run!r} is known here in project 'ours'" in keep(at, job, run)
    assert [p["session"] for p in http(at, f"/runs/{OURS}/profiles", MAIN)[1]["profiles"]] == [
        "brought"
    ]
    assert delete(at, f"/profiles/{OURS}/brought?yes=1", world.tokens["admin"]).status == 200


def test_what_gswarm_asks_is_about_all_runs(world: World) -> None:
    empty, status = gswarm_pb2.Empty(), gswarm_pb2.StatusResponse
    assert gswarm(world.at, world.tokens["view"], "GetStatus", empty, status) == "PERMISSION_DENIED"
    admin = world.tokens["admin"]
    assert gswarm(world.at, admin, "Exit", empty, gswarm_pb2.Empty) == "PERMISSION_DENIED"
    assert http(world.at, "/runs", MAIN)[0] == 200


# ── the last: from here on a word of theirs is also one of ours ───────────────────────────────


def test_a_name_that_others_have_too_is_that_of_the_own_run(world: World) -> None:
    """Nor does the own run's id, called as theirs, lead to theirs."""
    at, job = world.at, world.tokens["ingest"]
    send(at, job, some(journal("same-0", "run-same", "ours", called="llama")))
    assert http(at, "/runs/llama", world.tokens["view"])[1]["run"] == "run-same"
    assert http(at, "/runs/llama", MAIN)[0] == 409
    own = journal("same-1", "llama", "ours", called="run-llama")
    send(at, job, some(own))
    view = world.tokens["view"]
    assert http(at, "/profiles/llama/warm-up", view)[0] == 404, "which has none"
    assert http(at, "/profiles/run-llama/warm-up", view)[0] == 403
    told = {"session": "warm-up", "state": "done", "framework": "torch", "start_ns": 1}
    send(at, job, own.batch(events=[Event(time.time_ns(), "profile", told, scope=1)]))
    theirs = journal("same-2", "run-x9", "pretraining", called="nickname")
    captured = Event(time.time_ns(), "profile", told | {"session": "s9"}, scope=1)
    send(at, MAIN, theirs.batch(events=[captured]))
    send(at, job, some(journal("same-3", "nickname", "ours")))
    assert http(at, "/profiles/run-x9/s9", MAIN)[0] == 200
    assert http(at, "/profiles/nickname/s9", view)[0] == 404
    (profile,) = http(at, "/profiles", view)[1]["profiles"]
    assert (profile["run"], profile["session"], profile["files"]) == ("llama", "warm-up", [])
    assert http(at, "/profiles/llama/warm-up/files/gpu-1.rank0.kineto.json.gz", view)[0] == 404
    path = "/profiles/run-llama/warm-up/files/gpu-1.rank0.kineto.json.gz"
    assert ask(at, "GET", f"/api/v1{path}", MAIN).status == 200
    for run in ("run-same", "llama", "nickname", "run-x9"):
        assert delete(at, f"/runs/{run}?yes=1&force=1&keep_days=0", MAIN).status == 200


# ── a real agent ──────────────────────────────────────────────────────────────────────────────

PROGRAM: Final = """
import sys, runwatch
with runwatch.init(sys.argv[1], group=sys.argv[2]) as run:
    run.log(value=1.0)
"""


def test_an_agent_sets_aside_what_its_token_may_not_bring(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        at = cluster.start_head()
        made = token_command(cluster, "create", "--role", "ingest", "--project", "ours")
        assert made["projects"] == ["ours"]
        listed = runwatch(cluster.node_root, "token", "list", "--dir", str(cluster.head_root))
        assert "ours" in listed.stdout

        def begin(word: str) -> None:
            cluster.agent = cluster._python(
                "-m", "runwatch.agent", "--dir", str(cluster.node_root), "--idle", "0",
                "--head", at.grpc, environment={"RUNWATCH_TOKEN": word},
            )  # fmt: skip

        def runs() -> set[str]:
            return {run["name"] for run in http(at, "/runs", at.token)[1]["runs"]}

        def aside() -> list[str]:
            return [each["why"] for each in http(at, "/health", at.token)[1]["aside"]]

        for name, group in (("yours", "theirs"), ("mine", "ours")):
            assert cluster._python("-c", PROGRAM, name, group).wait(60) == 0, cluster.words()
        begin(made["token"])
        until(lambda: runs() == {"mine"}, 60, cluster.words())
        (why,) = until(aside, 60, cluster.words())
        assert "names project 'theirs'" in why and "is for project 'ours'" in why
        assert runs() == {"mine"}
        assert cluster.agent is not None
        end(cluster.agent, 15)
        both = ("--project", "ours", "--project", "theirs")
        begin(token_command(cluster, "create", "--role", "ingest", *both)["token"])
        until(lambda: runs() == {"mine", "yours"}, 60, cluster.words())
    finally:
        cluster.close()
