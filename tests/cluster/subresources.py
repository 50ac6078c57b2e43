"""What is not an object of its own: a scale, an eviction, a binding, a token."""

from __future__ import annotations

import json
from typing import Any

from tests.cluster import answers, patching
from tests.cluster.accounts import Accounts
from tests.cluster.answers import Refusal
from tests.cluster.selectors import label_selector
from tests.cluster.storage import Storage, Stored
from tests.cluster.verbs import Ask, Verbs

Thing = dict[str, Any]
Answer = tuple[int, Thing]


class Subresources:
    def __init__(self, storage: Storage, verbs: Verbs, accounts: Accounts) -> None:
        self._storage = storage
        self._verbs = verbs
        self._accounts = accounts

    def done(self, verb: str, ask: Ask, form: str, body: bytes) -> Answer:
        stored = self._verbs.get(ask)
        match ask.subresource, verb:
            case "scale", "get":
                return 200, _scale(stored)
            case "scale", "update" | "patch":
                return 200, self._scaled(verb, ask, form, body, stored)
            case "eviction", "create":
                return 201, self._evicted(ask, patching.parsed(body) or {}, stored)
            case "binding", "create":
                return 201, self._bound(ask, patching.parsed(body), stored)
            case "token", "create":
                return 201, self._token(ask, patching.parsed(body) or {}, stored)
        raise answers.method_not_allowed()

    def _scaled(self, verb: str, ask: Ask, form: str, body: bytes, stored: Stored) -> Thing:
        before = _scale(stored)
        change = patching.parsed(body)
        if verb == "patch":
            change = patching.patched(ask.kind, form, body, before)
        wanted = (change.get("spec") or {}).get("replicas", 0)
        said = (change.get("metadata") or {}).get("resourceVersion")
        thing = stored.copy()
        thing["spec"]["replicas"] = wanted
        thing["metadata"]["resourceVersion"] = said or stored.thing["metadata"]["resourceVersion"]
        whole = Ask(ask.user, ask.kind, ask.namespace, ask.name, query=ask.query)
        return _scale(self._verbs.update(whole, thing))

    def _evicted(self, ask: Ask, eviction: Thing, stored: Stored) -> Thing:
        labels = stored.thing["metadata"].get("labels") or {}
        for budget in self._storage.items(("policy", "poddisruptionbudgets"), ask.namespace):
            status = budget.thing.get("status") or {}
            concerned = label_selector((budget.thing.get("spec") or {}).get("selector"), labels)
            if concerned and status.get("disruptionsAllowed") == 0:
                message = "Cannot evict pod as it would violate the pod's disruption budget."
                raise Refusal(429, "TooManyRequests", message)
        whole = Ask(ask.user, ask.kind, ask.namespace, ask.name, query=ask.query)
        self._verbs.delete(whole, eviction.get("deleteOptions") or {})
        return {**answers.success(ask.kind, ask.name, stored.thing["metadata"]["uid"]), "code": 201}

    def _bound(self, ask: Ask, binding: Any, stored: Stored) -> Thing:
        node = ((binding or {}).get("target") or {}).get("name") or ""
        if stored.thing["spec"].get("nodeName"):
            why = f"pod {ask.name} is already assigned to node {stored.thing['spec']['nodeName']!r}"
            raise answers.conflict(ask.kind, ask.name, why)
        thing = stored.copy()
        thing["spec"]["nodeName"] = node
        self._storage.put(ask.kind.key, thing)
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "code": 201,
        }

    def _token(self, ask: Ask, wanted: Thing, stored: Stored) -> Thing:
        token = self._accounts.issue(ask.namespace, ask.name, stored.thing["metadata"]["uid"])
        status = {"token": token, "expirationTimestamp": "2100-01-01T00:00:00Z"}
        head = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}
        return {
            **head,
            "metadata": {"name": ask.name},
            "spec": wanted.get("spec"),
            "status": status,
        }


def _scale(stored: Stored) -> Thing:
    thing = json.loads(stored.raw)
    meta, spec = thing["metadata"], thing["spec"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    labels = (spec.get("selector") or {}).get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: meta[name] for name in kept if name in meta},
        "spec": {"replicas": spec.get("replicas", 1)},
        "status": {
            "replicas": (thing.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        },
    }
