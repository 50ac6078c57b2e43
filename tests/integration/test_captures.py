"""Captures on demand: real head, agent and programs; torch and JAX on the CPU."""

from __future__ import annotations

import gzip
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from runwatch.capture.tracing.trace_checks import xplane_problems, xplane_window
from runwatch.cli.__main__ import main
from runwatch.journal.liveness import this_host
from runwatch.testing import until
from tests import tokens
from tests.integration import capture_programs as programs
from tests.integration.processes import Cluster, end, free_port

HOST = this_host()
RUN = "captured"
DEADLINE = 90.0
needed = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("jax") is None, reason="torch or jax is missing"
)
# One site for all of them: its programs keep a processor busy, and take long to start.
pytestmark = [needed, pytest.mark.xdist_group("captures")]


class Site(Cluster):
    """A head, an agent and programs, all as processes."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.counts = root / "counts"
        self.counts.mkdir()
        (root / "kineto").mkdir()
        self.profiler_port = free_port()
        self.programs: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {
            "KINETO_IPC_SOCKET_DIR": str(self.root / "kineto"),
            "PROFILER_PORT": str(self.profiler_port),
            "JAX_PLATFORMS": "cpu",
            "RUNWATCH_ATTEMPT": "one",
            "OMP_NUM_THREADS": "1",
        }

    def start_ranks(self, step: str, ranks: str, world: int) -> None:
        text = programs.COUNTING + step + programs.RANKS
        self._start(text, str(self.counts), RUN, ranks, str(world))

    def start_plain(self, step: str, name: str, **environment: str) -> int:
        text = programs.COUNTING + step + programs.PLAIN
        return self._start(text, str(self.counts), name, **environment).pid

    def _start(self, text: str, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", text, *words],
            env=self.environment | environment,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,  # with those that it forks
        )
        self.programs.append(process)
        return process

    def taken(self, who: int | str) -> int:
        return programs.Steps(self.counts / f"steps-{who}").taken

    def goes_on(self, who: int | str) -> None:
        before = self.taken(who)
        until(lambda: self.taken(who) > before + 10, 60, f"steps of {who}: {self.words()}")

    def close(self) -> None:
        for process in self.programs:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(100)
        super().close()

    # ── the API ───────────────────────────────────────────────────────────────────────────────

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.http_port}/api/v1{path}"
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        try:
            with tokens.urlopen(request, timeout=100) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)["error"]

    def begin(self, base: str = f"/runs/{RUN}", **wanted: Any) -> dict[str, Any]:
        status, told = self.ask(f"{base}/captures", wanted)
        assert status == 202, (told, self.words())
        begun: dict[str, Any] = told
        return begun

    def state(self, session: str, base: str = f"/runs/{RUN}") -> str:
        return str(self.ask(f"{base}/captures/{session}")[1]["state"])

    def ended(self, session: str, base: str = f"/runs/{RUN}") -> dict[str, Any]:
        def over() -> Any:
            _, told = self.ask(f"{base}/captures/{session}")
            return told if told["state"] not in ("asked", "running") else None

        found: dict[str, Any] = until(over, DEADLINE, self.words())
        return found

    def capture(self, base: str = f"/runs/{RUN}", **wanted: Any) -> dict[str, Any]:
        return self.ended(self.begin(base, **wanted)["session"], base)

    def profile(self, session: str, files: int, run: str = RUN) -> dict[str, Any]:
        """The session, once its files are at the head and summarised."""

        def there() -> Any:
            status, told = self.ask(f"/profiles/{run}/{session}")
            # Files and what the processes tell of them come on ways of their own.
            whole = status == 200 and min(len(told["files"]), len(told["parts"])) >= files
            return told if whole and told["summary_state"] not in ("waiting", "none") else None

        found: dict[str, Any] = until(there, DEADLINE, self.words())
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Ranks 0 to 2 use torch, 3 uses JAX, 4 neither; and two programs without Runwatch."""
    made = Site(tmp_path_factory.mktemp("site"))
    try:
        made.start_head()
        made.start_agent()
        made.start_ranks(programs.TORCH_STEP, "0,1,2", 5)
        made.start_ranks(programs.JAX_STEP, "3", 5)
        made.start_ranks(programs.NO_FRAMEWORK, "4", 5)
        made.start_plain(programs.TORCH_STEP, "torch", KINETO_USE_DAEMON="1")
        made.start_plain(programs.JAX_STEP + programs.SERVING, "jax")
        for who in (0, 1, 2, 3, 4, "torch", "jax"):
            until(lambda who=who: made.taken(who) > 5, DEADLINE, made.words())
        until(lambda: len(_ready(made)) == 5, DEADLINE, "the agent to know all ranks")
        yield made
    finally:
        made.close()


