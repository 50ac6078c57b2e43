"""What is done with objects: get, list, create, update, patch, delete."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.cluster import answers, checking, definitions, fields, patching, podsecurity, rendering
from tests.cluster import pods as pod_rules
from tests.cluster.admission import Admission, Request
from tests.cluster.answers import Cause, Refusal
from tests.cluster.garbage import Garbage
from tests.cluster.kinds import Kind, Kinds
from tests.cluster.rbac import User
from tests.cluster.selectors import Test, by_fields, by_labels
from tests.cluster.storage import Storage, Stored

Thing = dict[str, Any]

_GENERATIONS: Final = ("apps", "batch", "policy", "networking.k8s.io", "autoscaling")
_SERVERS_OWN: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_NOBODYS: Final = ("namespace", "name", "generation", "resourceVersion", "managedFields")


@dataclass
class Ask:
    """A request about objects."""

    user: User
    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    agent: str = "tests"
    """The client's User-Agent."""

    def writer(self, form: str = "") -> fields.Writer:
        manager = self.query.get("fieldManager") or self.agent.partition("/")[0] or "unknown"
        operation = "Apply" if form == patching.APPLY else "Update"
        return fields.Writer(manager, operation, self.subresource)

    @property
    def dry_run(self) -> bool:
        return self.query.get("dryRun") == "All"

    def test(self) -> Test:
        labels = by_labels(self.query.get("labelSelector", ""))
        fields = by_fields(self.query.get("fieldSelector", ""), self.kind.plural)
        name = self.name
        return lambda thing: (
            (not name or thing["metadata"]["name"] == name) and labels(thing) and fields(thing)
        )


