"""Programs made for gswarm-profiler against a real head: gRPC and HTTP on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2

from runwatch.address import Listening
from runwatch.head.main import Head
from runwatch.head.settings import HeadSettings
from runwatch.testing import until
from runwatch.wire import gswarm_pb2 as pb
from tests.tokens import remember

SOURCE = Path(__file__).parents[5] / "src"

# What the clients themselves were compiled from, as far as they use it.
OLD = """
syntax = "proto3"; package gswarm_profiler;
message GPUInfo { int32 physical_idx = 1; string name = 2; }
message InitialInfo { string hostname = 1; repeated GPUInfo gpus = 2; }
message GPUMetric { int32 physical_idx = 1; string name = 2; double gpu_util = 3;
  double mem_util = 4; double dram_bw_gbps_rx = 5; double dram_bw_gbps_tx = 6;
  double nvlink_bw_gbps_rx = 7; double nvlink_bw_gbps_tx = 8; %s }
message SystemMetrics { double dram_util = 1; double disk_util = 2; }
message MetricsUpdate { string hostname = 1; repeated GPUMetric gpus_metrics = 2;
  SystemMetrics system_metrics = 4; %s }
message ConnectResponse { bool success = 1; string message = 2; }
message Empty {}
"""


def client_messages(version: str, folder: Path) -> Any:
    """The classes of that version, apart from our own of the same names."""
    newer = version == "0.4"
    text = OLD % (
        ("google.protobuf.Struct extra_metrics = 9;", "double timestamp = 5;")
        if newer
        else ("", "")
    )
    if newer:
        text = text.replace(";", '; import "google/protobuf/struct.proto";', 1)
    (folder / "old.proto").write_text(text)
    made = folder / "old.bin"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(folder)]
    command += [f"--descriptor_set_out={made}", "old.proto"]
    subprocess.run(command, check=True)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    for file in descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file:
        pool.Add(file)

    class Messages:
        def __getattr__(self, name: str) -> Any:
            found = pool.FindMessageTypeByName(f"gswarm_profiler.{name}")
            return message_factory.GetMessageClass(found)

    return Messages()


class Running:
    """A head in a thread of this process."""

    def __init__(self, root: Path, **more: Any) -> None:
        given: dict[str, Any] = {"dir": root, "grpc_port": 0, "http_port": 0} | more
        self.head = Head(HeadSettings(**given), open_gswarm=True)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self.head.run, args=(self._is_ready,))
        self._thread.start()
        assert self._ready.wait(100)
        self.channel = grpc.insecure_channel(self.at.grpc)

    def _is_ready(self, at: Listening) -> None:
        self.at = at
        remember(at)
        self._ready.set()

    @property
    def has_ended(self) -> bool:
        self._thread.join(100)
        return not self._thread.is_alive()

    def close(self) -> None:
        self.channel.close()
        self.head.stop()
        self._thread.join(100)
        assert not self._thread.is_alive()

    def call(self, method: str, request: Any, reply: Any = pb.Empty, **more: Any) -> Any:
        return self.unary(self.channel, method, reply)(request, timeout=100, **more)

    @staticmethod
    def unary(channel: grpc.Channel, method: str, reply: Any) -> Any:
        return channel.unary_unary(
            f"/gswarm_profiler.ProfilerService/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=reply.FromString,
        )

    @staticmethod
    def stream(channel: grpc.Channel, updates: Iterable[Any]) -> Any:
        call = channel.stream_unary(
            "/gswarm_profiler.ProfilerService/StreamMetrics",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=pb.Empty.FromString,
        )
        return call.future(iter(updates), timeout=100)

    def get(self, path: str, **headers: str) -> Any:
        return self.ask(path, None, headers)[1]

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        return self.ask(path, json.dumps(body).encode(), {})

    def ask(self, path: str, said: bytes | None, headers: dict[str, str]) -> tuple[int, Any]:
        request = urllib.request.Request(self.at.http + path, data=said, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=100) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def exported(self, name: str) -> Any:
        return self.get(f"/api/v1/sessions/{name}/export")


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a head leaves word for other programs of its user."""
    monkeypatch.setenv("RUNWATCH_DIR", str(tmp_path / "own"))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path / "head", device_period_ms=500)
    yield made
    made.close()


def update(host: str, value: float, gpus: int = 1, kind: Any = pb, **more: Any) -> Any:
    metrics = [
        kind.GPUMetric(physical_idx=n, name="H100", gpu_util=value, mem_util=0.5)
        for n in range(gpus)
    ]
    system = kind.SystemMetrics(dram_util=10.0, disk_util=20.0)
    return kind.MetricsUpdate(hostname=host, gpus_metrics=metrics, system_metrics=system, **more)