def _ready(site: Site) -> list[Any]:
    status, told = site.ask(f"/runs/{RUN}/captures/preflight", {})
    return told["processes"] if status == 200 else []


def _by_rank(told: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    return {process["rank"]: process for process in told["processes"]}


def _files(site: Site, run: str, session: str) -> dict[str, Path]:
    """What was captured; the head keeps its summary beside it under a hidden name."""
    folder = site.node_root / "profiles" / run / "plugins" / "profile" / session
    return {file.name: file for file in folder.glob("[!.]*")}


def _is_trace(file: Path) -> bool:
    if file.name.endswith(".xplane.pb"):
        return xplane_problems(file, "") == []
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    return any("aten::" in str(event.get("name")) for event in events)


def _common_ms(profile: Mapping[str, Any]) -> float:
    """What all traces have in common, by their own times."""
    traces = profile["summary"]["traces"]
    ends = min(trace["window_end_ns"] for trace in traces)
    return float(ends - max(trace["window_start_ns"] for trace in traces)) / 1e6


def test_preflight_says_what_can_be_captured_and_why_not(site: Site) -> None:
    status, told = site.ask(f"/runs/{RUN}/captures/preflight", {})
    assert status == 200
    found = _by_rank(told)
    assert [found[rank]["way"] for rank in range(5)] == ["sdk"] * 4 + [""]
    assert found[0]["frameworks"] == ["torch"] and found[3]["frameworks"] == ["jax"]
    why = found[4]["why"]
    assert "imported none of jax, torch" in why
    assert "serves no profiler port" in why and "KINETO_USE_DAEMON=1" in why
    assert told["hosts"] == {HOST: ""}
    assert 1.0 < told["lead_seconds"] < 10


def test_every_rank_is_captured_at_the_same_time(site: Site) -> None:
    told = _in_time(site, f"/runs/{RUN}", duration_ms=2000)
    found = _by_rank(told)
    assert [found[rank]["state"] for rank in range(5)] == ["done"] * 4 + ["failed"], told
    assert told["state"] == "partial"
    assert told["why"].startswith("rank 4: nothing to trace")
    assert told["overlap_percent"] >= 90
    names = {HOST, *(f"{HOST}.rank{rank}" for rank in (1, 2))}
    kineto = {f"{name}.kineto.json.gz" for name in names}
    files = _files(site, RUN, told["session"])
    assert set(files) == kineto | {f"{HOST}.rank3.xplane.pb"}
    assert all(map(_is_trace, files.values()))
    # Brought to the head, and by the traces' own times.
    profile = site.profile(told["session"], files=4)
    assert profile["summary_state"] == "done", profile["summary_why"]
    assert _common_ms(profile) >= 0.9 * 2000
    assert profile["origin"] == "demand" and profile["ranks"] == [0, 1, 2, 3]
    for rank in range(5):
        site.goes_on(rank)


def test_programs_without_runwatch(site: Site) -> None:
    """One only serves a profiler port, the other was only started with KINETO_USE_DAEMON=1."""
    asked = {"ports": [site.profiler_port], "pids": [p.pid for p in site.programs[-2:]]}

    def ways() -> list[str]:
        _, told = site.ask("/captures/preflight", asked)
        return sorted(process["way"] for process in told["processes"])

    # PyTorch asks for orders every few seconds; until then nobody knows of it.
    until(lambda: ways() == ["kineto", "port"], DEADLINE, site.words())
    run = f"unattributed-{HOST}"

    def in_common(told: Mapping[str, Any]) -> bool:
        """By the times of their events."""
        return _common_ms(site.profile(told["session"], files=2, run=run)) >= 0.9 * 2000

    told = _in_time(site, "", in_common, duration_ms=2000, **asked)
    assert told["state"] == "done", told
    by_way = {process["way"]: process for process in told["processes"]}
    assert set(by_way) == {"kineto", "port"}
    assert told["overlap_percent"] >= 90, told
    files = _files(site, run, told["session"])
    assert set(files) == {
        f"{HOST}.pid{by_way['kineto']['pid']}.kineto.json.gz",
        f"{HOST}.pid{by_way['port']['pid']}.xplane.pb",
    }
    assert all(map(_is_trace, files.values()))
    port = by_way["port"]
    begin_ns, end_ns = xplane_window(files[port["files"][0]]) or (0, 0)
    assert end_ns - begin_ns == port["end_ns"] - port["start_ns"]  # by the head's clock
    profile = site.profile(told["session"], files=2, run=run)
    assert profile["frameworks"] == ["jax", "torch"]
    site.goes_on("torch")
    site.goes_on("jax")


def _in_time(
    site: Site, base: str, really: Callable[[Any], bool] = bool, **wanted: Any
) -> dict[str, Any]:
    """While all processors are busy a program begins late or not at all; its capture says so.

    `really`: what to look at besides.
    """

    def once() -> dict[str, Any] | None:
        told = site.capture(base, **wanted)
        print([(p["way"], p["why"]) for p in told["processes"]], told["overlap_percent"])
        return told if (told["overlap_percent"] or 0) >= 90 and really(told) else None

    found: dict[str, Any] = until(once, 150, "a capture that all begin in time")
    return found


def test_steps_are_counted(site: Site) -> None:
    told = site.capture(steps=3, ranks=[0, 3], session="steps")
    assert [process["rank"] for process in told["processes"]] == [0, 3]
    assert told["state"] == "done", told
    parts = site.profile("steps", files=2)["parts"]
    assert [part["last_step"] - part["first_step"] for part in parts] == [2, 2]


def test_one_at_a_time(site: Site) -> None:
    begun = site.begin(duration_ms=1000, session="first", ranks=[0])
    status, told = site.ask(f"/runs/{RUN}/captures", {"duration_ms": 100})
    assert status == 409 and told["code"] == "active"
    assert "'first'" in told["message"]
    assert site.ended("first")["state"] == "done"
    assert site.ended("first")["command"] == begun["command"]
    status, told = site.ask(f"/runs/{RUN}/captures", {"session": "first"})
    assert status == 422 and "exists already" in told["message"]


def test_what_cannot_be_written_leaves_the_steps_alone(site: Site) -> None:
    folder = site.node_root / "profiles" / RUN / "plugins" / "profile"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "blocked").write_text("in the way")
    try:
        told = site.capture(duration_ms=200, session="blocked", ranks=[0, 3])
    finally:
        (folder / "blocked").unlink()
    assert told["state"] == "failed"
    assert "cannot write to" in told["why"]
    site.goes_on(0)
    site.goes_on(3)
    until(lambda: os.listdir(site.node_root / "captures") == [], what="what was traced to go")


