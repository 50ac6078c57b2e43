"""A stand-in for the API server that speaks TLS and answers as documented."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from runwatch.agent.queues.base import Job, NoAnswer, Waited
from runwatch.agent.queues.kubernetes import ACCOUNT, Kubernetes, granted

SECOND = 10**9
NOON = 1_767_355_200  # 2026-01-02T12:00:00Z
POD = "/api/v1/namespaces/lab/pods/train-0-abcde"
JOB = "/apis/batch/v1/namespaces/lab/jobs/train-0"
JOBSET = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/lab/jobsets/train"


def owner(version: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "name": name, "controller": True}


def pod(**more: Any) -> dict[str, Any]:
    metadata = {
        "name": "train-0-abcde",
        "creationTimestamp": "2026-01-02T12:10:00Z",
        "labels": {"jobset.sigs.k8s.io/restart-attempt": "0"},
        "ownerReferences": [owner("batch/v1", "Job", "train-0")],
    }
    return {"kind": "Pod", "metadata": metadata | more, "status": status()}


def status(restarts: int = 0) -> dict[str, Any]:
    running = {"running": {"startedAt": "2026-01-02T12:12:30Z"}}
    return {
        "phase": "Running",
        "startTime": "2026-01-02T12:11:01Z",
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T12:13:00Z"},
            {
                "type": "PodScheduled",
                "status": "True",
                "lastTransitionTime": "2026-01-02T12:11:00Z",
            },
        ],
        "containerStatuses": [
            {"name": "main", "restartCount": restarts, "state": running},
            {
                "name": "side",
                "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-02T12:12:40Z"}},
            },
        ],
    }


def job(**told: Any) -> dict[str, Any]:
    metadata = {
        "creationTimestamp": "2026-01-02T12:05:00Z",
        "ownerReferences": [owner("jobset.x-k8s.io/v1alpha2", "JobSet", "train")],
    }
    return {"kind": "Job", "metadata": metadata, "status": {"active": 1} | told}


def jobset(**told: Any) -> dict[str, Any]:
    metadata = {"creationTimestamp": "2026-01-02T12:00:00Z"}
    return {"kind": "JobSet", "metadata": metadata, "status": told}


class Server:
    def __init__(self, folder: Path) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, str | None]] = []
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(folder / "ca.crt"))
        (folder / "token").write_text("of-the-agent\n")
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append((self.path, self.headers.get("Authorization")))
                found = server.answers.get(self.path)
                self.send_response(200 if found is not None else 403)
                self.end_headers()
                self.wfile.write(json.dumps(found or {"reason": "Forbidden"}).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._http = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(trust)
        self._http.socket = trust.wrap_socket(self._http.socket, server_side=True)
        environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self._http.server_port),
        }
        self.kubernetes = Kubernetes(account=folder, environment=environment)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def ask(self) -> Waited:
        return self.kubernetes.ask(Job("lab/train-0-abcde"))

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path)
    yield found
    found.close()


def minutes(minute: int, second: int = 0) -> int:
    return (NOON + 60 * minute + second) * SECOND


GRANTED = minutes(12, 30)


def test_a_pod_is_known_by_its_environment(tmp_path: Path) -> None:
    host = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    find = Kubernetes().job
    assert find({"HOSTNAME": "a"}, tmp_path) is None
    assert find(host | {"HOSTNAME": "a"}, tmp_path) is None, "which namespace?"
    assert find(host | {"HOSTNAME": "a", "POD_NAMESPACE": "lab"}, tmp_path) == Job("lab/a")
    named = host | {"HOSTNAME": "a", "POD_NAME": "b"}
    place = tmp_path / ACCOUNT.relative_to("/")
    place.mkdir(parents=True)
    (place / "namespace").write_text("lab")
    assert find(named, tmp_path) == Job("lab/b")


def test_a_queue_begins_with_the_workload(server: Server) -> None:
    server.answers = {POD: pod(), JOB: job(), JOBSET: jobset()}
    assert server.ask() == Waited(minutes(0), GRANTED)
    assert server.asked == [(path, "Bearer of-the-agent") for path in (POD, JOB, JOBSET)]


def test_who_may_read_pods_only_is_told_of_the_pod(server: Server) -> None:
    server.answers = {POD: pod()}
    assert server.ask() == Waited(minutes(10), GRANTED)
    server.answers = {POD: pod(), JOB: job()}
    assert server.ask() == Waited(minutes(5), GRANTED)


@pytest.mark.parametrize(
    ("answers", "minute"),
    [
        ({POD: pod(), JOB: job(failed=1), JOBSET: jobset()}, 10),
        ({POD: pod(), JOB: job(), JOBSET: jobset(restarts=2)}, 5),
        ({POD: pod(labels={"jobset.sigs.k8s.io/restart-attempt": "2"}), JOB: job()}, 10),
    ],
)
def test_a_pod_that_took_anothers_place_waited_since_it_was_made(
    server: Server, answers: dict[str, Any], minute: int
) -> None:
    server.answers = answers
    assert server.ask() == Waited(minutes(minute), GRANTED)


@pytest.mark.parametrize(
    "maker",
    [owner("apps/v1", "StatefulSet", "train"), owner("batch/v1", "CronJob", "train"),
     owner("batch/v1", "Job", "train-0") | {"controller": False}],
)  # fmt: skip
def test_what_keeps_making_pods_is_no_job(server: Server, maker: dict[str, Any]) -> None:
    server.answers = {POD: pod(ownerReferences=[maker]), JOB: job(), JOBSET: jobset()}
    assert server.ask() == Waited(minutes(10), GRANTED)
    assert len(server.asked) == 1


def test_the_machines_are_there_when_the_first_container_starts() -> None:
    assert granted(pod()) == GRANTED
    assert granted({"status": status(restarts=1)}) == minutes(11), "started again: it had its node"
    for odd in ({}, {"status": 3}, {"status": {"containerStatuses": [7], "conditions": {}}}):
        assert granted(odd) is None
    waits = {"conditions": [{"type": "PodScheduled", "status": "False"}]}
    assert granted({"status": waits}) is None


@pytest.mark.parametrize("odd", [[], {"metadata": None}, pod(creationTimestamp="noon"), "text"])
def test_an_odd_answer_tells_nothing(server: Server, odd: Any) -> None:
    server.answers = {POD: odd}
    with pytest.raises(NoAnswer):
        server.ask()


def test_nobody_tells_whom_it_does_not_know(server: Server, tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match="403"):
        server.ask()
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    trustme.CA().cert_pem.write_to_path(str(stranger / "ca.crt"))
    (stranger / "token").write_text("secret")
    environment = server.kubernetes._environment
    before = len(server.asked)
    with pytest.raises(OSError):
        Kubernetes(account=stranger, environment=environment).ask(Job("lab/train-0-abcde"))
    assert len(server.asked) == before, "no token goes to a server that is not vouched for"
    (stranger / "token").unlink()
    with pytest.raises(NoAnswer):
        Kubernetes(account=stranger, environment=environment).ask(Job("lab/train-0-abcde"))
