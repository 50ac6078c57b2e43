"""The examples of gswarm-profiler's document, run as they stand there.

The document is no part of the repository.  Where it lies beside a clone (`../shared/seeds`), every
command line and script of it is run, with hosts and ports filled in.  What the examples do is also
stated here in our own words, and that always runs.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from gsprof.command import main

from runwatch.address import read_address
from runwatch.testing import until
from tests.integration.chromium import NO_BROWSER, PROGRAM, Chromium
from tests.integration.processes import end
from tests.integration.test_gsprof import Bench
from tests.seeds import Block, blocks, with_document

SEED: Final = "003"
HOSTS: Final = ("<head-node-ip>", "master-node", "profiler-host", "localhost")


def commands(block: Block) -> list[str]:
    """Its lines as a shell sees them: continued ones joined, comments left out."""
    joined = block.text.replace("\\\n", " ")
    lines = [line.strip() for line in joined.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


class Stage(Bench):
    """A user's folder in which the document's commands can be typed one after the other."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.head: subprocess.Popen[bytes] | None = None
        self.bin = root / "bin"
        self.bin.mkdir()
        self._program("gsprof", f'exec {sys.executable} -m gsprof "$@"')
        for name in ("git", "pip"):  # nothing is fetched
            self._program(name, f'echo {name} "$@" >> {root}/asked')

    def _program(self, name: str, script: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def filled(self, line: str) -> str:
        """With this machine's ports, and a session that there is."""
        for host in HOSTS:
            line = line.replace(f"{host}:8090", f"localhost:{self.port}")
            line = line.replace(f"{host}:8091", f"localhost:{self.http_port}")
        line = re.sub(r"--port 8090\b", f"--port {self.port}", line)
        line = re.sub(r"--http-port 80\d\d\b", f"--http-port {self.http_port}", line)
        return line.replace("<session-id>", self._some_id() if "<session-id>" in line else "")

    def type(self, line: str) -> None:
        """Type one line.  A head and clients stay; everything else must end well."""
        words = shlex.split(self.filled(line))
        if words[:2] == ["gsprof", "start"]:
            self._start(words)
        elif words[:2] == ["gsprof", "connect"]:
            self._connect(words)
        elif words[0] == "cd":
            return
        else:
            self._prepare(words)
            self._run(self.filled(line))

    def _environment(self) -> dict[str, str]:
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        more = {"PATH": path, "RUNWATCH_DEVICE_REPLAY": str(self.recording)}
        return self.environment(**more, RUNWATCH_DEVICE_HZ="20")

    def _start(self, words: Sequence[str]) -> None:
        if self.head is not None:
            end(self.head, signal.SIGTERM)
        self.head = head = self._stay(words)

        def is_ready() -> bool:
            assert head.poll() is None, (self.root / "log").read_text()[-2000:]
            at = read_address(self.data)
            return at is not None and at.pid == head.pid

        until(is_ready, 60, "the head")
        self.has_http = "--http-port 0" not in " ".join(words)

    def _connect(self, words: Sequence[str]) -> None:
        """On the same machine a second client finds the first; both are fine."""
        client = self._stay(words)
        folder = self.root / ".runwatch" / "gsprof"
        until(lambda: list(folder.glob("*/journals/*")), 60, "its journal")
        assert client.poll() in (None, 1)
        log = (self.root / "log").read_text()
        assert client.poll() is None or "another client serves" in log
        self.nodes = [path for path in folder.iterdir() if path.is_dir()]

    def _stay(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.root / "log").open("ab") as log:
            made = subprocess.Popen(
                words, cwd=self.root, env=self._environment(), stdout=log, stderr=log,
                executable=str(self.bin / words[0]),
            )  # fmt: skip
        self.processes.append(made)
        return made

    def _run(self, line: str) -> None:
        done = subprocess.run(
            ["bash", "-ec", line], cwd=self.root, env=self._environment(), capture_output=True,
            text=True, timeout=90,
        )  # fmt: skip
        assert done.returncode == 0 and "Traceback" not in done.stderr, (line, done)
        if line.startswith("curl"):
            said = json.loads(done.stdout)
            assert said.get("success", True) and "error" not in said, (line, said)

    # ── what a line takes for granted ─────────────────────────────────────────────────────────

    def _prepare(self, words: Sequence[str]) -> None:
        line, name = " ".join(words), _name_in(words)
        if words[0] == "gsprof" and words[1] in ("git", "pip"):
            return
        if words[0] == "curl" or words[1].startswith("http") or words[1] in HEAD_COMMANDS:
            self._need_head()
        if "stop" in line and not (name in self._active() if name else self._active()):
            self._gsprof("profile", f"localhost:{self.port}", "--name", name or "any")
        elif ("profile" in words[1] or "/profiling/start" in line) and name in self._active():
            self._gsprof("stop", f"localhost:{self.port}", "--name", name)
        elif words[1] == "recover" and name:
            self._record(name)
        elif words[1] == "stat":
            file = self.root / words[words.index("--data") + 1]
            if not file.exists():
                self._record(file.stem)

    def _need_head(self) -> None:
        if self.head is None or self.head.poll() is not None or not self.has_http:
            self._start(shlex.split(f"gsprof start --port {self.port} --http-port "
                                    f"{self.http_port} --enable-bandwidth"))  # fmt: skip

    def _active(self) -> list[str]:
        self._need_head()
        return [s["name"] for s in self.ask("/profiling/sessions")["sessions"] if s["is_active"]]

    def _some_id(self) -> str:
        self._record("my_experiment")
        return str(self.ask("/profiling/sessions")["sessions"][0]["session_id"])

    def _record(self, name: str) -> None:
        """A session of that name that has frames and has ended."""
        self._need_head()
        if not self.nodes:
            self._connect(["gsprof", "connect", f"localhost:{self.port}", "--resilient"])
        if name not in self._active():
            self._gsprof("profile", f"localhost:{self.port}", "--name", name)
        until(lambda: self.frames(name) > 3, 60, "frames")
        self._gsprof("stop", f"localhost:{self.port}", "--name", name)

    def _gsprof(self, *words: str) -> None:
        self._run(shlex.join(["gsprof", *words]))

    def close(self) -> None:
        super().close()


HEAD_COMMANDS: Final = ("profile", "stop", "status")


def _name_in(words: Sequence[str]) -> str:
    if "--name" in words:
        return words[words.index("--name") + 1]
    if "-d" in words:
        return str(json.loads(words[words.index("-d") + 1]).get("name", ""))
    return ""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def served_page() -> Iterator[str]:
    """The origin of an empty page that is not the head's."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as pages:
        thread = threading.Thread(target=pages.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{pages.server_port}"
        finally:
            pages.shutdown()
            thread.join()


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><title>dashboard</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@with_document(SEED)
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_command_line_of_the_document(stage: Stage) -> None:
    typed = 0
    for block in blocks(SEED):
        if block.language == "bash":
            for line in commands(block):
                stage.type(line)
                typed += 1
    assert typed >= 50
    assert {p.name for p in stage.root.glob("*.pdf")} >= {"training_run_1.pdf", "my_experiment.pdf"}


@with_document(SEED)
@pytest.mark.soak
@pytest.mark.skipif(not PROGRAM, reason=NO_BROWSER)
def test_the_scripts_of_the_document_in_a_browser(stage: Stage) -> None:
    [script] = [b.text for b in blocks(SEED) if b.language == "javascript"]
    script = script.replace("profiler-host:8091", f"127.0.0.1:{stage.http_port}")
    with Chromium() as browser, served_page() as place, browser.open(place) as page:
        stage.start_head("--cors-origin", place)
        page.until("document.title === 'dashboard'")
        page.evaluate("window.told = []; console.log = data => told.push(data)")
        page.evaluate(script + "; null")
        page.until("told.length === 4", 30)
        told = json.loads(page.evaluate("JSON.stringify(told)"))
    assert any("freq" in said for said in told) and any("sessions" in said for said in told)
    assert sum("success" in said for said in told) == 2


# ── the same in our own words ──────────────────────────────────────────────────────────────────


def test_what_the_examples_do(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both ways to start, ask and stop; several sessions; recovery; analysis."""
    monkeypatch.chdir(stage.root)
    stage.start_head("--enable-bandwidth")
    stage.start_client()
    until(lambda: stage.ask("/clients")["total_clients"] == 1, 60, "the client")
    grpc, http_at = f"localhost:{stage.port}", f"localhost:{stage.http_port}"

    def typed(*words: str) -> str:
        assert main(list(words)) == 0, (words, capsys.readouterr().err)
        return str(capsys.readouterr().out)

    typed("profile", grpc, "--name", "one")
    typed("http-profile", http_at, "--name", "two")
    typed("http-profile", http_at, "--name", "three")
    until(lambda: stage.frames("three") > 3, 60, "frames")
    for said in (typed("status", grpc), typed("http-status", http_at)):
        assert "Is Profiling: Yes" in said and "Connected Clients: 1" in said
    assert typed("stop", grpc, "--name", "one").endswith("Data saved to one.json\n")
    assert "two.json" in typed("http-stop", http_at)
    listed = stage.ask("/profiling/sessions")
    assert (listed["total_sessions"], listed["active_sessions"]) == (3, 0)
    assert "one" in typed("recover", "--list")
    assert "goes on" in typed("recover", "--name", "one")
    typed("http-stop", http_at, "--name", "one")
    id = next(s["session_id"] for s in listed["sessions"] if s["name"] == "two")
    assert "goes on" in typed("recover", "--session-id", id)
    typed("http-stop", http_at)
    (stage.root / "three.json").unlink()
    assert "Wrote three.json" in typed("recover", "--export", "--name", "three")
    assert "node-1:0:NVIDIA H200" in typed("stat", "--data", "three.json", "--no-plot")
    found = json.loads((stage.root / "three.json").read_text())
    assert found["complete"] and {"session_name", "start_time", "end_time"} <= found.keys()
    frame = found["frames"][1]
    assert {"gpu_util", "gpu_memory", "dram_bandwidth", "dram_bandwidth_rx"} <= frame.keys()
    for body in ({"name": "curl"}, {}):
        assert stage.ask("/profiling/start", body)["success"]
        assert stage.ask("/profiling/stop", body)["success"]
    assert stage.ask("/")["message"] == "GSwarm Profiler HTTP API"
    assert stage.ask("/metrics/latest")["client_data"]
