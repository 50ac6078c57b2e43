"""What each verb does and prints, wherever the instances live."""

from __future__ import annotations

import argparse
import json
import os
import sys
import uuid
import webbrowser
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from runwatch.compat.xprofiler import buckets, extra, register
from runwatch.compat.xprofiler.backend import Backend, Context, Instance, Order, Request, Wanted
from runwatch.compat.xprofiler.gce import Gce
from runwatch.compat.xprofiler.gke import Gke
from runwatch.compat.xprofiler.local import Local
from runwatch.compat.xprofiler.running import Runner
from runwatch.compat.xprofiler.settings import from_environment
from runwatch.compat.xprofiler.ssh import PREFIX, Ssh
from runwatch.compat.xprofiler.tables import table
from runwatch.errors import NotFound, RunwatchError, UsageError

Arguments = argparse.Namespace
BACKENDS: Final[dict[str, type[Local] | type[Ssh] | type[Gce] | type[Gke]]] = {
    "local": Local, "ssh": Ssh, "gce": Gce, "gke": Gke,
}  # fmt: skip

ANOTHER: Final = (
    "\n\nDo you want to continue to create another instance with the same log directory? (y/n)\n"
)


def _context(arguments: Arguments, flags: extra.Flags, zone: str = "") -> Context:
    return Context(
        settings=from_environment(),
        runner=Runner(verbose=arguments.verbose),
        zone=zone or getattr(arguments, "zone", None) or "",
        extra=flags,
        use_ssh_proxy=getattr(arguments, "use_ssh_proxy", False),
        non_tpu_vm=getattr(arguments, "non_tpu_vm", False),
    )


def _kind(arguments: Arguments, directory: str | None, zone: str) -> str:
    """Which back end a log directory means, unless one is named."""
    if arguments.backend:
        return str(arguments.backend)
    if getattr(arguments, "gke", False) or getattr(arguments, "orchestrator", "") == "gke":
        return "gke"
    if zone.startswith(PREFIX):
        return "ssh"
    return "gce" if directory is None or directory.startswith("gs://") else "local"


def _one(arguments: Arguments, flags: extra.Flags) -> Backend:
    zone = arguments.zone or ""
    kind = _kind(arguments, arguments.log_directory, zone)
    if kind in ("gce", "gke") and not zone:
        raise UsageError("the following arguments are required: --zone/-z")
    return BACKENDS[kind](_context(arguments, flags))


def _directory(arguments: Arguments, text: str) -> str:
    is_elsewhere = arguments.backend == "ssh" or (getattr(arguments, "zone", "") or "").startswith(
        PREFIX
    )
    if "://" not in text and not is_elsewhere:
        return os.path.abspath(os.path.expanduser(text))
    stripped = text.rstrip("/")
    return text if stripped.endswith(":") else stripped


def _is_new_here(backend: Backend, typed: str, directory: str) -> bool:
    """A directory may come into being with the first profile, but not for a forgotten gs://."""
    if not isinstance(backend, Local) or "://" in typed or os.path.exists(directory):
        return False
    if not typed.startswith(("/", "./", "../", "~")):
        raise RunwatchError(
            f"Log directory {typed} does not exist. (A path in a bucket begins with gs:// or "
            f"s3://; a new directory here is -l ./{typed})"
        )
    return True


def _is_confirmed(question: str) -> bool:
    """Only y or Y; the end of the input is a no."""
    print(question, end="", flush=True)
    try:
        return input().strip() in ("y", "Y")
    except EOFError:
        print()
        return False


# ── create ─────────────────────────────────────────────────────────────────────────────────────


def create(arguments: Arguments, flags: extra.Flags) -> int:
    directory = _directory(arguments, arguments.log_directory)
    backend = _one(arguments, flags)
    is_new = _is_new_here(backend, arguments.log_directory, directory)
    backend.check(directory)
    if is_new:
        print(f"xprofiler: {directory} is new: it waits for its first profile", file=sys.stderr)
    if isinstance(backend, Gce) and (why := buckets.advice(directory)):
        print(f"xprofiler: {directory}: older versions may not find it: {why}", file=sys.stderr)
    zones = [arguments.zone] if arguments.zone and not isinstance(backend, Local) else []
    existing = backend.instances(Wanted(zones=zones, directories=[directory]))
    if existing and not arguments.json:
        print(f"Instance for {directory} already exists.\n")
        print(table(existing))
    if existing and arguments.skip_creation_if_exists:
        _as_json(arguments, existing[0])
        return 0
    if existing and not arguments.json and not _is_confirmed(ANOTHER):
        print("Exiting...")
        return 0
    return _created(arguments, backend, directory)


