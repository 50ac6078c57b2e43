"""Mutating webhooks, called as an API server calls them."""

from __future__ import annotations

import base64
import binascii
import copy
import json
import ssl
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import jsonpatch

from tests.cluster.answers import Refusal, internal
from tests.cluster.kinds import Kind
from tests.cluster.rbac import User
from tests.cluster.selectors import label_selector
from tests.cluster.storage import Storage

Thing = dict[str, Any]
CONFIGURATIONS: Final = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations")


class CallFailed(Exception):
    """A webhook did not answer as it must."""


@dataclass(frozen=True)
class Called:
    """One call of a webhook."""

    webhook: str
    request: Thing
    answer: Thing | None
    """None: there was none."""
    failure: str
    seconds: float


@dataclass(frozen=True)
class Request:
    """What is admitted."""

    user: User
    kind: Kind
    namespace: str
    name: str
    operation: str = "CREATE"
    dry_run: bool = False
    subresource: str = ""


class Admission:
    def __init__(
        self, storage: Storage, services: Mapping[tuple[str, str], tuple[str, int]]
    ) -> None:
        self.calls: list[Called] = []
        self._storage = storage
        self._services = services
        self._trusts: dict[str, ssl.SSLContext] = {}
        self._session: aiohttp.ClientSession | None = None

    async def mutate(
        self, request: Request, thing: Thing, again: Callable[[Thing], None]
    ) -> tuple[Thing, list[str]]:
        """The thing as the webhooks want it, and their warnings.  `again` is the server's own
        plugins: they run anew after a webhook's change."""
        warnings: list[str] = []
        called: list[Thing] = []
        changed_after: set[int] = set()
        for webhook in self._webhooks():
            if not self._concerns(webhook, request, thing):
                continue
            before = json.dumps(thing, sort_keys=True)
            thing = await self._admitted(webhook, request, thing, warnings)
            if json.dumps(thing, sort_keys=True) != before:
                again(thing)
                changed_after |= {
                    at for at, each in enumerate(called) if each["reinvocationPolicy"] == "IfNeeded"
                }
            called.append(webhook)
        for at in sorted(changed_after):
            if self._concerns(called[at], request, thing):
                thing = await self._admitted(called[at], request, thing, warnings)
                again(thing)
        return thing, warnings

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _webhooks(self) -> list[Thing]:
        return [
            webhook
            for stored in self._storage.items(CONFIGURATIONS)
            for webhook in stored.thing.get("webhooks") or ()
        ]

    def _concerns(self, webhook: Thing, request: Request, thing: Thing) -> bool:
        if not any(_rule_fits(rule, request) for rule in webhook.get("rules") or ()):
            return False
        if not label_selector(webhook["objectSelector"], thing["metadata"].get("labels") or {}):
            return False
        if request.kind.plural == "namespaces":
            labels = thing["metadata"].get("labels") or {}
        elif request.namespace:
            namespace = self._storage.get(("", "namespaces"), "", request.namespace)
            labels = namespace.thing["metadata"].get("labels") or {} if namespace else {}
        else:
            return True
        return label_selector(webhook["namespaceSelector"], labels)

    async def _admitted(
        self, webhook: Thing, request: Request, thing: Thing, warnings: list[str]
    ) -> Thing:
        name = webhook["name"]
        if request.dry_run and webhook["sideEffects"] not in ("None", "NoneOnDryRun"):
            message = f'admission webhook "{name}" does not support dry run'
            raise Refusal(400, "BadRequest", message)
        review = _review(request, thing)
        began = time.monotonic()
        answer: Thing | None = None
        failure = ""
        try:
            answer = await self._call(webhook, review)
            changed = _answered(answer, review, name, thing)
        except CallFailed as error:
            failure = str(error)
            if webhook["failurePolicy"] == "Ignore":
                return thing
            raise internal(
                f'failed calling webhook "{name}": failed to call webhook: {failure}'
            ) from error
        finally:
            seconds = time.monotonic() - began
            self.calls.append(Called(name, review["request"], answer, failure, seconds))
        warnings.extend((answer.get("response") or {}).get("warnings") or ())
        return changed

    async def _call(self, webhook: Thing, review: Thing) -> Thing:
        client = webhook["clientConfig"]
        seconds = webhook["timeoutSeconds"]
        trust = self._trust(client.get("caBundle", ""))
        url, shown, headers, server_name = self._place(client)
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        wait = aiohttp.ClientTimeout(total=seconds)
        headers = {**headers, "Content-Type": "application/json", "Accept": "application/json"}
        post = f'Post "{shown}?timeout={seconds}s"'
        body = json.dumps(review).encode()
        for chance in (1, 0):
            try:
                async with self._session.post(
                    url,
                    params={"timeout": f"{seconds}s"},
                    data=body,
                    headers=headers,
                    ssl=trust,
                    server_hostname=server_name,
                    timeout=wait,
                    allow_redirects=False,
                ) as answer:
                    told = await answer.read()
                    if answer.status != 200:
                        said = told[:200].decode(errors="replace")
                        raise CallFailed(f"{post}: {answer.status}: {said}")
                break
            except TimeoutError as error:
                raise CallFailed(f"{post}: context deadline exceeded") from error
            except aiohttp.ServerDisconnectedError as error:
                if not chance:  # a kept connection may have ended; a new one may not
                    raise CallFailed(f"{post}: EOF") from error
            except (aiohttp.ClientError, OSError) as error:
                raise CallFailed(f"{post}: {error}") from error
        try:
            review = json.loads(told)
        except ValueError as error:
            raise CallFailed(f"{post}: the answer is no JSON: {error}") from error
        if not isinstance(review, dict):
            raise CallFailed(f"{post}: the answer is no object")
        return review

    def _place(self, client: Thing) -> tuple[str, str, dict[str, str], str]:
        """Where it is asked, what messages say, its headers, and the name in its certificate."""
        if client.get("url"):
            url = client["url"]
            return url, url, {}, urlsplit(url).hostname or ""
        service = client["service"]
        host_name = f"{service['name']}.{service['namespace']}.svc"
        port = service.get("port", 443)
        path = service.get("path") or "/"
        shown = f"https://{host_name}:{port}{path}"
        place = self._services.get((service["namespace"], service["name"]))
        if place is None:
            raise CallFailed(f'Post "{shown}": service "{service["name"]}" not found')
        url = f"https://{place[0]}:{place[1]}{path}"
        return url, shown, {"Host": f"{host_name}:{port}"}, host_name

    def _trust(self, bundle: str) -> ssl.SSLContext:
        if bundle not in self._trusts:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            try:
                if bundle:
                    pem = base64.b64decode(bundle, validate=True).decode()
                    context.load_verify_locations(cadata=pem)
            except (ValueError, ssl.SSLError) as error:
                raise CallFailed(f"unable to load root certificates: {error}") from error
            self._trusts[bundle] = context
        return self._trusts[bundle]


