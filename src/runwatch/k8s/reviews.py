"""AdmissionReview v1: what the API server asks, and what it is told."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from runwatch.errors import RunwatchError
from runwatch.k8s.json_patch import Step
from runwatch.kube import Thing, part, text

API_VERSION: Final = "admission.k8s.io/v1"
MOST_WARNING: Final = 256
"""The API server cuts longer ones."""


class BadReview(RunwatchError):
    """What came is no AdmissionReview that can be answered."""


@dataclass(frozen=True, slots=True)
class Question:
    uid: str
    namespace: str
    pod: Thing
    """Empty if it is about something else than a pod being made."""


def question_in(body: bytes) -> Question:
    try:
        review = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadReview(f"the body is no JSON: {error}") from error
    if not isinstance(review, dict) or review.get("apiVersion") != API_VERSION:
        raise BadReview(f"the body is no AdmissionReview of {API_VERSION}")
    request = part(review, "request")
    uid = text(request, "uid")
    if not uid:
        raise BadReview("the review's request has no uid")
    kind = part(request, "kind")
    is_pod = text(kind, "kind") == "Pod" and not text(kind, "group")
    is_new = text(request, "operation") == "CREATE" and not text(request, "subResource")
    pod = part(request, "object") if is_pod and is_new else {}
    return Question(uid, text(request, "namespace"), pod)


def answer(uid: str, patch: Sequence[Step] = (), warnings: Sequence[str] = ()) -> dict[str, Any]:
    """The pod is always allowed."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        steps = json.dumps(list(patch)).encode()
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(steps).decode()}
    if warnings:
        response["warnings"] = [_in_a_line(f"runwatch: {each}") for each in warnings]
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


def _in_a_line(words: str) -> str:
    """A warning travels in a header; one with a line's end or a lone surrogate would be lost."""
    return "".join(each if each.isprintable() else " " for each in words[:MOST_WARNING])
