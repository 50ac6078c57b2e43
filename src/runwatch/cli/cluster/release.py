"""Where the head of a cluster is, and with which token it is asked."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from runwatch.cli.cluster.kubectl import Forbidden, Kubectl, Listed, inside
from runwatch.errors import NotFound, UsageError
from runwatch.kube import Thing, labels, part, parts, text

COMPONENT: Final = "app.kubernetes.io/component=head"
SELECTOR: Final = f"app.kubernetes.io/part-of=runwatch,{COMPONENT}"
USUAL: Final = "runwatch"
"""The namespace that the documents install into."""
KINDS: Final = ("services", "statefulsets.apps")
_INSTANCE: Final = "app.kubernetes.io/instance"
_BEST: Final = ("main", "operate-", "view-")
_FLAG_BASE: Final = "--base-path="
_FLAG_TLS: Final = "--tls-certificate="


@dataclass(frozen=True, slots=True)
class Release:
    """A head that a cluster has."""

    namespace: str
    service: str
    port: int
    secret: str
    """Of its tokens; "" if that is not known."""
    scheme: str = "http"
    base_path: str = ""


def find(kubectl: Kubectl, namespace: str = "") -> Release:
    """`namespace`: of the release, where the user says so."""
    tried = [namespace] if namespace else [*_likely(kubectl)]
    refusals: list[str] = []
    for each in tried:
        where = ("--all-namespaces",) if each == "*" else inside(each)
        found = kubectl.all(KINDS, *where, "--selector", SELECTOR)
        refusals += found.why
        if heads := releases(found):
            return _one(heads, kubectl.namespace)
        if each == "*" and not found.why:
            break
    if refusals:
        raise Forbidden(
            f"the head cannot be looked for: {refusals[0]}. Name its namespace with "
            "--release-namespace, or set RUNWATCH_HEAD and use `runwatch` itself"
        )
    place = f"namespace {namespace}" if namespace else "this cluster"
    raise NotFound(
        f"{place} has no head of Runwatch (no Service with {SELECTOR}): `runwatch status "
        "--cluster` says what is installed; `helm install runwatch …` installs it"
    )


def _likely(kubectl: Kubectl) -> Sequence[str]:
    """All namespaces; for those who may not see all, their own and the usual one."""
    return ["*", kubectl.namespace, USUAL]


def releases(found: Listed) -> list[Release]:
    sets = {_key(each): each for each in found.items if each.get("kind") == "StatefulSet"}
    return [
        _release(each, sets.get(_key(each), {}))
        for each in found.items
        if each.get("kind") == "Service" and _port(each)
    ]


def _key(thing: Thing) -> tuple[str, str]:
    return text(part(thing, "metadata"), "namespace"), str(labels(thing).get(_INSTANCE, ""))


def _port(service: Thing) -> int:
    ports = parts(part(service, "spec").get("ports"))
    named = [each for each in ports if each.get("name") in ("http", "https")] or ports[:1]
    number = named[0].get("port") if named else 0
    return number if isinstance(number, int) else 0


def _release(service: Thing, head: Thing) -> Release:
    spec = part(head, "spec", "template", "spec")
    words = [
        str(word)
        for container in parts(spec.get("containers"))
        for field in ("command", "args")
        for word in container.get(field) or ()
    ]
    bases = [word.removeprefix(_FLAG_BASE) for word in words if word.startswith(_FLAG_BASE)]
    secrets = [
        text(part(volume, "secret"), "secretName")
        for volume in parts(spec.get("volumes"))
        if volume.get("name") == "tokens"
    ]
    metadata = part(service, "metadata")
    return Release(
        text(metadata, "namespace"),
        text(metadata, "name"),
        _port(service),
        next(iter(secrets), ""),
        "https" if any(word.startswith(_FLAG_TLS) for word in words) else "http",
        f"/{bases[0].strip('/')}" if bases and bases[0].strip("/") else "",
    )


def _one(heads: Sequence[Release], own: str) -> Release:
    if len(heads) > 1:
        heads = [each for each in heads if each.namespace == own] or heads
    if len(heads) > 1:
        few = ", ".join(sorted(each.namespace for each in heads))
        raise UsageError(
            f"the cluster has {len(heads)} heads, in the namespaces {few}: choose one with "
            "--release-namespace"
        )
    return heads[0]


def token(kubectl: Kubectl, release: Release) -> str:
    """The strongest token of the release's Secret."""
    otherwise = (
        "ask for a token (`runwatch token create --role view`) and give it with --token or "
        "RUNWATCH_TOKEN"
    )
    where = ("--namespace", release.namespace)
    try:
        if release.secret:
            secrets = [kubectl.get("secret", release.secret, *where)]
        else:
            listed = kubectl.all(("secrets",), *where, "--selector", SELECTOR)
            if listed.why:
                raise Forbidden(listed.why[0])
            secrets = list(listed.items)
    except Forbidden as error:
        raise Forbidden(f"you may not read the head's tokens ({error}): {otherwise}") from error
    for secret in secrets:
        if chosen := best(part(secret, "data")):
            return chosen
    name = release.secret or f"a Secret with {SELECTOR}"
    raise NotFound(f"there is no token in {name} of namespace {release.namespace}: {otherwise}")


def best(data: Thing) -> str:
    """Its keys are roles and names, as the chart writes them; what cannot look is left out."""
    for begin in _BEST:
        for key in sorted(data):
            if key.startswith(begin):
                try:
                    return base64.b64decode(str(data[key]), validate=True).decode().strip()
                except (binascii.Error, UnicodeDecodeError):
                    continue
    return ""


def authority(kubectl: Kubectl, release: Release) -> str:
    """The certificate to check a head with that speaks TLS, if the release has one; else ""."""
    head = kubectl.all(("statefulsets.apps",), *inside(release.namespace), "--selector", SELECTOR)
    for each in head.items:
        for volume in parts(part(each, "spec", "template", "spec").get("volumes")):
            if volume.get("name") == "tls":
                name = text(part(volume, "secret"), "secretName")
                secret = kubectl.get("secret", name, *inside(release.namespace))
                coded = text(part(secret, "data"), "ca.crt")
                return base64.b64decode(coded).decode() if coded else ""
    return ""
