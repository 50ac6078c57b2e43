"""What a pod object says, as the kubelet reads it.  Nothing here starts or mounts anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from runwatch.kube import Thing, part, parts, text

DEFAULT_CAPABILITIES: Final = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "NET_BIND_SERVICE", "NET_RAW", "SYS_CHROOT", "MKNOD", "AUDIT_WRITE", "SETFCAP",
)  # fmt: skip
"""Those that a runtime gives to a container which says nothing of them."""
_SUFFIXES: Final = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "k": 10**3, "M": 10**6}
Objects = Mapping[tuple[str, str, str], Mapping[str, str]]
"""Data of ConfigMaps and Secrets, by namespace, kind and name."""


@dataclass(frozen=True)
class File:
    """One of a volume that is made of objects."""

    words: str
    mode: int = 0o644


class CannotBePlayed(Exception):
    """The kubelet would not start this container, and says why in an event."""


@dataclass(frozen=True)
class Placed:
    """A pod on a node: what is known of it only then."""

    pod: Thing
    node: str
    address: str
    node_address: str
    objects: Objects = field(default_factory=dict)

    @property
    def name(self) -> str:
        return text(part(self.pod, "metadata"), "name")

    @property
    def spec(self) -> Thing:
        return part(self.pod, "spec")

    def field(self, path: str) -> str:
        """The downward API."""
        known = {
            "spec.nodeName": self.node,
            "status.podIP": self.address,
            "status.podIPs": self.address,
            "status.hostIP": self.node_address,
        }
        if path in known:
            return known[path]
        if found := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
            return str(part(self.pod, "metadata", found[1]).get(found[2], ""))
        if path in ("metadata.labels", "metadata.annotations"):
            return "\n".join(f'{k}="{v}"' for k, v in part(self.pod, *path.split(".")).items())
        *folders, last = path.split(".")
        value = part(self.pod, *folders).get(last)
        if not isinstance(value, str):
            raise CannotBePlayed(f"there is no field {path!r} in pod {self.name}")
        return value

    def environment(self, container: Thing, image: Mapping[str, str]) -> dict[str, str]:
        made = dict(image) | {"HOSTNAME": text(self.spec, "hostname") or self.name}
        for source in parts(container.get("envFrom")):
            made.update(self._all_of(source))
        for each in parts(container.get("env")):
            name = text(each, "name")
            if "valueFrom" not in each:
                made[name] = expanded(text(each, "value"), made)
            elif (value := self._from(part(each, "valueFrom"), container)) is not None:
                made[name] = value
        return made

    def _from(self, source: Thing, container: Thing) -> str | None:
        if "fieldRef" in source:
            return self.field(text(part(source, "fieldRef"), "fieldPath"))
        if "resourceFieldRef" in source:
            return str(memory_limit(container) or 0)
        for key, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
            if key in source:
                chosen = part(source, key)
                data = self.data(kind, text(chosen, "name"), chosen)
                if data is not None and text(chosen, "key") in data:
                    return data[text(chosen, "key")]
                if chosen.get("optional"):
                    return None
                raise CannotBePlayed(f"{kind} {dict(chosen)} has no such key")
        raise CannotBePlayed(f"a value from {sorted(source)}")

    def _all_of(self, source: Thing) -> dict[str, str]:
        for key, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
            if key in source:
                chosen = part(source, key)
                data = self.data(kind, text(chosen, "name"), chosen) or {}
                return {f"{text(source, 'prefix')}{name}": value for name, value in data.items()}
        return {}

    def data(self, kind: str, name: str, reference: Thing) -> Mapping[str, str] | None:
        space = text(part(self.pod, "metadata"), "namespace")
        found = self.objects.get((space, kind, name))
        if found is None and not reference.get("optional"):
            raise CannotBePlayed(f"there is no {kind} {name!r} in namespace {space!r}")
        return found

    def files(self, volume: Thing) -> dict[str, File] | None:
        """What lies in a volume that is made of objects; None: it is of another sort."""
        if "secret" in volume:
            source = part(volume, "secret")
            return self._chosen("Secret", text(source, "secretName"), source)
        if "configMap" in volume:
            source = part(volume, "configMap")
            return self._chosen("ConfigMap", text(source, "name"), source)
        if "downwardAPI" in volume:
            return self._fields(part(volume, "downwardAPI"))
        if "projected" not in volume:
            return None
        made: dict[str, File] = {}
        for source in parts(part(volume, "projected").get("sources")):
            inner = {
                key: {**value, "secretName": text(value, "name")} if key == "secret" else value
                for key, value in source.items()
            }
            made.update(self.files(inner) or {})
        return made

    def _chosen(self, kind: str, name: str, source: Thing) -> dict[str, File]:
        data = self.data(kind, name, source) or {}
        usual = int(source.get("defaultMode", 0o644))
        items = parts(source.get("items")) or [{"key": key, "path": key} for key in data]
        return {
            text(item, "path"): File(data[text(item, "key")], int(item.get("mode", usual)))
            for item in items
            if text(item, "key") in data
        }

    def _fields(self, source: Thing) -> dict[str, File]:
        return {
            text(item, "path"): File(self.field(text(part(item, "fieldRef"), "fieldPath")))
            for item in parts(source.get("items"))
        }


def expanded(words: str, environment: Mapping[str, str]) -> str:
    """`$(NAME)` is its value if there is one; `$$(NAME)` is `$(NAME)`."""

    def one(found: re.Match[str]) -> str:
        whole, name = found[0], found[1]
        return whole[1:] if whole.startswith("$$") else environment.get(name, whole)

    return re.sub(r"\$?\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)", one, words)


def command_of(container: Thing, environment: Mapping[str, str]) -> list[str]:
    """An image here has no command of its own."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not words:
        raise CannotBePlayed(f"container {text(container, 'name')!r} has no command")
    return [expanded(str(word), environment) for word in words]


