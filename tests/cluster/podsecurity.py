"""Pod Security admission: what a namespace's `pod-security.kubernetes.io/enforce` refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.cluster.pods import containers

Thing = dict[str, Any]

ENFORCE: Final = "pod-security.kubernetes.io/enforce"
WARN: Final = "pod-security.kubernetes.io/warn"

_VOLUMES: Final = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
_CAPABILITIES: Final = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)


def violations(level: str, pod: Thing) -> list[str]:
    if level not in ("baseline", "restricted"):
        return []
    found = list(_baseline(pod["spec"]))
    if level == "restricted":
        found += _restricted(pod["spec"])
    return found


def refusal(level: str, pod: Thing) -> str:
    """The message, or nothing."""
    found = violations(level, pod)
    return f'violates PodSecurity "{level}:latest": {", ".join(found)}' if found else ""


def _baseline(spec: Thing) -> Iterator[str]:
    for word in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(word):
            yield f"host namespaces ({word}=true)"
    for volume in spec.get("volumes") or ():
        if "hostPath" in volume:
            yield f'hostPath volumes (volume "{volume["name"]}")'
    for _, container in containers(spec):
        security = container.get("securityContext") or {}
        named = f'container "{container["name"]}"'
        if security.get("privileged"):
            yield f"privileged ({named} must not set securityContext.privileged=true)"
        more = (security.get("capabilities") or {}).get("add") or ()
        if set(more) - set(_CAPABILITIES):
            yield f"non-default capabilities ({named} must not include {sorted(more)})"
        if any(port.get("hostPort") for port in container.get("ports") or ()):
            yield f"hostPort ({named})"


def _restricted(spec: Thing) -> Iterator[str]:
    whole = spec.get("securityContext") or {}
    for volume in spec.get("volumes") or ():
        for source in volume.keys() - {"name", "hostPath", *_VOLUMES}:
            yield f'restricted volume types (volume "{volume["name"]}" uses {source})'
        if "hostPath" in volume:
            yield f'restricted volume types (volume "{volume["name"]}" uses hostPath)'
    if whole.get("runAsUser") == 0:
        yield "runAsUser=0 (pod must not set runAsUser=0)"
    for _, container in containers(spec):
        security = container.get("securityContext") or {}
        named = f'container "{container["name"]}"'
        if security.get("allowPrivilegeEscalation") is not False:
            yield (
                f"allowPrivilegeEscalation != false ({named} must set "
                "securityContext.allowPrivilegeEscalation=false)"
            )
        capabilities = security.get("capabilities") or {}
        if "ALL" not in (capabilities.get("drop") or ()):
            yield (
                f"unrestricted capabilities ({named} must set "
                'securityContext.capabilities.drop=["ALL"])'
            )
        if set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}:
            yield f"unrestricted capabilities ({named} adds {capabilities['add']})"
        if security.get("runAsNonRoot", whole.get("runAsNonRoot")) is not True:
            yield (
                f"runAsNonRoot != true (pod or {named} must set securityContext.runAsNonRoot=true)"
            )
        if security.get("runAsUser") == 0:
            yield f"runAsUser=0 ({named} must not set runAsUser=0)"
        profile = (security.get("seccompProfile") or whole.get("seccompProfile") or {}).get("type")
        if profile not in ("RuntimeDefault", "Localhost"):
            yield (
                f"seccompProfile (pod or {named} must set securityContext.seccompProfile.type to "
                '"RuntimeDefault" or "Localhost")'
            )