@pytest.mark.parametrize("version", ["0.2.1", "0.4"])
def test_e2_03_clients_of_both_versions(running: Running, tmp_path: Path, version: str) -> None:
    old = client_messages(version, tmp_path)
    info = old.InitialInfo(hostname="a", gpus=[old.GPUInfo(physical_idx=0, name="H100")])
    reply = running.call("Connect", info, old.ConnectResponse)
    assert (reply.success, reply.message) == (True, "Connected successfully. Registered 1 GPUs.")
    assert running.get("/status")["total_gpus"] == 1, "before anything was streamed"
    running.post("/profiling/start", {"name": "s"})
    begun = time.time()
    sent = [update("a", n / 10, kind=old) for n in range(1, 6)]
    if version == "0.4":
        for number, message in enumerate(sent):
            message.timestamp = begun + number
            message.gpus_metrics[0].extra_metrics.update({"fan": 30.0})
    running.stream(running.channel, sent).result()
    running.head.local.sessions.stop(why="test")
    stopped = running.head.local.sessions.find("s")
    [client] = running.get("/clients")["clients"]
    assert client["gpus"][0]["id"] == "a:0:H100"
    store = running.head.local.store
    [util] = store.series(metric="gpu_utilization_percent")
    columns = list(store.points([util.series]))
    assert [round(v) for part in columns for v in part.value.tolist()] == [10, 20, 30, 40, 50]
    times = [t for part in columns for t in part.time_ns.tolist()]
    if version == "0.4":
        assert [round(t / 1e9 - begun) for t in times] == [0, 1, 2, 3, 4]
        assert len(store.series(metric="gswarm.fan")) == 1
    else:
        assert stopped.start_ns <= times[0] < times[-1] <= (stopped.end_ns or 0)


STATUS: dict[str, type] = {
    "freq": int, "enable_bandwidth_profiling": bool, "enable_nvlink_profiling": bool,
    "is_profiling": bool, "output_filename": str, "frame_id_counter": int,
    "connected_clients": list, "total_gpus": int, "gpu_info": dict,
}  # fmt: skip
NUMBERS = (
    "gpu_util", "mem_util", "dram_bw_gbps_rx", "dram_bw_gbps_tx", "nvlink_bw_gbps_rx",
    "nvlink_bw_gbps_tx",
)  # fmt: skip


def test_e2_04_keys_and_types(running: Running) -> None:
    running.stream(running.channel, [update("a", 0.37, gpus=2)]).result()
    for accept in ("application/json", "*/*", ""):
        assert running.get("/", Accept=accept) == {
            "message": "GSwarm Profiler HTTP API",
            "version": "0.1.0",
        }
    status = running.get("/status")
    [id] = status["connected_clients"]
    assert id.startswith("a_ipv4:127.0.0.1:")
    assert status["freq"] == 500 and status["total_gpus"] == 2
    for key, kind in STATUS.items():
        assert type(status[key]) is kind, key
    gpu = {"id": "a:0:H100", "name": "H100", "physical_idx": 0, "hostname": "a"}
    assert status["gpu_info"][id][0] == gpu
    assert (status["is_profiling"], status["output_filename"]) == (False, "")
    clients = running.get("/clients")
    assert clients["total_clients"] == 1
    [client] = clients["clients"]
    assert (client["client_id"], client["hostname"], client["gpu_count"]) == (id, "a", 2)
    assert client["gpus"] == status["gpu_info"][id] and client["healthy"] is True
    latest = running.get("/metrics/latest")
    assert abs(datetime.fromisoformat(latest["timestamp"]).timestamp() - time.time()) < 60
    data = latest["client_data"][id]
    assert set(data["gpus_metrics"][0]) == {"physical_idx", "name", *NUMBERS}
    assert (data["gpus_metrics"][0]["gpu_util"], data["gpus_metrics"][0]["mem_util"]) == (37, 50)
    assert data["system_metrics"] == {"dram_util": 10.0, "disk_util": 20.0}
    assert data["p2p_links"] == []
    old = running.get("/metrics/latest?compat=gswarm")["client_data"][id]
    assert (old["gpus_metrics"][0]["gpu_util"], old["gpus_metrics"][0]["mem_util"]) == (0.37, 0.5)
    assert all(type(old["gpus_metrics"][0][key]) is float for key in NUMBERS)


