"""What an API server fills into a pod, and what it refuses of one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from tests.cluster.answers import Cause

Thing = dict[str, Any]

TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_LABEL: Final = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
_ENV: Final = re.compile(r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")
_CHANGEABLE: Final = (
    "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
    "tolerations",
    "schedulingGates",
)
_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)


def containers(spec: Thing) -> Iterator[tuple[str, Thing]]:
    """Every container with its path."""
    for part in ("initContainers", "containers", "ephemeralContainers"):
        for at, container in enumerate(spec.get(part) or ()):
            yield f"spec.{part}[{at}]", container


def filled(pod: Thing, suffix: str) -> None:
    """Defaults, the service account, and its token's volume in every container."""
    spec = pod.setdefault("spec", {})
    for name, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("dnsPolicy", "ClusterFirst"),
        ("serviceAccountName", spec.get("serviceAccount") or "default"),
        ("securityContext", {}),
        ("schedulerName", "default-scheduler"),
        ("enableServiceLinks", True),
        ("preemptionPolicy", "PreemptLowerPriority"),
        ("priority", 0),
    ):
        spec.setdefault(name, value)
    spec["serviceAccount"] = spec["serviceAccountName"]
    tolerations = spec.setdefault("tolerations", [])
    for key in ("not-ready", "unreachable"):
        taint = f"node.kubernetes.io/{key}"
        if not any(each.get("key") in (taint, None) for each in tolerations):
            ending = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            tolerations.append({"key": taint, **ending})
    if spec.get("automountServiceAccountToken") is not False:
        _token_mounted(spec, suffix)
    for path, container in containers(spec):
        _container_filled(container, init=path.startswith("spec.init"))
    for volume in spec.get("volumes") or ():
        if volume.keys() == {"name"}:
            volume["emptyDir"] = {}
        if isinstance(volume.get("hostPath"), dict):
            volume["hostPath"].setdefault("type", "")
        for source in ("secret", "configMap", "projected", "downwardAPI"):
            if isinstance(volume.get(source), dict):
                volume[source].setdefault("defaultMode", 420)


def _container_filled(container: Thing, *, init: bool) -> None:
    image = str(container.get("image", ""))
    tagged = "@" in image or (":" in image.rpartition("/")[2] and not image.endswith(":latest"))
    for name, value in (
        ("resources", {}),
        ("terminationMessagePath", "/dev/termination-log"),
        ("terminationMessagePolicy", "File"),
        ("imagePullPolicy", "IfNotPresent" if tagged else "Always"),
    ):
        container.setdefault(name, value)
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        field = (variable.get("valueFrom") or {}).get("fieldRef")
        if field:
            field.setdefault("apiVersion", "v1")
    for word in ("startupProbe", "livenessProbe", "readinessProbe"):
        if word in container:
            for name, number in (
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ):
                container[word].setdefault(name, number)


def _token_mounted(spec: Thing, suffix: str) -> None:
    volumes = spec.setdefault("volumes", [])
    name = next((v["name"] for v in volumes if _is_token(v)), f"kube-api-access-{suffix}")
    mounted = False
    for _, container in containers(spec):
        mounts = container.setdefault("volumeMounts", [])
        if not any(mount.get("mountPath") == TOKEN_PATH for mount in mounts):
            mounts.append({"name": name, "readOnly": True, "mountPath": TOKEN_PATH})
            mounted = True
    if not mounted or any(volume["name"] == name for volume in volumes):
        return
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    root = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": root},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
    ]
    volumes.append({"name": name, "projected": {"sources": sources, "defaultMode": 420}})


def _is_token(volume: Thing) -> bool:
    return str(volume.get("name", "")).startswith("kube-api-access-")


def begun(pod: Thing) -> None:
    """The status of a pod that was just made."""
    pod["status"] = {"phase": "Pending", "qosClass": _quality(pod["spec"])}


def _quality(spec: Thing) -> str:
    """Limits that are given alone are requests, too."""
    asked = [container.get("resources") or {} for _, container in containers(spec)]
    if not any(each.get("requests") or each.get("limits") for each in asked):
        return "BestEffort"
    for each in asked:
        limits = each.get("limits") or {}
        requests = each.get("requests") or limits
        for name in ("cpu", "memory"):
            if name not in limits or str(limits[name]) != str(requests.get(name, limits[name])):
                return "Burstable"
    return "Guaranteed"


