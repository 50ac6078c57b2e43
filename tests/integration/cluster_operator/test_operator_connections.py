"""MLDiagnosticsConnections, as google-cloud-mldiagnostics has them."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.cluster.answers import Refusal
from tests.integration.cluster_operator import objects
from tests.integration.cluster_operator.kubectl import printed
from tests.integration.cluster_operator.site import Site

pytestmark = pytest.mark.xdist_group("operator")
Thing = dict[str, Any]
FIELDS = (
    "capturePort",
    "durationSeconds",
    "podName",
    "podNamespace",
    "profiler",
    "storageLocation",
)


def test_a_profile_is_put_where_the_connection_says(site: Site) -> None:
    operator = site.usual()
    seen: list[str] = []

    def phase_of(asked: Any) -> None:
        if asked.method == "PATCH" and asked.path.endswith("/whole/status"):
            thing = site.api.get("mldc", "whole", objects.NAMESPACE)
            seen.append(thing["status"]["phase"])

    site.api.faults.done.append(phase_of)
    made = objects.connection(
        site.api, "whole", podName="llama-0, llama-1", storageLocation=str(site.profiles)
    )
    status = site.ended("mldc", "whole")
    assert status["phase"] == "Succeeded", (status, operator.words())
    session = f"connection-{made['metadata']['uid']}"
    output = f"{site.profiles}/plugins/profile/{session}"
    assert status["captureResult"] == {"status": "Succeeded", "outputLocation": output}
    assert status["startTime"] <= status["completionTime"]
    assert sorted(os.listdir(output)) == ["llama-0.kineto.json.gz", "llama-1.kineto.json.gz"]
    assert list(dict.fromkeys(seen)) == ["Pending", "Running", "Succeeded"]
    notes = site.api.get("mldc", "whole", objects.NAMESPACE)["metadata"]["annotations"]
    assert json.loads(notes["runwatch.dev/capture"])["way"] == "head"
    site.check_captured_once(session)


def test_bad_pods_and_places_fail_in_words(site: Site) -> None:
    objects.pod(site.api, "waits", phase="Pending")
    bad = {
        "no-pod": ({"podName": "llama-0,llama-9"}, "there is no pod team/llama-9"),
        "empty": ({"podName": "llama-0,"}, "names of pods with commas between"),
        "waiting": ({"podName": "waits"}, "pod team/waits is Pending, and not Running"),
        "elsewhere": ({"storageLocation": "/etc"}, "RUNWATCH_FILES"),
        "scheme": ({"storageLocation": "ftp://host/path"}, "RUNWATCH_STORAGE_SCHEMES"),
        "silent": ({"podName": "alone"}, "nothing listens"),
    }
    objects.pod(site.api, "alone")
    before = len(site.captures())
    site.usual()
    for name, (trigger, _) in bad.items():
        objects.connection(site.api, name, **{"storageLocation": str(site.profiles)} | trigger)
    for name, (_, words) in bad.items():
        status = site.ended("mldc", name)
        assert status["phase"] == status["captureResult"]["status"] == "Failed"
        assert words in status["captureResult"]["errorMessage"], status
        assert "outputLocation" not in status["captureResult"]
        assert status["completionTime"]
    assert len(site.captures()) == before
    for name in ("waits", "alone"):
        site.api.delete("pod", name, objects.NAMESPACE)


@pytest.mark.parametrize("missing", FIELDS)
def test_a_connection_without_a_field_is_refused(site: Site, missing: str) -> None:
    with pytest.raises(Refusal, match=missing) as refused:
        objects.connection(site.api, "lacking", **{"storageLocation": "gs://b", missing: None})
    assert refused.value.code == 422


class Program:
    """In a pod that the head does not know: it takes the question over HTTP, and counts."""

    def __init__(self) -> None:
        self.asked: list[Thing] = []
        self.on_asked: Callable[[], None] = lambda: None
        program = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                program.asked.append(json.loads(self.rfile.read(length)) | {"path": self.path})
                program.on_asked()
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                """It is quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def program() -> Iterator[Program]:
    made = Program()
    yield made
    made.close()


def test_a_program_that_the_head_does_not_know_is_asked_at_its_port(
    site: Site, program: Program
) -> None:
    operator = site.usual()
    objects.pod(site.api, "stranger")
    where = {"podName": "stranger", "capturePort": program.port}
    objects.connection(site.api, "direct", storageLocation=str(site.profiles), **where)
    status = site.ended("mldc", "direct")
    assert status["phase"] == "Succeeded", (status, operator.words())
    assert program.asked == [
        {"path": "/profiling", "duration_ms": 1000, "repository_path": str(site.profiles)}
    ]
    site.api.delete("pod", "stranger", objects.NAMESPACE)


def test_a_program_is_not_asked_twice_when_the_operator_is_killed_meanwhile(
    site: Site, program: Program
) -> None:
    first = site.begin_operator()
    objects.pod(site.api, "stranger")
    where = {"podName": "stranger", "capturePort": program.port}
    program.on_asked = lambda: os.kill(first.process.pid, signal.SIGKILL)
    objects.connection(site.api, "cut", storageLocation=str(site.profiles), **where)
    site.wait(lambda: first.process.poll() is not None, "the operator to be killed")
    # Long ago, by what the object says: nobody waits for the first one any more.
    long_ago = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
    site.api.patch("mldc", "cut", long_ago, objects.NAMESPACE, subresource="status")
    site.begin_operator()
    status = site.ended("mldc", "cut")
    assert status["phase"] == "Failed"
    assert "no program is asked twice" in status["captureResult"]["errorMessage"]
    assert len(program.asked) == 1
    site.api.delete("pod", "stranger", objects.NAMESPACE)


def test_an_ended_connection_is_deleted_when_its_time_is_over(site: Site) -> None:
    site.begin_operator(RUNWATCH_TTL_SECONDS="1")
    objects.connection(site.api, "old", podName="nobody", storageLocation=str(site.profiles))
    site.wait(lambda: site.api.find("mldc", "old", objects.NAMESPACE) is None, "it to go")


def test_kubectl_prints_status_and_age(site: Site) -> None:
    site.usual()
    objects.connection(site.api, "shown", podName="nobody", storageLocation=str(site.profiles))
    site.ended("mldc", "shown")
    told = printed(site, "get", "mldc", "-n", objects.NAMESPACE)
    assert re.match(r"NAME +STATUS +AGE\nshown +Failed +\d+s\n$", told), told
