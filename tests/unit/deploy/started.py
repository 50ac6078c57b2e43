"""Containers of the chart as processes of this machine: their own words, with folders and ports of
ours."""

from __future__ import annotations

import base64
import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from runwatch.testing import until
from tests.cluster.server import Cluster
from tests.integration.processes import end, free_port
from tests.mounted import MountedSecret

Thing = dict[str, Any]
NAMESPACE: Final = "runwatch"
_SOON: Final = {
    "RUNWATCH_LEASE_SECONDS": "2",
    "RUNWATCH_RETRY_FIRST_SECONDS": "0.2",
    "RUNWATCH_WEBHOOK_LEAVE_SECONDS": "0",
}


class Part:
    """The one container of a stored workload.  `words`: what to say in place of the chart's."""

    def __init__(
        self, root: Path, cluster: Cluster, stored: Thing, words: Mapping[str, str]
    ) -> None:
        spec = stored["spec"]["template"]["spec"]
        [self._its] = spec["containers"]
        self.root = root
        self._ports = {port["name"]: free_port() for port in self._its["ports"]}
        said = {
            f"={port['containerPort']}": f"={self._ports[port['name']]}"
            for port in self._its["ports"]
        }
        self._words = {**self._mounted(cluster, spec), **said, "0.0.0.0": "127.0.0.1", **words}
        self.log = root / "log"
        self._start(cluster, spec)

    def _mounted(self, cluster: Cluster, spec: Thing) -> dict[str, str]:
        """Where the pod has a folder, and where it is here."""
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        found = {}
        for mount in self._its["volumeMounts"]:
            place = self.root / mount["name"]
            match volumes.get(mount["name"], {}):
                case {"secret": secret}:
                    MountedSecret(place, _words_of(cluster, secret))
                case {"configMap": config}:
                    place.mkdir()
                    for name, text in cluster.get("ConfigMap", config["name"], NAMESPACE)[
                        "data"
                    ].items():
                        (place / name).write_text(text)
                case _:
                    place.mkdir()
            found[mount["mountPath"]] = str(place)
        return found

    def _here(self, text: str) -> str:
        """In one pass, the longest first: what is put in has such words, too."""
        longest = sorted(self._words, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest))
        return re.sub(pattern, lambda found: self._words[found[0]], text)

    def _start(self, cluster: Cluster, spec: Thing) -> None:
        account = spec["serviceAccountName"]
        program, *words = map(self._here, self._its["command"])
        assert program == "runwatch"
        if spec["automountServiceAccountToken"]:
            folder = cluster.account(NAMESPACE, account)
            words += ["--server", cluster.server, "--account", str(folder)]
        inherited = {name: its for name, its in os.environ.items() if "RUNWATCH" not in name}
        told = {
            each["name"]: self._here(each.get("value", "this-pod")) for each in self._its["env"]
        }
        told |= {
            name: str(port)
            for name in told
            if name.endswith("_PORT")
            for port in self._ports.values()
        }
        binds = {"RUNWATCH_WEBHOOK_BIND": "127.0.0.1", "RUNWATCH_OPERATOR_BIND": "127.0.0.1"}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "runwatch.cli", *words],
                env=inherited | _SOON | binds | told,
                stdout=log,
                stderr=log,
            )

    def port(self, name: str) -> int:
        return self._ports[name]

    def probe(self, name: str) -> str:
        """The answer's status and words, as the kubelet sees them; "" if nobody answers."""
        assert self._process.poll() is None, self.words()
        asked = self._its[f"{name}Probe"]["httpGet"]
        scheme = asked.get("scheme", "HTTP").lower()
        url = f"{scheme}://127.0.0.1:{self._ports[asked['port']]}{asked['path']}"
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        try:
            with urllib.request.urlopen(url, timeout=100, context=trust) as answer:
                return f"{answer.status} {answer.read().decode()}"
        except urllib.error.HTTPError as error:
            with error:
                return f"{error.code} {error.read().decode()}"
        except OSError:
            return ""

    def ready(self) -> None:
        until(lambda: self.probe("readiness").startswith("200 "), 60, self.words())

    def words(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def close(self) -> None:
        end(self._process, signal.SIGTERM)


def _words_of(cluster: Cluster, secret: Thing) -> dict[str, str]:
    data = cluster.get("Secret", secret["secretName"], NAMESPACE)["data"]
    wanted = {each["key"]: each["path"] for each in secret.get("items", ())} or {k: k for k in data}
    return {path: base64.b64decode(data[key]).decode() for key, path in wanted.items()}
