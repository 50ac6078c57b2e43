"""gsprof and gswarm's own head: what asks works, and a client says why it cannot send there.

The original is not installed here: a server with its messages and its HTTP answers stands in.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from gsprof import swarm
from gsprof.command import main

from runwatch.testing import until
from runwatch.wire import gswarm_pb2 as pb
from tests.integration.processes import end, free_port
from tests.integration.test_gsprof import Bench

STATUS: Final = {
    "freq": 200, "enable_bandwidth_profiling": False, "enable_nvlink_profiling": False,
    "is_profiling": False, "output_filename": "", "frame_id_counter": 0, "connected_clients": ["a"],
    "total_gpus": 1, "gpu_info": {},
}  # fmt: skip


class _Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.path == "/status"
        body = json.dumps(STATUS if known else {"detail": "Not Found"}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def original() -> Iterator[tuple[str, str]]:
    """Its gRPC and its HTTP address."""
    answer = pb.StatusResponse(freq=200, connected_clients=["a"])
    methods = {
        "GetStatus": grpc.unary_unary_rpc_method_handler(
            lambda request, context: answer,
            pb.Empty.FromString,
            pb.StatusResponse.SerializeToString,
        )
    }
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("gswarm_profiler.ProfilerService", methods)]
    )
    port = server.add_insecure_port(f"127.0.0.1:{free_port()}")
    server.start()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as pages:
        thread = threading.Thread(target=pages.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{port}", f"127.0.0.1:{pages.server_port}"
        finally:
            pages.shutdown()
            thread.join()
            server.stop(None).wait()


def test_a_client_says_why_it_cannot_send_to_an_original_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with original() as (at, http_at):
        assert main(["connect", at]) == 1
        said = capsys.readouterr().err
        assert at in said and "original gswarm's" in said and "gsprof start" in said
        assert main(["status", at]) == 0 and main(["http-status", http_at]) == 0
        assert capsys.readouterr().out.count("Frequency: 200 ms") == 2
        assert swarm.main(["profiler", "sessions", "--host", http_at]) == 1
        assert swarm.main(["profiler", "read", "--host", at]) == 1
        assert "refuses" in capsys.readouterr().err
    assert not list(tmp_path.iterdir()), "nothing is left of a client that never began"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_gswarm_and_recover_beside_a_head_without_http(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(bench.root)
    monkeypatch.setenv("HOME", str(bench.root))
    monkeypatch.setenv("COLUMNS", "20")  # an id is not cut, however narrow the window
    bench.http_port = 0
    head = bench.start_head()
    bench.start_client()
    at = f"localhost:{bench.port}"

    def said(*words: str, command: Any = swarm.main) -> str:
        assert command(list(words)) == 0, capsys.readouterr().err
        return str(capsys.readouterr().out)

    until(lambda: "Connected Clients: 1" in said("profiler", "status", "--host", at), 60, "it")
    assert "first.json" in said("profiler", "start", "--host", at, "-n", "first")
    until(lambda: "N/A" not in said("profiler", "read", "--host", at).split("PCIe")[0], what="GPUs")
    shown = said("profiler", "read", "--host", at, "-o", "now.json")
    assert "50 %" in shown and "0 MiB / 0 MiB" in shown, "50 of 200 bytes are no megabyte"
    gpus = json.loads((bench.root / "now.json").read_text())["nodes"][0]["gpus"]
    assert [(g["gpu_id"], g["utilization"], g["memory_used"]) for g in gpus] == [
        (0, 50.0, 0),
        (1, 50.0, 0),
    ]
    listed = said("recover", "--list", command=main)
    [line] = [line for line in listed.splitlines() if line.endswith("first")]
    id = line.split()[0]
    assert "running" in line and int(id, 16)
    assert "Data saved to first.json" in said("profiler", "stop", "--host", at, "-n", "first")
    assert f"({id}) goes on" in said("recover", "--session-id", id, command=main)
    assert "Data saved" in said("profiler", "stop", "--host", at)
    said("recover", "--export", "--name", "first", "-o", "again.json", command=main)
    first, again = (
        json.loads((bench.root / name).read_text()) for name in ("first.json", "again.json")
    )
    assert again["session_id"] == id and len(again["frames"]) == len(first["frames"]) > 0
    assert main(["recover", "--name", "nobody"]) == 1
    assert "enabled" in said("profiler", "enable-bandwidth", "--host", at)
    assert swarm.main(["model", "list"]) == 1 and "not part" in capsys.readouterr().err
    assert end(head, 15) == 0
    assert "completed" in said("recover", "--list", command=main), "the head's note is out of date"
