"""What is stored: where agents are, beside other webhooks, and with another's certificate."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.cluster import objects
from tests.cluster.chart import NAMESPACE
from tests.cluster.controllers import played
from tests.cluster.server import Cluster
from tests.integration.webhook.site import SERVICE, Site, is_watched

Thing = dict[str, Any]
EXEC = {"runwatch.dev/exec": "true"}
WATCH = {"runwatch.dev/watch": "true"}


def restricted() -> Thing:
    """As Pod Security's strictest profile wants it."""
    strict = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    whole: Thing = {"runAsUser": 1000, "runAsNonRoot": True}
    whole["seccompProfile"] = {"type": "RuntimeDefault"}
    container = objects.container(securityContext=strict)
    return objects.pod_spec(container, restartPolicy="Never", securityContext=whole)


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_where_pod_security_is_enforced_the_pod_is_taken_with_its_agent(
    shared: Site, space: str, level: str
) -> None:
    """The API server checks what we made of it, and would refuse the node's folder."""
    shared.cluster.namespace(space, WATCH | {"pod-security.kubernetes.io/enforce": level})
    pods = played(shared.cluster, objects.job("j", restricted(), notes=EXEC, count=1), space)
    first = [each["name"] for each in pods[0]["spec"]["initContainers"]]
    assert (is_watched(pods[0]), first) == (True, ["runwatch-agent", "runwatch-files"])
    answer = shared.cluster.reviews[-1].answer
    assert answer is not None
    assert [level in each for each in answer["response"]["warnings"]] == [True]


def test_annotations_of_the_namespace_are_for_all_its_pods(shared: Site, space: str) -> None:
    shared.cluster.namespace(space, WATCH)
    about = {"annotations": {"runwatch.dev/mode": "none", "runwatch.dev/group": "night"}}
    shared.cluster.patch("Namespace", space, {"metadata": about})
    (pod,) = played(shared.cluster, objects.pod("alone"), space)
    told = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
    assert told["RUNWATCH_GROUP"] == "night" and "RUNWATCH_DIR" not in told


def test_an_old_kubernetes_gets_no_sidecar(site: Site) -> None:
    site.cluster.faults.fail("GET", "/version", 404, times=99)
    site.start().ready()
    notes = {"runwatch.dev/mode": "sidecar"}
    (pod,) = played(site.cluster, objects.pod("alone", restricted(), notes=notes), "team")
    assert "initContainers" not in pod["spec"]
    assert pod["metadata"]["annotations"]["runwatch.dev/injected"] == "v1 none"


# ── another webhook, which puts a container in front ──────────────────────────────────────────


@contextmanager
def mesh(cluster: Cluster) -> Iterator[None]:
    """Asked after ours.  It does its work once for each pod."""
    proxy = {"name": "proxy", "image": "proxy:1", "command": ["proxy"]}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = review["request"]
            response = {"uid": request["uid"], "allowed": True}
            if "proxy" not in [c["name"] for c in request["object"]["spec"]["containers"]]:
                steps = [{"op": "add", "path": "/spec/containers/0", "value": proxy}]
                response["patchType"] = "JSONPatch"
                response["patch"] = base64.b64encode(json.dumps(steps).encode()).decode()
            told = json.dumps({**review, "response": response}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: object) -> None:
            pass

    authority = trustme.CA()
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("mesh.mesh.svc").configure_cert(trust)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = trust.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    cluster.services["mesh", "mesh"] = "127.0.0.1", server.server_address[1]
    client: Thing = {"service": {"namespace": "mesh", "name": "mesh"}}
    client["caBundle"] = base64.b64encode(authority.cert_pem.bytes()).decode()
    webhook = {
        "name": "mesh.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": client,
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }
        ],
    }
    about = {"apiVersion": "admissionregistration.k8s.io/v1"}
    about["kind"] = "MutatingWebhookConfiguration"
    cluster.apply([{**about, "metadata": {"name": "zz-mesh"}, "webhooks": [webhook]}])
    try:
        yield
    finally:
        cluster.delete("MutatingWebhookConfiguration", "zz-mesh")
        server.shutdown()
        thread.join()
        server.server_close()


def test_next_to_another_webhook_both_have_their_say(shared: Site, space: str) -> None:
    """The API server asks us again, and what we did is done once."""
    shared.cluster.namespace(space, WATCH)
    before = len(shared.cluster.reviews)
    with mesh(shared.cluster):
        job = objects.job("j", restricted(), notes=EXEC, count=1)
        (pod,) = played(shared.cluster, job, space)
    asked = [each.webhook for each in shared.cluster.reviews[before:]]
    ours = "namespace.watch.runwatch.dev"
    assert asked == [ours, "mesh.example.com", ours]
    proxy, trainer = pod["spec"]["containers"]
    assert is_watched(pod) and proxy["command"] == ["proxy"]
    assert trainer["command"].count("runwatch") == 1
    names = [each["name"] for each in trainer["env"]]
    assert len(set(names)) == len(names)
    assert len(pod["spec"]["initContainers"]) == 1


def test_with_a_certificate_of_somebody_else(tmp_path: Path) -> None:
    """The chart names a Secret of yours: the webhook then asks for no right to any."""
    authority = trustme.CA()
    name = f"{SERVICE}.{NAMESPACE}.svc"
    issued = authority.issue_cert(name)
    issued.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    issued.private_key_pem.write_to_path(tmp_path / "tls.key")
    bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
    own = {"source": "secret", "secretName": "mine", "caBundle": bundle}
    with Cluster(tmp_path / "cluster") as cluster:
        site = Site(tmp_path, cluster, {"webhook": {"certificate": own}})
        cluster.namespace("team", WATCH)
        files = ["--certificate", str(tmp_path / "tls.crt"), "--key", str(tmp_path / "tls.key")]
        try:
            site.start(*files).ready()
            (pod,) = played(cluster, objects.pod("alone"), "team")
            assert is_watched(pod)
            assert not [each for each in cluster.asked if "secrets" in each.path]
        finally:
            site.close()
