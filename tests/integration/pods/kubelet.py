"""Plays a pod on a node: its init containers one after another, its sidecars, its containers.

What the kubelet does over the network with an API server a test does by calls: `play`, `finish`,
`evict`.  Nothing is restarted, as with `restartPolicy: Never`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from runwatch.capture.process import children
from runwatch.kube import Thing, part, parts, text
from runwatch.testing import until
from tests.integration.pods import memory, objects, volumes
from tests.integration.pods.box import END, Box, environment_of_a_box
from tests.integration.pods.network import NODE, REPOSITORY, Held, Wire
from tests.integration.pods.objects import CannotBePlayed, Objects, Placed, Rights

_BOX: Final = [sys.executable, "-S", "-m", "tests.integration.pods.box"]
_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Image:
    """The machine's own files, with what an image adds to the environment and leaves out."""

    environment: Mapping[str, str]
    hidden: tuple[str, ...] = ()


OURS: Final = Image({"PATH": f"{sys.prefix}/bin:{_SYSTEM_PATH}"})
THEIRS: Final = Image(
    {
        "PATH": f"{sys.base_prefix}/bin:{_SYSTEM_PATH}",
        "PYTHONPATH": next(path for path in sys.path if path.endswith("site-packages")),
    },
    tuple(str(REPOSITORY / name) for name in ("src", "dropin", "tests")),
)
"""Python with torch and others, and nothing of Runwatch."""


@dataclass
class Node:
    """A machine of the cluster: a name, and a folder that is its file system."""

    name: str
    root: Path
    wire: Wire
    objects: Objects = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    """Host names of the cluster, and their addresses."""

    def path(self, host_path: str) -> Path:
        return self.root / host_path.lstrip("/")


class Container:
    """One that has been started."""

    def __init__(self, name: str, box: Box, log: Path, group: memory.Group | None) -> None:
        self.name = name
        self.log = log
        self._group = group
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                _BOX, cwd=REPOSITORY, env=environment_of_a_box(os.environ),
                stdin=subprocess.PIPE, stdout=file, stderr=file,
            )  # fmt: skip
        assert self.process.stdin is not None
        self.process.stdin.write(box.told())
        self.process.stdin.close()

    @property
    def pid(self) -> int:
        """The program's, as the node counts; inside it is 1."""
        found = until(self._program, START_SECONDS, f"{self.name} to start: {self.words()}")
        return found[0]

    def _program(self) -> list[int]:
        assert self.process.poll() is None, self.words()
        return children(self.process.pid)

    def words(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self, seconds: float) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} has not ended: {self.words()}") from None

    @property
    def reason(self) -> Literal["", "Completed", "Error", "OOMKilled"]:
        """As a runtime says it; "" while it runs."""
        code = self.process.poll()
        if code is None:
            return ""
        if self._group is not None and self._group.oom_kills():
            return "OOMKilled"
        return "Error" if code else "Completed"

    def signal(self, number: int) -> None:
        """As the runtime does at `kill`: to the program alone."""
        if self.process.poll() is None:
            os.kill(self.pid, number)

    def close(self) -> None:
        self.process.send_signal(END)
        self.wait(60)
        if self._group is not None:
            self._group.close()