def _created(arguments: Arguments, backend: Backend, directory: str) -> int:
    if not arguments.json:
        print("Waiting for instance to be created. It can take a few minutes.", flush=True)
    order = Order(
        log_directory=directory,
        name=arguments.vm_name or f"xprof-{uuid.uuid4()}",
        machine_type=arguments.machine_type,
        delete_on_failure=not arguments.auto_delete_on_failure_off,
    )
    instance = backend.create(order)
    if not _as_json(arguments, instance):
        zone = f"-z {instance.zone} " if arguments.zone else ""
        print(f"\nInstance for {directory} has been created.")
        print("You can access it via the following,")
        print(f"1. {instance.url}")
        print(f"2. xprofiler connect {zone}-l {directory} -m ssh")
        kind = "process" if isinstance(backend, Local) else "VM"
        print(f"Instance is hosted at {instance.name} {kind}.")
    return 0


def _as_json(arguments: Arguments, instance: Instance) -> bool:
    if arguments.json:
        print(json.dumps(instance.to_json()))
    return bool(arguments.json)


# ── list and delete ────────────────────────────────────────────────────────────────────────────


def listed(arguments: Arguments, flags: extra.Flags) -> list[Instance]:
    wanted = Wanted(
        zones=arguments.zones or (),
        directories=tuple(_directory(arguments, one) for one in arguments.log_directory or ()),
        names=arguments.vm_name or (),
        filters=arguments.filter or (),
    )
    by_backend = _find(arguments, wanted, flags)
    return [one for _, ones in by_backend for one in ones]


def list_(arguments: Arguments, flags: extra.Flags) -> int:
    shown = listed(arguments, flags)
    if arguments.json:
        print(json.dumps([one.to_json() for one in shown], indent=1))
    else:
        print(table(shown))
    return 0


def delete(arguments: Arguments, flags: extra.Flags) -> int:
    directories = [_directory(arguments, instance) for instance in arguments.log_directory or ()]
    names = arguments.vm_name or ()
    if not directories and not names:
        raise UsageError("name what to delete: --log-directory (-l) or --vm-name (-n)")
    zones = [arguments.zone] if arguments.zone else []
    by_backend = _find(
        arguments, Wanted(zones=zones, directories=directories, names=names), {}, flags
    )
    instances = [instance for _, some in by_backend for instance in some]
    if not instances:
        _say(arguments, "No VM(s)/Pod(s) to delete.")
        return 0
    _say(arguments, f"Found {len(instances)} VM(s)/Pod(s) to delete.\n\n{table(instances)}")
    deleted = 0
    for backend, some in by_backend:
        chosen = [instance for instance in some if arguments.quiet or _is_meant(instance)]
        if chosen:
            backend.delete(chosen)
        deleted += len(chosen)
    if not deleted:
        _say(arguments, "No VM(s) to delete.")
    if arguments.json:
        print(json.dumps({"deleted": deleted}))
    return 0


def _say(arguments: Arguments, text: str) -> None:
    if not arguments.json:
        print(text)


def _is_meant(instance: Instance) -> bool:
    meant = _is_confirmed(
        f"\nDo you want to continue to delete the VM `{instance.name}`?\nEnter y/n: "
    )
    print(f"{'Deleting' if meant else 'Keep'} VM `{instance.name}`")
    return meant


ByBackend = list[tuple[Backend, list[Instance]]]


def _find(
    arguments: Arguments,
    wanted: Wanted,
    flags: extra.Flags,
    context_flags: extra.Flags | None = None,
) -> ByBackend:
    """The instances that the flags choose, by back end."""
    zone = wanted.zones[0] if wanted.zones else ""
    context = _context(arguments, context_flags or {}, zone)
    if arguments.backend or arguments.gke or zone.startswith(PREFIX):
        only = BACKENDS[_kind(arguments, None, zone)](context)
        return [(only, only.instances(wanted, flags))]
    here = Local(context)
    ours = here.instances(wanted)
    if not _needs_cloud(wanted, ours, flags):
        return [(here, ours)]
    if arguments.command == "delete" and not zone:
        raise UsageError("the following arguments are required: --zone/-z")
    there = Gce(context)
    try:
        return [(here, ours), (there, there.instances(wanted, flags))]
    except RunwatchError as error:
        if not ours or wanted != Wanted():
            raise
        first = str(error).splitlines()[0]
        context.runner.say(f"xprofiler: only instances on this machine are shown: {first}")
        return [(here, ours)]