def test_a_head_that_dies_meanwhile(site: Site) -> None:
    """The session completes on the node and shows up at the next head."""
    assert site.head is not None
    site.begin(duration_ms=1500, session="orphan", ranks=[1, 3])
    end(site.head, signal.SIGKILL)
    site.goes_on(1)
    until(lambda: len(_names(site, "orphan")) == 2, DEADLINE, site.words())
    site.start_head()
    told = site.ended("orphan")
    assert told["state"] == "done"
    assert [process["way"] for process in told["processes"]] == ["sdk", "sdk"]
    assert len(site.profile("orphan", files=2)["files"]) == 2
    site.goes_on(3)


def _names(site: Site, session: str) -> list[str]:
    folder = site.node_root / "profiles" / RUN / "plugins" / "profile" / session
    return [name for name in os.listdir(folder) if name[0] != "."] if folder.is_dir() else []


@pytest.mark.parametrize(
    ("wanted", "status", "words"),
    [
        ({"session": "../../etc"}, 422, "a name has up to 128 letters"),
        ({"session": "a..b"}, 422, "a name has up to 128 letters"),
        ({"session": ""}, 422, "a name has up to 128 letters"),
        ({"duration_ms": 0}, 422, "duration_ms 0"),
        ({"duration_ms": 10**9}, 422, "duration_ms 1000000000"),
        ({"duration_ms": 5, "steps": 5}, 422, "not both"),
        ({"at_step": 5}, 422, "at_step"),
        ({"ranks": [77]}, 422, "rank 77 does not live; ranks 0 to 4 do"),
        ({"ranks": [4]}, 422, "rank 4 on"),
        ({"hosts": ["elsewhere"]}, 422, "elsewhere"),
        ({"ports": [70_000]}, 422, "port 70000"),
        ({"path": "/etc"}, 400, "path"),
        ({"ranks": "all"}, 400, "ranks"),
    ],
)
def test_bad_requests(site: Site, wanted: dict[str, Any], status: int, words: str) -> None:
    found, told = site.ask(f"/runs/{RUN}/captures", wanted)
    assert (found, words in told["message"]) == (status, True), told


