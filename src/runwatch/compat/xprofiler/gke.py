"""Instances as deployments of a Kubernetes cluster, through kubectl."""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from runwatch.compat.xprofiler import buckets, extra
from runwatch.compat.xprofiler.backend import (
    PORT,
    Captured,
    Context,
    Instance,
    Order,
    Request,
    Wanted,
    word,
)
from runwatch.compat.xprofiler.gce import Gce
from runwatch.compat.xprofiler.hosts import SLACK_SECONDS, capture_all
from runwatch.compat.xprofiler.manifests import ROLE, Parameters, manifests
from runwatch.compat.xprofiler.tunnels import Tunnels
from runwatch.errors import RunwatchError

NAMESPACE: Final = "xprofiler"


class Gke:
    name = "gke"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._zone = word(context.zone, "zone") if context.zone else ""
        self._namespace = context.extra.get("--namespace") or NAMESPACE
        self._tunnels = Tunnels(context.settings.home)

    def _kubectl(self, *words: str, seconds: float = 0.0) -> str:
        limit = seconds or self._context.settings.command_seconds
        return self._context.runner.run(["kubectl", *words], limit)

    def check(self, log_directory: str) -> None:
        buckets.check_path(log_directory)

    def instances(self, wanted: Wanted, flags: extra.Flags | None = None) -> list[Instance]:
        selector = [f"role={ROLE}"]
        if wanted.zones:
            selector.append(f"zone in ({','.join(word(zone, 'zone') for zone in wanted.zones)})")
        if wanted.names and not wanted.directories:
            names = ",".join(word(name, "name") for name in wanted.names)
            selector.append(f"instance in ({names})")
        listing = self._kubectl(
            f"--namespace={self._namespace}", "get", "services", "-l", ",".join(selector),
            "-o", "json", *extra.words(flags or {}),
        )  # fmt: skip
        try:
            instances = [_instance(item["metadata"]) for item in json.loads(listing)["items"]]
        except (ValueError, KeyError, TypeError) as error:
            raise RunwatchError(f"kubectl's list of services cannot be read: {error}") from error
        return [
            instance for instance in instances if instance.log_directory and wanted.has(instance)
        ]

    def create(self, order: Order) -> Instance:
        flags = {flag.lstrip("-").replace("-", "_"): value or ""
                for flag, value in self._context.extra.items()}  # fmt: skip
        name = order.name if order.name.startswith("xprofiler") else f"xprofiler-{uuid.uuid4()}"
        parameters = Parameters.from_flags(
            flags, name=name, log_directory=order.log_directory, zone=self._zone
        )
        with tempfile.NamedTemporaryFile("w", suffix=".json", prefix="xprofiler-") as file:
            json.dump(manifests(parameters), file)
            file.flush()
            self._kubectl("apply", "-f", file.name)
        try:
            url = self._wait_until_ready(parameters)
        except (RunwatchError, KeyboardInterrupt):
            if order.delete_on_failure:
                self._context.runner.say("Unable to set up instance. Initiating cleanup.")
                self._delete(name)
            raise
        return Instance(order.log_directory, url, name, self._zone, self.name)

    def _wait_until_ready(self, parameters: Parameters) -> str:
        settings = self._context.settings
        deadline = time.monotonic() + settings.ready_seconds
        while True:
            url = self._kubectl(
                "get", "service", "--field-selector", f"metadata.name={parameters.agent_service}",
                "--namespace", parameters.namespace,
                "-o", "jsonpath='{.items[*].metadata.annotations.proxy-url}'",
            ).strip().strip("'")  # fmt: skip
            if url:
                return url
            left = deadline - time.monotonic()
            if left <= 0:
                raise RunwatchError(
                    f"Timed out to wait XProfiler start after {settings.ready_seconds:.0f} seconds."
                )
            time.sleep(min(left, settings.poll_seconds))

    def delete(self, instances: Sequence[Instance]) -> None:
        for one in instances:
            self._delete(one.name)

    def _delete(self, name: str) -> None:
        self._kubectl("delete", "all", f"--namespace={self._namespace}", "-l",
                      f"instance={word(name, 'name')}")  # fmt: skip

    def connect(self, instance: Instance, port: int | None, host_port: int) -> str:
        """kubectl forwards a port as long as it runs: it goes on behind us."""
        service = f"service/{word(instance.name, 'name')}-tb-service"
        words = ["kubectl", f"--namespace={self._namespace}", "port-forward", service,
                 f"{port or PORT}:80"]  # fmt: skip
        self._tunnels.open(instance.name, words, self._context.settings.command_seconds)
        return f"http://localhost:{port or PORT}"

    def disconnect(self, instance: Instance) -> None:
        if not self._tunnels.close(instance.name):
            raise RunwatchError(f"there is no tunnel to {instance.name}")

    def capture(self, request: Request) -> list[Captured]:
        self.check(request.log_directory)
        seconds = request.duration_ms / 1e3 + SLACK_SECONDS
        flags = extra.words(self._context.extra)

        def on_host(host: str, command: str) -> str:
            return self._kubectl("exec", host, *flags, "--", "bash", "-c", command, seconds=seconds)

        return capture_all(request, on_host, Gce(self._context).exists)


def _instance(metadata: Mapping[str, Any]) -> Instance:
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return Instance(
        str(notes.get("log-directory", "")), str(notes.get("proxy-url", "")),
        str(labels.get("instance", metadata.get("name", ""))), str(labels.get("zone", "")),
        Gke.name,
    )  # fmt: skip
