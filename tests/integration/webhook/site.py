"""A cluster in which the chart is installed, and its webhook: `runwatch k8s webhook`."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from runwatch.testing import until
from tests.cluster.chart import NAMESPACE, RELEASE, of_kind, rendered
from tests.cluster.server import Cluster
from tests.integration.processes import free_port

Thing = dict[str, Any]
SERVICE: Final = f"{RELEASE}-webhook"
WATCHED: Final = "runwatch.dev/watched"
VALUES: Final[Mapping[str, Any]] = {"webhook": {"timeoutSeconds": 2}}
"""Less than usual: what is down or slow is waited for."""


class Replica:
    """One webhook process."""

    def __init__(self, site: Site, port: int, *options: str, **environment: str) -> None:
        self.port = port
        self.log = site.place / f"webhook-{port}.log"
        account = site.cluster.account(NAMESPACE, SERVICE)
        command = [sys.executable, "-m", "runwatch.cli", "k8s", "webhook", "--bind", "127.0.0.1"]
        inherited = {name: its for name, its in os.environ.items() if "RUNWATCH" not in name}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--port", str(port), "--account", str(account), *options],
                env=inherited
                | site.environment
                | site.cluster.environment
                | {"RUNWATCH_DIR": str(site.place / "records")}
                | environment,
                stdout=log,
                stderr=log,
            )

    def ready(self) -> Replica:
        until(lambda: self.asked("/readyz") == "ok\n", what="the webhook to be ready")
        return self

    def asked(self, path: str) -> str:
        """As the kubelet asks, which trusts any certificate; "" if nobody answers well."""
        assert self.process.poll() is None, self.words()
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        try:
            url = f"https://127.0.0.1:{self.port}{path}"
            with urllib.request.urlopen(url, timeout=5, context=trust) as answer:
                told: str = answer.read().decode()
                return told
        except OSError:
            return ""

    def words(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(100)


class Site:
    """`Site(place, cluster)`: the chart is installed, nothing runs yet."""

    def __init__(
        self, place: Path, cluster: Cluster, values: Mapping[str, Any] | None = None
    ) -> None:
        self.place, self.cluster = place, cluster
        things = rendered({**VALUES, **(values or {})})
        cluster.namespace(NAMESPACE)
        cluster.apply(things)
        (deployment,) = of_kind(things, "Deployment", SERVICE)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        (scope,) = of_kind(things, "MutatingWebhookConfiguration")
        self.configuration: str = scope["metadata"]["name"]
        self.environment = {each["name"]: each["value"] for each in container["env"]}
        """As the chart gives it to the webhook."""
        self.replicas: list[Replica] = []

    def configure(self, change: Thing) -> None:
        """Of every webhook of the configuration."""

        def changed(thing: Thing) -> None:
            for each in thing["webhooks"]:
                each.update(change)

        self.cluster.edit("MutatingWebhookConfiguration", self.configuration, changed)

    def start(self, *options: str, port: int = 0, **environment: str) -> Replica:
        """The API server asks the one that was started last."""
        replica = Replica(self, port or free_port(), *options, **environment)
        self.replicas.append(replica)
        self.ask(replica)
        return replica

    def ask(self, replica: Replica) -> None:
        self.cluster.services[NAMESPACE, SERVICE] = "127.0.0.1", replica.port

    def reviews(self, since: int = 0) -> list[str]:
        """By which webhook of the configuration each pod was asked about."""
        return [each.webhook.partition(".")[0] for each in self.cluster.reviews[since:]]

    def close(self) -> None:
        for each in self.replicas:
            if each.process.poll() is None:
                each.process.send_signal(signal.SIGCONT)
                each.kill()


def is_watched(pod: Thing) -> bool:
    """With all that belongs to it, in every container; or with nothing of it."""
    labels, notes = pod["metadata"].get("labels") or {}, pod["metadata"].get("annotations") or {}
    names = [{v["name"] for v in each.get("env", ())} for each in pod["spec"]["containers"]]
    wanted = {"GKE_DIAGON_IDENTIFIER", "GKE_DIAGON_METADATA", "RUNWATCH_WORKLOAD", "RUNWATCH_DIR"}
    volumes = [each["name"] for each in pod["spec"].get("volumes", ())]
    found = {
        labels.get(WATCHED) == "true",
        "runwatch.dev/injected" in notes,
        "runwatch-records" in volumes,
        *(bool(wanted & each) for each in names),
        *(wanted <= each for each in names),
    }
    assert len(found) == 1, pod
    return found.pop()