def test_e2_05_start(running: Running) -> None:
    status, told = running.post("/profiling/start", {"name": "a"})
    assert (status, told["success"], told["output_file"]) == (200, True, "a.json")
    assert told["message"] == "Profiling started."
    status, told = running.post("/profiling/start", {"name": "a"})
    assert (status, told["success"]) == (200, False)
    assert "already active" in told["message"]
    _, told = running.post("/profiling/start", {})
    assert told["success"] and told["output_file"].startswith("profiling_")


def test_e2_06_and_07_several_sessions(running: Running) -> None:
    for name in ("a", "b"):
        running.post("/profiling/start", {"name": name})
        running.stream(running.channel, [update("h", 0.5)]).result()
    _, told = running.post("/profiling/stop", {"name": "nobody"})
    assert not told["success"]
    assert running.get("/profiling/sessions")["active_sessions"] == 2
    assert running.post("/profiling/stop", {"name": "a"})[1]["success"]
    listed = running.get("/profiling/sessions")
    assert (listed["total_sessions"], listed["active_sessions"]) == (2, 1)
    by_name = {session["name"]: session for session in listed["sessions"]}
    assert {"name", "is_active", "start_time", "frame_count", "output_file"} <= set(by_name["a"])
    assert (by_name["a"]["is_active"], by_name["b"]["is_active"]) == (False, True)
    assert (by_name["a"]["frame_count"], by_name["b"]["frame_count"]) == (2, 1)
    assert running.post("/profiling/stop", {})[1]["success"]
    status, told = running.post("/profiling/stop", {})
    assert (told["success"], told["message"]) == (False, "Profiling is not active.")
    counts = [len(running.exported(name)["frames"]) for name in ("a", "b")]
    assert counts == [2, 1]


def test_e2_08_grpc_does_what_http_does(running: Running) -> None:
    start = running.call(
        "StartProfiling", pb.StartProfilingRequest(name="g"), pb.StartProfilingResponse
    )
    assert (start.success, start.output_file) == (True, "g.json")
    again = running.call(
        "StartProfiling", pb.StartProfilingRequest(name="g"), pb.StartProfilingResponse
    )
    assert not again.success and "already active" in again.message
    status = running.call("GetStatus", pb.Empty(), pb.StatusResponse)
    assert (status.freq, status.is_profiling, status.output_filename) == (500, True, "g.json")
    assert [s["name"] for s in json.loads(status.active_sessions_json)] == ["g"]
    wrong = running.call(
        "StopProfiling", pb.StopProfilingRequest(name="x"), pb.StopProfilingResponse
    )
    assert not wrong.success
    running.post("/profiling/start", {"name": "h"})
    named = pb.StopProfilingRequest(name="g")
    assert running.call("StopProfiling", named, pb.StopProfilingResponse).success
    listed = running.get("/profiling/sessions")["sessions"]
    assert {s["name"]: s["is_active"] for s in listed} == {"g": False, "h": True}
    stop = running.call("StopProfiling", pb.StopProfilingRequest(), pb.StopProfilingResponse)
    assert stop.success
    assert running.get("/status")["is_profiling"] is False


def test_e2_18_two_clients_of_one_name(running: Running) -> None:
    running.post("/profiling/start", {"name": "s"})
    apart = [("grpc.use_local_subchannel_pool", 1)]
    first, second = (grpc.insecure_channel(running.at.grpc, options=apart) for _ in range(2))
    gate = threading.Event()

    def slowly(value: float) -> Iterator[Any]:
        yield update("twin", value)
        assert gate.wait(100)
        yield update("twin", value)

    try:
        calls = [running.stream(first, slowly(0.1)), running.stream(second, slowly(0.9))]
        until(lambda: len(running.get("/clients")["clients"]) == 2)
        gate.set()
        for call in calls:
            call.result()
        found = running.exported("s")
    finally:
        gate.set()
        first.close()
        second.close()
    values: dict[str, set[float]] = {}
    for frame in found["frames"]:
        for id, value in zip(frame["gpu_id"], frame["gpu_util"], strict=True):
            values.setdefault(id, set()).add(value)
    assert sorted(values) == ["twin#2:0:H100", "twin:0:H100"]
    assert sorted(map(sorted, values.values())) == [[10.0], [90.0]]
    assert sorted(d["samples"] for d in found["summary_by_device"].values()) == [2, 2]


@pytest.mark.parametrize("name", ["../evil", "a/b", "/abs", "nul\0", "", "x" * 300, ".."])
def test_e2_21_bad_names_are_refused(running: Running, name: str) -> None:
    for path in ("/profiling/start", "/profiling/stop"):
        status, told = running.post(path, {"name": name})
        assert (status, told["error"]["code"]) == (400, "bad_request")
    if name:
        reply = running.call(
            "StartProfiling", pb.StartProfilingRequest(name=name), pb.StartProfilingResponse
        )
        assert not reply.success
    assert running.get("/profiling/sessions")["total_sessions"] == 0