class Verbs:
    def __init__(
        self,
        storage: Storage,
        kinds: Kinds,
        admission: Admission,
        garbage: Garbage,
        now: Callable[[], str],
        ca: str = "",
    ) -> None:
        self._storage = storage
        self._ca = ca
        self._kinds = kinds
        self._admission = admission
        self._garbage = garbage
        self._now = now

    # ── reading ───────────────────────────────────────────────────────────────────────────────

    def get(self, ask: Ask) -> Stored:
        stored = self._storage.get(ask.kind.key, ask.namespace, ask.name)
        if stored is None:
            raise answers.not_found(ask.kind, ask.name)
        return stored

    def list(self, ask: Ask) -> tuple[list[Stored], Thing]:
        """What matches, and the list's metadata."""
        asked = ask.query.get("resourceVersion", "")
        if asked.isdigit() and int(asked) > self._storage.revision:
            raise answers.too_new(int(asked), self._storage.revision)
        exact = ask.query.get("resourceVersionMatch") == "Exact"
        if exact and asked.isdigit() and int(asked) < self._storage.compacted:
            raise answers.too_old(int(asked), self._storage.compacted)
        test = ask.test()
        revision, after = self._storage.revision, ("", "")
        if ask.query.get("continue"):
            revision, after = _continued(ask.query["continue"])
            if revision < self._storage.compacted:
                raise answers.continuation_expired()
        found = [
            stored
            for stored in self._storage.items(ask.kind.key, ask.namespace, revision)
            if stored.place > after and test(stored.thing)
        ]
        meta: Thing = {"resourceVersion": str(revision)}
        limit = int(ask.query.get("limit") or 0)
        if limit and len(found) > limit:
            meta["remainingItemCount"] = len(found) - limit
            found = found[:limit]
            token = json.dumps([revision, *found[-1].place]).encode()
            meta["continue"] = base64.urlsafe_b64encode(token).decode()
        return found, meta

    # ── creating ──────────────────────────────────────────────────────────────────────────────

    async def create(self, ask: Ask, body: object, form: str = "") -> Stored:
        kind = ask.kind
        thing = checking.same_kind(kind, body)
        meta = thing["metadata"]
        self._placed(ask, meta)
        for name in (*_SERVERS_OWN, "resourceVersion", "generation", "selfLink", "managedFields"):
            meta.pop(name, None)
        meta["creationTimestamp"] = None  # as webhooks see it
        if kind.has_status:
            thing.pop("status", None)
        self._unknown(ask, checking.filled(kind, thing))
        request = Request(
            ask.user, kind, ask.namespace, meta.get("name", ""), "CREATE", ask.dry_run
        )

        def again(changed: Thing) -> None:
            checking.filled(kind, changed)

        thing, warnings = await self._admission.mutate(request, thing, again)
        ask.warnings.extend(warnings)
        meta = thing["metadata"]
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"][:58] + checking.suffix()
        self._checked(kind, thing, list(checking.wrong(kind, thing)))
        self._secure(ask, thing)
        if self._storage.get(kind.key, ask.namespace, meta["name"]) is not None:
            raise answers.already_exists(kind, meta["name"])
        self._born(kind, thing)
        kept = rendering.kept(kind, thing)
        meta["managedFields"] = fields.told(None, kept, ask.writer(form), self._now())
        if ask.dry_run:
            return Stored(0, kept, json.dumps(kept).encode())
        stored = self._storage.put(kind.key, kept)
        if kind.kind == "CustomResourceDefinition":
            self._kinds.define(stored.thing)
        if kind.kind == "Namespace":
            self._furnish(meta["name"])
        self._garbage.look_at(stored)
        return stored

    def _furnish(self, namespace: str) -> None:
        """What controllers put into a new namespace: an account, and the authority to trust."""
        for kind, name, more in (
            ("ServiceAccount", "default", {}),
            ("ConfigMap", "kube-root-ca.crt", {"data": {"ca.crt": self._ca}}),
        ):
            meta = {"name": name, "namespace": namespace}
            thing: Thing = {"apiVersion": "v1", "kind": kind, "metadata": meta, **more}
            found = self._kinds.named(kind)
            self._born(found, thing)
            self._storage.put(found.key, thing)

    def _placed(self, ask: Ask, meta: Thing) -> None:
        kind = ask.kind
        if kind.namespaced:
            if not ask.namespace:
                raise answers.bad_request("an empty namespace may not be set during creation")
            if meta.setdefault("namespace", ask.namespace) != ask.namespace:
                raise answers.bad_request(
                    "the namespace of the provided object does not match the namespace sent on "
                    "the request"
                )
            namespace = self._storage.get(("", "namespaces"), "", ask.namespace)
            if namespace is None:
                raise answers.not_found(self._kinds.named("Namespace"), ask.namespace)
            if namespace.thing["metadata"].get("deletionTimestamp"):
                name = meta.get("name", "")
                raise answers.forbidden(
                    f'{kind.resource} "{name}" is forbidden: unable to create new content in '
                    f"namespace {ask.namespace} because it is being terminated"
                )
        else:
            meta.pop("namespace", None)
        if not meta.get("name") and not meta.get("generateName"):
            cause = Cause(
                "FieldValueRequired",
                "Required value: name or generateName is required",
                "metadata.name",
            )
            raise answers.invalid(kind, "", [cause])

    def _born(self, kind: Kind, thing: Thing) -> None:
        meta = thing["metadata"]
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = self._now()
        if kind.custom or kind.group in _GENERATIONS:
            meta["generation"] = 1
        match kind.kind:
            case "Pod" if not kind.group:
                pod_rules.begun(thing)
            case "Namespace":
                meta.setdefault("labels", {})["kubernetes.io/metadata.name"] = meta["name"]
                thing["spec"] = {"finalizers": ["kubernetes"]}
                thing["status"] = {"phase": "Active"}
            case "CustomResourceDefinition":
                definitions.established(thing, self._now())

    def _secure(self, ask: Ask, pod: Thing) -> None:
        if ask.kind.kind != "Pod" or ask.kind.group:
            return
        account = pod["spec"]["serviceAccountName"]
        if self._storage.get(("", "serviceaccounts"), ask.namespace, account) is None:
            raise answers.forbidden(
                f'pods "{pod["metadata"]["name"]}" is forbidden: error looking up service account '
                f'{ask.namespace}/{account}: serviceaccount "{account}" not found'
            )
        namespace = self._storage.get(("", "namespaces"), "", ask.namespace)
        labels = (namespace.thing["metadata"].get("labels") or {}) if namespace else {}
        message = podsecurity.refusal(labels.get(podsecurity.ENFORCE, ""), pod)
        if message:
            raise answers.forbidden(f'pods "{pod["metadata"]["name"]}" is forbidden: {message}')
        message = podsecurity.refusal(labels.get(podsecurity.WARN, ""), pod)
        if message:
            ask.warnings.append(f"would {message.replace('violates', 'violate', 1)}")

    # ── changing ──────────────────────────────────────────────────────────────────────────────

    def update(self, ask: Ask, body: object) -> Stored:
        before = self.get(ask)
        thing = checking.same_kind(ask.kind, body)
        meta = thing["metadata"]
        if meta.get("name", ask.name) != ask.name:
            raise answers.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL "
                f"({ask.name})"
            )
        self._checked(ask.kind, thing, list(checking.refused_replacement(ask.kind, thing)))
        self._unknown(ask, checking.filled(ask.kind, thing))
        return self._change(ask, before, rendering.kept(ask.kind, thing))

    async def patch(self, ask: Ask, form: str, body: bytes) -> Stored:
        before = self._storage.get(ask.kind.key, ask.namespace, ask.name)
        if form == patching.APPLY and not ask.query.get("fieldManager"):
            raise answers.bad_request(
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required '
                "for apply patch"
            )
        if before is None:
            if form != patching.APPLY or ask.subresource:
                raise answers.not_found(ask.kind, ask.name)
            thing = patching.parsed(body)
            if isinstance(thing, dict):
                thing.setdefault("metadata", {}).setdefault("name", ask.name)
            return await self.create(ask, thing, form)
        thing = patching.patched(ask.kind, form, body, rendering.presented(ask.kind, before.copy()))
        checking.same_kind(ask.kind, thing)
        self._unknown(ask, checking.filled(ask.kind, thing))
        return self._change(ask, before, rendering.kept(ask.kind, thing), form)

    def _change(self, ask: Ask, before: Stored, thing: Thing, form: str = "") -> Stored:
        kind, old, meta = ask.kind, before.copy(), thing["metadata"]
        said = meta.get("resourceVersion")
        if said and said != str(before.revision):
            raise answers.conflict(kind, ask.name)
        uid = old["metadata"]["uid"]
        if meta.get("uid", uid) != uid:
            why = f"Precondition failed: UID in precondition: {meta['uid']}, "
            why += f"UID in object meta: {uid}"
            raise answers.conflict(kind, ask.name, why)
        if ask.subresource:
            thing = _status_only(kind, old, thing)
        elif kind.has_status:
            thing.pop("status", None)
            if "status" in old:
                thing["status"] = old["status"]
        meta = thing["metadata"]
        for name in (*_SERVERS_OWN, *_NOBODYS):
            meta.pop(name, None)
            if name in old["metadata"]:
                meta[name] = old["metadata"][name]
        causes = [*checking.refused_change(kind, old, thing), *checking.wrong(kind, thing)]
        self._checked(kind, thing, causes)
        if thing == before.thing:
            return before
        meta["managedFields"] = fields.told(old, thing, ask.writer(form), self._now())
        if ask.dry_run:
            return Stored(0, thing, json.dumps(thing).encode())
        if "generation" in meta and _specified(thing, kind) != _specified(old, kind):
            meta["generation"] += 1
        if kind.kind == "CustomResourceDefinition" and not ask.subresource:
            definitions.established(thing, self._now())
        stored = self._storage.put(kind.key, thing)
        if kind.kind == "CustomResourceDefinition":
            self._kinds.define(stored.thing)
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            return self._garbage.bury(kind.key, stored)
        return stored

    # ── deleting ──────────────────────────────────────────────────────────────────────────────

    def delete(self, ask: Ask, options: Mapping[str, Any]) -> tuple[Stored, bool]:
        """What was deleted, and whether it is gone."""
        stored = self.get(ask)
        wanted = options.get("preconditions") or {}
        meta = stored.thing["metadata"]
        for said, has, word in (
            (wanted.get("uid"), meta["uid"], "UID"),
            (wanted.get("resourceVersion"), meta["resourceVersion"], "ResourceVersion"),
        ):
            if said and said != has:
                why = (
                    f"Precondition failed: {word} in precondition: {said}, {word} in object meta: "
                    f"{has}"
                )
                raise answers.conflict(ask.kind, ask.name, why)
        if ask.dry_run:
            return stored, True
        propagation = options.get("propagationPolicy") or ask.query.get("propagationPolicy") or ""
        return self._garbage.delete(ask.kind, stored, propagation)

    # ── checking ──────────────────────────────────────────────────────────────────────────────

    def _unknown(self, ask: Ask, lost: Sequence[str]) -> None:
        if not lost:
            return
        if ask.query.get("fieldValidation") == "Strict":
            shown = ", ".join(f'unknown field "{field}"' for field in lost)
            raise answers.bad_request(
                f'{ask.kind.kind} in version "{ask.kind.version}" cannot be handled as a '
                f"{ask.kind.kind}: strict decoding error: {shown}"
            )
        if ask.query.get("fieldValidation") != "Ignore":
            ask.warnings.extend(f'unknown field "{field}"' for field in lost)

    def _checked(self, kind: Kind, thing: Thing, causes: Sequence[Cause]) -> None:
        if causes:
            raise answers.invalid(kind, thing["metadata"].get("name", ""), causes)


def _continued(token: str) -> tuple[int, tuple[str, str]]:
    try:
        revision, namespace, name = json.loads(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise Refusal(400, "BadRequest", "continue key is not valid") from error
    return revision, (namespace, name)


def _status_only(kind: Kind, before: Thing, thing: Thing) -> Thing:
    """What a change of the status may change: of our own kinds also labels and annotations."""
    result = dict(before)
    if "status" in thing:
        result["status"] = thing["status"]
    else:
        result.pop("status", None)
    if not kind.custom:
        owners = before["metadata"].get("ownerReferences")
        result["metadata"] = dict(thing["metadata"])
        result["metadata"].pop("ownerReferences", None)
        if owners is not None:
            result["metadata"]["ownerReferences"] = owners
    else:
        result["metadata"] = {**before["metadata"]}
        result["metadata"]["resourceVersion"] = thing["metadata"].get("resourceVersion")
    return result


def _specified(thing: Thing, kind: Kind) -> Thing:
    left = ("metadata", "status") if kind.has_status else ("metadata",)
    return {name: value for name, value in thing.items() if name not in left}
