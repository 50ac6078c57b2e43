"""Who can do what: each thing is really tried, by each user, and SECURITY.md holds the outcome.

`RUNWATCH_WRITE_TABLES=1` puts what was found into the document.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from runwatch.head.access import roles
from runwatch.journal.liveness import this_host
from runwatch.testing import until
from tests.integration.processes import end, free_port
from tests.integration.strangers import (
    ALICE,
    MALLORY,
    command_as,
    do_as,
    everybodys,
    forge,
    needs_users,
    origin_of,
)

pytestmark = needs_users

DOCUMENT: Final = Path(__file__).parents[2] / "SECURITY.md"
BEGIN, END = "<!-- who can do what: made by tests/integration/test_who_can.py -->", "<!-- end -->"
SECRET: Final = "s3cret-of-the-head-0123456789"
YES, NO, NOTHING_TO_TRY = "yes", "no", "·"
PROGRAM: Final = """
import runwatch
runwatch.init("hers")
runwatch.log(value=1.0, step=1)
input()
"""


@dataclass(frozen=True)
class Caller:
    """Who tries, and what is shown to a head."""

    name: str
    uid: int
    knows: str = ""
    """A role's token, or `link`: told by someone; "": what that user finds by himself."""


OWNER: Final = Caller("its owner", ALICE)
OTHER: Final = Caller("another user", MALLORY)
ROOT: Final = Caller("root", 0)
ROLES: Final = (
    *(Caller(f"with a token to *{role}*", MALLORY, role) for role in roles.ROLES),
    Caller("with a share link", MALLORY, "link"),
)
CALLERS: Final = (OWNER, OTHER, ROOT, *ROLES)


@dataclass
class World:
    """What is there to be tried on."""

    root: Path
    program: int = 0
    process: subprocess.Popen[bytes] | None = None
    """The agent or the head."""
    log: Path = Path()
    journal: Path = Path()
    http: str = ""
    grpc: str = ""
    token_file: Path = Path()
    known: dict[str, str] = field(default_factory=dict)
    askers: Askers = field(default_factory=dict)
    tried: int = 0

    @property
    def pid(self) -> int:
        assert self.process is not None and self.process.poll() is None, self.log.read_text()
        return self.process.pid


Deed = Callable[[World, Caller], bool]
Askers = Mapping[int, "Asker"]
"""By user."""


def may(uid: int, script: str, *words: object) -> bool:
    """Whether a shell script that this user runs comes to its end."""
    command = [*command_as(uid), "sh", "-euc", script, "sh", *map(str, words)]
    return subprocess.run(command, cwd="/", timeout=60, capture_output=True).returncode == 0


# ── what is tried on an agent ─────────────────────────────────────────────────────────────────


def read_records(world: World, caller: Caller) -> bool:
    return may(caller.uid, 'cat "$1"/*.seg > /dev/null', world.journal)


def change_records(world: World, caller: Caller) -> bool:
    return may(caller.uid, 'echo x > "$1/x"; rm "$1/x"', world.journal)


def command_it(world: World, caller: Caller) -> bool:
    """A command that lies where it looks for some, and is taken."""
    folder = world.root / "commands" / this_host()
    world.tried += 1
    said = {"id": f"c-{world.tried}", "kind": "ping", "body": {}}
    text = json.dumps({**said, "issued_ns": 0, "expires_ns": 2**62})
    script = 'mkdir -p "$1"; printf %s "$2" > "$1/.new"; mv "$1/.new" "$1/c.json"'
    if not may(caller.uid, script, folder, text):
        return False
    until(lambda: not (folder / "c.json").exists(), 60, world.log.read_text())
    return True


def claim_process(world: World, caller: Caller) -> bool:
    """A journal that says to be the program's: the agent then tells it how the program ended."""
    world.tried += 1
    before = watched(world.pid, world.program)
    made = forge(world.root, caller.uid or ALICE, origin_of(world.program, number=world.tried))
    if not may(caller.uid, 'touch "$1/x"; rm "$1/x"', made.parent):
        shutil.rmtree(made)  # he could not have put it there
        return False

    def decided() -> str:
        if watched(world.pid, world.program) > before:
            return YES
        return NO if made.name in world.log.read_text() else ""

    found = until(decided, 60, world.log.read_text())
    return bool(found == YES)


def watched(agent: int, pid: int) -> int:
    """How often the agent has a pidfd on the process."""
    texts = []
    for path in Path(f"/proc/{agent}/fdinfo").glob("*"):
        try:
            texts.append(path.read_text())
        except OSError:
            continue
    return sum(f"Pid:\t{pid}\n" in text for text in texts)


