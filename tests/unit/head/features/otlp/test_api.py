"""What a sender is told over HTTP."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from starlette.testclient import TestClient

from runwatch.errors import UsageError
from runwatch.head.features.otlp.api import OtlpApi
from runwatch.head.local_head import LocalHead
from runwatch.head.settings import HeadSettings
from runwatch.wire.otlp import status_bytes
from runwatch.wire.otlp_values import JSON, LARGEST, PROTOBUF
from tests.otlp import gauge, gauge_request, metrics_request

T = 1_700_000_000_000_000_000
BOMB = gzip.compress(b"\0" * (LARGEST + 1))


@pytest.fixture
def head(tmp_path: Path) -> Iterator[LocalHead]:
    made = LocalHead(tmp_path)
    yield made
    made.close()


@pytest.fixture
def client(head: LocalHead) -> TestClient:
    return TestClient(head.app, base_url="http://localhost")


def test_protobuf_and_json_packed_and_not_are_stored_alike(client: TestClient) -> None:
    body = gauge_request("job", "loss", [(T, 1.0)]).SerializeToString()
    answer = client.post("/v1/metrics", content=body, headers={"Content-Type": PROTOBUF})
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (
        200,
        b"",
        PROTOBUF,
    )
    point = {"timeUnixNano": str(T + 1), "asInt": "2"}
    metric = {"name": "loss", "gauge": {"dataPoints": [point]}}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "job"}}]}
    part = {"resource": resource, "scopeMetrics": [{"metrics": [metric]}]}
    packed = gzip.compress(json.dumps({"resourceMetrics": [part]}).encode())
    headers = {"Content-Type": f"{JSON}; charset=utf-8", "Content-Encoding": "gzip"}
    answer = client.post("/v1/metrics", content=packed, headers=headers)
    assert (answer.status_code, answer.json()) == (200, {})
    rows = client.get("/api/v1/runs/job/export", params={"format": "json"}).json()
    assert [row["value"] for row in rows] == [1.0, 2.0]
    assert len(client.get("/api/v1/runs/job/series").json()["series"]) == 1


def test_some_points_are_set_aside(client: TestClient) -> None:
    request = metrics_request("job", [gauge("a", [(T, 1.0), (0, 2.0)])])
    answer = client.post(
        "/v1/metrics", content=request.SerializeToString(), headers={"Content-Type": PROTOBUF}
    )
    told = ExportMetricsServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, told.rejected_data_points) == (200, 1)
    assert "no time" in told.error_message


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {"Content-Type": "text/plain"}, 415),
        (b"\xff\xff", {"Content-Type": PROTOBUF}, 400),
        (b"[]", {"Content-Type": JSON}, 400),
        (b"plain", {"Content-Type": PROTOBUF, "Content-Encoding": "gzip"}, 400),
        (b"plain", {"Content-Type": PROTOBUF, "Content-Encoding": "br"}, 400),
        (b"\0" * (LARGEST + 1), {"Content-Type": PROTOBUF}, 413),
        (BOMB, {"Content-Type": PROTOBUF, "Content-Encoding": "gzip"}, 413),
    ],
    ids=["kind", "protobuf", "json", "gzip", "packing", "large", "bomb"],
)  # fmt: skip
def test_what_is_no_request(
    client: TestClient, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert client.post("/v1/metrics", content=body, headers=headers).status_code == status


def test_a_busy_store_is_asked_again(head: LocalHead, client: TestClient) -> None:
    head.feature(OtlpApi).receiver._waiting_bytes = 1 << 40
    body = gauge_request("job", "loss", [(T, 1.0)]).SerializeToString()
    answer = client.post("/v1/metrics", content=body, headers={"Content-Type": PROTOBUF})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.content == status_bytes(14, "the store has much to do; send it again", 5)
    answer = client.post("/v1/metrics", content=b"{}", headers={"Content-Type": JSON})
    assert answer.json()["code"] == 14


def test_settings_that_would_open_a_head_to_others_are_refused() -> None:
    assert HeadSettings(open_ingest=True).open_ingest
    with pytest.raises(UsageError, match="0.0.0.0"):
        HeadSettings(open_ingest=True, bind="0.0.0.0")
    with pytest.raises(UsageError, match="grpc_port"):
        HeadSettings(otlp_grpc_port=4317, grpc_port=-1)
    with pytest.raises(UsageError, match="70000"):
        HeadSettings(otlp_http_port=70000)
