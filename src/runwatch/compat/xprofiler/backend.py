"""What every place where instances live can do, and the shapes that go in and out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol

from runwatch.compat.xprofiler.extra import Flags
from runwatch.compat.xprofiler.running import Runner
from runwatch.compat.xprofiler.settings import Settings
from runwatch.errors import UsageError

PORT: Final = 6006
"""Of a viewer, and of a tunnel to it."""
VIEWED: Final = "tensorboard"
"""Below a run's directory: where its profiles are, and what `create` is given."""
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")


@dataclass(frozen=True, slots=True)
class Context:
    settings: Settings
    runner: Runner
    zone: str = ""
    extra: Flags = field(default_factory=dict)
    use_ssh_proxy: bool = False
    non_tpu_vm: bool = False


@dataclass(frozen=True, slots=True)
class Instance:
    log_directory: str
    url: str
    name: str
    zone: str
    backend: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Instances of any of these directories or names; all of the zones where there are neither."""

    zones: Sequence[str] = ()
    directories: Sequence[str] = ()
    names: Sequence[str] = ()
    filters: Sequence[str] = ()

    def has(self, instance: Instance) -> bool:
        if not self.directories and not self.names:
            return True
        return (
            plain(instance.log_directory) in map(plain, self.directories)
            or instance.name in self.names
        )


@dataclass(frozen=True, slots=True)
class Order:
    """An instance to create."""

    log_directory: str
    name: str
    machine_type: str
    delete_on_failure: bool = True


@dataclass(frozen=True, slots=True)
class Request:
    """A profile of several hosts, as one session."""

    log_directory: str
    hosts: Sequence[str]
    session: str
    framework: str
    port: int
    duration_ms: int

    @property
    def root(self) -> str:
        """The directory that a viewer is pointed at: a run's part for viewers, of any framework."""
        is_root = self.log_directory.endswith(f"/{VIEWED}")
        return self.log_directory if is_root else f"{self.log_directory}/{VIEWED}"

    @property
    def session_name(self) -> str:
        return f"session_{self.session}"

    @property
    def is_torch(self) -> bool:
        return self.framework == "pytorch"

    def file(self, host: str) -> str:
        return f"{self.root}/plugins/profile/{self.session_name}/{host}.xplane.pb"


@dataclass(frozen=True, slots=True)
class Captured:
    host: str
    files: tuple[str, ...] = ()
    why: str = ""


class Backend(Protocol):
    name: str

    def check(self, log_directory: str) -> None:
        """Raises RunwatchError unless profiles can be there."""
        ...

    def instances(self, wanted: Wanted, flags: Flags | None = None) -> list[Instance]:
        """`flags` go to the command underneath, where there is one."""
        ...

    def create(self, order: Order) -> Instance:
        """Returns when the instance answers; one that never does is gone again."""
        ...

    def delete(self, instances: Sequence[Instance]) -> None: ...

    def connect(self, instance: Instance, port: int | None, host_port: int) -> str:
        """The URL at which a browser on this machine finds it; None: at the usual port."""
        ...

    def disconnect(self, instance: Instance) -> None: ...

    def capture(self, request: Request) -> list[Captured]:
        """Every host, at the same time; one that fails leaves the others alone."""
        ...


def plain(log_directory: str) -> str:
    return log_directory.removeprefix("file://").rstrip("/") or "/"


def word(text: str, what: str) -> str:
    """Something that can be an argument of a command, and is not one of its flags."""
    if not _WORD.fullmatch(text):
        raise UsageError(f"{text!r} cannot be a {what}: letters, digits and . _ : / @ - only")
    return text
