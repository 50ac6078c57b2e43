"""Instances as virtual machines of Compute Engine, through gcloud."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from runwatch.compat.xprofiler import buckets, extra, startup
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
from runwatch.compat.xprofiler.hosts import SLACK_SECONDS, capture_all
from runwatch.compat.xprofiler.running import CommandFailed
from runwatch.errors import RunwatchError

BASE_FILTER: Final = "(name:(xprof)) OR (labels.xprofiler_version:(*))"
FORMAT: Final = (
    "json(metadata.items.extract(xprofiler_log_directory),labels.xprofiler_log_directory,"
    "labels.tb_backend_id,name,zone)"
)
VERSION: Final = "0.1.1"
"""The original's version, written on every instance: each command finds the other's instances."""
PLUGIN: Final = "2.21.1"
CREATE_SECONDS: Final = 600.0
_BAD_MACHINE: Final = "Invalid value for field 'resource.machineType'"
_LABELS: Final = ("startup_script_begin_ts", "tb_launched_ts", "tb_attempts_count", "tb_backend_id")


class Gce:
    name = "gce"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._zone = word(context.zone, "zone") if context.zone else ""

    def _gcloud(self, *words: str, seconds: float = 0.0) -> str:
        limit = seconds or self._context.settings.command_seconds
        return self._context.runner.run(["gcloud", *words], limit)

    def check(self, log_directory: str) -> None:
        buckets.check_bucket(self._context, log_directory)

    # ── instances ──────────────────────────────────────────────────────────────────────────────

    def instances(self, wanted: Wanted, flags: extra.Flags | None = None) -> list[Instance]:
        chosen = BASE_FILTER
        if wanted.filters:
            chosen = f"({BASE_FILTER}) AND ({' AND '.join(wanted.filters)})"
        zones = [f"--zones={','.join(word(zone, 'zone') for zone in wanted.zones)}"]
        listing = self._gcloud(
            "compute", "instances", "list", *(zones if wanted.zones else []),
            f"--format={FORMAT}", f"--filter={chosen}", *extra.words(flags or {}),
        )  # fmt: skip
        try:
            instances = [_instance(entry) for entry in json.loads(listing or "[]")]
        except (ValueError, TypeError, AttributeError) as error:
            raise RunwatchError(f"gcloud's list of instances cannot be read: {error}") from error
        return [instance for instance in instances if instance is not None and wanted.has(instance)]

    def create(self, order: Order) -> Instance:
        name = word(order.name, "VM's name")
        words = self._creation(order)
        try:
            self._gcloud(*words, seconds=CREATE_SECONDS)
        except CommandFailed as error:
            if _BAD_MACHINE in error.complaint:
                raise self._no_such_machine(order.machine_type) from None
            raise
        try:
            labels = self._wait_until_ready(order)
            self._gcloud("compute", "instances", "add-labels", name,
                         f"--labels={_joined(labels)}", f"--zone={self._zone}")  # fmt: skip
        except (RunwatchError, KeyboardInterrupt) as error:
            self._clean_up(order)
            if isinstance(error, KeyboardInterrupt):
                raise
            raise RunwatchError(f"Unable to set up instance {name}. {error}") from error
        url = _url(labels["tb_backend_id"], self._zone)
        return Instance(order.log_directory, url, name, self._zone, self.name)

    def _creation(self, order: Order) -> list[str]:
        flags: extra.Flags = {
            "--tags": "default-allow-ssh",
            "--image-family": "debian-12",
            "--image-project": "debian-cloud",
            "--scopes": "cloud-platform",
            **self._context.extra,
        }
        labels = f"xprofiler_version={_label(VERSION)},tensorboard_plugin_profile={_label(PLUGIN)}"
        script = startup.script(order.log_directory, order.name, _region(self._zone), PLUGIN)
        metadata = (
            f"xprofiler_version={VERSION},xprofiler_log_directory={order.log_directory},"
            f"startup-script={script},tensorboard-plugin-profile={PLUGIN}"
        )
        for key, own in (("--labels", labels), ("--metadata", metadata)):
            users = flags.pop(key, None)
            flags[key] = f"{own},{users}" if users else own
        return [
            "compute", "instances", "create", order.name, "--machine-type", order.machine_type,
            f"--zone={self._zone}", *extra.words(flags),
        ]  # fmt: skip

    def _no_such_machine(self, machine_type: str) -> RunwatchError:
        words = ["compute", "machine-types", "list", "--filter", f"name='{machine_type}'",
                 "--format", "value(zone)", "--limit=10"]  # fmt: skip
        zones = self._gcloud(*words).split()
        return RunwatchError(
            "The machine type and zone do not match.\n"
            f"Zones that have {machine_type} are listed by: gcloud {' '.join(words)}\n"
            f"Suggested zones: {zones}"
        )

    def _wait_until_ready(self, order: Order) -> dict[str, str]:
        settings = self._context.settings
        deadline = time.monotonic() + settings.ready_seconds
        while True:
            labels = self._ready_labels(order)
            if labels is not None:
                if int(labels["tb_attempts_count"]) >= startup.MAX_ATTEMPTS:
                    raise RunwatchError("Unable to start backend server.")
                return labels
            left = deadline - time.monotonic()
            if left <= 0:
                raise RunwatchError(
                    f"It did not answer within {settings.ready_seconds:.0f} s "
                    "(XPROFILER_READY_SECONDS gives it longer)."
                )
            time.sleep(min(left, settings.poll_seconds))

    def _ready_labels(self, order: Order) -> dict[str, str] | None:
        """What the machine writes to the bucket when it is ready; None before."""
        file = f"{order.log_directory}/{order.name}/{startup.OUTPUT}"
        try:
            written = json.loads(self._gcloud("storage", "cat", file))
            labels = {key: str(written[key]) for key in _LABELS}
            int(labels["tb_attempts_count"])
        except (CommandFailed, ValueError, KeyError, TypeError):
            return None
        return labels if labels["tb_backend_id"] not in ("", "null", "None") else None

    def _clean_up(self, order: Order) -> None:
        if order.delete_on_failure:
            self._context.runner.say("Unable to set up instance. Initiating cleanup.")
            self._gcloud("compute", "instances", "delete", "--quiet", f"--zone={self._zone}",
                         order.name, seconds=CREATE_SECONDS)  # fmt: skip
        else:
            self._context.runner.say(
                f"Unable to set up instance. {order.name} is kept: delete it with "
                f"`xprofiler delete -z {self._zone} -n {order.name}`."
            )

    def delete(self, instances: Sequence[Instance]) -> None:
        self._gcloud(
            "compute", "instances", "delete", "--quiet", f"--zone={self._zone}",
            *extra.words(self._context.extra), *(word(one.name, "VM's name") for one in instances),
            seconds=CREATE_SECONDS,
        )  # fmt: skip

    # ── tunnels ────────────────────────────────────────────────────────────────────────────────

    def connect(self, instance: Instance, port: int | None, host_port: int) -> str:
        port = port or PORT
        flag = f"-f -N -M -S {_socket(instance)} -L {port}:localhost:{host_port}"
        try:
            self._ssh(instance, flag)
        except KeyboardInterrupt:
            self.disconnect(instance)
            raise
        return f"http://localhost:{port}"

    def disconnect(self, instance: Instance) -> None:
        self._ssh(instance, f"-o ControlPath={_socket(instance)} -O exit")

    def _ssh(self, instance: Instance, flag: str) -> None:
        self._gcloud(
            "compute", "ssh", word(instance.name, "VM's name"), f"--ssh-flag={flag}",
            f"--zone={self._zone}", *extra.words(self._context.extra), *self._proxy(),
        )  # fmt: skip

    def _proxy(self) -> list[str]:
        proxied = ["--", "-o ProxyCommand corp-ssh-helper %h %p"]
        return proxied if self._context.use_ssh_proxy else []

    # ── capture ────────────────────────────────────────────────────────────────────────────────

    def capture(self, request: Request) -> list[Captured]:
        self.check(request.log_directory)
        seconds = request.duration_ms / 1e3 + SLACK_SECONDS
        known: set[str] = set()

        def on_host(host: str, command: str) -> str:
            if host not in known:
                self._describe(host)
                known.add(host)
            return self._gcloud(*self._ssh_words(host, command), seconds=seconds)

        return capture_all(request, on_host, self.exists)

    def _describe(self, host: str) -> None:
        machine = ("instances",) if self._context.non_tpu_vm else ("tpus", "tpu-vm")
        try:
            self._gcloud("compute", *machine, "describe", host, "--zone", self._zone)
        except CommandFailed as error:
            raise RunwatchError(f"Host {host} does not exist.\n{error.complaint}") from None

    def _ssh_words(self, host: str, command: str) -> list[str]:
        tail = ["--command", command, *extra.words(self._context.extra), *self._proxy()]
        if self._context.non_tpu_vm:
            return ["compute", "ssh", host, "--zone", self._zone, *tail]
        where = ["compute", "tpus", "tpu-vm", "ssh", host, "--zone", self._zone, "--worker=all"]
        return [*where, *tail]

    def exists(self, file: str) -> bool:
        try:
            self._gcloud("storage", "ls", file)
        except CommandFailed:
            return False
        return True


def _instance(entry: Mapping[str, Any]) -> Instance | None:
    labels = entry.get("labels") or {}
    directory = directory_of(entry)
    if not directory:
        return None
    zone = str(entry.get("zone") or "").rsplit("/", 1)[-1]
    backend = labels.get("tb_backend_id")
    return Instance(directory, _url(str(backend), zone), str(entry["name"]), zone, Gce.name)


def directory_of(entry: Mapping[str, Any]) -> str:
    """Kept as metadata; before 0.0.11 as a label, which can have neither ':' nor '/'."""
    items = (entry.get("metadata") or {}).get("items") or []
    for item in [items] if isinstance(items, str | Mapping) else items:
        value = item.get("value") if isinstance(item, Mapping) else item
        if isinstance(value, list):
            value = next(iter(value), "")
        if isinstance(value, str) and value.startswith("gs://"):
            return value
    label = (entry.get("labels") or {}).get("xprofiler_log_directory") or ""
    return f"gs://{label.replace('--slash--', '/')}" if label else ""


def _region(zone: str) -> str:
    return zone.rpartition("-")[0]


def _url(backend: str, zone: str) -> str:
    return f"https://{backend}-dot-{_region(zone)}.notebooks.googleusercontent.com"


def _socket(instance: Instance) -> str:
    return f"/tmp/ssh_mux_socket_{instance.name}"


def _label(value: str) -> str:
    """As a label's value may be."""
    return re.sub(r"[^a-z0-9_-]", "-", value.lower())[:63]


def _joined(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={_label(value)}" for key, value in labels.items())