def read_its_token(world: World, caller: Caller) -> bool:
    return may(caller.uid, 'grep -q s3cret "/proc/$1/environ"', world.pid)


def end_it(world: World, caller: Caller) -> bool:
    return may(caller.uid, 'kill -0 "$1"', world.pid)


# ── what is tried on a head ───────────────────────────────────────────────────────────────────

ASKER: Final = """
import json, sys, urllib.error, urllib.request
import grpc
from runwatch.ship.courier import METHOD
from runwatch.wire import spine_pb2 as pb

def ask(method, address, token):
    headers = {"Authorization": "Bearer " + token} if token else {}
    body = b"{}" if method == "POST" else None
    headers |= {"Content-Type": "application/json"} if body else {}
    try:
        request = urllib.request.Request(address, body, headers, method=method)
        urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        return error.code not in (401, 403)
    return True

def send(address, token):
    metadata = (("authorization", "Bearer " + token),) if token else ()
    refused = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
    with grpc.insecure_channel(address) as channel:
        call = channel.stream_unary(METHOD, request_serializer=pb.Piece.SerializeToString,
                                    response_deserializer=pb.Kept.FromString)
        piece = pb.Piece(header=pb.FileHeader(path="nowhere", bytes=0, host="h"))
        try:
            call(iter([piece]), metadata=metadata, timeout=30)
        except grpc.RpcError as error:
            return error.code() not in refused
    return True

for line in sys.stdin:
    what, *words = json.loads(line)
    print(json.dumps({"ask": ask, "send": send}[what](*words)), flush=True)
"""


class Asker:
    """A process of one user, which sends requests to heads."""

    def __init__(self, uid: int, errors: Path) -> None:
        self._errors = errors
        with errors.open("ab") as log:
            self._process = subprocess.Popen(
                [*command_as(uid), sys.executable, "-c", ASKER], cwd="/", stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def is_allowed(self, *request: str) -> bool:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, self._errors.read_text()
        return bool(json.loads(answer))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def askers(tmp_path: Path) -> Iterator[Askers]:
    started = {uid: Asker(uid, tmp_path / f"asker-{uid}.log") for uid in (ALICE, MALLORY, 0)}
    try:
        yield started
    finally:
        for asker in started.values():
            asker.close()


def shown(world: World, caller: Caller) -> str:
    """What this one has to show: what was told, else what lies about."""
    if caller.knows:
        return world.known.get(caller.knows, "")
    found = subprocess.run(
        [*command_as(caller.uid), "cat", str(world.token_file)], capture_output=True, timeout=60
    )
    return found.stdout.decode().strip()


def asks(method: str, path: str, base: str = "/api/v1") -> Deed:
    """What is refused for another reason than who asks would have been done."""

    def deed(world: World, caller: Caller) -> bool:
        address = f"{world.http}{base}{path}"
        return world.askers[caller.uid].is_allowed("ask", method, address, shown(world, caller))

    return deed


def send_records(world: World, caller: Caller) -> bool:
    return world.askers[caller.uid].is_allowed("send", world.grpc, shown(world, caller))


def read_store(world: World, caller: Caller) -> bool:
    return may(caller.uid, 'ls "$1/store"', world.root / "head")


# ── the worlds ────────────────────────────────────────────────────────────────────────────────

ON_AGENTS: Final[Sequence[tuple[str, Deed]]] = (
    ("read what the owner's program records, on the node", read_records),
    ("change it", change_records),
    ("have the agent tell of the owner's process in a journal of one's own", claim_process),
    ("give the agent commands: stacks, captures", command_it),
    ("see the agent's token", read_its_token),
    ("end the agent", end_it),
)
ON_HEADS: Final[Sequence[tuple[str, Deed]]] = (
    ("see runs", asks("GET", "/runs")),
    ("send records and profiles", send_records),
    ("have profiles captured", asks("POST", "/runs/hers/captures/preflight")),
    ("start sessions of device sampling", asks("POST", "/profiling/start", base="")),
    ("delete runs", asks("DELETE", "/runs/hers")),
    ("hand out share links and tokens", asks("POST", "/shares")),
    ("read the store's files", read_store),
    ("end the head", end_it),
)


@contextmanager
def alices_program(root: Path, log: Path) -> Iterator[int]:
    environment = {"RUNWATCH_DIR": str(root), "RUNWATCH_AGENT": "off", "HOME": "/"}
    with log.open("ab") as words:
        program = subprocess.Popen(
            [*command_as(ALICE), sys.executable, "-c", PROGRAM], cwd="/",
            env=clean() | environment, stdin=subprocess.PIPE, stderr=words, stdout=words,
        )  # fmt: skip
    try:
        yield program.pid
    finally:
        program.kill()
        program.communicate()


def clean() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}


