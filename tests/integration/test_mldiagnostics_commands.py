"""`collect_profile` and `run_vllm` as they are called: real profiler ports, a stand-in for vLLM."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google_cloud_mldiagnostics.commands import collect_profile

from runwatch.capture.tracing.profiler_service import ProfileAnswer, ProfileRequest, ProfilerService
from runwatch.compat.mldiagnostics.commands.run_vllm import rewritten
from runwatch.testing import until
from tests.integration.processes import free_port

XSPACE = b"\x0a\x07\x12\x05/host\x22\x04gpu7"

VLLM = """\
#!{python} -ES
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
with open({told!r} + ".part", "w") as file:
    json.dump({{"words": sys.argv[1:], "environment": dict(os.environ)}}, file)
os.rename({told!r} + ".part", {told!r})
while "wait" in sys.argv:
    time.sleep(0.01)
sys.exit(int(os.environ.get("VLLM_CODE", "0")))
"""


# ── collect_profile ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def program() -> Iterator[tuple[int, list[ProfileRequest]]]:
    asked: list[ProfileRequest] = []

    def profile(request: ProfileRequest) -> ProfileAnswer:
        asked.append(request)
        return ProfileAnswer(XSPACE)

    port = free_port()
    service = ProfilerService(profile)
    service.start(f"127.0.0.1:{port}")
    yield port, asked
    service.stop()


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_8_22_the_ten_flags(
    tmp_path: Path, program: tuple[int, list[ProfileRequest]], capsys: pytest.CaptureFixture[str]
) -> None:
    port, asked = program
    words = [
        "--hosts=127.0.0.1", f"--port={port}", "--duration_in_ms=50", f"--log_dir={tmp_path}",
        "--host_tracer_level=1", "--device_tracer_level=0", "--python_tracer_level=0",
    ]  # fmt: skip
    assert collect_profile.main([*words, "--session_name=s1"]) == 0
    assert collect_profile.main([*words, "--session_name=s1", "--override_hostnames=a"]) == 0
    assert collect_profile.main([*words, "--session_name=s2", "--use_system_hostname"]) == 0
    assert files(tmp_path / "plugins/profile") == [
        f"s1/127.0.0.1_{port}.xplane.pb", "s1/a.xplane.pb", "s2/gpu7.xplane.pb",
    ]  # fmt: skip
    assert {one.duration_ms for one in asked} == {50}
    assert "Profile of 1 of 1 hosts saved to" in capsys.readouterr().out
    for odd in ("a,b", "a b", "a:1", ","):
        assert collect_profile.main([*words, f"--override_hostnames={odd}"]) == 2
    with pytest.raises(SystemExit):
        collect_profile.main([*words, "--override_hostnames=a", "--use_system_hostname"])
    assert collect_profile.main([*words, "--session_name=../x"]) == 2


def test_collect_profile_says_who_failed(
    tmp_path: Path, program: tuple[int, list[ProfileRequest]], capsys: pytest.CaptureFixture[str]
) -> None:
    port, _ = program
    words = ["--duration_in_ms=50", f"--log_dir={tmp_path}", "--session_name=s"]
    # 127.0.0.2 is this machine too, but the program is not there.
    assert collect_profile.main([*words, f"--port={port}", "--hosts=127.0.0.1,127.0.0.2"]) == 0
    said = capsys.readouterr()
    assert "Profile of 1 of 2 hosts" in said.out
    assert f"Failed to profile host 127.0.0.2_{port}: nothing listens" in said.err
    assert collect_profile.main([*words, f"--port={free_port()}", "--hosts=127.0.0.1"]) == 1
    assert "Profile of" not in capsys.readouterr().out


class Pathways(http.server.BaseHTTPRequestHandler):
    asked: list[tuple[str, dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body))
        self.send_response(500 if body["duration_ms"] == 13 else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def test_8_22_a_program_that_takes_the_question_over_http(tmp_path: Path) -> None:
    Pathways.asked = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pathways) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        words = ["--hosts=127.0.0.1", f"--port={server.server_port}", f"--log_dir={tmp_path}"]
        try:
            assert collect_profile.main([*words, "--duration_in_ms=60"]) == 0
            assert collect_profile.main([*words, "--duration_in_ms=13"]) == 1
        finally:
            server.shutdown()
            thread.join()
    body = {"duration_ms": 60, "repository_path": str(tmp_path)}
    assert Pathways.asked[0] == ("/profiling", body)


# ── run_vllm ───────────────────────────────────────────────────────────────────────────────────


class Serving:
    """`python -m google_cloud_mldiagnostics.commands.run_vllm …` in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.told = root / "told.json"
        binaries = root / "bin"
        binaries.mkdir()
        vllm = binaries / "vllm"
        vllm.write_text(VLLM.format(python=sys.executable, told=str(self.told)))
        vllm.chmod(0o755)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
        self.environment = kept | {
            "PATH": str(binaries), "RUNWATCH_DIR": str(root / "runwatch"), "RUNWATCH_AGENT": "off",
            "HOME": str(root), "RUNWATCH_RUN_ID": "chat",
        }  # fmt: skip

    def begin(self, *words: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "google_cloud_mldiagnostics.commands.run_vllm",
             "--mlrun_name", "chat", "--mlrun_gcs_path", "gs://bucket/x", *words],
            env=self.environment | more, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *words: str, **more: str) -> tuple[int, str]:
        with self.begin(*words, **more) as process:
            out, err = process.communicate(timeout=60)
        return process.returncode, out + err

    def state(self) -> str:
        shown = subprocess.run(
            [sys.executable, "-m", "runwatch.cli", "runs", "--json"],
            env=self.environment, check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        [run] = json.loads(shown.stdout)["runs"]
        state: str = run["state"]
        return state


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    return Serving(tmp_path)


def test_8_23_vllm_is_told_where_its_profiles_go(serving: Serving) -> None:
    code, said = serving.run(
        "serve", "model", "--tensor-parallel-size=8", "--framework", "jax", "--run_group", "g",
        "--jax_profiler_port", "9001", "--phased_profiling_dir", "/phased/",
        "--profiler-config.torch_profiler_dir", "/torch", "--configs", '{"batch": 4}',
        '--profiler-config={"torch_profiler_dir": "/other", "x": 1}', "--max-model-len", "10",
        VLLM_TORCH_PROFILER_DIR="gs://b/v",
    )  # fmt: skip
    assert (code, said) == (0, "")
    told = json.loads(serving.told.read_text())
    assert told["words"] == [
        "serve", "model", "--tensor-parallel-size=8",
        "--profiler-config.torch_profiler_dir", "/torch/chat/plugins/profile/",
        '--profiler-config={"torch_profiler_dir": "/other/chat/plugins/profile/", "x": 1}',
        "--max-model-len", "10",
    ]  # fmt: skip
    environment = told["environment"]
    assert environment["USE_JAX_PROFILER_SERVER"] == "True"
    assert environment["JAX_PROFILER_SERVER_PORT"] == "9001"
    assert environment["PHASED_PROFILING_DIR"] == "/phased/chat/plugins/profile/"
    assert environment["VLLM_TORCH_PROFILER_DIR"] == "gs://b/v/chat/plugins/profile/"
    assert serving.state() == "completed"


def test_8_23_its_exit_code_is_ours(serving: Serving) -> None:
    assert serving.run("serve", VLLM_CODE="5")[0] == 5
    assert serving.state() == "failed"
    assert "PHASED_PROFILING_DIR" not in json.loads(serving.told.read_text())["environment"]


def test_8_23_sigterm_goes_to_vllm(serving: Serving) -> None:
    with serving.begin("serve", "wait") as process:
        until(serving.told.exists, what="vLLM to start")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 7
    assert serving.state() == "failed"


def test_run_vllm_refuses_what_cannot_be(serving: Serving) -> None:
    assert "--configs is not JSON" in serving.run("serve", "--configs", "{")[1]
    assert serving.run("serve", "--region", "us-central1-a")[0] == 2
    code, said = serving.run("serve", PATH="")
    assert code == 2
    assert "vllm is not on the PATH" in said
    assert not serving.told.exists()


def test_flags_that_are_not_about_profiles_stay() -> None:
    words = ["--profiler-config", "not json", "--profiler-config", '{"x": 1}', "--x=y", "serve"]
    assert rewritten(words, "run") == words
