"""The API server of the tests keeps the API's conventions: versions, generations, deletion, lists.

The expectations are those of Kubernetes' own documents (API conventions, API concepts, owners and
dependants), asked for by plain HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from runwatch.testing import until
from tests.cluster.server import Answer, Cluster

pytestmark = pytest.mark.xdist_group("cluster_conventions")

Thing = dict[str, Any]

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CAPTURES = "/apis/runwatch.dev/v1alpha1/namespaces/default/captures"
MERGE = {"Content-Type": "application/merge-patch+json"}
STEPS = {"Content-Type": "application/json-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}


def config(name: str, **more: Any) -> Thing:
    meta = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **more}


def capture(name: str, **spec: Any) -> Thing:
    api = {"apiVersion": "runwatch.dev/v1alpha1", "kind": "Capture"}
    return {**api, "metadata": {"name": name}, "spec": {"run": "r", "steps": 1, **spec}}


def pod(name: str, **more: Any) -> Thing:
    spec = {"containers": [{"name": "main", "image": "trainer:1"}], **more.pop("spec", {})}
    meta = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def made(cluster: Cluster, path: str, thing: Mapping[str, Any]) -> Thing:
    answer = cluster.ask("POST", path, thing)
    assert answer.status == 201, answer.thing
    return answer.thing


def refused(answer: Answer, code: int, reason: str, *words: str) -> Thing:
    """It is a Status as documented; returns it."""
    told = answer.thing
    assert (answer.status, told["code"], told["reason"]) == (code, code, reason), told
    assert (told["kind"], told["apiVersion"], told["status"]) == ("Status", "v1", "Failure")
    for word in words:
        assert word in told["message"]
    return told


# ── who writes last must have read ────────────────────────────────────────────────────────────


def test_a_replacement_of_what_has_changed_is_a_conflict(cluster: Cluster) -> None:
    first = made(cluster, MAPS, config("versions", data={"a": "1"}))
    second = cluster.ask("PUT", f"{MAPS}/versions", {**first, "data": {"a": "2"}}).thing
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    late = cluster.ask("PUT", f"{MAPS}/versions", {**first, "data": {"a": "3"}})
    told = refused(late, 409, "Conflict", "the object has been modified")
    assert told["details"]["name"] == "versions"
    assert cluster.get("configmap", "versions")["data"] == {"a": "2"}


def test_a_patch_names_the_version_it_was_made_for_or_none(cluster: Cluster) -> None:
    first = made(cluster, MAPS, config("patches"))["metadata"]["resourceVersion"]
    free = cluster.ask("PATCH", f"{MAPS}/patches", {"data": {"a": "1"}}, headers=MERGE)
    assert free.status == 200
    bound = {"metadata": {"resourceVersion": first}, "data": {"a": "2"}}
    refused(cluster.ask("PATCH", f"{MAPS}/patches", bound, headers=MERGE), 409, "Conflict")
    newest = free.thing["metadata"]["resourceVersion"]
    bound = {"metadata": {"resourceVersion": newest}, "data": {"a": None, "b": "2"}}
    assert cluster.ask("PATCH", f"{MAPS}/patches", bound, headers=MERGE).thing["data"] == {"b": "2"}


def test_what_changes_nothing_is_no_new_version(cluster: Cluster) -> None:
    first = made(cluster, MAPS, config("still", data={"a": "1"}))
    for answer in (
        cluster.ask("PUT", f"{MAPS}/still", first),
        cluster.ask("PATCH", f"{MAPS}/still", {"data": {"a": "1"}}, headers=MERGE),
    ):
        assert answer.thing == first


def test_steps_of_a_patch_are_done_together_or_not_at_all(cluster: Cluster) -> None:
    made(cluster, MAPS, config("steps", data={"a": "1"}))
    wrong = [
        {"op": "replace", "path": "/data/a", "value": "2"},
        {"op": "test", "path": "/data/a", "value": "other"},
    ]
    assert cluster.ask("PATCH", f"{MAPS}/steps", wrong, headers=STEPS).status == 422
    assert cluster.get("configmap", "steps")["data"] == {"a": "1"}
    assert cluster.ask("PATCH", f"{MAPS}/steps", wrong[:1], headers=STEPS).thing["data"]["a"] == "2"


def test_a_strategic_patch_merges_containers_by_name_and_own_kinds_refuse_it(
    cluster: Cluster,
) -> None:
    made(cluster, PODS, pod("strategic"))
    change = {"spec": {"containers": [{"name": "main", "image": "trainer:2"}]}}
    done = cluster.ask("PATCH", f"{PODS}/strategic", change, headers=STRATEGIC)
    [container] = done.thing["spec"]["containers"]
    assert (container["image"], container["terminationMessagePath"]) == (
        "trainer:2",
        "/dev/termination-log",
    )
    made(cluster, CAPTURES, capture("strategic"))
    answer = cluster.ask("PATCH", f"{CAPTURES}/strategic", {}, headers=STRATEGIC)
    refused(answer, 415, "UnsupportedMediaType", "application/merge-patch+json")


def test_names_are_unique_generated_and_checked(cluster: Cluster) -> None:
    made(cluster, MAPS, config("once"))
    refused(cluster.ask("POST", MAPS, config("once")), 409, "AlreadyExists", "already exists")
    several = [
        made(cluster, MAPS, {"metadata": {"generateName": "some-"}})["metadata"]["name"]
        for _ in range(3)
    ]
    assert len(set(several)) == 3 and all(name.startswith("some-") for name in several)
    refused(cluster.ask("POST", MAPS, config("No Name")), 422, "Invalid", "RFC 1123")
    refused(cluster.ask("POST", MAPS, {"metadata": {}}), 422, "Invalid", "generateName")
    bad = config("labels", metadata={"labels": {"a": "no value"}})
    refused(cluster.ask("POST", MAPS, bad), 422, "Invalid", "metadata.labels")
    elsewhere = config("elsewhere", metadata={"namespace": "kube-system"})
    refused(cluster.ask("POST", MAPS, elsewhere), 400, "BadRequest", "does not match")
    nowhere = cluster.ask("POST", "/api/v1/namespaces/nowhere/configmaps", config("x"))
    refused(nowhere, 404, "NotFound", 'namespaces "nowhere" not found')


def test_what_the_server_alone_says_of_an_object_cannot_be_said_by_others(
    cluster: Cluster,
) -> None:
    forged = config("forged", metadata={"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z"})
    meta = made(cluster, MAPS, forged)["metadata"]
    assert meta["uid"] != "mine" and not meta["creationTimestamp"].startswith("2001")
    change = {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}}
    after = cluster.ask("PATCH", f"{MAPS}/forged", change, headers=MERGE).thing["metadata"]
    assert after == meta
    other = {"metadata": {"uid": "other"}}
    refused(cluster.ask("PATCH", f"{MAPS}/forged", other, headers=MERGE), 409, "Conflict", "UID")


# ── generations and the status ────────────────────────────────────────────────────────────────


def test_the_status_is_written_beside_the_spec_and_only_the_spec_has_generations(
    cluster: Cluster,
) -> None:
    first = made(cluster, CAPTURES, {**capture("status"), "status": {"phase": "Running"}})
    assert "status" not in first and first["metadata"]["generation"] == 1
    path = f"{CAPTURES}/status"
    both = {"spec": {"steps": 9}, "status": {"phase": "Pending"}}
    through_spec = cluster.ask("PATCH", path, both, headers=MERGE).thing
    assert (through_spec["spec"]["steps"], "status" in through_spec) == (9, False)
    assert through_spec["metadata"]["generation"] == 2
    both = {"spec": {"steps": 3}, "status": {"phase": "Running", "observedGeneration": 2}}
    through_status = cluster.ask("PATCH", f"{path}/status", both, headers=MERGE).thing
    assert through_status["spec"]["steps"] == 9
    assert through_status["status"] == {"phase": "Running", "observedGeneration": 2}
    assert through_status["metadata"]["generation"] == 2
    labelled = cluster.ask("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, headers=MERGE).thing
    assert labelled["metadata"]["generation"] == 2 and labelled["status"]["phase"] == "Running"


def test_replacing_an_own_kind_needs_the_version_that_was_read(cluster: Cluster) -> None:
    thing = made(cluster, CAPTURES, capture("replaced"))
    del thing["metadata"]["resourceVersion"]
    answer = cluster.ask("PUT", f"{CAPTURES}/replaced", thing)
    refused(answer, 422, "Invalid", "metadata.resourceVersion", "must be specified for an update")


def test_of_a_pod_only_the_image_and_labels_change(cluster: Cluster) -> None:
    made(cluster, PODS, pod("fixed"))
    change: Thing = {"spec": {"hostNetwork": True}}
    answer = cluster.ask("PATCH", f"{PODS}/fixed", change, headers=MERGE)
    refused(answer, 422, "Invalid", "pod updates may not change fields other than")
    change = {"metadata": {"labels": {"a": "b"}}}
    assert cluster.ask("PATCH", f"{PODS}/fixed", change, headers=MERGE).status == 200


def test_who_set_a_field_and_when_is_kept(cluster: Cluster) -> None:
    made(cluster, f"{MAPS}?fieldManager=first", config("fields", data={"a": "1", "b": "1"}))
    path = f"{MAPS}/fields"
    cluster.ask("PATCH", f"{path}?fieldManager=second", {"data": {"b": "2"}}, headers=MERGE)
    label = {"metadata": {"labels": {"x": "y"}}}
    after = cluster.ask("PATCH", path, label, headers={**MERGE, "User-Agent": "third/1.0"}).thing
    entries = after["metadata"]["managedFields"]
    owned = {entry["manager"]: entry["fieldsV1"] for entry in entries}
    assert owned == {
        "first": {"f:data": {"f:a": {}}},
        "second": {"f:data": {"f:b": {}}},
        "third": {"f:metadata": {"f:labels": {"f:x": {}}}},
    }
    assert all(entry["time"] and entry["operation"] == "Update" for entry in entries)


# ── deletion ──────────────────────────────────────────────────────────────────────────────────


def test_a_finalizer_keeps_an_object_until_it_is_taken_away(cluster: Cluster) -> None:
    held = config("held", metadata={"finalizers": ["example.com/hold"]})
    version = made(cluster, MAPS, held)["metadata"]["resourceVersion"]
    path = f"{MAPS}/held"
    dying = cluster.ask("DELETE", path).thing
    assert dying["metadata"]["deletionTimestamp"]
    assert int(dying["metadata"]["resourceVersion"]) > int(version)
    again = cluster.ask("DELETE", path).thing
    assert again["metadata"]["deletionTimestamp"] == dying["metadata"]["deletionTimestamp"]
    more = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    answer = cluster.ask("PATCH", path, more, headers=MERGE)
    refused(answer, 422, "Invalid", "no new finalizers can be added if the object is being deleted")
    cluster.ask("PATCH", path, {"metadata": {"finalizers": None}}, headers=MERGE)
    refused(cluster.ask("GET", path), 404, "NotFound", 'configmaps "held" not found')


def test_only_the_object_that_was_meant_is_deleted(cluster: Cluster) -> None:
    made(cluster, MAPS, config("meant"))
    other = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "another"}}
    refused(cluster.ask("DELETE", f"{MAPS}/meant", other), 409, "Conflict", "Precondition failed")
    done = cluster.ask("DELETE", f"{MAPS}/meant")
    assert (done.thing["status"], done.thing["details"]["name"]) == ("Success", "meant")


def owned_by(owner: Thing, *, blocks: bool = False) -> Thing:
    meta = owner["metadata"]
    return {
        "apiVersion": owner.get("apiVersion", "v1"),
        "kind": owner.get("kind", "ConfigMap"),
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": blocks,
    }


def gone(cluster: Cluster, name: str) -> bool:
    return cluster.find("configmap", name) is None


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_dependants_follow_their_owner_unless_they_are_orphaned(
    cluster: Cluster, policy: str
) -> None:
    name = policy.lower()
    owner = made(cluster, MAPS, config(f"owner-{name}"))
    mine = [owned_by(owner, blocks=True)]
    held = {"ownerReferences": mine, "finalizers": ["example.com/hold"]}
    made(cluster, MAPS, config(f"child-{name}", metadata=held))
    cluster.ask("DELETE", f"{MAPS}/owner-{name}?propagationPolicy={policy}")
    child = cluster.get("configmap", f"child-{name}")["metadata"]
    if policy == "Orphan":
        until(lambda: gone(cluster, f"owner-{name}"))
        child = cluster.get("configmap", f"child-{name}")["metadata"]
        assert not child.get("ownerReferences") and "deletionTimestamp" not in child
        return
    if policy == "Foreground":  # the owner waits for those that block it
        until(lambda: "deletionTimestamp" in _meta(cluster, f"child-{name}"))
        finalizers = _meta(cluster, f"owner-{name}")["finalizers"]
        assert finalizers == ["foregroundDeletion"]
    else:
        assert gone(cluster, f"owner-{name}")
    until(lambda: "deletionTimestamp" in _meta(cluster, f"child-{name}"))
    cluster.patch("configmap", f"child-{name}", {"metadata": {"finalizers": None}})
    until(lambda: gone(cluster, f"child-{name}") and gone(cluster, f"owner-{name}"))


def _meta(cluster: Cluster, name: str) -> Thing:
    meta: Thing = cluster.get("configmap", name)["metadata"]
    return meta


def test_with_two_owners_both_must_go(cluster: Cluster) -> None:
    owners = [made(cluster, MAPS, config(f"both-{n}")) for n in (1, 2)]
    references = [{**owned_by(each), "controller": False} for each in owners]
    made(cluster, MAPS, config("both-child", metadata={"ownerReferences": references}))
    cluster.delete("configmap", "both-1")
    made(cluster, MAPS, config("later", metadata={"ownerReferences": references[:1]}))
    until(lambda: gone(cluster, "later"))  # the collector has been here: its only owner was dead
    assert not gone(cluster, "both-child")
    cluster.delete("configmap", "both-2")
    until(lambda: gone(cluster, "both-child"))


def test_a_namespace_takes_with_it_what_is_in_it(cluster: Cluster) -> None:
    cluster.namespace("leaving")
    path = "/api/v1/namespaces/leaving/configmaps"
    made(cluster, path, config("held", metadata={"finalizers": ["example.com/hold"]}))
    dying = cluster.ask("DELETE", "/api/v1/namespaces/leaving").thing
    assert dying["status"]["phase"] == "Terminating"
    answer = cluster.ask("POST", path, config("late"))
    refused(answer, 403, "Forbidden", "because it is being terminated")
    until(lambda: "deletionTimestamp" in cluster.get("configmap", "held", "leaving")["metadata"])
    assert cluster.find("namespace", "leaving") is not None
    cluster.patch("configmap", "held", {"metadata": {"finalizers": None}}, "leaving")
    until(lambda: cluster.find("namespace", "leaving") is None)


# ── lists ─────────────────────────────────────────────────────────────────────────────────────


def names(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.thing
    return [each["metadata"]["name"] for each in answer.thing["items"]]


def test_selectors_of_labels_and_fields(cluster: Cluster) -> None:
    cluster.namespace("select")
    path = "/api/v1/namespaces/select/pods"
    for name, labels in (
        ("a", {"tier": "web", "x": "1"}),
        ("b", {"tier": "db"}),
        ("c", {}),
    ):
        made(cluster, path, pod(name, metadata={"labels": labels}))
    cluster.status("pod", "b", {"phase": "Running"}, "select")
    for query, found in (
        ("labelSelector=tier%3Dweb", ["a"]),
        ("labelSelector=tier%3D%3Dweb,x%3D1", ["a"]),
        ("labelSelector=tier!%3Dweb", ["b", "c"]),
        ("labelSelector=tier%20in%20(web,db)", ["a", "b"]),
        ("labelSelector=tier%20notin%20(web)", ["b", "c"]),
        ("labelSelector=tier", ["a", "b"]),
        ("labelSelector=!tier", ["c"]),
        ("fieldSelector=metadata.name%3Db", ["b"]),
        ("fieldSelector=status.phase!%3DRunning", ["a", "c"]),
        ("fieldSelector=status.phase%3DPending&labelSelector=tier", ["a"]),
    ):
        assert names(cluster.ask("GET", f"{path}?{query}")) == found, query
    wrong = cluster.ask("GET", f"{path}?fieldSelector=spec.containers%3Dx")
    refused(wrong, 400, "BadRequest", "field label not supported: spec.containers")
    refused(cluster.ask("GET", f"{path}?labelSelector=a%3D%3D%3Db"), 400, "BadRequest")


def test_a_long_list_comes_in_parts_of_one_moment(cluster: Cluster) -> None:
    cluster.namespace("pages")
    path = "/api/v1/namespaces/pages/configmaps"
    cluster.delete("configmap", "kube-root-ca.crt", "pages")
    every = [f"m{n:02}" for n in range(7)]
    for name in every:
        made(cluster, path, config(name))
    first = cluster.ask("GET", f"{path}?limit=3")
    meta = first.thing["metadata"]
    assert names(first) == every[:3] and meta["remainingItemCount"] == 4
    made(cluster, path, config("m99"))  # what comes now is of a later moment
    cluster.delete("configmap", "m04", "pages")
    cluster.patch("configmap", "m05", {"data": {"a": "new"}}, "pages")
    second = cluster.ask("GET", f"{path}?limit=3&continue={meta['continue']}")
    assert names(second) == every[3:6]
    assert "data" not in second.thing["items"][2]
    assert second.thing["metadata"]["resourceVersion"] == meta["resourceVersion"]
    again = second.thing["metadata"]["continue"]
    third = cluster.ask("GET", f"{path}?limit=3&continue={again}")
    assert names(third) == every[6:] and not third.thing["metadata"].get("continue")
    cluster.faults.compact()
    made(cluster, path, config("after"))
    cluster.faults.compact()
    late = cluster.ask("GET", f"{path}?limit=3&continue={meta['continue']}")
    refused(late, 410, "Expired", "continue parameter is too old")
    refused(cluster.ask("GET", f"{path}?continue=nonsense"), 400, "BadRequest", "continue")


def test_items_of_the_cluster_s_own_lists_leave_their_kind_out(cluster: Cluster) -> None:
    made(cluster, MAPS, config("plain"))
    made(cluster, CAPTURES, capture("listed"))
    own, ours = cluster.ask("GET", MAPS).thing, cluster.ask("GET", CAPTURES).thing
    assert own["kind"] == "ConfigMapList" and "kind" not in own["items"][0]
    assert ours["kind"] == "CaptureList" and ours["items"][0]["kind"] == "Capture"
    assert own["metadata"]["resourceVersion"].isdigit()


# ── dry runs, validation, defaults ────────────────────────────────────────────────────────────


def test_a_dry_run_says_what_would_be_and_does_nothing(cluster: Cluster) -> None:
    answer = cluster.ask("POST", f"{PODS}?dryRun=All", pod("dry"))
    assert answer.status == 201 and answer.thing["spec"]["restartPolicy"] == "Always"
    assert cluster.find("pod", "dry") is None
    made(cluster, MAPS, config("dry", data={"a": "1"}))
    change = {"data": {"a": "2"}}
    told = cluster.ask("PATCH", f"{MAPS}/dry?dryRun=All", change, headers=MERGE).thing
    assert told["data"] == {"a": "2"}
    assert cluster.get("configmap", "dry")["data"] == {"a": "1"}
    assert cluster.ask("DELETE", f"{MAPS}/dry?dryRun=All").status == 200
    assert cluster.find("configmap", "dry") is not None


DEFINITION: Thing = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "trials.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "trials", "kind": "Trial", "shortNames": ["tr"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Colour", "type": "string", "jsonPath": ".spec.colour"},
                    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                    {
                        "name": "Ready",
                        "type": "string",
                        "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
                    },
                    {"name": "Many", "type": "integer", "jsonPath": ".spec.many", "priority": 1},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["colour"],
                                "properties": {
                                    "colour": {"type": "string", "enum": ["red", "blue"]},
                                    "many": {"type": "integer", "minimum": 1, "default": 3},
                                    "share": {"type": "number", "maximum": 1},
                                    "name": {"type": "string", "pattern": "^[a-z]+$"},
                                    "list": {
                                        "type": "array",
                                        "maxItems": 2,
                                        "items": {"type": "string", "maxLength": 4},
                                    },
                                    "free": {
                                        "type": "object",
                                        "x-kubernetes-preserve-unknown-fields": True,
                                    },
                                    "port": {"x-kubernetes-int-or-string": True},
                                    "maybe": {"type": "string", "nullable": True},
                                },
                            },
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}
TRIALS = "/apis/example.com/v1/namespaces/default/trials"


@pytest.fixture(scope="module")
def trials(cluster: Cluster) -> str:
    cluster.apply([DEFINITION])
    return TRIALS


def trial(called: str, **spec: Any) -> Thing:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Trial",
        "metadata": {"name": called},
        "spec": {"colour": "red", **spec},
    }


def test_a_definition_is_served_at_once_and_says_so(cluster: Cluster, trials: str) -> None:
    told = cluster.get("crd", "trials.example.com")["status"]
    conditions = {each["type"]: each["status"] for each in told["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert told["storedVersions"] == ["v1"]
    assert cluster.ask("GET", trials).thing["kind"] == "TrialList"


def test_defaults_are_set_and_unknown_fields_pruned(cluster: Cluster, trials: str) -> None:
    given = trial("pruned", extra=1, free={"any": {"thing": 1}}, port="http", maybe=None)
    answer = cluster.ask("POST", trials, given)
    assert answer.thing["spec"] == {
        "colour": "red",
        "many": 3,
        "free": {"any": {"thing": 1}},
        "port": "http",
        "maybe": None,
    }
    assert answer.headers["Warning"] == '299 - "unknown field \\"spec.extra\\""'
    strict = cluster.ask("POST", f"{trials}?fieldValidation=Strict", trial("strict", extra=1))
    refused(strict, 400, "BadRequest", 'strict decoding error: unknown field "spec.extra"')
    silent = cluster.ask("POST", f"{trials}?fieldValidation=Ignore", trial("silent", extra=1))
    assert silent.status == 201 and "Warning" not in silent.headers


WRONG: dict[str, tuple[Thing, str, str]] = {
    "enum": ({"colour": "green"}, "spec.colour", 'supported values: "red", "blue"'),
    "minimum": ({"many": 0}, "spec.many", "should be greater than or equal to 1"),
    "maximum": ({"share": 1.5}, "spec.share", "should be less than or equal to 1"),
    "pattern": ({"name": "A1"}, "spec.name", "should match '^[a-z]+$'"),
    "type": ({"many": "three"}, "spec.many", 'must be of type integer: "string"'),
    "float": ({"many": 1.5}, "spec.many", "must be of type integer"),
    "maxItems": ({"list": ["a", "b", "c"]}, "spec.list", "must have at most 2 items"),
    "maxLength": ({"list": ["toolong"]}, "spec.list[0]", "Too long"),
    "int or string": ({"port": [1]}, "spec.port", "must be of type"),
}


@pytest.mark.parametrize(("spec", "field", "words"), WRONG.values(), ids=WRONG)
def test_what_a_schema_does_not_allow_is_refused_with_its_field(
    cluster: Cluster, trials: str, spec: Thing, field: str, words: str
) -> None:
    told = refused(cluster.ask("POST", trials, trial("wrong", **spec)), 422, "Invalid", words)
    assert [cause["field"] for cause in told["details"]["causes"]] == [field]
    assert cluster.find("trial", "wrong") is None


def test_what_is_required_is_required_of_changes_too(cluster: Cluster, trials: str) -> None:
    without = trial("required")
    del without["spec"]["colour"]
    told = refused(cluster.ask("POST", trials, without), 422, "Invalid", "Required value")
    assert told["message"].startswith('Trial.example.com "required" is invalid: spec.colour')
    made(cluster, trials, trial("changed"))
    change = {"spec": {"colour": None}}
    answer = cluster.ask("PATCH", f"{trials}/changed", change, headers=MERGE)
    refused(answer, 422, "Invalid", "spec.colour: Required value")


def test_a_definition_that_is_not_structural_is_refused(cluster: Cluster) -> None:
    schema: Thing = {"type": "object", "properties": {"spec": {"properties": {}}}}
    version = {**DEFINITION["spec"]["versions"][0], "schema": {"openAPIV3Schema": schema}}
    spec = {
        **DEFINITION["spec"],
        "names": {"plural": "rocks", "kind": "Rock"},
        "versions": [version],
    }
    wrong = {**DEFINITION, "metadata": {"name": "rocks.example.com"}, "spec": spec}
    answer = cluster.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", wrong)
    refused(answer, 422, "Invalid", "properties[spec].type", "must not be empty")
