"""Instances as deployments of a Kubernetes cluster, through kubectl."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from runwatch.compat.commands import start_detached
from runwatch.compat.xprofiler import buckets, extra
from runwatch.compat.xprofiler.backend import (
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
from runwatch.errors import RunwatchError
from runwatch.journal.liveness import start_ticks

NAMESPACE: Final = "xprofiler"


class Gke:
    name = "gke"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._zone = word(context.zone, "zone") if context.zone else ""
        self._namespace = context.extra.get("--namespace") or NAMESPACE

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

    def connect(self, instance: Instance, port: int, host_port: int) -> str:
        """kubectl forwards a port as long as it runs: it goes on behind us."""
        home = self._context.settings.home
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._forget(instance)
        service = f"service/{word(instance.name, 'name')}-tb-service"
        words = ["kubectl", f"--namespace={self._namespace}", "port-forward", service,
                 f"{port}:80"]  # fmt: skip
        log = home / f"{instance.name}.forward.log"
        with log.open("wb") as file:
            forward = start_detached(words, file)
        deadline = time.monotonic() + self._context.settings.command_seconds
        while b"Forwarding from" not in (output := log.read_bytes()):
            if forward.poll() is not None or time.monotonic() > deadline:
                forward.kill()
                forward.wait()
                raise RunwatchError(f"no tunnel: {output.decode(errors='replace').strip()}")
            time.sleep(0.05)
        self._note(instance).write_text(f"{forward.pid} {start_ticks(forward.pid)}")
        return f"http://localhost:{port}"

    def disconnect(self, instance: Instance) -> None:
        if not self._forget(instance):
            raise RunwatchError(f"there is no tunnel to {instance.name}")

    def _note(self, instance: Instance) -> Any:
        return self._context.settings.home / f"{word(instance.name, 'name')}.forward"

    def _forget(self, instance: Instance) -> bool:
        """End the tunnel that was left running, if it is still that process."""
        note = self._note(instance)
        try:
            pid, ticks = map(int, note.read_text().split())
        except (OSError, ValueError):
            return False
        note.unlink()
        if start_ticks(pid) != ticks:
            return False
        os.kill(pid, signal.SIGTERM)
        return True

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
