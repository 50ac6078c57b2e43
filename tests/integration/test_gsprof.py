"""The gsprof command as real processes on loopback: a head, clients with a recording, kills."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme
from gsprof.command import parser

from runwatch.address import read_address
from runwatch.agent.collectors.replay import save
from runwatch.agent.lock import end_agents
from runwatch.testing import until
from tests import tokens
from tests.integration.processes import RETRY_SECONDS, end, free_port

UNITS = {
    "gpu_utilization_percent": "%",
    "gpu_memory_used_bytes": "B",
    "gpu_memory_total_bytes": "B",
    "gpu_pcie_rx_bytes_per_second": "B/s",
    "gpu_pcie_tx_bytes_per_second": "B/s",
    "gpu_power_watts": "W",
}
HERTZ = 20
COMMANDS = {
    "start", "connect", "profile", "stop", "status", "exit", "stat", "generate-grpc", "help",
    "http-profile", "http-stop", "http-status", "recover",
}  # fmt: skip


class Bench:
    """A folder in which a user works: a head, clients, and the commands that he types."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / ".gswarm_profiler_data"
        self.port, self.http_port = free_port(), free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.nodes: list[Path] = []
        self.recording = root / "gpus.jsonl"
        devices = {
            f"gpu{n}": {"uuid": f"GPU-{n}", "name": "NVIDIA H200", "index": str(n)}
            for n in range(2)
        }
        shown = dict.fromkeys(UNITS, 50.0) | {"gpu_memory_total_bytes": 200.0}
        rows = [(tick / HERTZ, device, shown) for tick in range(200) for device in devices]
        save(self.recording, period_seconds=1 / HERTZ, units=UNITS, devices=devices, rows=rows)

    def environment(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
        more = {"RUNWATCH_RETRY_SECONDS": RETRY_SECONDS, **more}
        return kept | {"HOME": str(self.root), "COLUMNS": "120", **more}

    def run(self, *words: str, check: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "gsprof", *words],
            cwd=self.root, env=self.environment(**more), capture_output=True, text=True, timeout=90,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        assert not check or done.returncode == 0, done.stderr
        return done

    def start_head(self, *options: str) -> subprocess.Popen[bytes]:
        head = self._process("start", "--port", str(self.port), "--http-port",
                             str(self.http_port), "--freq", "50", *options)  # fmt: skip

        def ready() -> bool:
            assert head.poll() is None, (self.root / "log").read_text()[-2000:]
            at = read_address(self.data)
            return at is not None and at.pid == head.pid

        until(ready, what="the head to start")
        return head

    def start_client(self, host: str = "node-1") -> subprocess.Popen[bytes]:
        folder = self.root / host
        self.nodes.append(folder)
        return self._process(
            "connect", f"localhost:{self.port}", "--resilient",
            RUNWATCH_DIR=str(folder), RUNWATCH_HOST=host,
            RUNWATCH_DEVICE_REPLAY=str(self.recording), RUNWATCH_DEVICE_HZ=str(HERTZ),
        )  # fmt: skip

    def _process(self, *words: str, **more: str) -> subprocess.Popen[bytes]:
        with (self.root / "log").open("ab") as log:
            made = subprocess.Popen(
                [sys.executable, "-m", "gsprof", *words],
                cwd=self.root, env=self.environment(**more), stdout=log, stderr=log,
            )  # fmt: skip
        self.processes.append(made)
        return made

    def ask(self, path: str, body: Any = None) -> Any:
        said = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.http_port}{path}"
        with tokens.urlopen(urllib.request.Request(url, data=said), timeout=100) as answer:
            return json.load(answer)

    def frames(self, name: str) -> int:
        sessions = self.ask("/profiling/sessions")["sessions"]
        found: int = next(s["frame_count"] for s in sessions if s["name"] == name)
        return found

    def close(self) -> None:
        for process in self.processes:
            end(process, signal.SIGKILL)
        for node in self.nodes:
            end_agents(node)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    try:
        yield made
    finally:
        made.close()


def sampled(document: Any) -> Counter[tuple[str, str]]:
    return Counter((frame["time"], id) for frame in document["frames"] for id in frame["gpu_id"])


def test_e2_01_help_names_everything(bench: Bench) -> None:
    said = bench.run("--help").stdout
    assert all(command in said for command in COMMANDS)
    of_start = bench.run("help", "start").stdout
    for flag in ("--host", "--port", "--freq", "--enable-bandwidth", "--disable-nvlink",
                 "--background", "--http-port"):  # fmt: skip
        assert flag in of_start
    assert "--resilient" in bench.run("connect", "--help").stdout
    assert "Nothing needs" in bench.run("generate-grpc").stdout