def test_bodies_that_are_none(running: Running) -> None:
    for said in (b"{", b"[]", b'{"name": 3}', b"\xff"):
        status, told = running.ask("/profiling/start", said, {})
        assert (status, told["error"]["code"]) == (400, "bad_request")
    assert running.ask("/profiling/stop", b"", {})[1]["success"] is False


def test_e2_22_exit_ends_the_head(tmp_path: Path) -> None:
    running = Running(tmp_path / "head")
    try:
        running.call("Exit", pb.Empty())
        assert running.has_ended
    finally:
        running.close()


def test_e2_25_a_token_is_wanted_on_both_ports(tmp_path: Path) -> None:
    running = Running(tmp_path / "head", token="secret")
    try:
        with pytest.raises(grpc.RpcError) as refused:
            running.call("Exit", pb.Empty())
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError):
            running.stream(running.channel, [update("a", 0.1)]).result()
        known = [("authorization", "Bearer secret")]
        assert running.call("GetStatus", pb.Empty(), pb.StatusResponse, metadata=known).freq == 1000
        assert running.ask("/status", None, {})[0] == 401
        assert running.ask("/status", None, {"Authorization": "Bearer secret"})[0] == 200
    finally:
        running.close()


def test_e2_02_grpc_only(tmp_path: Path) -> None:
    running = Running(tmp_path / "head", http_port=-1)
    try:
        assert running.at.http == ""
        assert running.call("GetStatus", pb.Empty(), pb.StatusResponse).freq == 1000
    finally:
        running.close()


def test_cluster_and_node_status_and_switches(running: Running) -> None:
    running.stream(running.channel, [update("a", 0.25, gpus=2)]).result()
    found = running.call(
        "ReadClusterStatus", pb.ReadClusterStatusRequest(), pb.ClusterStatusResponse
    )
    assert found.success and [node.node_id for node in found.nodes] == ["a"]
    assert [gpu.utilization for gpu in found.nodes[0].gpus] == [25.0, 25.0]
    request = pb.ReadNodeStatusRequest(node_id="b")
    assert not running.call("ReadNodeStatus", request, pb.NodeStatusResponse).success
    off = pb.SetBandwidthRequest(enable=False)
    assert running.call("SetBandwidthProfiling", off, pb.SetProfilingResponse).success
    off = pb.SetNVLinkRequest(enable=False)
    assert running.call("SetNVLinkProfiling", off, pb.SetProfilingResponse).success
    status = running.get("/status")
    assert (status["enable_bandwidth_profiling"], status["enable_nvlink_profiling"]) == (
        False,
        False,
    )


def test_e2_23_units_of_what_clients_send(running: Running) -> None:
    """KiB/s, and sent for received."""
    metric = pb.GPUMetric(
        physical_idx=0, name="H100", dram_bw_gbps_rx=1e6, dram_bw_gbps_tx=2e6, nvlink_bw_gbps_tx=3e6
    )
    running.post("/profiling/start", {"name": "s"})
    running.stream(
        running.channel, [pb.MetricsUpdate(hostname="a", gpus_metrics=[metric])]
    ).result()
    [frame] = running.exported("s")["frames"]
    assert (frame["dram_bandwidth_tx"], frame["dram_bandwidth_rx"]) == ([1.024], [2.048])
    assert (frame["dram_bandwidth"], frame["gpu_bandwidth"]) == ([3.072], [3.072])


def test_e2_13_a_head_that_ends_writes_its_sessions(tmp_path: Path) -> None:
    running = Running(tmp_path / "head", session_dir=tmp_path)
    running.post("/profiling/start", {"name": "open"})
    running.stream(running.channel, [update("a", 0.5)]).result()
    running.close()
    found = json.loads((tmp_path / "open.json").read_text())
    assert found["frames"][0]["gpu_util"] == [50.0]
    assert found["is_active"] is False


def test_the_stubs_are_made_from_the_proto(tmp_path: Path) -> None:
    made = tmp_path / "made.bin"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(SOURCE)]
    command += [f"--descriptor_set_out={made}", "runwatch/wire/gswarm.proto"]
    subprocess.run(command, check=True)
    fresh = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file[0]
    for message in fresh.message_type:
        for field in message.field:
            field.ClearField("json_name")
    committed = descriptor_pb2.FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb)
    assert committed == fresh, "run `make proto`"
