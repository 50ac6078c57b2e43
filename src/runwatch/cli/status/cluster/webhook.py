"""The webhook: whether pods are asked about, and whether the API server trusts who answers."""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from runwatch.cli.pictures.moments import duration
from runwatch.cli.pictures.moments import time as moment
from runwatch.cli.status.cluster.installed import replicas
from runwatch.cli.status.cluster.told import (
    OURS,
    PART_OF_LABEL,
    Told,
    name,
    namespace,
)
from runwatch.cli.status.types import Problem, Section
from runwatch.kube import Thing, labels, part, parts, text

CONFIGURATION: Final = "MutatingWebhookConfiguration"
SOON_DAYS: Final = 1.0
"""Whoever renews it does so long before."""


@dataclass(frozen=True, slots=True)
class Trust:
    """What the API server checks the webhook's certificate with."""

    certificates: int
    until_ns: int | None
    """When the last of them expires; None if that is not known."""


def configurations(told: Told) -> Sequence[Thing]:
    return [each for each in told.of(CONFIGURATION) if labels(each).get(PART_OF_LABEL) == OURS]


def section(told: Told) -> Section:
    served = replicas(told, "webhook", "pods start, and are not watched")
    wanted = bool(told.ours("Deployment", "webhook"))
    lines, problems = list(served.lines), list(served.problems)
    facts = {**served.facts, "configured": None, "ca_expires_ns": None, "failure_policy": None}
    if CONFIGURATION in told.refused:
        lines.append(told.refused[CONFIGURATION])
        return Section("webhook", facts, lines, problems, is_unread=True)
    found = configurations(told)
    facts["configured"] = bool(found)
    if not found:
        if wanted:
            todo = "`helm upgrade` the release; the API server asks nobody about new pods now"
            problems.append(Problem("the API server has no webhook configuration of ours", todo))
        return Section("webhook", facts, lines, problems, is_unread=served.is_unread)
    if not wanted and not told.refused.get("Deployment"):
        what = f"the API server asks a webhook that is not there ({name(found[0])})"
        todo = f"`kubectl delete {CONFIGURATION.lower()} {name(found[0])}`, or install the release"
        problems.append(Problem(what, todo))
    for configuration in found:
        for hook in parts(configuration.get("webhooks")):
            policy = text(hook, "failurePolicy")
            facts["failure_policy"] = policy
            if policy == "Fail":
                what = "its failurePolicy is Fail: while it is away, no pod that it is for starts"
                todo = f"`helm upgrade` the release: its own is Ignore ({name(configuration)})"
                problems.append(Problem(what, todo))
            line, wrong, until = _trusted(told, hook, configuration)
            facts["ca_expires_ns"] = until
            lines += line
            problems += wrong
    return Section("webhook", facts, list(dict.fromkeys(lines)), list(dict.fromkeys(problems)))


def _trusted(
    told: Told, hook: Thing, configuration: Thing
) -> tuple[list[str], list[Problem], int | None]:
    found = trust(text(part(hook, "clientConfig"), "caBundle"))
    where = namespace(next(iter(told.ours("Deployment", "webhook")), {}))
    renew = (
        "the webhook's own certificate is renewed by the webhook, cert-manager's by its "
        f"ca-injector: `kubectl logs -n {where} -l app.kubernetes.io/component=webhook`"
    )
    if found is None:
        what = "its configuration has no caBundle that can be read: the API server trusts nobody"
        return [], [Problem(f"{what} ({name(configuration)})", renew)], None
    if found.until_ns is None:
        return ["its caBundle is there"], [], None
    left_ns = found.until_ns - told.now_ns
    if left_ns <= 0:
        what = f"its caBundle has expired at {moment(found.until_ns)}"
        return [], [Problem(f"{what} ({name(configuration)})", renew)], found.until_ns
    if left_ns < SOON_DAYS * 86_400e9:
        what = f"its caBundle expires within {duration(left_ns)}, and nobody has renewed it"
        return [], [Problem(what, renew)], found.until_ns
    return [f"its caBundle is good until {moment(found.until_ns)}"], [], found.until_ns


def trust(bundle: str) -> Trust | None:
    """None if it is empty or not PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        pem = base64.b64decode(bundle, validate=True).decode("ascii")
        context.load_verify_locations(cadata=pem)
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError, ValueError):
        return None
    count = pem.count("-----BEGIN CERTIFICATE-----")
    ends = [
        ssl.cert_time_to_seconds(str(each["notAfter"]))
        for each in context.get_ca_certs()
        if "notAfter" in each
    ]
    return Trust(count, round(max(ends) * 1e9) if len(ends) == count else None)