def test_e2_01_flags_and_what_they_are_unless_told() -> None:
    """As the seed and 0.2.1 have them; only the HTTP port is the seed's 8091 throughout."""

    def told(*words: str) -> dict[str, Any]:
        flags: dict[str, Any] = vars(parser().parse_args(words))
        return flags

    start = told("start")
    assert (start["host"], start["port"], start["http_port"]) == ("localhost", 8090, 8091)
    assert (start["freq"], start["bandwidth"], start["nvlink"]) == (500, False, False)
    assert start["background"] is False
    on = told("start", "--enable-bandwidth", "--enable-nvlink", "--background")
    assert (on["bandwidth"], on["nvlink"], on["background"]) == (True, True, True)
    off = told("start", "--enable-nvlink", "--disable-nvlink", "--disable-bandwidth")
    assert (off["bandwidth"], off["nvlink"]) == (False, False)
    client = told("connect", "head:8090")
    assert (client["head"], client["resilient"], client["bandwidth"]) == ("head:8090", False, None)
    assert told("connect", "h", "--resilient", "--disable-bandwidth")["bandwidth"] is False
    for command in ("profile", "stop", "status"):
        assert told(command)["head"] == "localhost:8090"
    for command in ("http-profile", "http-stop", "http-status"):
        assert told(command)["head"] == "localhost:8091"
    for command in ("profile", "stop", "http-profile", "http-stop"):
        assert told(command)["name"] is None and told(command, "--name", "a")["name"] == "a"
    assert told("exit", "h:1")["head"] == "h:1"
    stat, recover = told("stat"), told("recover", "--session-id", "x", "--name", "n", "--export")
    assert (stat["data"], stat["plot"]) == (Path("result.json"), None)
    assert (recover["session_id"], recover["name"], recover["export"]) == ("x", "n", True)


@pytest.mark.parametrize(
    "words",
    [
        ("--freq", "0"),
        ("--freq", "-1"),
        ("--port", "-5"),
        ("--http-port", "70000"),
        ("--freq", "x"),
    ],
)
def test_numbers_that_cannot_be(bench: Bench, words: tuple[str, str]) -> None:
    done = bench.run("start", *words, check=False)
    assert done.returncode == 2 and words[0] in done.stderr and words[1] in done.stderr
    assert not bench.data.exists()


