"""Webhook configurations: their defaults, and what is refused of them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from tests.cluster.answers import Cause, Refusal

Thing = dict[str, Any]


def filled(configuration: Thing) -> None:
    for webhook in configuration.get("webhooks") or ():
        for name, value in (
            ("failurePolicy", "Fail"),
            ("matchPolicy", "Equivalent"),
            ("namespaceSelector", {}),
            ("objectSelector", {}),
            ("timeoutSeconds", 10),
            ("reinvocationPolicy", "Never"),
        ):
            webhook.setdefault(name, value)
        for rule in webhook.get("rules") or ():
            rule.setdefault("scope", "*")
        service = (webhook.get("clientConfig") or {}).get("service")
        if service:
            service.setdefault("port", 443)


def wrong(configuration: Thing) -> Iterator[Cause]:
    seen: set[str] = set()
    for at, webhook in enumerate(configuration.get("webhooks") or ()):
        path = f"webhooks[{at}]"
        if webhook.get("matchConditions"):
            raise Refusal(
                501,
                "NotImplemented",
                f"{path}.matchConditions: this API server for tests has no CEL",
            )
        name = webhook.get("name") or ""
        if name.count(".") < 2:
            message = f'Invalid value: "{name}": should be a domain with at least three segments'
            yield Cause("FieldValueInvalid", message, f"{path}.name")
        if name in seen:
            yield Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{path}.name")
        seen.add(name)
        for field, known in (
            ("sideEffects", ("None", "NoneOnDryRun")),
            ("failurePolicy", ("Fail", "Ignore")),
            ("reinvocationPolicy", ("Never", "IfNeeded")),
            ("matchPolicy", ("Exact", "Equivalent")),
        ):
            if webhook.get(field) not in known:
                message = f'Unsupported value: "{webhook.get(field)}"'
                yield Cause("FieldValueNotSupported", message, f"{path}.{field}")
        if "v1" not in (webhook.get("admissionReviewVersions") or ()):
            message = "Invalid value: must include at least one of v1, v1beta1"
            yield Cause("FieldValueInvalid", message, f"{path}.admissionReviewVersions")
        if not 1 <= webhook["timeoutSeconds"] <= 30:
            message = "Invalid value: the timeout value must be between 1 and 30 seconds"
            yield Cause("FieldValueInvalid", message, f"{path}.timeoutSeconds")
        yield from _wrong_client(webhook.get("clientConfig") or {}, f"{path}.clientConfig")
        for place, rule in enumerate(webhook.get("rules") or ()):
            for field in ("operations", "apiGroups", "apiVersions", "resources"):
                if not rule.get(field):
                    inside = f"{path}.rules[{place}].{field}"
                    yield Cause("FieldValueRequired", "Required value", inside)


def _wrong_client(client: Thing, path: str) -> Iterator[Cause]:
    if bool(client.get("url")) == bool(client.get("service")):
        yield Cause("FieldValueRequired", "Required value: exactly one of url or service", path)
    if client.get("url") and urlsplit(client["url"]).scheme != "https":
        message = f"Invalid value: \"{client['url']}\": 'https' is the only allowed URL scheme"
        yield Cause("FieldValueInvalid", message, f"{path}.url")
    try:
        base64.b64decode(client.get("caBundle") or "", validate=True)
    except binascii.Error as error:
        yield Cause("FieldValueInvalid", f"Invalid value: {error}", f"{path}.caBundle")
