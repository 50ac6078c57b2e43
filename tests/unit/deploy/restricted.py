"""Pod Security's profile *restricted*, as the standard is published: each control by its own words.

https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

Thing = dict[str, Any]

_VOLUMES: Final = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip
_SYSCTLS: Final = {
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
}  # fmt: skip
_SELINUX: Final = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
_ARMOUR: Final = "container.apparmor.security.beta.kubernetes.io/"


def breaches(meta: Thing, spec: Thing) -> set[str]:
    """Of a pod; nothing: the profile admits it."""
    whole = spec.get("securityContext") or {}
    found = set(_of_pod(meta, spec, whole))
    for container in _containers(spec):
        name = container["name"]
        found |= {f"{name}: {what}" for what in _of_container(container, whole)}
    return found


def _containers(spec: Thing) -> Iterator[Thing]:
    for group in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(group) or ()


def _of_pod(meta: Thing, spec: Thing, whole: Thing) -> Iterator[str]:
    for word in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(word):
            yield word
    for volume in spec.get("volumes") or ():
        for source in volume.keys() - {"name"} - _VOLUMES:
            yield f"{source} {(volume[source] or {}).get('path', '')}".strip()
    for setting in whole.get("sysctls") or ():
        if setting["name"] not in _SYSCTLS:
            yield f"sysctl {setting['name']}"
    for key, value in (meta.get("annotations") or {}).items():
        is_tame = value in ("", "runtime/default") or value.startswith("localhost/")
        if key.startswith(_ARMOUR) and not is_tame:
            yield f"AppArmor {value}"
    if whole.get("runAsUser") == 0:
        yield "runAsUser 0"
    yield from _of_context(whole)


def _of_context(context: Thing) -> Iterator[str]:
    """What pods and containers say in the same way."""
    if (context.get("windowsOptions") or {}).get("hostProcess"):
        yield "hostProcess"
    if (context.get("appArmorProfile") or {}).get("type", "RuntimeDefault") == "Unconfined":
        yield "AppArmor Unconfined"
    options = context.get("seLinuxOptions") or {}
    if options.get("type", "") not in _SELINUX or options.get("user") or options.get("role"):
        yield "SELinux"
    if (context.get("seccompProfile") or {}).get("type") == "Unconfined":
        yield "seccomp Unconfined"


def _of_container(container: Thing, whole: Thing) -> Iterator[str]:
    context = container.get("securityContext") or {}
    yield from _of_context(context)
    if context.get("privileged"):
        yield "privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation"
    if context.get("procMount", "Default") != "Default":
        yield "procMount"
    capabilities = context.get("capabilities") or {}
    if "ALL" not in (capabilities.get("drop") or ()):
        yield "keeps capabilities"
    for name in set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}:
        yield f"adds {name}"
    if context.get("runAsNonRoot", whole.get("runAsNonRoot")) is not True:
        yield "not runAsNonRoot"
    if context.get("runAsUser") == 0:
        yield "runAsUser 0"
    if not (context.get("seccompProfile") or whole.get("seccompProfile")):
        yield "no seccomp profile"
    if any(port.get("hostPort") for port in container.get("ports") or ()):
        yield "hostPort"
    if any("host" in handler for handler in _handlers(container)):
        yield "a probe of another host"


def _handlers(container: Thing) -> Iterator[Thing]:
    hooks = container.get("lifecycle") or {}
    probes = [container.get(f"{name}Probe") for name in ("startup", "liveness", "readiness")]
    for each in (*probes, *hooks.values()):
        for form in ("httpGet", "tcpSocket"):
            if each and each.get(form):
                yield each[form]