@pytest.mark.parametrize("which", ["--port", "--http-port"])
def test_e2_02_a_port_in_use(bench: Bench, which: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        other = "--http-port" if which == "--port" else "--port"
        done = bench.run("start", which, port, other, str(free_port()), check=False)
    assert done.returncode == 1
    assert port in done.stderr and "cannot listen" in done.stderr


def test_e2_02_grpc_alone(bench: Bench) -> None:
    bench.http_port = 0
    head = bench.start_head()
    at = read_address(bench.data)
    assert at is not None and at.http == ""
    assert "Frequency: 50 ms" in bench.run("status", f"localhost:{bench.port}").stdout
    assert end(head, signal.SIGTERM) == 0


def test_commands_without_a_head_fail_honestly(bench: Bench) -> None:
    for words in (("status",), ("profile",), ("stop",), ("exit",)):
        done = bench.run(*words, f"localhost:{bench.port}", check=False)
        assert done.returncode == 1 and "no head answers" in done.stderr
    for words in (("http-status",), ("http-profile",), ("http-stop",)):
        done = bench.run(*words, f"localhost:{bench.http_port}", check=False)
        assert done.returncode == 1 and "no head answers" in done.stderr


def test_the_readme_from_start_to_figure(bench: Bench) -> None:
    head = bench.start_head("--enable-bandwidth")
    bench.start_client()
    until(lambda: bench.ask("/clients")["total_clients"] == 1, what="the client")
    grpc, http = f"localhost:{bench.port}", f"localhost:{bench.http_port}"
    assert "one.json" in bench.run("http-profile", http, "--name", "one").stdout
    assert "two.json" in bench.run("profile", grpc, "--name", "two").stdout
    again = bench.run("profile", grpc, "--name", "two", check=False)
    assert again.returncode == 1 and "already active" in again.stderr
    bad = bench.run("http-profile", http, "--name", "../evil", check=False)
    assert bad.returncode == 1 and "evil" in bad.stderr
    assert not list(bench.root.parent.glob("evil*")) and not list(bench.root.glob("**/evil*"))
    until(lambda: bench.frames("two") > 20, what="frames")
    for said in (bench.run("status", grpc).stdout, bench.run("http-status", http).stdout):
        assert "Frequency: 50 ms" in said and "Bandwidth Profiling: Enabled" in said
        assert "Is Profiling: Yes" in said and "Connected Clients: 1" in said
        assert "ropped" not in said
    assert bench.run("http-stop", http, "--name", "nobody", check=False).returncode == 1
    assert "Profiling stopped." in bench.run("http-stop", http, "--name", "one").stdout
    assert "one" in bench.run("recover", "--list").stdout
    bench.run("exit", grpc)
    assert head.wait(100) == 0
    found = json.loads((bench.root / "two.json").read_text())
    assert found["session_name"] == "two" and len(found["frames"]) > 20
    frame = found["frames"][1]
    assert frame["gpu_id"] == ["node-1:0:NVIDIA H200", "node-1:1:NVIDIA H200"]
    assert (frame["gpu_util"], frame["gpu_memory"]) == ([50.0] * 2, [25.0] * 2)
    assert max(sampled(found).values()) == 1
    done = bench.run("stat", "--data", "two.json", "--plot", "two.pdf")
    assert "node-1:0:NVIDIA H200" in done.stdout
    assert (bench.root / "two.pdf").read_bytes().startswith(b"%PDF")


def test_e2_12_kill_9_of_the_head_in_mid_session(bench: Bench) -> None:
    """It is back on the same ports at once, and the session has every sample exactly once."""
    head = bench.start_head()
    bench.start_client()
    until(lambda: bench.ask("/clients")["total_clients"] == 1, what="the client")
    bench.ask("/profiling/start", {"name": "week"})
    bench.ask("/profiling/start", {"name": "late"})
    for _ in range(3):
        before = bench.frames("week")
        until(lambda before=before: bench.frames("week") > before + 10, what="frames")
        end(head, signal.SIGKILL)
        assert "running" in bench.run("recover", "--list").stdout
        head = bench.start_head()
    assert "goes on" in bench.run("recover", "--name", "week").stdout
    before = bench.frames("week")
    until(lambda: bench.frames("week") > before + 10, 60, "the client to be back")
    bench.ask("/profiling/stop", {"name": "week"})
    stopped = bench.ask("/profiling/sessions")["sessions"]
    assert [s["is_active"] for s in sorted(stopped, key=lambda s: s["name"])] == [True, False]
    # What the client's own journal has of that time is what the export must have.
    expected = until(lambda: journal_matches(bench, "week"), 60, "every sample at the head")
    assert expected > 40
    end(head, signal.SIGTERM)
    bench.run("recover", "--export", "--name", "week")
    found = json.loads((bench.root / "week.json").read_text())
    assert [frame["frame_id"] for frame in found["frames"]] == list(
        range(1, len(found["frames"]) + 1)
    )
    assert max(sampled(found).values()) == 1 and sampled(found).total() == expected


def journal_matches(bench: Bench, name: str) -> int:
    """How many samples the session has, once it has all that its client wrote; else 0."""
    document = bench.ask(f"/api/v1/sessions/{name}/export")
    session = bench.ask(f"/api/v1/sessions/{name}")
    begun, ended, times = session["started_ns"], session["ended_ns"], written(bench)
    if max(times) < ended:
        return 0  # its last sample may have been taken and not yet been written
    found = sampled(document)
    assert max(found.values()) == 1
    return found.total() if found.total() == sum(begun <= at < ended for at in times) else 0


def written(bench: Bench) -> list[int]:
    """When the client took its samples, each device's."""
    from runwatch.journal.reader import JournalReader
    from runwatch.record import Series

    times: list[int] = []
    for folder in (bench.nodes[0] / "journals").iterdir():
        reader, ours = JournalReader(folder), set()
        while (batch := reader.read()) is not None:
            ours |= {
                d.id
                for d in batch.definitions
                if isinstance(d, Series) and d.metric == "gpu_utilization_percent"
            }
            points = zip(batch.points.series, batch.points.time_ns, strict=True)
            times += [time_ns for series, time_ns in points if series in ours]
        reader.close()
    return times


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_e2_13_a_signal_finalises_sessions(bench: Bench, number: int) -> None:
    head = bench.start_head()
    bench.start_client()
    bench.ask("/profiling/start", {"name": "open"})
    until(lambda: bench.frames("open") > 5, what="frames")
    assert end(head, number) in (0, 130, -signal.SIGINT)
    found = json.loads((bench.root / "open.json").read_text())
    assert len(found["frames"]) > 5 and found["is_active"] is False
    assert "completed" in bench.run("recover", "--list").stdout


def test_e2_10_and_17_nodes_join_and_leave(bench: Bench) -> None:
    """With NVLink on and bandwidth off, which ended the original's session without a file."""
    bench.start_head("--enable-nvlink")
    first = bench.start_client("node-1")
    bench.ask("/profiling/start", {"name": "s"})
    until(lambda: bench.frames("s") > 5, what="frames")
    bench.start_client("node-2")
    until(lambda: bench.ask("/status")["total_gpus"] == 4, what="the second node")
    end(first, signal.SIGTERM)
    before = bench.frames("s")
    until(lambda: bench.frames("s") > before + 10, what="frames of the second alone")
    told = bench.ask("/profiling/stop", {})
    assert told["success"]
    until((bench.root / "s.json").exists, what="the file")
    done = bench.run("stat", "--data", "s.json", "--plot", "s.png")
    assert "node-1:0" in done.stdout and "node-2:1" in done.stdout
    assert (bench.root / "s.png").stat().st_size > 1000
    for frame in json.loads((bench.root / "s.json").read_text())["frames"]:
        assert "gpu_bandwidth" in frame and not any(key.startswith("dram_b") for key in frame)
        assert len(frame["gpu_id"]) == len(frame["gpu_util"]) == len(set(frame["gpu_id"]))


def test_e2_22_in_the_background(bench: Bench) -> None:
    words = ("--port", str(bench.port), "--http-port", str(bench.http_port))
    said = bench.run("start", *words, "--background").stdout
    at = read_address(bench.data)
    assert at is not None and str(at.pid) in said
    try:
        assert bench.ask("/status")["freq"] == 500
        second = bench.run("start", *words, "--background", check=False)
        assert second.returncode == 1 and "gsprof:" in second.stderr
    finally:
        bench.run("exit", f"localhost:{bench.port}")
        until(lambda: not os.path.exists(f"/proc/{at.pid}"), what="the head to end")


def test_e2_25_tls_on_both_ports_and_nobody_else_is_let_in(bench: Bench) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(str(bench.root / "ca.pem"))
    certificate.private_key_and_cert_chain_pem.write_to_path(str(bench.root / "both.pem"))
    both = str(bench.root / "both.pem")
    head = bench.start_head("--tls-certificate", both, "--tls-key", both, "--token", "secret")
    listening = {
        each.laddr.ip.removeprefix("::ffff:")
        for each in psutil.Process(head.pid).net_connections("tcp")
        if each.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}, "nothing but loopback unless told"
    grpc, http = f"grpcs://localhost:{bench.port}", f"https://localhost:{bench.http_port}"
    ca = str(bench.root / "ca.pem")
    for words in (("status", grpc), ("http-status", http)):
        known = bench.run(*words, RUNWATCH_TOKEN="secret", RUNWATCH_CA=ca)
        assert "Frequency: 50 ms" in known.stdout
        stranger = bench.run(*words, check=False, RUNWATCH_TOKEN="secret")
        assert stranger.returncode == 1, "a certificate that nobody vouches for"
        assert bench.run(*words, RUNWATCH_CA=ca).stdout, "its own user finds it"
        wrong = bench.run(*words, check=False, RUNWATCH_TOKEN="wrong", RUNWATCH_CA=ca)
        assert wrong.returncode == 1 and "token" in wrong.stderr


def test_e2_26_without_a_gpu_the_host_is_sent(bench: Bench) -> None:
    bench.start_head()
    bench.nodes.append(bench.root / "bare")
    bench._process("connect", f"localhost:{bench.port}", RUNWATCH_DIR=str(bench.root / "bare"))
    until(lambda: bench.ask("/clients")["total_clients"] == 1, what="the client")
    log = (bench.root / "log").read_text()
    assert "There is no GPU here" in log or "NVIDIA" in json.dumps(bench.ask("/clients"))


def test_recover_says_what_is_missing(bench: Bench) -> None:
    assert "no Runwatch directory" in bench.run("recover", "--list", check=False).stderr
    bench.data.mkdir()
    assert "no sessions" in bench.run("recover").stdout
    assert bench.run("recover", "--name", "x", check=False).returncode == 1
    assert bench.run("recover", "--export", check=False).returncode == 1
    assert bench.run("recover", "--name", "../x", check=False).returncode == 1
