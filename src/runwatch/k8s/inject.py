"""What a pod gets when it is watched: pure functions over objects.

To do it twice is to do it once, also if another webhook has added a container in between.  What
the pod has stays: its variables, volumes, what it mounts, its own words on security.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from runwatch.k8s import additions, starting, variables
from runwatch.k8s.additions import FILES, FILES_PLACE, TEMPORARY, mount
from runwatch.k8s.json_patch import Step, steps
from runwatch.k8s.names import INJECTED, USER, WATCHED, WORKLOAD
from runwatch.k8s.settings import WebhookSettings, words
from runwatch.k8s.variables import Variable
from runwatch.k8s.wishes import Wishes, mode_of, wishes
from runwatch.k8s.workloads import Chain
from runwatch.kube import Thing, listed, parts, text

VERSION: Final = "v1"


@dataclass(frozen=True, slots=True)
class Injection:
    pod: dict[str, Any]
    patch: Sequence[Step] = ()
    warnings: Sequence[str] = ()


@dataclass(slots=True)
class _Work:
    pod: dict[str, Any]
    settings: WebhookSettings
    wished: Wishes
    mode: str
    warnings: list[str] = field(default_factory=list)

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.pod["spec"]
        return spec

    def containers(self) -> list[dict[str, Any]]:
        return listed(self.spec, "containers")

    def names(self) -> set[str]:
        """Of all containers: no two may have the same."""
        return _names(self.spec.get("initContainers")) | _names(self.containers())


def inject(
    pod: Thing,
    *,
    chain: Chain,
    namespace: Thing,
    name: str,
    settings: WebhookSettings,
    has_sidecars: bool,
    now_ns: int,
) -> Injection:
    """For a pod that is watched, in the namespace of this name."""
    warnings: list[str] = []
    wished = wishes(pod, chain, namespace)
    mode = mode_of(wished, settings, has_sidecars=has_sidecars, warnings=warnings)
    work = _Work(copy.deepcopy(dict(pod)), settings, wished, mode, warnings)
    workload = variables.workload_of(pod, chain, now_ns)
    if not workload.created:
        warnings.append(
            f"the webhook may not read {workload.kind} {workload.name!r}, or it is gone: the pod "
            "gets no GKE_DIAGON_ variables"
        )
    told = variables.identity(workload, chain, name, settings.cluster)
    told += variables.place(pod, workload)
    told += variables.of_run(wished, settings, mode)
    for container in work.containers():
        _tell(container, [*told, variables.plain(variables.CONTAINER, text(container, "name"))])
    if mode != "none":
        _record(work)
    begun = _begin(work)
    if mode == "sidecar" or begun:
        _allow_pulling(work)
    about = work.pod.setdefault("metadata", {})
    about["labels"] = (about.get("labels") or {}) | {WATCHED: "true"}
    about["annotations"] = (about.get("annotations") or {}) | {
        INJECTED: f"{VERSION} {mode}{' exec' if begun else ''}",
        WORKLOAD: json.dumps(variables.described(workload)),
    }
    return Injection(work.pod, list(steps(pod, work.pod)), warnings)


def _tell(container: dict[str, Any], told: Sequence[Variable]) -> None:
    """A variable that it has is never changed."""
    has = listed(container, "env")
    names = {text(each, "name") for each in parts(has)}
    container["env"] = [*has, *(copy.deepcopy(each) for each in told if each["name"] not in names)]


def _record(work: _Work) -> None:
    directory, settings = work.settings.directory, work.settings
    is_node = work.mode == "node"
    wanted = additions.node_volume(settings) if is_node else additions.own_volume(additions.RECORDS)
    ours = [each for each in work.containers() if _records_with_us(each, directory)]
    told = [variables.plain("RUNWATCH_DIR", directory), variables.plain("RUNWATCH_AGENT", "off")]
    if not is_node:
        told.append(variables.plain("RUNWATCH_JOURNAL_BYTES", str(additions.PROCESS_BYTES)))
    if ours:
        volume = _mounted(ours, directory) or _volume(work, wanted)
        for container in ours:
            _tell(container, told)
            _mount(container, mount(volume, directory))
    if is_node or not ours:
        return
    if additions.AGENT not in work.names():
        agent = additions.agent(work.pod, _user(work), settings)
        agent["volumeMounts"][0]["name"] = volume
        agent["volumeMounts"][1]["name"] = _volume(work, additions.own_volume(TEMPORARY))
        if settings.ca:
            authority = _volume(work, additions.authority_volume(settings))
            place = mount(authority, additions.AUTHORITY_PLACE, is_read_only=True)
            agent["volumeMounts"].append(place)
        work.spec["initContainers"] = [*listed(work.spec, "initContainers"), agent]


def _records_with_us(container: Thing, directory: str) -> bool:
    """Whether it does not say itself where it records."""
    theirs = [e for e in parts(container.get("env")) if text(e, "name") == "RUNWATCH_DIR"]
    return all(text(each, "value") == directory for each in theirs)


def _user(work: _Work) -> int | None:
    """As which the sidecar runs: a journal can be read only by its own user."""
    found = sorted(additions.users(work.pod))
    if len(found) > 1:
        work.warnings.append(
            f"the pod's containers run as several users ({', '.join(map(str, found))}): its agent "
            f"sends only what {found[0]} records"
        )
    if found:
        return found[0]
    if work.wished.user is None:
        work.warnings.append(
            "nothing says as which user the program runs (runAsUser): if that is not the user of "
            f"the agent's image, its agent cannot send what it records; {USER} says it, too"
        )
    return work.wished.user


def _begin(work: _Work) -> bool:
    """Whether a container is begun by us."""
    chosen = starting.chosen(work.pod, work.wished, work.containers(), work.warnings)
    if not chosen:
        return False
    if not work.settings.image:
        work.warnings.append("the webhook knows no image with our files (RUNWATCH_WEBHOOK_IMAGE)")
        return False
    volume = _volume(work, additions.own_volume(FILES))
    for container in work.containers():
        if text(container, "name") in chosen:
            _tell(container, [variables.plain("RUNWATCH_AUTO", "1")])
            starting.begin(container, work.wished.starts, work.warnings)
            _mount(container, mount(volume, FILES_PLACE, is_read_only=True))
    if FILES not in work.names():
        files = additions.files(work.pod, work.settings)
        files["volumeMounts"][0]["name"] = volume
        work.spec["initContainers"] = [*listed(work.spec, "initContainers"), files]
    return True


def _allow_pulling(work: _Work) -> None:
    has = _names(work.spec.get("imagePullSecrets"))
    if more := [each for each in words(work.settings.pull_secrets) if each not in has]:
        before = listed(work.spec, "imagePullSecrets")
        work.spec["imagePullSecrets"] = [*before, *({"name": each} for each in more)]


def _volume(work: _Work, wanted: Mapping[str, Any]) -> str:
    volumes = list(listed(work.spec, "volumes"))
    name = additions.volume_named(wanted, volumes)
    work.spec["volumes"] = volumes
    return name


def _mounted(containers: Sequence[Thing], place: str) -> str:
    """The volume that a container has there already; "" for none."""
    for container in containers:
        for each in parts(container.get("volumeMounts")):
            if text(each, "mountPath").rstrip("/") == place:
                return text(each, "name")
    return ""


def _mount(container: dict[str, Any], wanted: Mapping[str, Any]) -> None:
    """Unless something is mounted there."""
    has = listed(container, "volumeMounts")
    if wanted["mountPath"] not in {text(each, "mountPath").rstrip("/") for each in parts(has)}:
        container["volumeMounts"] = [*has, dict(wanted)]


def _names(found: object) -> set[str]:
    return {text(each, "name") for each in parts(found)}