def test_what_is_not_there(site: Site) -> None:
    assert site.ask("/runs/nobody/captures", {})[0] == 404
    assert site.ask(f"/runs/{RUN}/captures/never")[0] == 404


class _Web(http.server.BaseHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        return


def test_a_port_that_answers_with_something_else(site: Site) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        http.server.HTTPServer(("127.0.0.1", 0), _Web) as web,
    ):
        serving = threading.Thread(target=web.serve_forever, args=(0.05,))
        serving.start()
        try:
            for port in (silent.getsockname()[1], web.server_address[1]):
                status, told = site.ask("/captures", {"ports": [port], "hosts": [HOST]})
                assert status == 422
                assert "is not a profiler service" in told["message"], told
        finally:
            web.shutdown()
            serving.join()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and never listening
        status, told = site.ask("/captures", {"ports": [taken.getsockname()[1]]})
    assert status == 422 and "nothing listens on" in told["message"]
    status, told = site.ask("/captures", {"hosts": ["elsewhere"]})
    assert status == 422 and "no agent of it is connected" in told["message"]


def test_the_command(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setenv("RUNWATCH_DIR", str(site.node_root))
    head = ["--head", f"http://127.0.0.1:{site.http_port}"]
    assert main(["capture", RUN, "--duration", "300", "--ranks", "0-1,4", *head]) == 0
    said = capsys.readouterr().out
    assert "2 of 3 captured; all at the same time for" in said
    assert "nothing to trace" in said and "aten::" in said
    assert f"open: http://127.0.0.1:{site.http_port}/viewers/trace?run=" in said
    assert main(["capture", RUN, "--preflight", "--json", *head]) == 0
    assert len(json.loads(capsys.readouterr().out)["processes"]) == 5
    assert main(["capture", RUN, "--ranks", "4", *head]) == 2
    assert "nothing can be captured: rank 4" in capsys.readouterr().err
    assert main(["capture", RUN, "--ranks", "x", *head]) == 2
    assert main(["capture", RUN, "--preflight", "--ranks", "4", *head]) == 1


def test_without_a_head(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """The command opens the directory itself; the agent finds what it asks for as a file."""
    words = ["capture", RUN, "--duration", "200", "--ranks", "3", "--session", "by-file"]
    assert main([*words, "--dir", str(site.node_root), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["state"] == "done" and told["processes"][0]["way"] == "sdk"
    assert set(_files(site, RUN, "by-file")) == {f"{HOST}.rank3.xplane.pb"}


@pytest.mark.soak
def test_eight_ranks(tmp_path: Path) -> None:
    """Their windows overlap by 90 % and more, by what they tell and by their traces' own times."""
    site = Site(tmp_path)
    try:
        site.start_head()
        site.start_agent()
        site.start_ranks(programs.TORCH_STEP, "0,1,2,3,4,5,6,7", 8)
        until(lambda: len(_ready(site)) == 8, DEADLINE, site.words())
        overlaps = []
        for number in range(5):
            told = site.capture(duration_ms=2000, session=f"s{number}")
            assert told["state"] == "done", told
            assert told["overlap_percent"] >= 90
            overlaps.append(_common_ms(site.profile(f"s{number}", files=8)) / 2000)
        assert min(overlaps) >= 0.9, overlaps
    finally:
        site.close()