def _rule_fits(rule: Thing, request: Request) -> bool:
    def has(words: list[str], word: str) -> bool:
        return "*" in words or word in words

    resource = request.kind.plural
    wanted = {resource, "*", "*/*"}
    if request.subresource:
        sub = request.subresource
        wanted = {f"{resource}/{sub}", f"{resource}/*", f"*/{sub}", "*/*"}
    scope = "Namespaced" if request.kind.namespaced else "Cluster"
    return (
        has(rule["operations"], request.operation)
        and has(rule["apiGroups"], request.kind.group)
        and has(rule["apiVersions"], request.kind.version)
        and bool(wanted & set(rule["resources"]))
        and rule.get("scope", "*") in ("*", scope)
    )


def _review(request: Request, thing: Thing) -> Thing:
    kind = request.kind
    version = {"group": kind.group, "version": kind.version}
    told: Thing = {
        "uid": str(uuid.uuid4()),
        "kind": {**version, "kind": kind.kind},
        "resource": {**version, "resource": kind.plural},
        "requestKind": {**version, "kind": kind.kind},
        "requestResource": {**version, "resource": kind.plural},
        "namespace": request.namespace,
        "operation": request.operation,
        "userInfo": request.user.info(),
        "object": copy.deepcopy(thing),  # what is on the list of calls stays as it was asked
        "oldObject": None,
        "dryRun": request.dry_run,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    if request.name:
        told["name"] = request.name
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": told}


def _answered(answer: Thing, review: Thing, name: str, thing: Thing) -> Thing:
    if (answer.get("apiVersion"), answer.get("kind")) != (review["apiVersion"], review["kind"]):
        raise CallFailed(
            f"expected webhook response of {review['apiVersion']}, Kind=AdmissionReview, got "
            f"{answer.get('apiVersion')}, Kind={answer.get('kind')}"
        )
    response = answer.get("response")
    if not isinstance(response, dict):
        raise CallFailed("webhook response was absent")
    if response.get("uid") != review["request"]["uid"]:
        raise CallFailed(f"expected response.uid={review['request']['uid']!r}")
    if not response.get("allowed"):
        raise _denied(name, response.get("status") or response.get("result") or {})
    if not response.get("patch"):
        return thing
    if response.get("patchType") != "JSONPatch":
        raise CallFailed(f"unsupported patch type {response.get('patchType')!r}")
    try:
        steps = json.loads(base64.b64decode(response["patch"], validate=True))
        changed = jsonpatch.JsonPatch(steps).apply(thing)
    except (
        ValueError,
        binascii.Error,
        jsonpatch.JsonPatchException,
        jsonpatch.JsonPointerException,
    ) as error:
        raise CallFailed(f"the patch cannot be applied: {error}") from error
    if not isinstance(changed, dict):
        raise CallFailed("the patch leaves no object")
    return changed


def _denied(name: str, result: Thing) -> Refusal:
    message = f'admission webhook "{name}" denied the request'
    if result.get("message"):
        message += f": {result['message']}"
    else:
        message += " without explanation"
    code = max(int(result.get("code") or 0), 400)
    return Refusal(code, result.get("reason") or "", message)
