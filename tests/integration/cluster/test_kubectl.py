"""Real kubectl with the tests' API server, as a person uses it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

import pytest

from runwatch.testing import until
from tests.cluster.server import Cluster
from tests.integration.cluster.conftest import Kubectl

pytestmark = pytest.mark.xdist_group("cluster_kubectl")

Thing = dict[str, Any]

MANIFEST = """
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {runwatch.dev/watch: "true"}}
---
apiVersion: runwatch.dev/v1alpha1
kind: Capture
metadata: {name: look, namespace: shop}
spec: {run: llama, steps: 3}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "web:1"}]}
"""


@pytest.fixture(scope="module")
def shop(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shop") / "shop.yaml"
    path.write_text(MANIFEST)
    return path


def test_apply_creates_then_changes_nothing_then_changes(kubectl: Kubectl, shop: Path) -> None:
    said = kubectl("apply", "-f", str(shop)).stdout
    assert said.splitlines() == [
        "namespace/shop created",
        "capture.runwatch.dev/look created",
        "deployment.apps/web created",
    ]
    assert kubectl("apply", "-f", str(shop)).stdout.count("unchanged") == 3
    shop.write_text(MANIFEST.replace("web:1", "web:2").replace("replicas: 2", "paused: true"))
    assert "deployment.apps/web configured" in kubectl("apply", "-f", str(shop)).stdout
    told = json.loads(kubectl("get", "deploy/web", "-n", "shop", "-o", "json").stdout)
    [container] = told["spec"]["template"]["spec"]["containers"]
    assert (container["image"], told["spec"].get("paused"), "replicas" in told["spec"]) == (
        "web:2",
        True,
        False,
    )
    assert "apply --server-side" not in kubectl("diff", "-f", str(shop)).stdout


def test_columns_are_those_of_the_definition(kubectl: Kubectl, cluster: Cluster) -> None:
    cluster.namespace("columns")
    run = {
        "apiVersion": "runwatch.dev/v1alpha1",
        "kind": "Run",
        "metadata": {"name": "llama"},
        "spec": {"run": "0" * 32},
    }
    cluster.create(run, "columns")
    [version] = cluster.get("crd", "runs.runwatch.dev")["spec"]["versions"]
    columns = version["additionalPrinterColumns"]
    near = [each["name"].upper() for each in columns if not each.get("priority")]
    head, row = kubectl("get", "runs", "-n", "columns").stdout.splitlines()
    assert head.split() == ["NAME", *" ".join(near).split()] and row.startswith("llama")
    wide = kubectl("get", "runs", "-n", "columns", "-o", "wide").stdout.splitlines()[0]
    assert wide.split() == ["NAME", *" ".join(each["name"].upper() for each in columns).split()]


def test_other_forms_of_output(kubectl: Kubectl, cluster: Cluster) -> None:
    cluster.namespace("forms")
    for name in ("a", "b"):
        cluster.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}, "forms"
        )
    words = ("get", "cm", "-n", "forms", "a", "b")
    assert kubectl(*words, "-o", "name").stdout.split() == ["configmap/a", "configmap/b"]
    custom = "custom-columns=N:.metadata.name,S:.metadata.namespace"
    assert kubectl(*words, "-o", custom, "--no-headers").stdout.split() == ["a", "forms"] + [
        "b",
        "forms",
    ]
    path = "jsonpath={.items[*].metadata.name}"
    assert kubectl(*words, "-o", path).stdout == "a b"
    assert "kind: ConfigMap" in kubectl("get", "cm/a", "-n", "forms", "-o", "yaml").stdout
    cluster.patch("configmap", "a", {"data": {"rank": "9"}}, "forms")
    cluster.patch("configmap", "b", {"data": {"rank": "1"}}, "forms")
    rows = kubectl("get", "cm", "-n", "forms", "--sort-by=.data.rank", "--no-headers").stdout
    assert [row.split()[0] for row in rows.splitlines()][-2:] == ["b", "a"]


def test_labels_annotations_patches_and_deletion(kubectl: Kubectl, cluster: Cluster) -> None:
    kubectl("create", "namespace", "words")
    kubectl("create", "configmap", "x", "-n", "words", "--from-literal=a=1")
    kubectl("label", "cm/x", "-n", "words", "tier=db")
    refused = kubectl("label", "cm/x", "-n", "words", "tier=web", code=1).stderr
    assert "already has a value (db), and --overwrite is false" in refused
    kubectl("label", "cm/x", "-n", "words", "tier=web", "--overwrite")
    kubectl("annotate", "cm/x", "-n", "words", "note=some words")
    kubectl("patch", "cm/x", "-n", "words", "--type=merge", "-p", '{"data":{"a":null,"b":"2"}}')
    told = cluster.get("configmap", "x", "words")
    assert (told["data"], told["metadata"]["labels"]) == ({"b": "2"}, {"tier": "web"})
    assert told["metadata"]["annotations"] == {"note": "some words"}
    kubectl("label", "cm/x", "-n", "words", "tier-")
    assert kubectl("get", "cm", "-n", "words", "-l", "tier").stdout == ""
    assert 'configmap "x" deleted' in kubectl("delete", "cm/x", "-n", "words").stdout
    gone = kubectl("get", "cm/x", "-n", "words", code=1).stderr
    assert gone == 'Error from server (NotFound): configmaps "x" not found\n'
    assert kubectl("delete", "cm/x", "-n", "words", "--ignore-not-found").stdout == ""
    kubectl("delete", "namespace", "words", "--timeout=20s")
    assert cluster.find("namespace", "words") is None


def test_what_a_schema_refuses_is_said_with_its_field(kubectl: Kubectl) -> None:
    wrong = MANIFEST.split("---")[1].replace("steps: 3", "steps: 0").replace("shop", "default")
    said = kubectl("apply", "-f", "-", say=wrong, code=1).stderr
    assert "spec.steps: Invalid value: 0: spec.steps in body should be greater" in said
    unknown = wrong.replace("steps: 0", "steps: 1, extra: 1")
    said = kubectl("apply", "-f", "-", say=unknown, code=1).stderr
    assert 'strict decoding error: unknown field "spec.extra"' in said


def test_a_definition_explains_its_fields(kubectl: Kubectl) -> None:
    said = kubectl("explain", "captures.spec").stdout
    assert "KIND:       Capture" in said and "run\t<string> -required-" in said


def test_status_is_written_and_waited_for(kubectl: Kubectl, cluster: Cluster) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "waited"},
        "spec": {"containers": [{"name": "main", "image": "x:1"}]},
    }
    cluster.create(pod)
    waiting = _begun(cluster, "wait", "pod/waited", "--for=condition=Ready", "--timeout=30s")
    with waiting:
        until(lambda: cluster.watching() > 0)
        status = json.dumps(
            {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        )
        kubectl("patch", "pod/waited", "--subresource=status", "--type=merge", "-p", status)
        said, _ = waiting.communicate(timeout=100)
    assert (waiting.returncode, said) == (0, "pod/waited condition met\n")


def test_a_watch_shows_changes_as_they_come(kubectl: Kubectl, cluster: Cluster) -> None:
    cluster.namespace("seen")
    before = cluster.watching()
    with _begun(cluster, "get", "cm", "-n", "seen", "-w", "-o", "name") as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "configmap/kube-root-ca.crt\n"
            until(lambda: cluster.watching() > before)
            kubectl("create", "configmap", "new", "-n", "seen")
            assert process.stdout.readline() == "configmap/new\n"
        finally:
            process.kill()


def _begun(cluster: Cluster, *words: str) -> subprocess.Popen[str]:
    command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


# ── rights ────────────────────────────────────────────────────────────────────────────────────


def test_who_may_what_is_asked_as_it_is_enforced(kubectl: Kubectl, cluster: Cluster) -> None:
    cluster.namespace("rights")
    kubectl("create", "serviceaccount", "reader", "-n", "rights")
    kubectl("create", "role", "r", "-n", "rights", "--verb=get,list", "--resource=pods")
    kubectl(
        "create", "rolebinding", "r", "-n", "rights", "--role=r", "--serviceaccount=rights:reader"
    )
    config = cluster.kubeconfig_of("rights", "reader")
    asked = ("auth", "can-i", "-n", "rights")
    assert kubectl(*asked, "list", "pods", config=config).stdout == "yes\n"
    assert kubectl(*asked, "delete", "pods", config=config, code=1).stdout == "no\n"
    account = "--as=system:serviceaccount:rights:reader"
    assert kubectl(*asked, "list", "pods", account).stdout == "yes\n"
    assert kubectl(*asked, "list", "secrets", account, code=1).stdout == "no\n"
    assert kubectl("get", "pods", "-n", "rights", account).stderr.startswith("No resources found")
    said = kubectl("get", "secrets", "-n", "rights", account, code=1).stderr
    assert said == (
        "Error from server (Forbidden): secrets is forbidden: User "
        '"system:serviceaccount:rights:reader" cannot list resource "secrets" in API group "" in '
        'the namespace "rights"\n'
    )
    whoami = kubectl("auth", "whoami", "-o", "json", config=config).stdout
    assert json.loads(whoami)["status"]["userInfo"]["username"] == account[5:]
    kubectl("get", "pods", "--as=somebody", config=config, code=1)  # may not act as others


# ── port-forward ──────────────────────────────────────────────────────────────────────────────


class _Page(BaseHTTPRequestHandler):
    """Says back what it is sent, and a megabyte to who asks for it."""

    def do_GET(self) -> None:
        said = b"x" * 1_000_000 if self.path == "/much" else self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def page() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_port_of_a_service_s_pod_is_forwarded(
    kubectl: Kubectl, cluster: Cluster, page: int
) -> None:
    cluster.namespace("forward")
    cluster.apply(_served("forward"))
    cluster.status("pod", "web", {"phase": "Running"}, "forward")
    cluster.ports["forward", "web"] = {8080: ("127.0.0.1", page), 8081: ("127.0.0.1", 1)}
    with _begun(cluster, "port-forward", "-n", "forward", "svc/web", ":80", ":81") as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(4)]
            at = {line.split()[4]: line.split()[2] for line in lines if "127.0.0.1" in line}
            for path in ("/a", "/b"):
                with urlopen(f"http://{at['8080']}{path}", timeout=100) as answer:
                    assert answer.read() == path.encode()
            with urlopen(f"http://{at['8080']}/much", timeout=100) as answer:
                assert len(answer.read()) == 1_000_000
            with pytest.raises(OSError):
                urlopen(f"http://{at['8081']}/", timeout=100)
            said = until(lambda: _until_error(process), what="kubectl to say what is wrong")
            assert "failed to connect to localhost:8081 inside the pod" in said
        finally:
            process.kill()


def _until_error(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    return line if "rror" in line else ""


def _served(namespace: str) -> list[Thing]:
    ports = [
        {"name": "http", "containerPort": 8080},
        {"name": "other", "containerPort": 8081},
    ]
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "namespace": namespace, "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "x:1", "ports": ports}]},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {
                "selector": {"app": "web"},
                "ports": [
                    {"name": "http", "port": 80, "targetPort": "http"},
                    {"name": "other", "port": 81, "targetPort": 8081},
                ],
            },
        },
    ]


def test_a_pod_that_does_not_run_forwards_nothing(kubectl: Kubectl, cluster: Cluster) -> None:
    pod = _served("default")[0]
    cluster.create(pod)
    said = kubectl("port-forward", "pod/web", ":8080", code=1).stderr
    assert "pod is not running. Current status=Pending" in said