def _needs_cloud(wanted: Wanted, ours: Sequence[Instance], flags: extra.Flags) -> bool:
    """A directory and a name that are here are asked for here only."""
    if wanted.filters or flags:
        return True
    if not wanted.directories and not wanted.names:
        return True
    if any(one.startswith("gs://") for one in wanted.directories):
        return True
    return bool(set(wanted.names) - {one.name for one in ours})


# ── connect ────────────────────────────────────────────────────────────────────────────────────


def connect(arguments: Arguments, flags: extra.Flags) -> int:
    directory = _directory(arguments, arguments.log_directory)
    backend = _one(arguments, flags)
    print("DISCONNECTING FROM VM..." if arguments.disconnect else "CONNECTING TO VM...", flush=True)
    zones = [arguments.zone] if arguments.zone and not isinstance(backend, Local) else []
    instances = backend.instances(Wanted(zones=zones, directories=[directory]))
    if not instances:
        raise NotFound(
            f"there is no instance for {directory}: xprofiler create -l {directory} makes one"
        )
    if arguments.disconnect:
        backend.disconnect(instances[0])
        print("Disconnected.")
        return 0
    port = getattr(arguments, "chosen_port", None)
    url = backend.connect(instances[0], port, arguments.host_port)
    print(f"Connected successfully!\nURL: {url}")
    if arguments.open:
        webbrowser.open(url)
    return 0


# ── capture ────────────────────────────────────────────────────────────────────────────────────


def capture(arguments: Arguments, flags: extra.Flags) -> int:
    backend = _one(arguments, flags)
    if not arguments.framework and not isinstance(backend, Local):
        raise UsageError("the following arguments are required: --framework/-f")
    directory = _directory(arguments, arguments.log_directory)
    _is_new_here(backend, arguments.log_directory, directory)
    request = Request(
        log_directory=directory,
        hosts=arguments.hosts,
        session=arguments.session or datetime.now().strftime("%Y_%m_%d_%H_%M_%S"),
        framework=arguments.framework or "jax",
        port=arguments.port,
        duration_ms=arguments.duration,
    )
    if not arguments.json:
        for host in request.hosts:
            print(f"Starting profile capture on host {host}.", flush=True)
    captured = backend.capture(request)
    if arguments.json:
        hosts = [
            {"host": host_outcome.host, "files": list(host_outcome.files), "why": host_outcome.why}
            for host_outcome in captured
        ]
        answer = {"session": request.session_name, "directory": request.root, "hosts": hosts}
        print(json.dumps(answer, indent=1))
    for host_outcome in captured:
        if host_outcome.why:
            print(
                f"Failed to profile host {host_outcome.host}\n{host_outcome.why}", file=sys.stderr
            )
        elif not arguments.json:
            print(f"Profile saved to {request.root} and session id is {request.session_name}.")
    return 1 if any(host_outcome.why for host_outcome in captured) else 0


# ── register ───────────────────────────────────────────────────────────────────────────────────


def registered(arguments: Arguments, flags: extra.Flags) -> str:
    """Where the run can be seen."""
    registration = register.Registration(
        _directory(arguments, arguments.log_directory),
        arguments.region or "", arguments.ml_run_name, arguments.run_set or "",
        arguments.project_id or "",
    )  # fmt: skip
    if _kind(arguments, registration.log_directory, "") == "local":
        return register.register_here(registration)
    needed = {
        "--region/-r": registration.region,
        "--run-set/-s": registration.run_set,
        "--project-id/-p": registration.project,
    }
    missing = [flag for flag, value in needed.items() if not value]
    if missing:
        raise UsageError(f"the following arguments are required: {', '.join(missing)}")
    if not registration.log_directory.startswith("gs://"):
        raise RunwatchError(
            f"{registration.log_directory!r} is no path in a bucket: gs://BUCKET/RUN"
        )
    return register.register_there(_context(arguments, flags), registration)


def register_(arguments: Arguments, flags: extra.Flags) -> int:
    print(registered(arguments, flags))
    return 0


RUN: Final = {
    "capture": capture,
    "connect": connect,
    "create": create,
    "delete": delete,
    "list": list_,
    "register": register_,
}