def memory_limit(container: Thing) -> int | None:
    written = part(container, "resources", "limits").get("memory")
    if written is None:
        return None
    found = re.fullmatch(r"(\d+)([A-Za-z]*)", str(written))
    assert found is not None, written
    return int(found[1]) * _SUFFIXES[found[2]]


def is_sidecar(container: Thing) -> bool:
    """A native one: an init container that goes on."""
    return text(container, "restartPolicy") == "Always"


@dataclass(frozen=True)
class Rights:
    """As whom a container runs: what it says of itself wins over what its pod says."""

    uid: int
    gid: int
    groups: list[int]
    capabilities: list[str]
    no_new_privileges: bool
    read_only: bool

    @classmethod
    def of(cls, pod: Thing, container: Thing) -> Rights:
        shared = part(pod, "spec", "securityContext")
        said: dict[str, Any] = {**shared, **part(container, "securityContext")}
        uid = int(said.get("runAsUser", 0))
        if said.get("runAsNonRoot") and uid == 0:
            raise CannotBePlayed("container has runAsNonRoot and image will run as root")
        groups = [*shared.get("supplementalGroups", ())]
        if "fsGroup" in shared:
            groups.append(shared["fsGroup"])
        return cls(
            uid,
            int(said.get("runAsGroup", 0)),
            groups,
            sorted(_capabilities(said.get("capabilities") or {})),
            said.get("allowPrivilegeEscalation") is False,
            bool(said.get("readOnlyRootFilesystem")),
        )


def _capabilities(said: Thing) -> set[str]:
    dropped = set(said.get("drop") or ())
    kept = set() if "ALL" in dropped else set(DEFAULT_CAPABILITIES) - dropped
    return kept | set(said.get("add") or ())


def containers(pod: Thing, kind: str) -> Iterator[Thing]:
    yield from parts(part(pod, "spec").get(kind))