def wrong_pod(pod: Thing) -> Iterator[Cause]:
    """What validation refuses, as far as a webhook could get it wrong."""
    spec = pod["spec"]
    if not spec.get("containers"):
        yield Cause("FieldValueRequired", "Required value", "spec.containers")
    volumes: set[str] = set()
    for at, volume in enumerate(spec.get("volumes") or ()):
        yield from _name(volume, volumes, f"spec.volumes[{at}]")
        sources = [key for key in volume if key != "name"]
        if len(sources) != 1:
            message = f"Forbidden: may not specify more than 1 volume type: {sources}"
            yield Cause("FieldValueForbidden", message, f"spec.volumes[{at}]")
    names: set[str] = set()
    for path, container in containers(spec):
        yield from _name(container, names, path)
        yield from _wrong_container(container, path, volumes, spec)


def _name(thing: Thing, seen: set[str], path: str) -> Iterator[Cause]:
    name = str(thing.get("name") or "")
    if not name:
        yield Cause("FieldValueRequired", "Required value", f"{path}.name")
    elif not _LABEL.match(name):
        message = f'Invalid value: "{name}": a lowercase RFC 1123 label must consist of …'
        yield Cause("FieldValueInvalid", message, f"{path}.name")
    elif name in seen:
        yield Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{path}.name")
    seen.add(name)


def _wrong_container(
    container: Thing, path: str, volumes: set[str], spec: Thing
) -> Iterator[Cause]:
    if not container.get("image"):
        yield Cause("FieldValueRequired", "Required value", f"{path}.image")
    policy = container.get("restartPolicy")
    if policy is not None and (policy != "Always" or not path.startswith("spec.init")):
        message = f'Unsupported value: "{policy}"'
        yield Cause("FieldValueNotSupported", message, f"{path}.restartPolicy")
    places: set[str] = set()
    for at, mount in enumerate(container.get("volumeMounts") or ()):
        where = f"{path}.volumeMounts[{at}]"
        if mount.get("name") not in volumes:
            yield Cause("FieldValueNotFound", f'Not found: "{mount.get("name")}"', f"{where}.name")
        if not mount.get("mountPath"):
            yield Cause("FieldValueRequired", "Required value", f"{where}.mountPath")
        elif mount["mountPath"] in places:
            message = f'Invalid value: "{mount["mountPath"]}": must be unique'
            yield Cause("FieldValueInvalid", message, f"{where}.mountPath")
        places.add(mount.get("mountPath", ""))
    for at, variable in enumerate(container.get("env") or ()):
        yield from _wrong_variable(variable, f"{path}.env[{at}]")
    security = container.get("securityContext") or {}
    root = security.get("runAsNonRoot", (spec.get("securityContext") or {}).get("runAsNonRoot"))
    if security.get("privileged") and security.get("allowPrivilegeEscalation") is False:
        message = (
            "Invalid value: cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        )
        yield Cause("FieldValueInvalid", message, f"{path}.securityContext")
    if root not in (None, True, False):
        yield Cause("FieldValueInvalid", "Invalid value", f"{path}.securityContext.runAsNonRoot")


def _wrong_variable(variable: Thing, path: str) -> Iterator[Cause]:
    name = str(variable.get("name") or "")
    if not _ENV.match(name):
        message = f'Invalid value: "{name}": a valid environment variable name must consist of …'
        yield Cause("FieldValueInvalid", message, f"{path}.name")
    value = variable.get("value")
    if value is not None and not isinstance(value, str):
        yield Cause("FieldValueTypeInvalid", "Invalid value: must be a string", f"{path}.value")
    source = variable.get("valueFrom")
    if source is None:
        return
    if value:
        message = 'Invalid value: "": may not be specified when `value` is not empty'
        yield Cause("FieldValueInvalid", message, f"{path}.valueFrom")
    field = (source.get("fieldRef") or {}).get("fieldPath")
    if field and field not in _FIELDS and not re.match(r"^metadata\.(labels|annotations)\[", field):
        message = f'Unsupported value: "{field}"'
        yield Cause("FieldValueNotSupported", message, f"{path}.valueFrom.fieldRef.fieldPath")


def changed(before: Thing, after: Thing) -> Iterator[Cause]:
    """Of a pod's spec little may change."""

    def fixed(pod: Thing) -> Thing:
        spec = {key: value for key, value in pod["spec"].items() if key not in _CHANGEABLE}
        for part in ("containers", "initContainers"):
            if part in spec:
                spec[part] = [{**each, "image": ""} for each in spec[part]]
        return spec

    if fixed(before) != fixed(after):
        yield Cause(
            "FieldValueForbidden",
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, "
            "`spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, "
            "`spec.tolerations` (only additions to existing tolerations), "
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously "
            "negative)",
            "spec",
        )