class Pod:
    """One that is played.  `containers` and `sidecars` by name, once `start` was called."""

    def __init__(self, pod: Thing, node: Node, images: Mapping[str, Image]) -> None:
        self.pod, self.node = pod, node
        self.containers: dict[str, Container] = {}
        self.sidecars: dict[str, Container] = {}
        self.uid = text(part(pod, "metadata"), "uid")
        self._images = images
        self._folder = node.root / "kubelet" / self.uid
        self._done: list[Container] = []
        name = text(part(pod, "spec"), "hostname") or text(part(pod, "metadata"), "name")
        self._sandbox = Held("net", f"uts={name[:63]}", "ipc")
        try:
            self.address = node.wire.join(self._sandbox)
            self._placed = Placed(pod, node.name, self.address, NODE, node.objects)
            self._host = self._placed.spec.get("hostNetwork") is True
            self._volumes = dict(volumes.made(self._placed, node.root, self._folder))
        except BaseException:
            self._sandbox.close()
            raise

    def start(self) -> Pod:
        for container in objects.containers(self.pod, "initContainers"):
            made = self._start(container)
            if objects.is_sidecar(container):
                self.sidecars[made.name] = made
                continue
            self._done.append(made)
            if code := made.wait(START_SECONDS):
                raise CannotBePlayed(f"init container {made.name}: {code} {made.words()}")
        for container in objects.containers(self.pod, "containers"):
            self.containers[text(container, "name")] = self._start(container)
        return self

    @property
    def main(self) -> Container:
        return next(iter(self.containers.values()))

    def finish(self, seconds: float = 60.0, grace_seconds: float = 30.0) -> dict[str, int]:
        """Wait until all containers have ended by themselves; their codes.  Then the sidecars get
        their SIGTERM, the last one first."""
        codes = {name: each.wait(seconds) for name, each in self.containers.items()}
        for sidecar in reversed(self.sidecars.values()):
            _end(sidecar, grace_seconds)
        return codes

    @property
    def name(self) -> str:
        return self._placed.name

    def words(self) -> dict[str, str]:
        """What its containers have written."""
        return {each.name: each.words()[-2000:] for each in self._all()}

    def evict(self, grace_seconds: float) -> None:
        """SIGTERM, the time to end, SIGKILL; sidecars after the containers."""
        for container in self.containers.values():
            container.signal(signal.SIGTERM)
        for container in self.containers.values():
            _kill_after(container, grace_seconds)
        for sidecar in reversed(self.sidecars.values()):
            _end(sidecar, grace_seconds)

    def close(self) -> None:
        for container in self._all():
            container.close()
        self._sandbox.close()

    def _all(self) -> list[Container]:
        return [*self.containers.values(), *self.sidecars.values(), *self._done]

    def _mounts(self, container: Thing) -> Iterator[tuple[str, str, bool]]:
        for each in parts(container.get("volumeMounts")):
            source = self._volumes[text(each, "name")] / text(each, "subPath")
            if not source.exists():
                source.mkdir(parents=True)
            read_only = bool(each.get("readOnly"))
            yield str(source), text(each, "mountPath").rstrip("/"), read_only

    def _hosts(self) -> str:
        known = {"localhost": "127.0.0.1", self._placed.name: self.address, **self.node.names}
        return "".join(f"{address} {name}\n" for name, address in known.items())

    # ── containers ────────────────────────────────────────────────────────────────────────────

    def _start(self, container: Thing) -> Container:
        name = text(container, "name")
        image = self._images.get(text(container, "image"), THEIRS)
        environment = self._placed.environment(container, image.environment)
        rights = Rights.of(self.pod, container)
        environment.setdefault("HOME", "/root" if rights.uid == 0 else "/")
        stage = self._folder / f"{name}.root"
        stage.mkdir(parents=True)
        limit = objects.memory_limit(container)
        group = None if memory.why_not() else memory.Group(limit)
        assert limit is None or group is not None, memory.why_not()
        network = self._sandbox if not self._host else None
        box = Box(
            stage=str(stage),
            command=objects.command_of(container, environment),
            environment=environment,
            folder=text(container, "workingDir"),
            join=[network.namespace(kind) for kind in ("net", "uts", "ipc")] if network else [],
            cgroups=[str(group.folder)] if group else [],
            memory=str(group.folder) if group else "",
            machine=_out_of_reach(),
            opened=_closed_ways(),
            hidden=[path for path in image.hidden if os.path.isdir(path)],
            files={
                "/etc/hostname": f"{self._placed.name}\n",
                "/etc/hosts": self._hosts(),
                # There is no name server: who asks is refused at once, and does not wait.
                "/etc/resolv.conf": "nameserver 127.0.0.1\n",
            },
            mounts=list(self._mounts(container)),
            read_only=rights.read_only,
            host_pid=self._placed.spec.get("hostPID") is True,
            uid=rights.uid,
            gid=rights.gid,
            groups=rights.groups,
            capabilities=rights.capabilities,
            no_new_privileges=rights.no_new_privileges,
        )
        return Container(name, box, self._folder / f"{name}.log", group)


def play(pod: Thing, node: Node, images: Mapping[str, Image] | None = None) -> Pod:
    """Images that are not named are `THEIRS`."""
    made = Pod(pod, node, {"runwatch": OURS} if images is None else images)
    try:
        return made.start()
    except BaseException:
        made.close()
        raise


def why_not() -> str:
    """Why no pod can be played here; "" if one can."""
    if os.geteuid() != 0:
        return "only root may make namespaces"
    if shutil.which("ip") is None:
        return "no `ip` (install iproute2)"
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "no overlay file system"
    try:
        Wire().close()
    except (OSError, subprocess.SubprocessError) as error:
        return f"no network namespace with a bridge can be had: {error}"
    return ""


def _end(container: Container, grace_seconds: float) -> None:
    container.signal(signal.SIGTERM)
    _kill_after(container, grace_seconds)


def _kill_after(container: Container, grace_seconds: float) -> None:
    try:
        container.process.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        container.signal(signal.SIGKILL)
        container.wait(60)


def _needed() -> list[Path]:
    """What a container needs of the machine that may be out of its reach."""
    return [Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), REPOSITORY]


def _out_of_reach() -> list[str]:
    """What lies on another disk than the root, or where a container has a folder of its own."""
    root = os.stat("/").st_dev
    return [
        str(path) for path in _needed() if path.stat().st_dev != root or path.is_relative_to("/tmp")
    ]


def _closed_ways() -> list[str]:
    """Folders above them that only their owner may pass through."""
    ways = {above for path in _needed() for above in path.parents}
    return sorted(str(way) for way in ways if not way.stat().st_mode & 0o001)
