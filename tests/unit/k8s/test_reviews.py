"""What the API server asks, read and answered."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from runwatch.k8s.reviews import BadReview, Question, answer, question_in

Thing = dict[str, Any]


def review(**request: Any) -> bytes:
    whole = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "team",
        "object": {"kind": "Pod"},
        **request,
    }
    told = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": whole}
    return json.dumps(told).encode()


def test_a_pod_that_is_made() -> None:
    assert question_in(review()) == Question("u-1", "team", {"kind": "Pod"})


@pytest.mark.parametrize(
    "request_",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"subResource": "ephemeralcontainers"},
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
        {"kind": {"group": "example.com", "version": "v1", "kind": "Pod"}},
        {"kind": "Pod"},
        {"object": "pod"},
        {"object": None},
    ],
)
def test_anything_else_is_no_pod(request_: Thing) -> None:
    """Somebody changed the configuration: it is answered, and nothing is changed."""
    assert question_in(review(**request_)).pod == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe\x00",
        b'{"apiVersion": "\xff"}',
        b'{"apiVersion": "admission.k8s.io/v1beta1", "request": {"uid": "u"}}',
        b'{"apiVersion": "admission.k8s.io/v1"}',
        b'{"apiVersion": "admission.k8s.io/v1", "request": []}',
        review(uid=""),
        review(uid=7),
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_what_cannot_be_answered_is_said(body: bytes) -> None:
    with pytest.raises(BadReview):
        question_in(body)


def test_every_answer_allows() -> None:
    assert answer("u-1") == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u-1", "allowed": True},
    }


def test_a_patch_is_json_in_base64() -> None:
    steps = [{"op": "add", "path": "/a", "value": "ü"}]
    response = answer("u-1", steps)["response"]
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"], validate=True)) == steps


def test_warnings_fit_into_a_header() -> None:
    """The API server sends them to kubectl as headers, and cuts or drops what does not fit."""
    told = answer("u-1", warnings=["one\ntwo\x00\ud800", "x" * 999])["response"]["warnings"]
    assert told == ["runwatch: one two  ", "runwatch: " + "x" * 246]