@contextmanager
def agent(uid: int, tmp_path: Path) -> Iterator[World]:
    """As the owner's own, in a directory of hers; or root's, in everybody's, as the docs say."""
    with everybodys() as shared:
        root = shared
        if uid:
            root = shared / "hers"
            do_as(uid, 'umask 077; mkdir "$1" "$1/journals"', root)
        else:
            for name in ("agent", "commands"):
                (root / name).chmod(0o700)
        world = World(root, log=tmp_path / f"agent-{uid}.log")
        with alices_program(root, world.log) as world.program, world.log.open("ab") as words:
            world.process = subprocess.Popen(
                [*command_as(uid), sys.executable, "-m", "runwatch.agent", "--idle", "0"],
                env=clean() | {"RUNWATCH_DIR": str(root), "RUNWATCH_TOKEN": SECRET, "HOME": "/"},
                cwd="/", stdout=words, stderr=words,
            )  # fmt: skip
            try:
                until(lambda: watched(world.pid, world.program), 60, world.log.read_text())
                world.journal = next(
                    path
                    for path in (root / "journals").iterdir()
                    if f"-{world.program}-" in path.name
                )
                yield world
            finally:
                end(world.process, signal.SIGTERM)


RUNWATCH: Final = ("runwatch.cli", "head", "--grpc-port", "--http-port")
GSPROF: Final = ("gsprof", "start", "--port", "--http-port")


@contextmanager
def head(tmp_path: Path, command: tuple[str, ...], askers: Askers) -> Iterator[World]:
    """Alice's, on this machine only, as it is started without any option about tokens."""
    module, verb, first, second = command
    with everybodys() as shared:
        grpc_port, http_port = free_port(), free_port()
        world = World(shared, log=tmp_path / f"{module}.log", askers=askers)
        world.http, world.grpc = f"http://127.0.0.1:{http_port}", f"127.0.0.1:{grpc_port}"
        world.token_file = shared / "head/token"
        with world.log.open("ab") as words:
            world.process = subprocess.Popen(
                [*command_as(ALICE), sys.executable, "-m", module, verb,
                 first, str(grpc_port), second, str(http_port)],
                env=clean() | {"HOME": "/", "RUNWATCH_DIR": str(shared / "head")},
                cwd="/", stdout=words, stderr=words,
            )  # fmt: skip
        try:
            until(lambda: world.pid and (shared / "head/head.json").exists(), 60)
            own = world.token_file.read_text()
            world.known = {"link": made(world, own, "shares", {})}
            for role in roles.ROLES:
                world.known[role] = made(world, own, "tokens", {"role": role, "name": role})
            yield world
        finally:
            end(world.process, signal.SIGTERM)


def made(world: World, token: str, what: str, body: dict[str, str]) -> str:
    """What somebody has who was given a link to all runs, or a token."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(
        f"{world.http}/api/v1/{what}", json.dumps(body).encode(), headers, method="POST"
    )
    with urllib.request.urlopen(request, timeout=100) as answer:
        return str(json.load(answer)["token"])


# ── the table ─────────────────────────────────────────────────────────────────────────────────


def rows(
    name: str, world: World, deeds: Sequence[tuple[str, Deed]], callers: Sequence[Caller]
) -> Iterator[str]:
    for what, deed in deeds:
        cells = [
            (YES if deed(world, caller) else NO) if caller in callers else NOTHING_TO_TRY
            for caller in CALLERS
        ]
        yield f"| {name} | {what} | {' | '.join(cells)} |"


def test_the_table_says_who_can_do_what(tmp_path: Path, askers: Askers) -> None:
    users = (OWNER, OTHER, ROOT)
    table = [
        f"| | | {' | '.join(caller.name for caller in CALLERS)} |",
        "|---|---|" + "---|" * len(CALLERS),
    ]
    with agent(ALICE, tmp_path) as world:
        table += rows("the owner's agent", world, ON_AGENTS, users)
    with agent(0, tmp_path) as world:
        table += rows("root's agent, for all users", world, ON_AGENTS, users)
    with head(tmp_path, RUNWATCH, askers) as world:
        table += rows("the owner's head", world, ON_HEADS, CALLERS)
    with head(tmp_path, GSPROF, askers) as world:
        table += rows("the owner's head, as `gsprof start`", world, ON_HEADS, CALLERS)
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    held, _, after = rest.partition(END)
    made = "\n".join(["", *table, ""])
    if os.environ.get("RUNWATCH_WRITE_TABLES"):
        DOCUMENT.write_text(f"{before}{BEGIN}{made}{END}{after}")
        return
    assert held == made, "SECURITY.md holds another: RUNWATCH_WRITE_TABLES=1 writes this one there"
